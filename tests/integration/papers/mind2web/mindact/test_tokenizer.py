"""The window of MindAct, by a tokenizer of Hugging Face."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.papers.mind2web.mindact.window import first, last, rough_tokens, tokens_for
from prill.testing.scripted import ScriptedModel


def test_the_model_s_tokenizer_is_taken(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[UNK]", "#", "Human", ":", "(", ")", "=", "button", "id", "3", "Search"]
    own = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    own.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    own.enable_truncation(4)  # as models come; what is cut is our matter
    own.save(str(tmp_path / "tokenizer.json"))

    class InThisFolder(ScriptedModel):
        path = tmp_path

    text = "### Human: (button id=3 Search )"
    tokens = tokens_for(None, InThisFolder([]))
    assert len(tokens(text)) == 12
    assert (first(tokens, text, 4), last(tokens, text, 2)) == ("### Human", "Search )")


def test_a_tokenizer_is_named_or_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    assert tokens_for(None, ScriptedModel([])) is rough_tokens
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="tokenizer: .* cannot be read"):
        tokens_for(str(tmp_path), ScriptedModel([]))

"""How much of earlier steps fits: parts are cut one by one, and the current step is never cut for
earlier ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.papers.mind2web.mindact.forms import Passage
from prill.papers.mind2web.mindact.window import RoughTokens, Window, first, last, tokens_for
from prill.testing.scripted import ScriptedModel

from .conversations import request

TOKENS = RoughTokens()


def words(count: int, mark: str) -> str:
    """So many tokens that can be told from others."""
    return " ".join(f"{mark}{i % 1000:03}" for i in range(count))


def step(mark: str, size: int = 20, answer: str | None = "B.") -> Passage:
    return Passage(f"'''\n{words(size, mark)}\n'''", f"Question {mark}?", answer)


def test_each_part_is_cut_to_its_length() -> None:
    passage = Passage(f"'''\n{words(900, 'p')}\n'''", words(900, "q"), words(900, "a"))
    window = Window(TOKENS, 512, 100_000, "token")
    text = request(window.trained(words(900, "s"), [passage], step("x", answer=None)))
    parts = {mark: sum(word.startswith(mark) for word in text.split()) for mark in "pqa"}
    frame = len(TOKENS.spans("### Human:\n'''\n\n'''\n"))
    assert parts == {"p": 512 - frame, "q": 512 - len(TOKENS.spans("### Assistant:")), "a": 512}
    assert "'''\nq000" in text  # a cut page is closed, and a cut question still asks for an answer
    assert str(window.trained(words(900, "s"), [], passage)[0].parts[0]).split()[-1] == "s511"


def test_history_is_cut_from_the_left() -> None:
    history, current = [step(mark) for mark in "abc"], step("x", answer=None)
    whole = request(Window(TOKENS, 512, 100_000, "token").trained("role", history, current))
    now = request(Window(TOKENS, 512, 100_000, "token").trained("role", [], current))
    size = len(TOKENS.spans("role")) + len(TOKENS.spans(now))
    cut = request(Window(TOKENS, 512, size + 30, "token").trained("role", history, current))
    assert whole.endswith(cut) and cut.endswith(now)
    assert len(TOKENS.spans(cut)) == len(TOKENS.spans(now)) + 30
    assert "c019" in cut and "a019" not in cut


def test_whole_snippets_go_when_so_asked() -> None:
    history, current = [step(mark) for mark in "abc"], step("x", answer=None)
    now = request(Window(TOKENS, 512, 100_000, "snippet").trained("role", [], current))
    one = len(
        TOKENS.spans(
            request(Window(TOKENS, 512, 100_000, "snippet").trained("role", history[2:], current))
        )
    )
    total = len(TOKENS.spans("role")) + 2 * one - len(TOKENS.spans(now))
    cut = request(Window(TOKENS, 512, total, "snippet").trained("role", history, current))
    assert "b000" in cut and "a0" not in cut and cut.startswith("### Human:")
    tight = request(Window(TOKENS, 512, total - 1, "snippet").trained("role", history, current))
    assert "c000" in tight and "b0" not in tight


@pytest.mark.parametrize("truncate", ["token", "snippet"])
def test_the_current_step_is_never_cut(truncate: str) -> None:
    current = step("x", 300, answer=None)
    window = Window(TOKENS, 512, 40, truncate)  # type: ignore[arg-type]
    text = request(window.trained("role", [step("a")], current))
    assert "x299" in text and "a0" not in text


def test_chat_keeps_steps_whole_and_examples() -> None:
    history = [step("a", 200), step("b", 20)]
    messages = Window(TOKENS, None, 150, "token").chat(
        "role", [step("e", 500)], history, step("x", answer=None)
    )
    assert [message.role for message in messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert "e499" in str(messages[1]) and "b019" in str(messages[3]) and "x019" in str(messages[5])


def test_a_tokenizer_is_named_or_refused(tmp_path: Path) -> None:
    assert isinstance(tokens_for(None, ScriptedModel([])), RoughTokens)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="tokenizer: .* cannot be read"):
        tokens_for(str(tmp_path), ScriptedModel([]))


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
    assert len(tokens.spans(text)) == 12
    assert (first(tokens, text, 4), last(tokens, text, 2)) == ("### Human", "Search )")

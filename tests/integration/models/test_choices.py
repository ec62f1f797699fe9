"""Weighing answers by a local model: the same as one plain pass for each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prill.errors import EndpointError, UsageError
from prill.models.local.choices import Chooser, load_chooser, weights_hash
from prill.protocols import Message

ASKED = [Message("user", ("Which?",))]
ANSWERS = ["click button Ok", "type Lyda in textbox", "no"]


@pytest.fixture(scope="module")
def folder(tiny_model: Callable[[str], Path]) -> str:
    return str(tiny_model("qwen2"))


@pytest.fixture(scope="module")
def chooser(folder: str) -> Chooser:
    return load_chooser(folder, batch=4)


def plain(chooser: Chooser, asked: str, answer: str) -> float:
    """The sum of log-probabilities, by one pass over question and answer."""
    import torch

    model, tokenizer = chooser._model, chooser._tokenizer
    turns = [{"role": "user", "content": asked}]
    text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    before = tokenizer(text, add_special_tokens=False)["input_ids"]
    after = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    with torch.inference_mode():
        logs = model(torch.tensor([before + after])).logits[0].log_softmax(-1)
    return sum(float(logs[len(before) - 1 + i, token]) for i, token in enumerate(after))


async def test_weights_are_those_of_plain_passes(chooser: Chooser) -> None:
    weighed = await chooser.score(ASKED, ANSWERS)
    assert weighed == pytest.approx(
        [plain(chooser, "Which?", answer) for answer in ANSWERS], abs=1e-4
    )


async def test_batched_questions_weigh_the_same(chooser: Chooser) -> None:
    asked = [
        [Message("user", (words,))] for words in ("Which?", "And which of all these now?", "?")
    ]
    alone = [await chooser.score(one, ANSWERS[: i + 1]) for i, one in enumerate(asked)]
    together = await asyncio.gather(
        *(chooser.score(one, ANSWERS[: i + 1]) for i, one in enumerate(asked))
    )
    assert [pytest.approx(one, abs=1e-4) for one in alone] == together


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
async def test_adapter_is_merged_into_weights(
    folder: str, chooser: Chooser, tmp_path: Path
) -> None:
    peft: Any = pytest.importorskip("peft")
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder), config).save_pretrained(
        tmp_path / "adapter"
    )
    adapted = load_chooser(folder, str(tmp_path / "adapter"))
    weighed = await adapted.score(ASKED, ANSWERS)
    assert weighed != pytest.approx(await chooser.score(ASKED, ANSWERS), abs=1e-3)
    assert weighed == pytest.approx(
        [plain(adapted, "Which?", answer) for answer in ANSWERS], abs=1e-4
    )
    assert weights_hash(tmp_path / "adapter") != weights_hash(folder) == "missing"


async def test_failed_weighing_leaves_nobody_waiting(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = load_chooser(folder, batch=3)
    words = fresh._model.config.vocab_size
    with monkeypatch.context() as patched:
        patched.setattr(fresh, "_tokens", lambda text: [words + 1])  # a tokenizer of another model
        asked = [fresh.score(ASKED, ANSWERS) for _ in range(2)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [EndpointError] * 2
    assert len(await fresh.score(ASKED, ANSWERS)) == len(ANSWERS)


def test_missing_folders_are_named(folder: str, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"not a model folder \(it needs a config.json and weights\)"
    ):
        load_chooser(str(tmp_path))
    with pytest.raises(UsageError, match=r"not an adapter folder \(it needs PEFT"):
        load_chooser(folder, str(tmp_path))

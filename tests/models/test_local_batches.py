"""Calls that wait are answered together by a model in this process, and each as if it were alone."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

from prill.errors import CallTimeout, EndpointError, InputError, PrillError, Truncated, UsageError
from prill.models.local import model as desk
from prill.models.local.model import LocalModel
from prill.models.local.weights import Prepared, Weights
from prill.models.replies import ReplyFormat, choice_probability
from prill.protocols import Image, LanguageModel, Message, Reply, Token

pytestmark = [
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("torch", "transformers")),
        reason="not installed: pip install 'prill[local]'",
    ),
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own, about their deprecations
]
KINDS = ("qwen2", "qwen2_5_vl", "qwen3_vl")


class Anything:
    """The form of an answer that takes any: with a form, a model gives log-probabilities."""

    tagged = True

    def json_schema(self) -> dict[str, Any]:
        return {}

    def instructions(self, *, as_json: bool) -> str:
        return ""

    def parse(self, text: str) -> dict[str, str]:
        return {"said": text}


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls were answered together, each time."""
    sizes: list[int] = []
    generate = Weights.generate

    def counted(self: Weights, calls: Sequence[Prepared]) -> Any:
        sizes.append(len(calls))
        return generate(self, calls)

    monkeypatch.setattr(Weights, "generate", counted)
    return sizes


def asks(folder: Path, kind: str, count: int = 5) -> list[tuple[Message, ...]]:
    """Calls of different lengths; those of a model that sees hold none, one or two pictures of different sizes."""
    made: list[tuple[Message, ...]] = []
    for i in range(count):
        parts: list[str | Image] = [f"What is here, in {i} {'really ' * i}long words?"]
        for j in range(0 if kind == "qwen2" else i % 3):
            path = folder / f"{i}-{j}.png"
            Picture.linear_gradient("L").rotate(90 * j).resize((80 + 40 * i, 60 + 30 * j)).convert("RGB").save(path)
            parts.append(Image(str(path)))
        made.append((Message("user", tuple(parts)),))
    return made


async def said(model: LanguageModel, ask: tuple[Message, ...], length: int = 6) -> tuple[str, tuple[Token, ...]]:
    """The answer of a model that never ends by itself, as far as it went."""
    try:
        reply = await model.complete(ask, form=Anything(), max_tokens=length)
    except Truncated as cut:
        return str(cut), ()
    return reply.text, reply.tokens or ()


@pytest.mark.parametrize("kind", KINDS)
async def test_batched_answers_equal_single_ones(
    kind: str, tiny_model: Callable[[str], Path], tmp_path: Path, batches: list[int]
) -> None:
    calls = asks(tmp_path, kind)
    alone = LocalModel(tiny_model(kind), device="cpu", batch=1)
    single = [await said(alone, call) for call in calls]
    assert set(batches) == {1} and len({text for text, _ in single}) == len(calls), "each call gets an answer of its own"
    batches.clear()
    together = LocalModel(tiny_model(kind), device="cpu", batch=4)
    assert together.concurrency == 8
    assert await asyncio.gather(*(said(together, call) for call in calls)) == single
    assert max(batches) == 4, "the model is loaded while the others come"

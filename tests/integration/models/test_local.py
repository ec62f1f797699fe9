"""A model in this process: tiny ones, built and trained here in seconds to give fixed answers,
through the real code path.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import (
    CallTimeoutError,
    ContextTooLongError,
    EndpointError,
    TruncatedError,
    UnparsableError,
    UsageError,
)
from prill.models.calls import transcribed
from prill.models.ledger import metered
from prill.models.local.model import LocalModel
from prill.models.replies import GivenReply, ReplyFormat, choice_probability
from prill.protocols import Image, Message, SampledModel
from prill.types import Observation, Task, Trajectory, Usage
from tests.support.models import tiny

pytestmark = [
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("torch", "transformers")),
        reason="not installed: pip install '.[local]'",
    ),
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own, about their deprecations
]
FORM = ReplyFormat("thoughts", "status", ("success", "failure"), tagged=True)
JUDGE, IMAGE = "You judge.", "<|image_pad|>"
BRIGHT, DARK = "Thoughts: it is bright.\nStatus: success", "Thoughts: it is dark.\nStatus: failure"


def train(model: Any, questions: list[Any], words: Any, answers: list[str]) -> None:
    """Until the model says each answer after its question. Questions and answers are of one length
    each.
    """
    import torch

    asked = {
        name: torch.cat([question[name] for question in questions])
        for name in ("input_ids", "pixel_values")
    }
    said = torch.tensor([words(answer + "<|im_end|>")["input_ids"] for answer in answers])
    asked["input_ids"] = torch.cat([asked["input_ids"], said], 1)
    labels = asked["input_ids"].clone()
    labels[:, : -said.shape[1]] = -100
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    model.train()
    for _ in range(400):
        loss = model(**asked, labels=labels).loss
        if loss.item() < 0.03:
            model.eval()
            return
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    raise AssertionError("the tiny model has not learned its lines")


@pytest.fixture(scope="module")
def seeing(
    tmp_path_factory: pytest.TempPathFactory, torchvision_beside_cpu_torch: Callable[[], None]
) -> Path:
    """A LLaVA of two layers that tells a white picture from a black one."""
    import torch

    # several threads wait for each other actively, and crawl where something else wants a core
    torch.set_num_threads(1)
    torchvision_beside_cpu_torch()
    from transformers import (
        CLIPVisionConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    writer, words = tiny.build("qwen2", lines=[BRIGHT, DARK], window=512)
    size = {"height": 28, "width": 28}
    reader = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=size),
        tokenizer=words,
        patch_size=14,
        vision_feature_select_strategy="default",
        image_token=IMAGE,
        num_additional_image_tokens=1,
        chat_template=tiny.TEMPLATE,
    )
    eyes = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    config = LlavaConfig(
        vision_config=eyes,
        text_config=writer.config,
        image_token_index=words.convert_tokens_to_ids(IMAGE),
        vision_feature_layer=-1,
    )
    model = LlavaForConditionalGeneration(config)
    questions = [
        reader.apply_chat_template(
            [
                {
                    "role": "system",
                    "content": [
                        {"type": "text", "text": f"{JUDGE}\n\n{FORM.instructions(as_json=False)}"}
                    ],
                },
                {
                    "role": "user",
                    "content": [{"type": "image", "image": Picture.new("RGB", (56, 56), colour)}],
                },
            ],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        for colour in ("white", "black")
    ]
    train(model, questions, words, [BRIGHT, DARK])
    return tiny.save(model, reader, tmp_path_factory.mktemp("weights") / "tiny-llava")


@pytest.fixture(scope="module")
def blind(tiny_model: Callable[..., Path]) -> Path:
    """An untrained model of text alone: it rambles, and has no room for more than 64 tokens."""
    return tiny_model("qwen2", window=64)


@pytest.fixture(scope="module")
def model(seeing: Path) -> Iterator[LocalModel]:
    yield LocalModel(seeing, device="cpu")


def look(folder: Path, colour: str) -> tuple[Message, ...]:
    path = folder / f"{colour}.png"
    Picture.new("RGB", (200, 100), colour).save(path)
    return Message("system", (JUDGE,)), Message("user", (Image(str(path)),))


async def test_local_model_sees_the_picture(model: LocalModel, tmp_path: Path) -> None:
    with metered() as meter:
        bright, dark = await asyncio.gather(
            *(model.complete(look(tmp_path, colour), form=FORM) for colour in ("white", "black"))
        )
    assert bright.fields == {"thoughts": "it is bright.", "status": "success"}
    assert dark.fields == {"thoughts": "it is dark.", "status": "failure"}
    chances = [
        choice_probability(reply.tokens or (), "status", FORM.choices, "success")
        for reply in (bright, dark)
    ]
    assert (
        chances[0] is not None and chances[1] is not None and 1 > chances[0] > 0.5 > chances[1] > 0
    )
    assert bright.usage == Usage(
        1, bright.usage.prompt_tokens, bright.usage.completion_tokens, 1, 0.0
    )
    assert bright.usage.prompt_tokens > 20 and bright.usage.completion_tokens > 5
    assert meter.usage == bright.usage + dark.usage, (
        "calls are booked on the work that they are made for"
    )
    assert model.name == "local/tiny-llava"


async def test_form_follows_the_first_text(model: LocalModel, tmp_path: Path) -> None:
    asked = look(tmp_path, "white")
    reply = await model.complete(asked, form=FORM)
    written = Message("system", (f"{JUDGE}\n\n{FORM.instructions(as_json=False)}",))
    assert await model.complete((written, asked[1])) == replace(reply, fields={}, tokens=None)
    with pytest.raises(UnparsableError, match="no colour in the reply"):
        await model.complete(asked, form=replace(FORM, verdict="colour"))


async def test_a_given_reply_is_measured_and_not_generated(blind: Path) -> None:
    """Its tokens' log-probabilities are those of one plain pass over prompt and reply, also in a
    batch with replies of other lengths.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    local, asked = LocalModel(blind, device="cpu"), (Message("user", ("?",)),)
    texts = ("go", "stop here", "g")
    replies = await asyncio.gather(
        *(local.complete(asked, form=GivenReply(text), max_tokens=20) for text in texts)
    )
    bare, words = AutoModelForCausalLM.from_pretrained(blind), AutoTokenizer.from_pretrained(blind)
    for text, reply in zip(texts, replies, strict=True):
        assert reply.text == text and reply.tokens is not None
        assert "".join(token.text for token in reply.tokens) == text
        prompt = words.apply_chat_template(
            [{"role": "user", "content": "?"}], add_generation_prompt=True, return_dict=False
        )
        given = words(text, add_special_tokens=False)["input_ids"]
        with torch.inference_mode():
            logits = bare(torch.tensor([prompt + given])).logits[0].log_softmax(-1)
        known = [float(logits[len(prompt) - 1 + i, token]) for i, token in enumerate(given)]
        assert [token.logprob for token in reply.tokens] == pytest.approx(known, abs=1e-4)
    with pytest.raises(ContextTooLongError, match="the given reply has 81 tokens"):
        await local.complete(asked, form=GivenReply("~" * 80), max_tokens=100)


async def test_samples_differ_by_their_seed(model: LocalModel) -> None:
    assert isinstance(model, SampledModel)
    asked = (Message("user", ("?",)),)

    async def draw(seed: int) -> str:
        try:
            return (await model.sampled(3.0, seed).complete(asked, max_tokens=8)).text
        except TruncatedError as error:
            return str(error)

    assert await draw(1) == await draw(1)
    assert len({await draw(seed) for seed in range(4)}) > 1
    assert model.sampled(3.0, 1).name == "local/tiny-llava (temperature 3, seed 1)"


async def test_too_long_for_window_is_context(blind: Path) -> None:
    local = LocalModel(blind, device="cpu")
    with pytest.raises(
        ContextTooLongError,
        match=r"the request has \d+ tokens, but the model's context window only 64",
    ):
        await local.complete((Message("user", ("word " * 100,)),))
    with pytest.raises(ContextTooLongError, match="context window has room for"):
        await local.complete((Message("user", ("word",)),))


@pytest.mark.parametrize(("characters", "sizes"), [("the link of the shop is open. ", 1), ("7", 2)])
async def test_evidence_fills_the_window(
    tmp_path: Path, characters: str, sizes: int, torchvision_beside_cpu_torch: Callable[[], None]
) -> None:
    torchvision_beside_cpu_torch()
    prompt = (resources.files("prill.evaluators.judges") / "prompts" / "web_text.md").read_text()
    built, words = tiny.build("qwen2", lines=["success", characters * 8, prompt], tokens=800)
    folder = tiny.save(tiny.taught(built, words, "success"), words, tmp_path / "tiny")
    local = LocalModel(folder, device="cpu")
    page = Observation(caption=(characters * 30_000)[:30_000])
    trajectory = Trajectory(id="t", task=Task(goal="buy", platform="web"), steps=(), final=page)
    with transcribed() as calls:
        verdict = await prill.judge(
            "modular", model=local, captioner=GivenCaption(), form="verdict"
        )(trajectory)
    assert (verdict.success, verdict.usage.calls, len(calls)) == (True, 1, sizes), verdict.reason
    # 7s have three times the tokens that they were guessed to have: one request tells, before
    # anything is generated, and the next is cut to what was counted.
    assert 2048 < verdict.usage.prompt_tokens < 4096


def test_window_is_told_without_weights(tmp_path: Path) -> None:
    def window(tokenizer: str | None = None, **config: object) -> int | None:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", **config}))
        (tmp_path / "tokenizer_config.json").write_text(tokenizer or "{}")
        return asyncio.run(LocalModel(tmp_path).limits()).window

    assert window(max_position_embeddings=4096) == 4096
    assert window('{"model_max_length": 2048}', max_position_embeddings=4096) == 2048
    assert (
        window(
            '{"model_max_length": 1000000000000000019884624838656}', max_position_embeddings=4096
        )
        == 4096
    )
    assert window("[not a tokenizer", max_position_embeddings=4096) == 4096
    yarn = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
        "rope_theta": 1e6,
    }
    assert window(max_position_embeddings=4096, rope_parameters=yarn) == 16384
    assert window(max_position_embeddings=16384, rope_parameters=yarn) == 16384, (
        "what is multiplied already"
    )
    assert (
        window(
            model_type="llava", text_config={"model_type": "qwen2", "max_position_embeddings": 1024}
        )
        == 1024
    )
    assert window('{"model_max_length": 512}', model_type="t5") is None, (
        "relative places have no end"
    )
    with pytest.raises(EndpointError, match="the model cannot be loaded"):
        window(model_type="none")


async def test_text_model_refuses_images(blind: Path, tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="does not accept images"):
        await LocalModel(blind, device="cpu").complete(look(tmp_path, "white"))


async def test_local_model_times_out(model: LocalModel, seeing: Path, tmp_path: Path) -> None:
    with pytest.raises(CallTimeoutError, match="no response within 0 s"):
        await LocalModel(seeing, device="cpu", timeout=0.0).complete(
            look(tmp_path, "white"), form=FORM
        )


async def test_cancelled_call_frees_the_model(model: LocalModel, tmp_path: Path) -> None:
    task = asyncio.create_task(
        model.sampled(9.0, 0).complete((Message("user", ("?",)),), max_tokens=400)
    )
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "bright" in (await model.complete(look(tmp_path, "white"), form=FORM)).text


async def test_folder_without_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a model folder"):
        LocalModel(tmp_path / "none")
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(EndpointError, match="the model cannot be loaded"):
        await LocalModel(tmp_path).complete((Message("user", ("?",)),))

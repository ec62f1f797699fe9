"""Windows and image limits: where they are learnt from, and that evidence is cut to them rather
than a verdict lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import ContextTooLongError
from prill.evaluators.evidence import fewer
from prill.evaluators.scoring.scorer import score_stream
from prill.models.calls import Room, ask
from prill.models.client import OpenAIModel
from prill.models.prompts import Prompt
from prill.models.request import RequestLimits, listed_window, rejection
from prill.protocols import Limits, Message, Reply
from prill.testing import ScriptedModel
from prill.testing.endpoint.faults import Faults
from prill.testing.endpoint.server import serving
from prill.types import Usage
from tests.support.models.scripted_endpoint import FORM, GOOD, ScriptedEndpoint, failed, model, run

pytestmark = pytest.mark.usefixtures("quick_retries")
ASK = (Message("user", ("Did it work? " * 40,)),)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "This model's maximum context length is 2048 tokens. However, you requested 3048 "
            "tokens (2024 in the messages, 1024 in the completion). Please reduce the length of "
            "the messages or completion.",
            RequestLimits(2048, 2024),
        ),
        (
            "This model's maximum context length is 2048 tokens. However, you requested 1024 "
            "output tokens and your prompt contains at least 1500 input tokens, for a total of at "
            "least 2524 tokens.",
            RequestLimits(2048, 1500),
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 1024. This model's maximum "
            "context length is 2048 tokens and your request has 1500 input tokens (1024 > 2048 - "
            "1500).",
            RequestLimits(2048, 1500),
        ),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 2048.",
            RequestLimits(2048, 5000),
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted "
            "in 9000 tokens.",
            RequestLimits(8192, 9000),
        ),
        (
            "Input tokens exceed the configured limit of 2048 tokens. Your messages resulted in "
            "5000 tokens.",
            RequestLimits(2048, 5000),
        ),
        ("prompt tokens (5000) exceed model maximum (2048)", RequestLimits(2048, 5000)),
        ("Current length is 5000 while limit is 2048", RequestLimits(2048, 5000)),
        (
            "request (5000 tokens) exceeds the available context size (4096 tokens), try "
            "increasing it",
            RequestLimits(4096, 5000),
        ),
        (
            "the request exceeds the available context size, try increasing it n_ctx=4096 "
            "n_prompt_tokens=5000",
            RequestLimits(4096, 5000),
        ),
        ("the request exceeds the available context size, try increasing it", RequestLimits()),
        ("Input is too long for requested model.", RequestLimits()),
        ("prompt is too long: 215000 tokens > 200000 maximum", RequestLimits(200_000, 215_000)),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, "
            "decrease it",
            RequestLimits(200_000, 190_000),
        ),
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed "
            "(1048576).",
            RequestLimits(1_048_576, 1_200_000),
        ),
        (
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            RequestLimits(32_768, 40_000),
        ),
        (
            "This endpoint's maximum context length is 131,072 tokens. However, you requested "
            "about 200,000 tokens (198,976 of text input, 1024 in the output).",
            RequestLimits(131_072, 198_976),
        ),
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: "
            "9000 `inputs` tokens and 1024 `max_new_tokens`",
            RequestLimits(8193, 9000),
        ),
        (
            "Trying to keep the first 5000 tokens when context the overflows. However, the model "
            "is loaded with context length of only 4096 tokens, which is not enough.",
            RequestLimits(4096, 5000),
        ),
        (
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            RequestLimits(4096, 5000),
        ),
    ],
)
def test_refusals_tell_the_window(words: str, told: RequestLimits) -> None:
    assert RequestLimits.from_error(words) == told
    error = rejection(400, words, has_images=False)
    assert isinstance(error, ContextTooLongError)
    assert error.tokens == told.tokens


@pytest.mark.parametrize(
    ("words", "images"),
    [
        ("At most 2 image(s) may be provided in one prompt.", 2),
        ("This model supports up to 5 images", 5),
        ("messages: too many images and documents: 101 + 0 > 100", 100),
        (
            "You set image=1 in `--limit-mm-per-prompt`, but passed 4 image items in the same "
            "prompt.",
            1,
        ),
        ("Please send fewer than 8 images", 7),
        ("Too many images", None),
    ],
)
def test_refusals_tell_the_most_images(words: str, images: int | None) -> None:
    assert RequestLimits.from_error(words).images == images
    assert isinstance(rejection(400, words, has_images=True), ContextTooLongError)


@pytest.mark.parametrize(
    ("rows", "window"),
    [
        (
            {"data": [{"id": "other", "max_model_len": 9000}, {"id": "m", "max_model_len": 4096}]},
            4096,
        ),
        ({"data": [{"id": "smol.gguf", "meta": {"n_ctx_train": 8192, "n_ctx": 2048}}]}, 2048),
        ({"data": [{"id": "smol.gguf", "meta": {"n_ctx_train": 8192}}]}, 8192),
        ([{"id": "m", "context_length": 131_072}], 131_072),
        (
            {
                "data": [
                    {"id": "m", "context_length": None, "top_provider": {"context_length": 65_536}}
                ]
            },
            65_536,
        ),
        ({"data": [{"id": "m", "context_window": 16_384}]}, 16_384),
        ({"data": [{"id": "other", "max_model_len": 9000}, {"id": "another"}]}, None),
        ({"data": [{"id": "m", "max_model_len": 0}]}, None),
        ({"data": [{"id": "m", "max_model_len": True}]}, None),
        ({"data": "none"}, None),
        ("no list", None),
        ({"error": {"message": "no"}}, None),
    ],
)
def test_list_of_models_tells_the_window(rows: object, window: int | None) -> None:
    assert listed_window(json.dumps(rows).encode(), "m") == window
    assert listed_window(b"<html>", "m") is None


@pytest.mark.parametrize("form", ["openai", "vllm", "mute", "listed"])
async def test_long_pages_fit_a_small_window(form: str) -> None:
    listed = {"context_form": "vllm", "window_field": "max_model_len"}
    faults = Faults(context=2048, **(listed if form == "listed" else {"context_form": form}))
    async with serving(faults) as (endpoint, url):
        judge = prill.judge(
            "modular",
            model=OpenAIModel("mock", base_url=url, concurrency=4),
            captioner=GivenCaption(),
        )
        verdicts = [
            verdict async for verdict in score_stream((run(i, 30_000) for i in range(40)), judge)
        ]
    assert all(verdict.success is bool(int(verdict.id) % 3) for verdict in verdicts)
    refused = endpoint.outcomes["context"]
    assert refused == 0 if form == "listed" else refused <= 8 if form != "mute" else refused <= 80
    # The window is used: a sixth of the characters would be a quarter of it.
    assert endpoint.prompt_tokens / 40 > (600 if form == "mute" else 1000)


async def test_list_is_asked_for_once(endpoint: ScriptedEndpoint) -> None:
    asked = model(endpoint)
    assert [await asked.limits(), await asked.sampled(1.0, 1).limits()] == [Limits(), Limits()]
    endpoint.script = [
        failed(
            400,
            "This model's maximum context length is 4096 tokens. However, it has 5000 in the "
            "messages",
        )
    ]
    with pytest.raises(ContextTooLongError):
        await asked.complete(ASK, form=FORM)
    assert await asked.limits() == Limits(4096), "what is refused is known from then on"


async def test_reply_shrinks_to_what_is_left(endpoint: ScriptedEndpoint) -> None:
    full = (
        "This model's maximum context length is 2048 tokens. However, you requested 1024 "
        "output tokens, your prompt contains "
    )
    endpoint.script = [
        failed(400, f"{full}at least 1500 input tokens, for a total of at least 2524 tokens."),
        GOOD,
    ]
    asked = model(endpoint)
    await asked.complete(ASK, form=FORM)
    assert [body["max_tokens"] for body in endpoint.bodies] == [1024, 548]
    assert endpoint.bodies[0]["messages"] == endpoint.bodies[1]["messages"]
    endpoint.script = [
        failed(400, f"{full}at least 1900 input tokens, for a total of at least 2924 tokens.")
    ]
    # 148 tokens are no room for a reply: the evidence has to be shorter
    with pytest.raises(ContextTooLongError):
        await asked.complete(ASK, form=FORM)


async def test_goal_beyond_the_window_is_context() -> None:
    judge = prill.judge(
        "modular",
        model=ScriptedModel(lambda messages: ContextTooLongError("no")),
        captioner=GivenCaption(),
    )
    assert (await judge(run(1, 30_000))).unscored == "context"
    async with serving(Faults(context=300, window_field="max_model_len")) as (endpoint, url):
        verdict = await prill.judge(
            "modular", model=OpenAIModel("mock", base_url=url), captioner=GivenCaption()
        )(run(1, 30_000))
    assert verdict.unscored == "context"
    assert endpoint.requests <= 3


async def test_longest_reply_is_a_lesson(endpoint: ScriptedEndpoint) -> None:
    words = (
        "max_tokens is too large: 70000. This model supports at most 16384 completion tokens, "
        "whereas you provided 70000."
    )
    endpoint.script = [failed(400, words), GOOD]
    asked = model(endpoint)
    for _ in range(2):
        await asked.complete(ASK, form=FORM, max_tokens=70_000)
    assert [body["max_tokens"] for body in endpoint.bodies] == [70_000, 16_384, 16_384]


class Windowed:
    """A model that counts a token for each character, whatever anybody guesses, and says so or
    not.
    """

    name = "windowed"

    def __init__(self, window: int | None, *, counts: bool) -> None:
        self.window, self.counts = window, counts
        self.sizes: list[int] = []

    async def limits(self) -> Limits:
        return Limits(self.window)

    async def complete(self, messages: Sequence[Message], **options: Any) -> Reply:
        size = sum(
            len(part) for message in messages for part in message.parts if isinstance(part, str)
        )
        self.sizes.append(size)
        if size > 900:
            raise ContextTooLongError("too long", tokens=size if self.counts else None)
        return Reply("success", Usage(), {"thoughts": "", "status": "success"})


@pytest.mark.parametrize(
    ("window", "counts", "most"), [(1200, True, 1), (1200, False, 5), (None, False, 2)]
)
async def test_dense_text_is_cut_further(window: int | None, counts: bool, most: int) -> None:
    asked = Windowed(window, counts=counts)

    def messages(room: Room) -> tuple[Message, ...]:
        return (Message("user", ("x" * room.chars,)),)

    assert (await ask(asked, messages, FORM, Prompt("p", "x"), 300)).text == "success"
    assert len(asked.sizes) - 1 <= most
    assert asked.sizes[-1] > 400 or window is None


def test_middle_frames_go_first() -> None:
    shown = ["".join(fewer("abcde", most)) for most in (None, 9, 4, 3, 2, 1, 0)]
    assert shown == ["abcde", "abcde", "acde", "ade", "ae", "e", "e"]


def images(body: dict[str, Any]) -> int:
    content = body["messages"][-1]["content"]
    return 0 if isinstance(content, str) else sum(part["type"] == "image_url" for part in content)


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("At most 2 image(s) may be provided in one request.", [4, 2]),
        ("Too many images", [4, 3, 2]),
    ],
)
async def test_frames_are_dropped_to_the_limit(
    endpoint: ScriptedEndpoint, frames: list[str], words: str, sent: list[int]
) -> None:
    def two(body: dict[str, Any]) -> web.StreamResponse:
        return (GOOD if images(body) <= 2 else failed(400, words))(body)  # type: ignore[return-value]

    endpoint.script = [two]
    judge = prill.judge("vlm", model=model(endpoint), frames=4)
    verdict = await judge(run(1, frames=frames))
    assert (verdict.success, verdict.usage.images) == (True, 2)
    assert verdict.reason.endswith("[2 of 4 frames were shown: the request had no room for more]")
    assert [images(body) for body in endpoint.bodies] == sent
    said_there = endpoint.bodies[-1]["messages"][-1]["content"][0]["text"]
    assert (
        "Image 1: the state before action 1 of 3.\nImage 2: the state after the last action.\n"
        in said_there
    )
    assert (
        "Not shown, since the request has no room for more: the state before action 2 of 3, "
        "before action 3" in said_there
    )
    await judge(run(2, frames=frames))
    assert images(endpoint.bodies[-1]) == 2, "the limit is known"
    assert len(endpoint.bodies) == len(sent) + 1

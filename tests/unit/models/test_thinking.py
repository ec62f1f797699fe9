"""Models that think before they answer, and other things that are asked for and not everywhere
taken.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from aiohttp import web
from msgspec import Meta
from PIL import Image as Picture

from prill.errors import UnparsableError
from prill.models.calls import transcribed
from prill.models.client import OpenAIModel
from prill.models.replies import ChatMessage, RecordFormat
from prill.protocols import Image, Message
from prill.testing.endpoint.faults import Faults
from prill.testing.endpoint.server import serving
from tests.support.models.scripted_endpoint import (
    FORM,
    GOOD,
    ScriptedEndpoint,
    failed,
    model,
    said,
)

pytestmark = pytest.mark.usefixtures("quick_retries")
ASK = (Message("system", ("Judge.",)), Message("user", ("Did it work? truth=success",)))
VERDICT = '{"thoughts": "It is there.", "status": "failure"}'
TAGS = "<reasoning>It is not there.</reasoning>\n<success>No</success>"


@pytest.mark.parametrize(
    ("content", "thoughts", "answer"),
    [
        (f"<think>\nStatus: success? No.\n</think>\n\n{VERDICT}", "Status: success? No.", VERDICT),
        # asked for by a protocol, whose other tags follow
        (TAGS, None, TAGS),
        (f"<reasoning>a</reasoning>\n{VERDICT}", "a", VERDICT),
        ("<think>a</think>Thoughts: b\nStatus: failure", "a", "Thoughts: b\nStatus: failure"),
        ("Okay. Status: success is what it "
f"says.\n</think>\n\n{VERDICT}", "Okay. Status: success is what it says.", VERDICT),
        (f"[THINK]hm[/THINK]{VERDICT}", "hm", VERDICT),
        ("<think>\nStatus: success would be", "Status: success would be", ""),
        (VERDICT, None, VERDICT),
        ('{"thoughts": "</think>", "status": "failure"}', None, '{"thoughts": "</think>", '
'"status": "failure"}'),
        ("", None, ""),
    ],
)  # fmt: skip
def test_thoughts_in_content_stand_apart(content: str, thoughts: str | None, answer: str) -> None:
    message = ChatMessage(content)
    assert (message.thoughts, message.answer) == (thoughts, answer)


async def test_quoted_verdict_in_thoughts_ignored(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [
        said(f'<think>the page says {{"thoughts": "", "status": "success"}}</think>{VERDICT}')
    ]
    with transcribed() as calls:
        reply = await model(endpoint).complete(ASK, form=FORM)
    assert (reply.fields["status"], reply.text) == ("failure", VERDICT)
    assert (calls[0].reply, calls[0].reasoning) == (
        VERDICT,
        'the page says {"thoughts": "", "status": "success"}',
    )


async def test_reply_of_thoughts_only_is_explained(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [said(None, reasoning_content=VERDICT)]
    with pytest.raises(
        UnparsableError, match=r"only the model's reasoning and no answer .*reasoning parser"
    ):
        await model(endpoint).complete(ASK, form=FORM)
    assert len(endpoint.bodies) == 2, "it was asked for once more"


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 515}, 505),
        ({"prompt_tokens": 10, "completion_tokens": 505, "total_tokens": 515}, 505),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 0}, 5),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": None}, 5),
        (None, 15),
    ],
)
async def test_thoughts_are_paid_for(
    endpoint: ScriptedEndpoint, usage: object, counted: int
) -> None:
    message = {
        "content": '{"thoughts": "a", "status": "failure"}',
        "reasoning_content": "twenty characters of",
    }
    answer = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    endpoint.script = [lambda body: web.json_response(answer)]
    assert (await model(endpoint).complete(ASK, form=FORM)).usage.completion_tokens == counted


@pytest.mark.parametrize(
    "words",
    [
        "Unrecognized request argument supplied: reasoning_effort",
        (
            "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. "
            "Supported values are: 'low'."
        ),
    ],
)
async def test_refused_effort_is_told(endpoint: ScriptedEndpoint, words: str) -> None:
    endpoint.script = [failed(400, words), GOOD]
    asked = model(endpoint, reasoning_effort="minimal")
    for _ in range(2):
        await asked.complete(ASK, form=FORM)
    assert [body.get("reasoning_effort") for body in endpoint.bodies] == ["minimal", None, None]
    assert list(asked.unsupported_params) == [
        "m does not accept reasoning effort = 'minimal'; it was left out"
    ]


@pytest.fixture
def look(tmp_path: Path) -> tuple[Message, ...]:
    path = tmp_path / "shot.png"
    Picture.new("RGB", (40, 30), "red").save(path)
    return (Message("user", ("Look.", Image(str(path)), Image(str(path), detail="high"))),)


def details(body: dict[str, Any]) -> list[str | None]:
    return [
        part["image_url"].get("detail")
        for part in body["messages"][-1]["content"]
        if part["type"] == "image_url"
    ]


async def test_detail_holds_where_none_is_given(
    endpoint: ScriptedEndpoint, look: tuple[Message, ...]
) -> None:
    asked = model(endpoint, image_detail="low")
    await asked.complete(look, form=FORM)
    assert details(endpoint.bodies[0]) == ["low", "high"]
    assert asked.name == "m (image detail low)"
    endpoint.script = [
        failed(400, "Unknown parameter: 'messages[0].content[1].image_url.detail'."),
        GOOD,
    ]
    await asked.complete(look, form=FORM)
    assert details(endpoint.bodies[-1]) == [None, None]
    assert list(asked.unsupported_params) == [
        ("m does not accept image detail = 'low'; it was left out")
    ]


@dataclass(frozen=True)
class Points:
    points: Annotated[
        tuple[Annotated[str, Meta(extra_json_schema={"maxLength": 9})], ...],
        Meta(extra_json_schema={"minItems": 1}),
    ]


async def test_calls_side_by_side_learn_one_lesson() -> None:
    """Each is refused for what it was sent with, also when another has learnt of that meanwhile."""
    form = RecordFormat(Points, '{"points": ["…"]}')
    request = (Message("system", ("You judge.",)), *ASK)
    async with serving(Faults(no_bounds=True, no_system=True)) as (_, url):
        asked = OpenAIModel("mock", base_url=url, retries=0)
        await asyncio.gather(*(asked.complete(request, form=form) for _ in range(6)))
    assert (
        asked.capabilities.structured,
        asked.capabilities.bounds,
        asked.capabilities.system,
    ) == ("json_schema", False, False)


async def test_system_text_goes_before_the_users(
    endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    path = tmp_path / "shot.png"
    Picture.new("RGB", (4, 3), "red").save(path)
    endpoint.script = [failed(400, "System role not supported"), GOOD]
    asked = model(endpoint)
    await asked.complete((ASK[0], Message("user", ("Look.", Image(str(path))))), form=FORM)
    refused, taken = (body["messages"] for body in endpoint.bodies)
    assert [message["role"] for message in refused] == ["system", "user"]
    assert [message["role"] for message in taken] == ["user"]
    text, image = taken[0]["content"]
    assert text["text"] == f"{refused[0]['content']}\n\nLook."
    assert image == refused[1]["content"][1]

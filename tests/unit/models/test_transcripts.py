"""What a transcript holds is what was sent and answered, whichever model was asked, and nothing
that is secret.
"""

import asyncio
import hashlib
import re
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.errors import BudgetSpentError, TransportError, TruncatedError
from prill.io.cache import DiskCache
from prill.io.store import encode
from prill.models.calls import ask, gather_calls
from prill.models.prompts import NONCE, Prompt
from prill.models.transcripts import Call, ImageFile, Turn, transcribed
from prill.protocols import Image, LanguageModel, Message, Reply
from prill.testing import ScriptedModel
from prill.types import Usage
from tests.support.models.scripted_endpoint import FORM, GOOD, ScriptedEndpoint, failed, model

ASK = (
    Message("system", ("Judge.",)),
    Message("user", (f"[state {NONCE}]\nIt is blue.\n[/state {NONCE}]",)),
)
GOOD_TEXT = '{"thoughts": "fine", "status": "success"}'


pytestmark = pytest.mark.usefixtures("quick_retries")


def content(turn: Turn) -> str:
    return "\n\n".join(part for part in turn.parts if isinstance(part, str))


async def asked(model: LanguageModel, messages: tuple[Message, ...] = ASK) -> Reply:
    return await ask(model, lambda room: messages, FORM, Prompt("p", "p"), 100)


async def test_transcript_holds_what_was_sent(endpoint: ScriptedEndpoint) -> None:
    with transcribed() as calls:
        await asked(model(endpoint))
    (call,) = calls
    rows = [{"role": turn.role, "content": content(turn)} for turn in call.messages]
    assert rows == endpoint.bodies[0]["messages"]
    assert re.search(r"^\[state [a-z]{7}\]$", content(call.messages[1]), re.MULTILINE)
    assert (call.reply, call.finish_reason, call.prompt_tokens, call.completion_tokens) == (
        GOOD_TEXT,
        "stop",
        10,
        5,
    )
    assert (call.model, call.attempts, call.cached, call.error) == ("m", 1, False, None)
    assert call.seconds > 0


async def test_pictures_are_kept_by_reference(endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    path = tmp_path / "page.png"
    Picture.new("RGB", (40, 30), "blue").save(path)
    with transcribed() as calls:
        await asked(
            model(endpoint, max_pixels=100), (Message("user", ("Look:", Image(str(path)))),)
        )
        await asked(ScriptedModel([GOOD_TEXT]), (Message("user", ("Look:", Image(str(path)))),))
    reference = ImageFile(
        str(path), hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size
    )
    assert [call.messages[0].parts[1] for call in calls] == [reference, reference]
    assert b"base64" not in encode(calls[0])


async def test_every_attempt_is_counted(endpoint: ScriptedEndpoint) -> None:
    refused = failed(400, "response_format json_schema is not supported")
    endpoint.script = [failed(500), "drop", refused, GOOD]
    with transcribed() as calls:
        await asked(model(endpoint))
    assert [call.attempts for call in calls] == [len(endpoint.bodies)] == [4]
    assert content(calls[0].messages[0]) == endpoint.bodies[-1]["messages"][0]["content"]


async def test_no_key_is_in_a_transcript(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    endpoint.script = [GOOD, failed(400, "the key sk-very-secret may not do this")]
    with transcribed() as calls:
        await asked(model(endpoint))
        with pytest.raises(TransportError):
            await asked(model(endpoint, retries=0))
    assert set(endpoint.keys) == {"Bearer sk-very-secret"}
    assert "may not do this" in (calls[1].error or "")
    assert b"secret" not in encode(calls)


async def test_kept_replies_are_marked(endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    judge = model(endpoint, cache=DiskCache(tmp_path / "c.sqlite"))
    with transcribed() as calls:
        await asked(judge)
        await asked(judge)
    assert len(endpoint.bodies) == 1
    assert [(call.cached, call.attempts, call.prompt_tokens, call.reply) for call in calls] == [
        (False, 1, 10, GOOD_TEXT),
        (True, 0, 0, GOOD_TEXT),
    ]
    assert content(calls[1].messages[0]) == content(calls[0].messages[0])
    assert content(calls[1].messages[1]) == "[state (code)]\nIt is blue.\n[/state (code)]"


async def test_own_models_are_transcribed_too() -> None:
    reply = Reply(GOOD_TEXT, Usage(1, 7, 3), {})
    with transcribed() as calls:
        await asked(ScriptedModel([reply], name="mine"))
        with pytest.raises(TruncatedError):
            await asked(ScriptedModel([TruncatedError("cut")]))
        with pytest.raises(BudgetSpentError):
            await asked(ScriptedModel([BudgetSpentError("nothing was asked")]))
    assert [(call.model, call.reply, call.error) for call in calls] == [
        ("mine", GOOD_TEXT, None),
        ("scripted", None, "cut"),
    ]
    assert (calls[0].prompt_tokens, calls[0].completion_tokens) == (7, 3)
    assert [turn.role for turn in calls[0].messages] == ["system", "user"]


async def test_each_work_has_its_own_calls(endpoint: ScriptedEndpoint) -> None:
    judge = model(endpoint)

    async def work(word: str) -> list[Call]:
        with transcribed() as calls:
            await gather_calls(
                [asked(judge, (Message("user", (f"{word} {i}",)),)) for i in range(5)]
            )
        return calls

    for word, calls in zip("ab", await asyncio.gather(work("a"), work("b")), strict=True):
        assert sorted(content(call.messages[0])[:3] for call in calls) == [
            f"{word} {i}" for i in range(5)
        ]

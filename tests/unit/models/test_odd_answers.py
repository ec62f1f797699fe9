"""Answers that no well-behaved server gives, and settings that cannot be used: each is a retry, a
state or one clear error.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import web
from msgspec import UNSET
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.completion_usage import PromptTokensDetails
from PIL import Image as Picture
from pydantic import TypeAdapter

from prill.errors import EndpointError, TransportError, UnscoredError, UsageError
from prill.io.cache import DiskCache
from prill.models import transport
from prill.models.calls import transcribed
from prill.models.client import OpenAIModel
from prill.protocols import Image, Message, Reply
from prill.testing.endpoint.faults import Faults
from prill.testing.endpoint.server import serving
from prill.types import Usage
from tests.support.models.scripted_endpoint import FORM, GOOD, ScriptedEndpoint, failed

ASK = (Message("system", ("Judge.",)), Message("user", ("Did it work?",)))
ANSWER = '{"thoughts": "fine", "status": "success"}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


pytestmark = pytest.mark.usefixtures("quick_retries")


async def reply(url: str, **settings: Any) -> Reply:
    return await OpenAIModel("m", base_url=url, **settings).complete(ASK, form=FORM)


@asynccontextmanager
async def bytes_served(*answers: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that sends these bytes, one entry a connection, the last one for
    ever.
    """
    waiting = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        await reader.readexactly(length)
        writer.write(waiting.pop(0) if len(waiting) > 1 else waiting[0])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


GOOD_BYTES = (
    HEAD
    + b"Connection: close\r\n\r\n"
    + json.dumps({"choices": [{"message": {"content": ANSWER}}]}).encode()
)


async def test_request_is_as_the_sdk_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "authorization: Basic abc\nX-Team: red")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "trial")
    seen: list[tuple[str, bytes, list[tuple[str, str]]]] = []

    async def note(request: web.Request) -> web.Response:
        headers = sorted((name.lower(), value) for name, value in request.headers.items())
        # Each names itself, the SDK in eight headers more, and says what it unpacks.
        told = [
            pair
            for pair in headers
            if not pair[0].startswith(
                ("x-stainless", "user-agent", "accept-encoding", "connection")
            )
        ]
        seen.append((request.raw_path, await request.read(), told))
        return web.json_response({"choices": [{"message": {"content": ANSWER}}]})

    runner = web.AppRunner(app := web.Application())
    app.router.add_post("/a%2Fb/chat/completions", note)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    model = OpenAIModel("m", base_url=f"{base}/a%2Fb/?api-version=1&tag=x+y")
    await model.complete(ASK, form=FORM)
    settings = {
        "base_url": f"{base}/a%2Fb/",
        "api_key": model.endpoint.key(),
        "default_query": {"api-version": "1", "tag": "x y"},
    }
    async with openai.AsyncOpenAI(**settings) as client:
        await client.post("/chat/completions", cast_to=object, content=seen[0][1])
    await runner.cleanup()
    assert seen[0] == seen[1]
    assert [value for name, value in seen[0][2] if name == "authorization"] == ["Basic abc"]
    assert ("openai-project", "trial") in seen[0][2]


async def test_call_is_of_the_types_of_the_sdk(tmp_path: Path) -> None:
    Picture.new("RGB", (20, 10)).save(tmp_path / "a.png")
    ask = [
        Message("system", ("Judge this.",)),
        Message("user", ("a", Image(str(tmp_path / "a.png"), "low"))),
    ]
    seen: list[bytes] = []
    async with serving(Faults()) as (_, url):
        model = OpenAIModel("m", base_url=url, reasoning_effort="low", temperature=0.5, top_p=0.9)
        exchange = model.endpoint._exchange

        async def note(connection: Any, method: str, path: str, body: bytes | None = None) -> Any:
            response, data = await exchange(connection, method, path, body)
            seen.extend([body or b"", data] if path == "/chat/completions" else [])
            return response, data

        model.endpoint._exchange = note  # type: ignore[method-assign]
        await model.complete(ask, form=FORM)
    request = json.loads(seen[0])
    assert not request.keys() - CompletionCreateParamsNonStreaming.__annotations__.keys()
    TypeAdapter(CompletionCreateParamsNonStreaming).validate_python(request)
    ChatCompletion.model_validate_json(seen[1], strict=True)


async def test_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with bytes_served(GOOD_BYTES) as url:
        monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
        assert (await reply("http://nowhere.invalid/v1")).fields["status"] == "success"


@pytest.mark.parametrize("status", [b"200 OK", b"500 Oops"])
@pytest.mark.parametrize(
    ("coding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)]
)
async def test_huge_packed_answer_is_one_failure(
    coding: bytes, pack: Callable[[bytes], bytes], status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_ANSWER", 3 << 20)
    body = pack(b" " * (50 << 20))
    head = HEAD.replace(b"200 OK", status) + b"Content-Encoding: %b\r\nContent-Length: %d\r\n" % (
        coding,
        len(body),
    )
    async with bytes_served(head + b"Connection: close\r\n\r\n" + body, GOOD_BYTES) as url:
        with pytest.raises(TransportError, match="has more than 3 MB"):
            await reply(url, retries=1)
        assert (await reply(url)).fields["status"] == "success"


@pytest.mark.parametrize(
    "answer",
    [
        b"NONSENSE\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        HEAD + b"Content-Length: many\r\n\r\n{}",
        HEAD + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 500\r\n\r\n{}",
        HEAD + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 900) for i in range(200)) + b"\r\n{}",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        HEAD + b"Content-Encoding: br\r\nContent-Length: 3\r\n\r\nabc",
        HEAD + b"Connection: close\r\n\r\n" + b"[" * 100_000,
        HEAD
        + b"Connection: close\r\n\r\n"
        + b'{"choices": [{"message": {"content": '
        + b"[" * 100_000,
    ],
)
async def test_malformed_answer_is_asked_again(answer: bytes) -> None:
    async with bytes_served(answer, GOOD_BYTES) as url:
        assert (await reply(url)).fields["status"] == "success"
    async with bytes_served(answer) as url:
        with pytest.raises(TransportError):
            await reply(url, retries=1)


def body(**changes: Any) -> Callable[[dict[str, Any]], web.StreamResponse]:
    """A good answer with other parts."""
    choice = {"message": {"content": ANSWER}, "finish_reason": "stop", **changes.pop("choice", {})}
    return lambda asked: web.json_response({"choices": [choice], **changes})


@pytest.mark.parametrize(
    "answer",
    [
        body(usage=None),
        body(usage={"prompt_tokens": 3.7, "completion_tokens": None}),
        body(usage={"prompt_tokens": -5, "completion_tokens": -1}),
        body(usage="many"),
        body(usage={"prompt_tokens": 0, "completion_tokens": 0}),
        body(usage={"prompt_tokens": 1e300, "completion_tokens": 1}),
        body(usage={"prompt_tokens": True, "completion_tokens": [1]}),
        body(
            choice={
                "logprobs": {"content": [{"token": "a", "logprob": -0.1, "top_logprobs": None}]}
            }
        ),
        body(choice={"logprobs": {"content": [{"token": "a", "logprob": None}]}}),
        body(choice={"logprobs": {"tokens": ["a"], "token_logprobs": [-0.1]}}),
        body(choice={"logprobs": {"content": [{"token": 7}]}}),
        body(choice={"logprobs": []}),
        body(choice={"message": {"content": [{"type": "text", "text": ANSWER}]}}),
        body(choice={"message": {"content": [ANSWER], "refusal": 0}}),
        body(choice={"finish_reason": 3}),
    ],
)
async def test_odd_parts_leave_the_reply(endpoint: ScriptedEndpoint, answer: Any) -> None:
    endpoint.script = [answer]
    got = await reply(endpoint.base_url)
    assert (got.fields["status"], len(endpoint.bodies)) == ("success", 1)
    assert got.usage.prompt_tokens > 0 and got.usage.completion_tokens > 0


@pytest.mark.parametrize(
    ("details", "cached"),
    [
        (PromptTokensDetails(cached_tokens=768).model_dump(), 768),
        ({"cached_tokens": 0}, 0),
        ({"cached_tokens": 1201}, UNSET),
        ({"cached_tokens": "768"}, UNSET),
        (None, UNSET),
    ],
)
@pytest.mark.parametrize("completion", [20, 20.0])
async def test_cached_tokens_are_those_that_the_endpoint_tells(
    endpoint: ScriptedEndpoint, details: Any, cached: Any, completion: float
) -> None:
    counts = {"prompt_tokens": 1200, "completion_tokens": completion}
    endpoint.script = [body(usage={**counts, "prompt_tokens_details": details})]
    usage = (await reply(endpoint.base_url)).usage
    assert (usage.prompt_tokens, usage.cached_tokens) == (1200, cached)
    assert (usage + Usage() + usage).cached_tokens == (2 * cached if cached else cached)
    assert (usage + Usage(1, 5, 5) + usage).cached_tokens is UNSET, "unknown is not none"


@pytest.mark.parametrize(
    "answer",
    [
        body(choice={"finish_reason": "error"}),
        body(choice={"finish_reason": "abort"}),
        body(choice={"error": {"message": "upstream died", "code": 502}}),
        body(error={"message": "Provider returned error", "code": 503}),
        lambda asked: web.json_response({"error": {"message": "busy", "code": 429}}),
    ],
)
async def test_failed_call_is_no_verdict(endpoint: ScriptedEndpoint, answer: Any) -> None:
    endpoint.script = [answer, GOOD]
    await reply(endpoint.base_url)
    assert len(endpoint.bodies) == 2
    endpoint.script = [answer]
    with pytest.raises(TransportError):
        await reply(endpoint.base_url, retries=1)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_never_followed(endpoint: ScriptedEndpoint, status: int) -> None:
    async with bytes_served(GOOD_BYTES) as elsewhere:
        target = elsewhere + "/chat/completions"
        endpoint.script = [
            lambda asked: web.json_response({}, status=status, headers={"Location": target})
        ]
        with pytest.raises(EndpointError, match=rf"redirect \(HTTP {status}\)"):
            await reply(endpoint.base_url)


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("You are not allowed to request logprobs from this model.", "logprobs"),
        ("temperature is fixed", "temperature"),
        ("Unsupported value: 'temperature' does not support 0 with this model", "temperature"),
        ("logprobs are not supported with reasoning models", "logprobs"),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("Unknown parameter: 'messages[1].content[1].image_url.detail'.", "detail"),
        ("response_format of type json_schema is for other plans", "json_schema"),
    ],
)
async def test_forbidden_field_is_a_lesson(
    endpoint: ScriptedEndpoint, tmp_path: Path, status: int, message: str, field: str
) -> None:
    Picture.new("RGB", (4, 3)).save(tmp_path / "a.png")
    look = (*ASK, Message("user", ("Look.", Image(str(tmp_path / "a.png")))))
    endpoint.script = [failed(status, message), GOOD]
    model = OpenAIModel("m", base_url=endpoint.base_url, image_detail="low")
    for _ in range(2):
        assert (await model.complete(look, form=FORM)).fields["status"] == "success"
    assert [
        f'"{field}":' in json.dumps(body) or f'"type": "{field}"' in json.dumps(body)
        for body in endpoint.bodies
    ] == [True, False, False]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"base_url": "http://ada:secret@host/v1"}, "user name or a password"),
        ({"base_url": "htp://ada:secret@host/v1"}, "must start with http"),
        ({"base_url": "http://[::1/v1"}, "must start with http"),
        ({"timeout": float("inf")}, "timeout is inf"),
        ({"timeout": float("nan")}, "timeout is nan"),
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        OpenAIModel("m", **{"base_url": "http://host/v1", **settings})
    assert "secret" not in str(caught.value)


async def test_query_of_the_url_is_kept_quiet(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [failed(401)]
    with pytest.raises(EndpointError) as caught:
        await reply(f"{endpoint.base_url}?api_key=hidden")
    assert "hidden" not in str(caught.value)


async def test_certificate_is_held_against_trust(
    own_certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    async with bytes_served(GOOD_BYTES, tls=context) as url:
        with pytest.raises(
            EndpointError, match=r"not trusted \(self.signed certificate\); .* set \$SSL_CERT_FILE"
        ) as caught:
            await reply(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(own_certificate))
        reply_again = await asyncio.to_thread(lambda: asyncio.run(reply(url)))
    assert reply_again.fields["status"] == "success"
    assert "is the server running" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"Bearer sk-hidden-123456 is no status\r\n\r\n",
        b"HTTP/1.1 400 No\r\nConnection: close\r\n\r\n"
        + b"x" * 290
        + b" sk-hidden-123456 is the key",
    ],
)
async def test_key_that_is_sent_back_is_not_shown(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden-123456")
    async with bytes_served(answer) as url:
        with pytest.raises(TransportError) as caught:
            await reply(url, retries=0)
    assert "sk-h" not in str(caught.value)


KEY = "sk-hidden-123456"


def token(text: str, *others: str) -> dict[str, Any]:
    return {"token": text, "logprob": 0, "top_logprobs": [token(other) for other in others]}


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": ANSWER.replace("fine", KEY), "reasoning": KEY}},
        {"message": {"content": f"<think>{KEY}</think>{ANSWER}", "reasoning_content": KEY}},
        {"message": {"content": [ANSWER[:15] + KEY[:9], KEY[9:] + ANSWER[15:]]}},
        {"message": {"content": ANSWER, "tool_calls": [KEY]}, "finish_reason": KEY},
        {"message": {"content": None, "refusal": KEY}},
        {"message": {"content": f"the key is {KEY[:-2]}"}, "finish_reason": "length"},
        {"message": {"content": ANSWER}, "logprobs": {"content": [token(KEY[:9]), token(KEY[9:])]}},
        {"message": {"content": ANSWER}, "logprobs": {"content": [token("a", KEY, "b")]}},
    ],
)
@pytest.mark.parametrize("escape", [False, True])
async def test_key_in_a_reply_reaches_no_verdict_transcript_or_cache(
    choice: dict[str, Any], escape: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    body = json.dumps({"choices": [choice]})
    body = body.replace("hidden", "h\\u0069dden") if escape else body
    kept: list[object] = []
    cache = DiskCache(tmp_path / "c.sqlite")
    async with bytes_served(HEAD + b"Connection: close\r\n\r\n" + body.encode()) as url:
        with transcribed() as calls:
            try:
                kept.append(await reply(url, retries=0, cache=cache))
            except UnscoredError as error:
                kept.append(str(error))
    cache.close()
    kept += [*calls, (tmp_path / "c.sqlite").read_bytes()]
    assert "hidden" not in repr(kept) and "123456" not in repr(kept) and len(kept) > 2

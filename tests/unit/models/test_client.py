"""The model client against a scripted endpoint: every way in which a call can go wrong."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from PIL import Image as Picture

from prill.errors import (
    CallTimeoutError,
    EndpointError,
    InputError,
    RefusalError,
    TransportError,
    TruncatedError,
    UnparsableError,
)
from prill.io.cache import DiskCache
from prill.models.client import OpenAIModel
from prill.models.flow_control import AdaptiveLimiter
from prill.models.ledger import metered
from prill.models.prompts import NONCE
from prill.protocols import Image, Message
from prill.types import Usage
from tests.support.models.scripted_endpoint import FORM, GOOD, ScriptedEndpoint, failed, model, said

ASK = (Message("system", ("Judge.",)), Message("user", ("Did it work?",)))


pytestmark = pytest.mark.usefixtures("quick_retries")


async def status(asked: OpenAIModel) -> str:
    return (await asked.complete(ASK, form=FORM)).fields["status"]


async def test_call_gives_fields_and_usage(endpoint: ScriptedEndpoint) -> None:
    reply = await model(endpoint).complete(ASK, form=FORM)
    assert reply.fields == {"thoughts": "fine", "status": "success"}
    assert reply.usage == Usage(1, 10, 5, 0, None)
    body = endpoint.bodies[0]
    assert body["response_format"]["type"] == "json_schema"
    assert (body["temperature"], body["model"], body["messages"][1]) == (
        0,
        "m",
        {"role": "user", "content": "Did it work?"},
    )
    assert body["messages"][0]["content"].startswith("Judge.\n\nReply with one JSON object")


@pytest.mark.parametrize(
    "fault",
    [
        failed(408),
        failed(409),
        failed(429),
        failed(500),
        failed(502),
        failed(503),
        failed(529),
        "drop",
    ],
)
async def test_passing_faults_are_tried_again(endpoint: ScriptedEndpoint, fault: Any) -> None:
    endpoint.script = [fault, fault, GOOD]
    assert await status(model(endpoint)) == "success"
    assert len(endpoint.bodies) == 3


async def test_every_call_obeys_retry_after(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [failed(429, retry_after="0.4"), GOOD]
    asked = model(endpoint, concurrency=1)
    await asyncio.gather(status(asked), status(asked))
    first, *others = endpoint.times
    assert len(others) == 2
    assert min(others) - first >= 0.4


async def test_only_rate_limits_shrink_limit(endpoint: ScriptedEndpoint) -> None:
    asked = model(endpoint, concurrency=10)
    endpoint.script = [failed(500), failed(503), "drop", GOOD]
    await status(asked)
    limiter = (await asked.endpoint.connection()).limiter
    assert limiter.limit == 10
    endpoint.script = [failed(429), GOOD]
    await status(asked)
    assert limiter.limit == 8
    for _ in range(8):
        await status(asked)
    assert limiter.limit == 9


async def test_concurrency_is_never_exceeded(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [0.02]
    asked = model(endpoint, concurrency=4)
    await asyncio.gather(*(status(asked) for _ in range(20)))
    assert endpoint.peak == 4


async def test_silence_is_a_timeout_failure(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [5.0]
    with pytest.raises(CallTimeoutError, match=r"no response within 0\.05 s \(2 attempts\)"):
        await status(model(endpoint, timeout=0.05, retries=1))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (401, "Incorrect API key provided: sk-secret-1"),
        (400, "API key not valid. Not sk-secret-1."),
    ],
)
async def test_refused_key_ends_run_unshown(
    endpoint: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-1")
    endpoint.script = [failed(code, words)]
    with pytest.raises(EndpointError, match="MY_KEY") as caught:
        await status(model(endpoint, api_key_env="MY_KEY"))
    assert "sk-secret-1" not in str(caught.value)
    assert endpoint.keys == ["Bearer sk-secret-1"]


async def test_unknown_model_ends_the_run(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [failed(404, "The model `m` does not exist")]
    with pytest.raises(EndpointError, match="does not exist"):
        await status(model(endpoint))


async def test_unreachable_server_ends_the_run() -> None:
    with pytest.raises(EndpointError, match=r"cannot reach http://127\.0\.0\.1:9/v1"):
        await OpenAIModel("m", base_url="http://127.0.0.1:9/v1").complete(ASK, form=FORM)


async def test_structure_steps_down_only_once(endpoint: ScriptedEndpoint) -> None:
    def strict(body: dict[str, Any]) -> web.StreamResponse:
        kind = body.get("response_format", {}).get("type")
        answer = (
            said("Thoughts: fine\nStatus: success")
            if kind is None
            else failed(400, f"response_format {kind} is not supported")
        )
        return answer(body)  # type: ignore[return-value]

    endpoint.script = [strict]
    asked = model(endpoint)
    assert [await status(asked), await status(asked)] == ["success", "success"]
    kinds = [body.get("response_format", {}).get("type") for body in endpoint.bodies]
    assert kinds == ["json_schema", "json_object", None, None]
    assert "Status: <one word: success or failure>" in endpoint.bodies[-1]["messages"][0]["content"]


async def test_dropped_model_leaves_no_socket(
    endpoint: ScriptedEndpoint, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    import gc

    for _ in range(2):
        await status(model(endpoint))
        gc.collect()
    assert not caplog.records
    assert not recwarn.list


@pytest.mark.parametrize("code", [400, 422, 501])
async def test_unexplained_refusal_steps_down(endpoint: ScriptedEndpoint, code: int) -> None:
    endpoint.script = [failed(code, "bad request"), failed(code, "bad request"), GOOD]
    assert await status(model(endpoint)) == "success"
    kinds = [body.get("response_format", {}).get("type") for body in endpoint.bodies]
    assert kinds == ["json_schema", "json_object", None]


async def test_cut_reply_gets_twice_the_tokens(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [said('{"thoughts": "Status: success', "length"), GOOD]
    reply = await model(endpoint).complete(ASK, form=FORM, max_tokens=50)
    assert [body["max_tokens"] for body in endpoint.bodies] == [50, 100]
    assert reply.usage.calls == 2
    endpoint.script = [said("Status: success", "length")]
    with pytest.raises(TruncatedError):
        await status(model(endpoint))


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("Status: " + "the agent says that it is done. " * 40, 1),
        ('{"facts": ["a", "b", ' + '"c", ' * 200, 1),
        ("Status: " + " ".join(map(str, range(400))), 2),
        ("It is done. " * 20, 2),  # a few times may be emphasis
    ],
)
async def test_a_cut_reply_that_repeats_itself_is_not_requested_again(
    endpoint: ScriptedEndpoint, text: str, calls: int
) -> None:
    endpoint.script = [said(text, "length")]
    with pytest.raises(TruncatedError, match="repeats itself" if calls == 1 else r"tokens: "):
        await status(model(endpoint))
    assert len(endpoint.bodies) == calls


async def test_thinking_model_gets_more_tokens(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [
        said("", "length"),
        said(None, "length", reasoning_content="let me see"),
        GOOD,
    ]
    asked = model(endpoint)
    assert [await status(asked), await status(asked)] == ["success", "success"]
    # Learnt once: the second reply is not cut before it begins.
    assert [body["max_tokens"] for body in endpoint.bodies] == [
        1024,
        1024 + 4096,
        1024 + 16_384,
        1024 + 16_384,
    ]
    endpoint.script = [said("", "length")]
    with pytest.raises(TruncatedError, match="used all 66560 tokens"):
        await status(asked)


async def test_reply_without_verdict_asked_again(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [said("I cannot say"), GOOD]
    assert await status(model(endpoint)) == "success"
    endpoint.script = [said("unsuccessful")]
    with metered() as meter, pytest.raises(UnparsableError):
        await status(model(endpoint))
    assert meter.usage == Usage(2, 20, 10, 0, None)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (said(None, refusal="I will not"), RefusalError),
        (said("x", "content_filter"), RefusalError),
        (
            failed(
                400,
                "The response was filtered due to the content management policy",
                "content_filter",
            ),
            RefusalError,
        ),
        (failed(400, "something else"), TransportError),
        (said(""), UnparsableError),
    ],
)
async def test_lasting_faults_have_their_reason(
    endpoint: ScriptedEndpoint, answer: Any, error: type[Exception]
) -> None:
    endpoint.script = [answer]
    with pytest.raises(error):
        await status(model(endpoint))


@pytest.fixture
def picture(tmp_path: Path) -> str:
    path = tmp_path / "shot.png"
    Picture.new("RGB", (40, 30), "red").save(path, "JPEG")  # the name lies about the type
    return str(path)


@pytest.mark.parametrize(
    ("status_code", "message"),
    [
        (400, "Invalid content type. image_url is only supported by certain models."),
        (400, "At most 0 image(s) may be provided in one prompt."),
        (400, "m is not a multimodal model"),
        (
            500,
            "image input is not supported - hint: if this is unexpected, you may need to provide "
            "the mmproj",
        ),
    ],
)
async def test_model_without_vision_ends_run(
    endpoint: ScriptedEndpoint, picture: str, status_code: int, message: str
) -> None:
    endpoint.script = [failed(status_code, message)]
    with pytest.raises(EndpointError, match="does not accept images"):
        await model(endpoint).complete((Message("user", ("Look.", Image(picture))),), form=FORM)
    assert len(endpoint.bodies) == 1


@pytest.mark.parametrize(
    "message", ["image exceeds 5 MB maximum", "image dimensions exceed the limit of 8000 pixels"]
)
async def test_too_large_image_is_input_error(
    endpoint: ScriptedEndpoint, picture: str, message: str
) -> None:
    endpoint.script = [GOOD, failed(400, message)]
    asked, look = model(endpoint), (Message("user", ("Look.", Image(picture))),)
    await asked.complete(look, form=FORM)
    with pytest.raises(InputError):
        await asked.complete(look, form=FORM)


async def test_seeing_model_not_called_blind(endpoint: ScriptedEndpoint, picture: str) -> None:
    look = (Message("user", ("Look.", Image(picture))),)
    endpoint.script = [GOOD, failed(400, "Failed to load multimodal data"), GOOD]
    asked = model(endpoint)
    await asked.complete(look, form=FORM)
    with pytest.raises(InputError, match="multimodal data"):
        await asked.complete(look, form=FORM)
    assert (await asked.complete(look, form=FORM)).fields["status"] == "success"


async def test_images_follow_text_with_type(endpoint: ScriptedEndpoint, picture: str) -> None:
    reply = await model(endpoint).complete((Message("user", ("Look.", Image(picture))),), form=FORM)
    text, image = endpoint.bodies[0]["messages"][0]["content"]
    assert text["text"].startswith("Look.\n\nReply with one JSON object")
    assert image["image_url"]["url"].startswith("data:image/jpeg;base64,")
    assert list(image["image_url"]) == ["url"]
    assert reply.usage.images == 1


async def test_missing_counts_are_estimated(endpoint: ScriptedEndpoint) -> None:
    choice = {
        "message": {"content": '{"thoughts": "", "status": "failure"}'},
        "finish_reason": "stop",
    }
    endpoint.script = [lambda body: web.json_response({"choices": [choice]})]
    reply = await model(endpoint).complete(ASK, form=FORM)
    # 18 and 38 characters
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (5, 10)


async def test_cache_answers_equal_requests(
    endpoint: ScriptedEndpoint, tmp_path: Path, picture: str
) -> None:
    asked = model(endpoint, cache=DiskCache(tmp_path / "c.sqlite"))
    with_image = (Message("user", ("Look.", Image(picture))),)
    first = await asked.complete(ASK, form=FORM)
    again = await asked.complete(ASK, form=FORM)
    assert (again.fields, again.usage) == (first.fields, Usage())
    await asked.complete(ASK, form=FORM, prompt="sha256:other")
    await asked.complete(with_image, form=FORM)
    Picture.new("RGB", (40, 30), "blue").save(picture, "JPEG")
    await asked.complete(with_image, form=FORM)
    assert len(endpoint.bodies) == 4


async def test_equal_requests_are_one_call(endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    endpoint.script = [0.05]
    asked = model(endpoint, cache=DiskCache(tmp_path / "c.sqlite"))
    assert await asyncio.gather(*(status(asked) for _ in range(5))) == ["success"] * 5
    assert len(endpoint.bodies) == 1


async def test_a_failed_call_is_not_cached(endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    endpoint.script = [said("?"), said("?"), GOOD]
    asked = model(endpoint, cache=DiskCache(tmp_path / "c.sqlite"))
    with pytest.raises(UnparsableError):
        await status(asked)
    assert await status(asked) == "success"


def test_client_serves_many_event_loops(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from prill.testing import MockServer

    with MockServer(latency=0.01) as server:
        asked = OpenAIModel("m", base_url=server.base_url, concurrency=2)

        async def several() -> list[str]:
            return await asyncio.gather(*(status(asked) for _ in range(5)))

        for _ in range(3):
            assert len(asyncio.run(several())) == 5
        with ThreadPoolExecutor(4) as threads:
            runs = [threads.submit(asyncio.run, several()) for _ in range(4)]
            assert all(len(run.result()) == 5 for run in runs)
    assert not [w for w in recwarn if issubclass(w.category, ResourceWarning)]


async def test_every_call_gets_its_own_code(endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    ask = (Message("user", (f"[page {NONCE}]\nhello\n[/page {NONCE}]",)),)
    plain = model(endpoint)
    await plain.complete(ask, form=FORM)
    await plain.complete(ask, form=FORM)
    codes = [
        re.findall(r"\[/?page (\w+)\]", body["messages"][0]["content"]) for body in endpoint.bodies
    ]
    assert all(len(found) == 2 and len(set(found)) == 1 and len(found[0]) == 7 for found in codes)
    assert codes[0] != codes[1]
    kept = model(endpoint, cache=DiskCache(tmp_path / "replies"))
    await kept.complete(ask, form=FORM)
    await kept.complete(ask, form=FORM)
    assert len(endpoint.bodies) == 3


async def test_samples_share_the_dialect(endpoint: ScriptedEndpoint, tmp_path: Path) -> None:
    refused = failed(400, "Unrecognized request argument supplied: seed")
    endpoint.script = [GOOD, refused, GOOD, GOOD]
    greedy = model(endpoint, cache=DiskCache(tmp_path / "replies"))
    first, second = greedy.sampled(1.0, 1), greedy.sampled(1.0, 2)
    assert len({greedy.name, first.name, second.name}) == 3
    for asked in (greedy, first, second, first):
        assert await status(asked) == "success"
    sent = [(body["temperature"], body.get("seed")) for body in endpoint.bodies]
    assert sent == [(0, None), (1.0, 1), (1.0, None), (1.0, None)], (
        "a kept sample is not drawn again"
    )
    assert first.ledger.total.calls == greedy.ledger.total.calls == 3


async def test_sampling_limits_are_sent(endpoint: ScriptedEndpoint) -> None:
    refused = failed(400, "Unrecognized request argument supplied: top_k")
    endpoint.script = [refused, GOOD]
    drawn = model(endpoint).sampled(0.5, 1, top_p=0.3, top_k=0, repetition_penalty=1.2)
    assert drawn.name.endswith(
        "(temperature 0.5, seed 1, top_p 0.3, top_k 0, repetition_penalty 1.2)"
    )
    assert await status(drawn) == "success"
    limits = ("top_p", "top_k", "repetition_penalty")
    sent = [tuple(body.get(name) for name in limits) for body in endpoint.bodies]
    assert sent == [(0.3, 0, 1.2), (0.3, None, 1.2)], (
        "what is refused by name is left out from then on"
    )


async def test_options_say_how_replies_are_drawn(endpoint: ScriptedEndpoint) -> None:
    names = ("temperature", "top_p", "top_k", "repetition_penalty")
    drawn = model(endpoint, temperature=0.5, top_p=0.25, top_k=3)
    assert await status(drawn) == "success"
    assert await status(drawn.sampled(1.0, 7, top_p=0.75)) == "success"
    sent = [tuple(body.get(name) for name in names) for body in endpoint.bodies]
    assert sent == [(0.5, 0.25, 3, None), (1.0, 0.75, 3, None)], (
        "what a sample does not say is that of the options"
    )
    assert drawn.name.endswith(" (temperature 0.5, top_p 0.25, top_k 3)")


async def test_cancelled_waiter_frees_its_turn() -> None:
    limiter = AdaptiveLimiter(1)
    await limiter.__aenter__()

    async def wait() -> None:
        async with limiter:
            pass

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await limiter.__aexit__(None, None, None)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(5), limiter:
        assert limiter.in_use == 1

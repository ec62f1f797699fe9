"""The mock server: it answers like an OpenAI-compatible endpoint, and every fault is what it says,
the same at every run.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from prill.errors import EnvironmentFailedError, UnparsableError, UsageError
from prill.models.replies import ReplyFormat
from prill.testing import Faults, MockServer, marked_truth
from prill.testing.endpoint.faults import FAULTS, certainty

STATUS = ReplyFormat("thoughts", "status", ("success", "failure"))
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "verdict", "strict": True, "schema": STATUS.json_schema()},
}
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def asking(content: str | list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"model": "mock", "messages": [{"role": "user", "content": content}], **fields}


async def ask_all(
    server: MockServer, bodies: list[dict[str, Any]], patience: float = 30.0
) -> list[tuple[int, str, str]]:
    """Status, body and Retry-After of each; status 0 where the connection broke, -1 where patience
    ran out.
    """

    async def ask(session: aiohttp.ClientSession, body: dict[str, Any]) -> tuple[int, str, str]:
        try:
            async with session.post(f"{server.base_url}/chat/completions", json=body) as answer:
                return answer.status, await answer.text(), answer.headers.get("Retry-After", "")
        except aiohttp.ServerDisconnectedError:
            return 0, "", ""
        except TimeoutError:
            return -1, "", ""

    timeout = aiohttp.ClientTimeout(patience)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=64)
    ) as session:
        return await asyncio.gather(*(ask(session, body) for body in bodies))


async def ask_one(server: MockServer, body: dict[str, Any]) -> dict[str, Any]:
    status, text, _ = (await ask_all(server, [body]))[0]
    assert status == 200, text
    return dict(json.loads(text)["choices"][0])


async def parse_error(server: MockServer, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    status, text, _ = (await ask_all(server, [body]))[0]
    return status, json.loads(text)["error"]


@pytest.mark.parametrize("word", ["success", "failure"])
async def test_marked_verdict_in_every_form(word: str) -> None:
    forms: list[dict[str, Any]] = [
        {},
        {"response_format": SCHEMA},
        {"response_format": {"type": "json_object"}},
    ]
    with MockServer() as server:
        for form in forms:
            choice = await ask_one(server, asking(f"The goal. truth={word} The rest.", **form))
            assert STATUS.parse(choice["message"]["content"])["status"] == word
            assert choice["finish_reason"] == "stop"
    assert json.loads(choice["message"]["content"])["status"] == word


async def test_unmarked_verdict_is_computed() -> None:
    texts = [f"task {i}" for i in range(40)]
    with MockServer() as server:
        verdicts = [
            STATUS.parse((await ask_one(server, asking(t)))["message"]["content"])["status"]
            for t in texts
        ]
    assert verdicts == [marked_truth(t) for t in texts]
    assert {"success", "failure"} == set(verdicts)


async def test_logprobs_spell_the_reply() -> None:
    text = "truth=failure 7"
    with MockServer() as server:
        choice = await ask_one(
            server, asking(text, response_format=SCHEMA, logprobs=True, top_logprobs=10)
        )
    tokens = choice["logprobs"]["content"]
    assert "".join(t["token"] for t in tokens) == choice["message"]["content"]
    verdict = [t for t in tokens if len(t["top_logprobs"]) > 1]
    assert len(verdict) == 1 and verdict[0]["token"].strip() == "failure"
    p = {t["token"].strip(): math.exp(t["logprob"]) for t in verdict[0]["top_logprobs"]}
    assert p["failure"] + p["fail"] == pytest.approx(certainty(text))
    assert sum(p.values()) == pytest.approx(1) and p["success"] == pytest.approx(
        0.999 - certainty(text)
    )


async def test_usage_counts_text_and_images() -> None:
    text = "x" * 400
    with MockServer() as server:
        bodies = [asking(text), asking([{"type": "text", "text": text}, PIXEL])]
        answers = [json.loads(text)["usage"] for _, text, _ in await ask_all(server, bodies)]
        stats = server.stats()
    assert [a["prompt_tokens"] for a in answers] == [101, 101 + 1105]
    assert (stats.prompt_tokens, stats.images) == (101 + 101 + 1105, 1)
    assert stats.completion_tokens == sum(a["completion_tokens"] for a in answers) > 0


async def test_reply_cut_at_the_token_limit() -> None:
    with MockServer(thought_tokens=150) as server:
        short = await ask_one(server, asking("truth=success", max_tokens=100))
        long = await ask_one(server, asking("truth=success", max_completion_tokens=200))
    assert (short["finish_reason"], long["finish_reason"]) == ("length", "stop")
    with pytest.raises(UnparsableError):
        STATUS.parse(short["message"]["content"])
    assert STATUS.parse(long["message"]["content"])["status"] == "success"


async def test_faults_come_at_their_rates() -> None:
    rates: dict[str, Any] = dict.fromkeys(FAULTS, 0.08) | {"stall": 0.01}
    bodies = [
        asking(f"{i} truth=success", response_format=SCHEMA if i % 2 else None) for i in range(600)
    ]
    with MockServer(seed=3, retry_after=0.05, stall_seconds=0.3, **rates) as server:
        answers = await ask_all(server, bodies)
        outcomes = server.stats().outcomes
    assert set(outcomes) == {"ok", *FAULTS}
    assert all(20 <= outcomes[name] <= 80 for name in FAULTS if name != "stall")
    statuses = Counter(status for status, _, _ in answers)
    assert statuses[429] == outcomes["rate_limit"] and statuses[500] == outcomes["server_error"]
    assert statuses[0] == outcomes["drop"] + outcomes["stall"]
    assert {wait for status, _, wait in answers if status == 429} == {"0.05"}
    bodies_200 = [text for status, text, _ in answers if status == 200]
    assert sum(text.startswith("<!doctype html>") for text in bodies_200) == outcomes["html"]
    choices = [json.loads(text)["choices"][0] for text in bodies_200 if text.startswith('{"id"')]
    broken_off = [c for c in choices if c["finish_reason"] in ("error", "abort")]
    assert len(broken_off) == outcomes["broken_off"]
    assert sum(text.startswith('{"error"') for text in bodies_200) == outcomes["error_inside"]
    choices = [c for c in choices if c not in broken_off]
    refused = [
        c for c in choices if c["message"]["refusal"] or c["finish_reason"] == "content_filter"
    ]
    silent = [c for c in choices if not c["message"]["content"] and c not in refused]
    assert len(refused) == outcomes["refusal"] and len(silent) == outcomes["empty"]
    assert {c["finish_reason"] for c in refused} == {"stop", "content_filter"}
    assert (
        sum("unsuccessful" in (c["message"]["content"] or "") for c in choices)
        == outcomes["unsuccessful"]
    )
    cut = outcomes["cut"]
    assert 0 < sum(c["finish_reason"] == "length" for c in choices) < cut
    readable = [c["message"]["content"] for c in choices if c["message"]["content"]]
    verdicts = Counter(_verdict(text) for text in readable)
    assert verdicts == {
        "success": outcomes["ok"],
        "": outcomes["garbage"] + outcomes["unsuccessful"] + cut,
    }


def _verdict(text: str) -> str:
    try:
        return STATUS.parse(text)["status"]
    except UnparsableError:
        return ""


async def test_request_fate_ignores_order() -> None:
    rates: dict[str, Any] = {"garbage": 0.3, "server_error": 0.3, "cut": 0.2}
    bodies = [asking(f"task {i}") for i in range(60)]
    with MockServer(seed=1, **rates) as server:
        first = await ask_all(server, bodies)
        again = await ask_all(server, bodies)
    with MockServer(seed=1, **rates) as server:
        backwards = await ask_all(server, bodies[::-1])
    with MockServer(seed=2, **rates) as server:
        other = await ask_all(server, bodies)
    assert backwards[::-1] == first
    assert again != first and other != first


async def test_statistics_count_repeated_prompts() -> None:
    with MockServer(latency=0.2) as server:
        await ask_all(server, [asking("a"), asking("b"), asking("a"), asking("c")])
        stats = server.stats()
    assert sorted(stats.prompts.values()) == [1, 1, 2]
    assert (stats.requests, stats.in_flight, stats.peak_in_flight) == (4, 0, 4)


async def test_stall_outlasts_its_client() -> None:
    with MockServer(stall=1.0, stall_seconds=60) as server:
        assert (await ask_all(server, [asking("a")], patience=0.3))[0][0] == -1
        for _ in range(200):
            if (stats := server.stats()).in_flight == 0:
                break
            await asyncio.sleep(0.02)
    assert stats.in_flight == 0 and stats.outcomes == {"stall": 1}


async def test_requests_beyond_slots_are_refused() -> None:
    with MockServer(slots=3, latency=0.5) as server:
        statuses = Counter(
            status for status, _, _ in await ask_all(server, [asking(f"{i}") for i in range(8)])
        )
    assert statuses == {200: 3, 429: 5}


@pytest.mark.parametrize(
    ("setting", "body", "status", "words"),
    [
        ("refuse_key", asking("a"), 401, "invalid_api_key"),
        ("unknown_model", asking("a"), 404, "model_not_found"),
        ("no_images", asking([{"type": "text", "text": "a"}, PIXEL]), 400, "image"),
        ("no_json_schema", asking("a", response_format=SCHEMA), 400, "response_format"),
        (
            "no_json_object",
            asking("a", response_format={"type": "json_object"}),
            400,
            "response_format",
        ),
        ("no_temperature", asking("a", temperature=0), 400, "temperature"),
        ("no_max_tokens", asking("a", max_tokens=9), 400, "max_completion_tokens"),
        ("no_logprobs", asking("a", logprobs=True, top_logprobs=5), 400, "logprobs"),
    ],
)
async def test_unsupported_options_refused(
    setting: str, body: dict[str, Any], status: int, words: str
) -> None:
    options: dict[str, Any] = {setting: True}
    with MockServer(**options) as server:
        code, error = await parse_error(server, body)
        plain = (await ask_all(server, [asking("a")]))[0][0]
        assert server.stats().outcomes[setting] >= 1
    assert code == status and words in json.dumps(error)
    assert plain == (status if setting in ("refuse_key", "unknown_model") else 200)


async def test_prompt_over_window_is_refused() -> None:
    with MockServer(context=100) as server:
        status, error = await parse_error(server, asking("x" * 800))
        assert (await ask_all(server, [asking("x" * 300)]))[0][0] == 200
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert "100 tokens" in error["message"] and "201 tokens" in error["message"]


async def test_format_ignored_gives_tagged_lines() -> None:
    with MockServer(ignore_format=True) as server:
        text = (await ask_one(server, asking("truth=failure", response_format=SCHEMA)))["message"][
            "content"
        ]
    assert text.startswith("Thoughts: ") and text.endswith("\nStatus: failure")


async def test_wrong_body_is_refused_and_counted() -> None:
    with MockServer() as server:
        assert (await ask_all(server, [{"model": "mock"}]))[0][0] == 400
        assert server.stats().outcomes == {"malformed": 1}


async def test_truth_may_be_imported_function() -> None:
    with MockServer(truth="prill.testing.endpoint.faults:certainty") as server:
        text = (await ask_one(server, asking("a")))["message"]["content"]
    assert text.endswith(f"Status: {certainty('a')}")


def test_server_ends_with_its_parent() -> None:
    code = (
        "import os, signal; from prill.testing import MockServer; s = MockServer().__enter__();"
        "print(s._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    _wait_until_gone(int(done.stdout))


def _wait_until_gone(pid: int) -> None:
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if _is_zombie(pid):
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} is still there")


def _is_zombie(pid: int) -> bool:
    try:
        with Path(f"/proc/{pid}/stat").open() as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return False


def test_senseless_settings_refused() -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        Faults(drop=1.5)
    with pytest.raises(UsageError, match=r"sum to 1\.2"):
        Faults(drop=0.6, cut=0.6)
    with pytest.raises(TypeError, match="dorp"):
        MockServer(dorp=0.1)


def test_failed_server_start_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(EnvironmentFailedError, match="did not start"),
        MockServer(truth="prill.testing:nothing"),
    ):
        pass
    assert "not a module:function" in capfd.readouterr().err

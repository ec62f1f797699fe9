"""The mock server: it answers like an OpenAI-compatible endpoint, and every fault is what it says,
the same at every run.
"""

from __future__ import annotations

import asyncio
import json
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

from prill.errors import EnvironmentFailedError, UnparsableError
from prill.models.replies import ReplyFormat
from prill.testing import MockServer
from prill.testing.endpoint.faults import FAULTS

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


def test_failed_server_start_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(EnvironmentFailedError, match="did not start"),
        MockServer(truth="prill.testing:nothing"),
    ):
        pass
    assert "not a module:function" in capfd.readouterr().err

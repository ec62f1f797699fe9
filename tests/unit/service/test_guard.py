"""What is refused before a request is read or judged, how, and what is counted and logged."""

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from prill.errors import UsageError
from prill.refine.rewards.service import ServiceSpec
from prill.refine.rewards.service.app import MAX_VALUES
from tests.support.service.gate import Gate
from tests.support.service.visiting import counted, item, requests, run, visiting

TOKEN = "correct-horse-battery"
JSON = {"content-type": "application/json"}
RM = {"prompt": "p", "response": "r"}


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SERVICE_TOKEN", TOKEN)
    return "SERVICE_TOKEN"


async def test_token_is_asked_for(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared, compare = [], hmac.compare_digest

    def noting(shown: bytes, right: bytes) -> bool:
        compared.append(shown)
        return compare(shown, right)

    monkeypatch.setattr(hmac, "compare_digest", noting)
    gate = Gate()
    async with visiting(gate, token_env=token) as (client, _):
        for headers, query in (
            ({}, ""),
            ({"authorization": "Bearer wrong"}, ""),
            ({}, "?key=correct-horse"),
            ({}, "?key="),
        ):
            answer = await client.post(f"/rm{query}", json=RM, headers=headers)
            assert answer.status_code == 401 and TOKEN not in answer.text
        assert b"correct-horse" in compared, "how long it takes tells nothing of the token"
        for path in ("/metrics", "/openapi.json", "/nothing"):
            assert (await client.get(path)).status_code == 401
        for path in ("/healthz", "/readyz"):
            assert (await client.get(path)).status_code == 200
        assert not gate.asked
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert (await client.post("/rm", json=RM, headers=bearer)).status_code == 200
        assert (await client.post(f"/rm?key={TOKEN}", json=RM)).status_code == 200


def test_other_addresses_need_a_good_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(UsageError, match="set token_env"):
            ServiceSpec(host=host).tokens()
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        assert ServiceSpec(host=host).tokens() == ()
    for bad in ("", "short", "with a space in the middle"):
        monkeypatch.setenv("SERVICE_TOKEN", bad)
        with pytest.raises(UsageError, match="16 characters"):
            ServiceSpec(token_env="SERVICE_TOKEN").tokens()
    (tmp_path / "tokens").write_text(f"{TOKEN}\nsecond-token-of-two\n")
    spec = ServiceSpec(host="0.0.0.0", token_file=tmp_path / "tokens")
    assert spec.tokens() == (TOKEN, "second-token-of-two")


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:9", 200), ("[::1]", 200), ("evil.example", 403), ("127.evil.example", 403)],
)
async def test_other_names_and_pages_are_not_served(host: str, status: int) -> None:
    async with visiting(Gate()) as (client, _):
        assert (await client.get("/healthz", headers={"host": host})).status_code == status
        page = {"host": host, "origin": "http://evil.example"}
        assert (await client.get("/healthz", headers=page)).status_code == 403


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b" " * 10_000


async def slow() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b'{"response": "r"}', {"content-type": "text/plain"}, 415, "not_json"),
        (b"", {"content-encoding": "gzip"}, 415, "packed"),
        (b" " * 50_001, {}, 413, "too_large"),
        (endless(), {}, 413, "too_large"),
        (b"{", {"content-length": "9" * 5000}, 413, "too_large"),
        (slow(), {}, 408, "slow"),
        *(
            (junk, {}, 422, "input")
            for junk in (b"", b"{", b"[]", b"\xff", b"null", b"[" * 40_000, b'{"response": 1}')
        ),
        (b'{"response": "\\ud800"}', {}, 422, "input"),
    ],
    ids=lambda value: None if isinstance(value, str | int) else repr(value)[:20],
)
async def test_bad_bodies_are_refused(
    content: Any, headers: dict[str, str], status: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "prill.refine.rewards.service.app._BODY_SECONDS", 0.05 if status == 408 else 60.0
    )
    async with visiting(Gate(), max_body=50_000) as (client, service):
        answer = await client.post("/rm", content=content, headers=JSON | headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert service.judgements.active == 0


@pytest.mark.parametrize(
    ("path", "status", "code"), [("/nowhere", 404, "not_here"), ("/rm", 405, "not_here")]
)
async def test_every_refusal_looks_alike(path: str, status: int, code: str) -> None:
    async with visiting(Gate()) as (client, _):
        answer = await client.get(path)
    body = answer.json()
    assert (answer.status_code, body["error"]["code"], body.keys()) == (status, code, {"error"})
    assert body["error"].keys() == {"code", "message"}


async def test_values_are_counted_before_they_are_built() -> None:
    many = [0] * MAX_VALUES
    bodies = {"/v1/score": {"items": [item(metadata={"a": many})]}, **requests(many)}
    gate = Gate()
    async with visiting(gate) as (client, _):
        for path, body in bodies.items():
            answer = await client.post(path, json=body)
            assert (answer.status_code, f"the limit is {MAX_VALUES:,}" in answer.text) == (
                422,
                True,
            ), path
    assert not gate.asked


async def test_key_twice_is_refused() -> None:
    body = json.dumps({"items": [item()]}).encode()
    twice = body.replace(b'"steps":', b'"steps": [], "steps":', 1)
    assert twice != body
    gate = Gate()
    async with visiting(gate) as (client, _):
        kind = {"content-type": "application/json"}
        answer = await client.post("/v1/score", content=twice, headers=kind)
    assert "the key 'steps' is in one object twice" in answer.text
    assert not gate.asked


async def test_too_many_judgements_are_429() -> None:
    gate = Gate()
    gate.open.clear()
    async with visiting(gate, max_active=2) as (client, service):
        held = asyncio.create_task(client.post("/rm", json=requests(run())["/rm"]))
        while not service.judgements.in_flight:
            await asyncio.sleep(0)
        two = {"items": [item(id="a"), item(id="b")]}
        answer = await client.post("/v1/score", json=two)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "busy")
        assert int(answer.headers["retry-after"]) >= 1
        three = {"items": [item(id=id) for id in "abc"]}
        assert "the limit is 2" in (await client.post("/v1/score", json=three)).text
        gate.open.set()
        assert (await held).json() == 1.0
        assert (await client.post("/v1/score", json=two)).status_code == 200


async def test_too_many_items_are_told() -> None:
    async with visiting(Gate(), max_active=2) as (client, _):
        for items in ([], [item()] * 3):
            assert (await client.post("/v1/score", json={"items": items})).status_code == 422
        batch = {"query": ["words"] * 3, "prompts": ["w"] * 3}
        assert "the limit is 2" in (await client.post("/get_reward", json=batch)).text


async def test_own_error_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def bug(*asked: object) -> str:
        raise KeyError("secret" + " words")

    monkeypatch.setattr("prill.refine.rewards.service.app.generate_latest", bug)
    async with visiting(Gate()) as (client, _):
        answer = await client.get("/metrics")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "KeyError" in caplog.text and "test_guard.py" in caplog.text
    assert "secret words" not in answer.text + caplog.text


@pytest.mark.parametrize(("level", "lines"), [("quiet", 0), ("requests", 1), ("verdicts", 1)])
async def test_logs_hold_no_key_and_no_text(
    level: str, lines: int, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"prompt": "private prompt", "response": "r", "label": run(id="a\nb")}
    async with visiting(Gate(), token_env=token, log=level) as (client, _):
        assert (await client.post(f"/rm?key={TOKEN}", json=body)).status_code == 200
    own = [line for line in caplog.messages if "HTTP Request:" not in line]  # the client's own
    assert len([line for line in own if "/rm" in line]) == lines
    assert not [line for line in own if TOKEN in line or "private" in line]
    assert any(line.startswith(r"'a\nb' success") for line in own) == (level == "verdicts")


async def test_metrics_tell_what_happened() -> None:
    async with visiting(Gate()) as (client, service):
        goals = ("success", "failure", "timeout", *["bug"] * 5)
        items = [item(goal, f"<script>{goal}{index}") for index, goal in enumerate(goals)]
        await client.post("/v1/score", json={"items": items})
        await client.get("/<script>")
        metrics = (await client.get("/metrics")).text
        for line in (
            'prill_verdicts_total{outcome="success"} 1.0',
            'prill_unscored_total{reason="timeout"} 1.0',
            'prill_requests_total{path="/v1/score",status="200"} 1.0',
            'prill_requests_total{path="other",status="404"} 1.0',
            "prill_judge_broken_total 5.0",
            'prill_score_bucket{le="0.3"} 1.0',
            "prill_score_count 2.0",
            "prill_in_flight 0.0",
        ):
            assert line in metrics.splitlines()
        assert (await client.get("/readyz")).status_code == 503  # the latest judgements broke
        await client.post("/rm", json=requests(run(id="again"))["/rm"])
        assert (await client.get("/readyz")).status_code == 200
        assert counted(service, "requests_total", path="/rm", status="200") == 1

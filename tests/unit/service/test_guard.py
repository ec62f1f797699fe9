"""What is refused before anything is read: other names, wrong tokens, large and slow bodies."""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from prill.errors import UsageError
from prill.service import ServiceSpec
from prill.service.metrics import counts
from tests.support.service.gate import Gate
from tests.support.service.visiting import Visiting

Record = Callable[..., dict[str, Any]]
TOKEN = "correct-horse-battery"


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SERVICE_TOKEN", TOKEN)
    return "SERVICE_TOKEN"


async def test_a_token_is_asked_for(visiting: Visiting, record: Record, token: str) -> None:
    body = {"items": [{"trajectory": record()}]}
    async with visiting(Gate(), token_env=token) as (client, service):
        for headers, query in (
            ({}, ""),
            ({"authorization": "Bearer wrong"}, ""),
            ({}, "?key=wrong"),
            ({}, "?key="),
        ):
            answer = await client.post(f"/v1/score{query}", json=body, headers=headers)
            assert answer.status_code == 401
            assert TOKEN not in answer.text
        for path in ("/", "/metrics", "/openapi.json", "/v1/jobs/x", "/nothing"):
            assert (await client.get(path)).status_code == 401
        for path in ("/healthz", "/readyz"):
            assert (await client.get(path)).status_code == 200
        assert (
            await client.post("/v1/score", json=body, headers={"authorization": f"Bearer {TOKEN}"})
        ).status_code == 200
        assert (
            await client.post(f"/rm?key={TOKEN}", json={"prompt": "p", "response": "r"})
        ).status_code == 200
        assert sum(counts(service.metrics.verdicts).values()) == 2


async def test_tokens_take_as_long_to_compare(
    visiting: Visiting, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a refusal takes says nothing of how much of the token was right."""
    compared, compare = [], hmac.compare_digest

    def noting(shown: bytes, right: bytes) -> bool:
        compared.append(shown)
        return compare(shown, right)

    monkeypatch.setattr(hmac, "compare_digest", noting)
    async with visiting(Gate(), token_env=token) as (client, _):
        assert (await client.get("/metrics?key=correct-horse")).status_code == 401
        assert (
            await client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}x"})
        ).status_code == 401
    assert compared == [b"correct-horse", f"{TOKEN}x".encode()]


async def test_logs_hold_no_key_and_no_text(
    visiting: Visiting, record: Record, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {
        "prompt": "private prompt",
        "response": "private response",
        "label": record(id="private-id"),
    }
    for level, lines in (("quiet", 0), ("requests", 1)):
        caplog.clear()
        async with visiting(Gate(), token_env=token, log=level) as (client, _):
            assert (await client.post(f"/rm?key={TOKEN}", json=body)).status_code == 200
        own = [line for line in caplog.messages if "HTTP Request:" not in line]  # the client's own
        assert len([line for line in own if "/rm" in line]) == lines
        assert not [line for line in own if TOKEN in line or "private" in line]


async def test_verdicts_are_logged_when_asked(
    visiting: Visiting, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with visiting(Gate(), log="verdicts") as (client, _):
        await client.post("/rm", json={"response": "r", "label": record(id="a\nb")})
    assert any(line.startswith(r"'a\nb' success") for line in caplog.messages)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:9", 200), ("[::1]", 200), ("evil.example", 403), ("127.evil.example", 403)],
)
async def test_other_names_are_not_served(host: str, status: int, visiting: Visiting) -> None:
    async with visiting(Gate()) as (client, _):
        assert (await client.get("/healthz", headers={"host": host})).status_code == status
        assert (
            await client.get("/healthz", headers={"host": host, "origin": "http://evil.example"})
        ).status_code == 403


async def test_only_plain_json_is_read(visiting: Visiting) -> None:
    async with visiting(Gate()) as (client, _):
        for headers in (
            {"content-type": "text/plain"},
            {"content-type": "application/json", "content-encoding": "gzip"},
        ):
            assert (
                await client.post("/rm", content=b'{"response": "r"}', headers=headers)
            ).status_code == 415
        for junk in (
            b"",
            b"{",
            b"[]",
            b"\xff",
            b"null",
            b"[" * 100_000,
            b'{"response": 1}',
            b'{"response": "\\ud800"}',
        ):
            answer = await client.post(
                "/rm", content=junk, headers={"content-type": "application/json"}
            )
            assert (answer.status_code, set(answer.json())) == (422, {"error"}), junk[:20]


async def test_large_bodies_end_early(visiting: Visiting) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 10**9:
            sent += 10_000
            yield b" " * 10_000

    async with visiting(Gate(), max_body=50_000) as (client, service):
        headers = {"content-type": "application/json"}
        assert (await client.post("/rm", content=endless(), headers=headers)).status_code == 413
        assert sent <= 100_000
        assert (await client.post("/rm", content=b" " * 50_001, headers=headers)).status_code == 413
        # which uvicorn refuses, and other servers may not
        for length, status in (("9" * 5000, 413), ("²", 422)):
            odd = {**headers, "content-length": length.encode("latin-1")}
            assert (await client.post("/rm", content=b"{", headers=odd)).status_code == status
    assert service.admission.active == 0


async def test_a_slow_body_is_not_waited_for(visiting: Visiting) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with visiting(Gate(), body_timeout=0.05) as (client, service):
        answer = await client.post(
            "/rm", content=slow(), headers={"content-type": "application/json"}
        )
        assert answer.status_code == 408
    assert service.admission.active == 0


async def test_too_many_items_are_told(visiting: Visiting, record: Record) -> None:
    async with visiting(Gate(), max_items=2) as (client, _):
        for items in ([], [{"trajectory": record()}] * 3):
            assert (await client.post("/v1/score", json={"items": items})).status_code == 422
        batch = {"query": ["words"] * 3, "prompts": ["w"] * 3}
        assert "the limit is 2" in (await client.post("/get_reward", json=batch)).text


def test_other_addresses_need_a_good_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(UsageError, match="set token_env"):
            ServiceSpec(host=host).tokens()
    assert ServiceSpec().is_loopback
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        assert ServiceSpec(host=host).tokens() == ()
    for bad in ("", "short", "with a space in the middle"):
        monkeypatch.setenv("SERVICE_TOKEN", bad)
        with pytest.raises(UsageError, match="16 characters"):
            ServiceSpec(token_env="SERVICE_TOKEN").tokens()
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert ServiceSpec(host="0.0.0.0", token_file=file).tokens() == (TOKEN,)


async def test_metrics_and_page_tell_what_happened(visiting: Visiting, record: Record) -> None:
    async with visiting(Gate()) as (client, service):
        goals = ("success", "failure", "timeout", "bug")
        items = [{"trajectory": record(goal, f"<script>{goal}")} for goal in goals]
        await client.post("/v1/score", json={"items": items})
        await client.get("/<script>")
        metrics = (await client.get("/metrics")).text
        page = await client.get("/")
        for line in (
            'prill_verdicts_total{outcome="success"} 1.0',
            'prill_unscored_total{reason="timeout"} 1.0',
            'prill_requests_total{path="/v1/score",status="200"} 1.0',
            "prill_judge_broken_total 1.0",
            'prill_score_bucket{le="0.3"} 1.0',
            "prill_score_count 2.0",
            "prill_in_flight 0.0",
        ):
            assert line in metrics.splitlines()
        assert "<script" not in page.text and "&lt;script&gt;success" in page.text
        for words in (
            "trajectories waiting for the judge",
            "judged per second",
            "How scores are spread",
            "Latest verdicts",
        ):
            assert words in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert (await client.get("/readyz")).status_code == 503  # the latest judgement broke
        # a cluster sends nothing to who is not ready: so this must end by itself
        service.metrics.health.broke_at -= 60
        assert (await client.get("/readyz")).status_code == 200
        service.metrics.health.broke_at += 60
        await client.post("/rm", json={"response": "r", "label": record(id="again")})
        assert (await client.get("/readyz")).status_code == 200

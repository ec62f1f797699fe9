"""Several endpoints with the same model behind one."""

from __future__ import annotations

import asyncio
import pickle
import types
from pathlib import Path

import pytest

from prill.captioner import GivenCaption
from prill.errors import EndpointError
from prill.evaluators.outcome import CaptionJudge
from prill.models.client import LEFT_OUT, Endpoints, OpenAIModel
from prill.papers.embedders import EndpointEmbedder
from prill.protocols import Message
from prill.scoring.scorer import score_files
from prill.testing import Faults
from prill.testing.endpoint.server import serving
from tests.support.models.embedding_server import EmbeddingEndpoint

DEAD = "http://127.0.0.1:9/v1"


def write(folder: Path, count: int) -> Path:
    path = folder / "t.jsonl"
    rows = (
        f'{{"id": "{i}", "task": {{"goal": "g {i}"}}, "final": {{"caption": "truth=success"}}}}\n'
        for i in range(count)
    )
    path.write_text("".join(rows))
    return path


async def test_calls_are_spread_over_endpoints(tmp_path: Path) -> None:
    async with (
        serving(Faults(latency=0.02)) as (first, one),
        serving(Faults(latency=0.02)) as (second, two),
    ):
        model = OpenAIModel("m", base_url=f"{one}, {two}", concurrency=8)
        tally = await score_files(
            [write(tmp_path, 40)], CaptionJudge(model, GivenCaption()), tmp_path / "v.jsonl"
        )
        assert tally.succeeded == 40
        assert min(first.requests, second.requests) >= 10
        assert max(first.peak_in_flight, second.peak_in_flight) <= 4
        assert isinstance(pickle.loads(pickle.dumps(model)).endpoint, Endpoints)


async def test_dead_endpoint_is_left_out_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Faults()) as (alive, url):
        model = OpenAIModel("m", base_url=f"{DEAD},{url}", concurrency=4)
        tally = await score_files(
            [write(tmp_path, 12)], CaptionJudge(model, GivenCaption()), tmp_path / "v.jsonl"
        )
        assert tally.succeeded == 12
        assert alive.requests >= 12
    assert caplog.text.count(f"{DEAD} is temporarily not used") == 1


async def test_endpoint_that_hangs_is_helped_out(tmp_path: Path) -> None:
    async with (
        serving(Faults(stall=1.0, stall_seconds=60.0)) as (stuck, one),
        serving(Faults()) as (_, two),
    ):
        model = OpenAIModel(
            "m", base_url=f"{one},{two}", concurrency=4, timeout=0.5, total_timeout=0.5, retries=0
        )
        tally = await score_files(
            [write(tmp_path, 4)], CaptionJudge(model, GivenCaption()), tmp_path / "v.jsonl"
        )
        assert tally.succeeded == 4
        assert stuck.requests


async def test_no_endpoint_left_ends_the_run(tmp_path: Path) -> None:
    model = OpenAIModel("m", base_url=f"{DEAD},{DEAD}", concurrency=2)
    with pytest.raises(EndpointError, match="cannot reach"):
        await score_files(
            [write(tmp_path, 3)], CaptionJudge(model, GivenCaption()), tmp_path / "v.jsonl"
        )


async def test_endpoint_that_is_back_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("prill.models.client.time", types.SimpleNamespace(monotonic=lambda: now))
    faults = Faults(refuse_key=True)
    async with serving(faults) as (back, one), serving(Faults()) as (other, two):
        endpoint = OpenAIModel("m", base_url=f"{one},{two}", concurrency=2)
        messages = [Message("user", ("truth=success",))]
        await endpoint.complete(messages)
        # the server reads its settings at every request
        object.__setattr__(faults, "refuse_key", False)
        asked = back.requests
        await endpoint.complete(messages)
        assert (back.requests, other.requests) == (asked, 2), "not at once"
        now += LEFT_OUT
        await endpoint.complete(messages)
        await asyncio.gather(*(endpoint.complete(messages) for _ in range(8)))
        assert back.requests > asked + 1, "it has its share of the calls again"


async def test_embeddings_are_asked_of_all_endpoints() -> None:
    async with serving(Faults(), kind=EmbeddingEndpoint) as (_, url):
        vectors = await EndpointEmbedder("m", base_url=f"{DEAD},{url}").embed(["one", "two"])
        assert len(vectors) == 2

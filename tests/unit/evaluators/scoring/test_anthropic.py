"""The same batches at Anthropic's API, by its own client against a server that is as strict as the
real one.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.errors import MissingExtraError
from prill.evaluators.scoring.batches.folder import MANIFEST, Api
from prill.evaluators.scoring.batches.jobs import detect_api
from prill.evaluators.scoring.scorer import score_files
from prill.protocols import Evaluator
from prill.testing.endpoint import server as endpoint_server
from tests.support.models.batch_server import BatchEndpoint, BatchFaults
from tests.unit.evaluators.scoring.test_batches import (
    COUNT,
    noted,
    plain,
    read_manifest,
    run,
    trajectories,
)

if find_spec("anthropic") is None:
    pytest.skip("anthropic is not installed: pip install '.[batch]'", allow_module_level=True)
serving = partial(endpoint_server.serving, kind=BatchEndpoint)
# online, too, Claude gives none
Faults = partial(BatchFaults, logprobs_form="missing")
__all__ = ["trajectories"]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")


def judge(url: str, name: str = "vlm") -> Evaluator:
    return prill.judge(name, model="mock", base_url=url)


@pytest.mark.parametrize("name", ["vlm", "webjudge"])
async def test_verdicts_equal_those_online(name: str, trajectories: Path, tmp_path: Path) -> None:
    async with serving(Faults()) as (server, url):
        await score_files([trajectories], judge(url, name), tmp_path / "online.jsonl")
        before = server.images
        result = await run(tmp_path / "b", judge(url, name), trajectories, api="anthropic")
    assert {id: (v.success, v.reason) for id, v in plain(result.output).items()} == {
        id: (v.success, v.reason) for id, v in plain(tmp_path / "online.jsonl").items()
    }
    assert server.images > before > 0, "the pictures arrive"
    for file in read_manifest(tmp_path / "b").files:
        assert file.batch and file.batch.startswith("msgbatch_"), "later files go there, too"


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ({"no_json_schema": True, "no_json_object": True}, None),
        ({"refusal": 1.0}, "refusal"),
        ({"batch_expired": 0.3, "batch_failed": 0.3, "batch_polls": 2, "seed": 3}, "transport"),
    ],
)
async def test_faults_are_those_of_openai(
    faults: dict[str, Any], reason: str | None, trajectories: Path, tmp_path: Path
) -> None:
    async with serving(Faults(**faults)) as (_, url):
        result = await run(tmp_path / "b", judge(url), trajectories, api="anthropic")
        found = {v.unscored for v in plain(result.output).values()} - {"input"}
        assert found in ({reason}, {reason, None})
        for _ in range(9 * (reason == "transport")):
            await run(tmp_path / "b", judge(url), retry_unscored=True)
    if reason != "refusal":
        assert len([v for v in plain(result.output).values() if v.success is not None]) == COUNT


async def test_lost_note_of_batch_makes_no_second(trajectories: Path, tmp_path: Path) -> None:
    async with serving(Faults(batch_polls=2)) as (_, url):
        await run(tmp_path / "b", judge(url), trajectories, api="anthropic", wait=False)
        first = read_manifest(tmp_path / "b").files[0].batch
        noted(tmp_path / "b", batch=None)  # killed before it was noted
        await run(tmp_path / "b", judge(url), wait=False)
        assert read_manifest(tmp_path / "b").files[0].batch == first is not None


async def test_batch_of_another_folder_is_not_kept(trajectories: Path, tmp_path: Path) -> None:
    async with serving(Faults(batch_polls=2)) as (_, url):
        # each has a secret of its own, so the same work is other requests
        await run(tmp_path / "c", judge(url), trajectories, api="anthropic", wait=False)
        theirs = read_manifest(tmp_path / "c").files[0]
        await run(tmp_path / "b", judge(url), trajectories, api="none")
        # killed before its batch was made
        noted(tmp_path / "b", api="anthropic", upload=theirs.upload)
        result = await run(tmp_path / "b", judge(url))
        assert f"batch {theirs.batch} does not contain the requests of" in str(result.problem)
        result = await run(tmp_path / "b", judge(url))
        assert read_manifest(tmp_path / "b").files[0].batch not in (None, theirs.batch)
    assert (result.problem, result.tally.pending) == (None, 0)


async def test_key_is_sent_and_never_kept(trajectories: Path, tmp_path: Path) -> None:
    async with serving(BatchFaults(refuse_key=True)) as (_, url):
        result = await run(tmp_path / "b", judge(url), trajectories, api="anthropic")
    problem = str(result.problem)
    assert "HTTP 401: invalid API key" in problem
    assert "sesame" not in problem + (tmp_path / "b" / MANIFEST).read_text()


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_missing_package_is_named(
    trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    monkeypatch.setitem(sys.modules, api, None)
    with pytest.raises(MissingExtraError, match=rf"{api} is .* pip install .*\[batch\]"):
        await run(tmp_path / "b", judge("http://127.0.0.1:9/v1"), trajectories, api=api)


def test_address_tells_the_api() -> None:
    addresses = {
        "https://api.anthropic.com/v1/": "anthropic",
        "https://anthropic.com.example/v1": "openai",
        "http://localhost:8000/v1": "openai",
    }
    assert {url: detect_api(url) for url in addresses} == addresses

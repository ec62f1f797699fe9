"""The same batches at Anthropic's API, by its own client against a server that is as strict as the
real one.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

import prill
from prill.batches import BatchFolder, collect, fetch, submit, write
from prill.batches.anthropic import now
from prill.batches.folder import MANIFEST
from prill.batches.jobs import detect_api
from prill.errors import EndpointError, MissingExtraError
from prill.io.store import read_verdicts
from prill.protocols import Evaluator
from prill.scoring.scorer import Tally, score_files
from prill.testing.endpoint import server as endpoint_server
from prill.types import Verdict
from tests.support.models.batch_server import BatchEndpoint, BatchFaults

if find_spec("anthropic") is None:
    pytest.skip("anthropic is not installed: pip install '.[anthropic]'", allow_module_level=True)
COUNT = 4
serving = partial(endpoint_server.serving, kind=BatchEndpoint)


@pytest.fixture
def trajectories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs with a screenshot each, whose goals name the verdict."""
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    Picture.new("RGB", (40, 30), (80, 0, 9)).save(tmp_path / "a.png")
    with (tmp_path / "t.jsonl").open("w") as file:
        for i in range(COUNT):
            state = {"screenshot": "a.png", "caption": f"order {i}"}
            task = {
                "goal": f"Order {i}. truth={'success' if i % 2 else 'failure'}",
                "platform": "web",
            }
            steps = [{"observation": state, "action": {"kind": "click", "text": "click [1]"}}]
            file.write(
                json.dumps({"id": f"t{i}", "task": task, "steps": steps, "final": state}) + "\n"
            )
    return tmp_path / "t.jsonl"


def judge(url: str, name: str = "vlm") -> Evaluator:
    return prill.judge(name, model="mock", base_url=url)


async def carried_out(folder: Path, asked: Evaluator, output: Path, **settings: Any) -> Tally:
    """Everything until nothing is missing."""
    for i in range(9):
        with BatchFolder(folder) as batch:
            # later files go where the first ones went
            await submit(batch, api="anthropic" if i == 0 else None)
            assert all(
                file.batch is None or file.batch.startswith("msgbatch_")
                for file in batch.manifest.files
            )
            while await fetch(batch):
                pass
        tally = await collect(folder, asked, output, **settings)
        if not tally.pending:
            return tally
    raise AssertionError("the batch does not end")


def plain(path: Path) -> dict[str, Verdict]:
    return {verdict.id: replace(verdict, seconds=0.0) for verdict in read_verdicts(path)}


@pytest.mark.parametrize("name", ["vlm", "webjudge"])
async def test_verdicts_equal_those_online(name: str, trajectories: Path, tmp_path: Path) -> None:
    # online, too, Claude gives none
    async with serving(BatchFaults(logprobs_form="missing")) as (server, url):
        await score_files([trajectories], judge(url, name), tmp_path / "online.jsonl")
        before = server.images
        await write([trajectories], judge(url, name), tmp_path / "b")
        await carried_out(tmp_path / "b", judge(url, name), tmp_path / "v.jsonl")
    assert plain(tmp_path / "v.jsonl") == plain(tmp_path / "online.jsonl")
    assert len(plain(tmp_path / "v.jsonl")) == COUNT
    assert server.images == 2 * before > 0, "the pictures arrive"


async def test_expired_and_failed_as_at_openai(trajectories: Path, tmp_path: Path) -> None:
    async with serving(
        BatchFaults(
            batch_expired=0.3, batch_failed=0.3, batch_polls=2, logprobs_form="missing", seed=3
        )
    ) as (_, url):
        await write([trajectories], judge(url), tmp_path / "b")
        tally = await carried_out(tmp_path / "b", judge(url), tmp_path / "v.jsonl")
        assert 0 < tally.unscored["transport"] < COUNT
        assert {v.unscored for v in plain(tmp_path / "v.jsonl").values()} == {None, "transport"}
        await carried_out(tmp_path / "b", judge(url), tmp_path / "v.jsonl", retry_failed=True)
    assert all(v.success is (int(v.id[1:]) % 2 == 1) for v in plain(tmp_path / "v.jsonl").values())


async def test_refused_field_is_learnt(trajectories: Path, tmp_path: Path) -> None:
    async with serving(
        BatchFaults(no_json_schema=True, no_json_object=True, logprobs_form="missing")
    ) as (_, url):
        await write([trajectories], judge(url), tmp_path / "b")
        await carried_out(tmp_path / "b", judge(url), tmp_path / "v.jsonl")
    assert all(v.success is (int(v.id[1:]) % 2 == 1) for v in plain(tmp_path / "v.jsonl").values())


async def test_refusals_and_garbage_stay_unscored(trajectories: Path, tmp_path: Path) -> None:
    async with serving(BatchFaults(refusal=1.0, logprobs_form="missing")) as (_, url):
        await write([trajectories], judge(url), tmp_path / "b")
        tally = await carried_out(tmp_path / "b", judge(url), tmp_path / "v.jsonl")
    assert tally.unscored["refusal"] == COUNT


async def test_lost_note_of_batch_makes_no_second(trajectories: Path, tmp_path: Path) -> None:
    async with serving(BatchFaults(logprobs_form="missing")) as (_, url):
        await write([trajectories], judge(url), tmp_path / "b")
        with BatchFolder(tmp_path / "b") as folder:
            await submit(folder, api="anthropic")
            first = folder.manifest.files[0]
            folder.update(replace(first, batch=None))  # killed before it was noted
            await submit(folder)
            assert folder.manifest.files[0].batch == first.batch
            # The same requests once more are another batch.
            (tmp_path / "b" / "again.jsonl").write_bytes((tmp_path / "b" / first.name).read_bytes())
            folder.update(replace(first, name="again.jsonl", stage=2, batch=None))
            await submit(folder)
            assert folder.manifest.files[1].batch not in (None, first.batch)


async def test_batch_of_another_folder_is_not_kept(trajectories: Path, tmp_path: Path) -> None:
    async with serving(BatchFaults(logprobs_form="missing")) as (_, url):
        for name in ("b", "c"):  # each has a secret of its own, so the same work is other requests
            await write([trajectories], judge(url), tmp_path / name)
        with BatchFolder(tmp_path / "c") as other, BatchFolder(tmp_path / "b") as folder:
            await submit(other, api="anthropic")
            theirs = other.manifest.files[0].batch
            entry = folder.manifest.files[0]
            # killed before its batch was made
            folder.update(replace(entry, api="anthropic", upload=now()))
            await submit(folder)
            assert folder.manifest.files[0].batch == theirs, (
                "while it is under way, nobody can tell"
            )
            with pytest.raises(
                EndpointError, match=f"batch {theirs} does not contain the requests of"
            ):
                await fetch(folder)
            await submit(folder)
            assert folder.manifest.files[0].batch not in (None, theirs), "now it can be told"
        await carried_out(tmp_path / "b", judge(url), tmp_path / "v.jsonl")
    assert len(plain(tmp_path / "v.jsonl")) == COUNT


async def test_key_is_sent_and_never_kept(trajectories: Path, tmp_path: Path) -> None:
    async with serving(BatchFaults(refuse_key=True)) as (_, url):
        await write([trajectories], judge(url), tmp_path / "b")
        with (
            BatchFolder(tmp_path / "b") as folder,
            pytest.raises(EndpointError, match="HTTP 401: invalid API key") as caught,
        ):
            await submit(folder, api="anthropic")
    assert "sesame" not in str(caught.value) + (tmp_path / "b" / MANIFEST).read_text()


async def test_missing_package_is_named(
    trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(BatchFaults()) as (_, url):
        await write([trajectories], judge(url), tmp_path / "b")
        monkeypatch.setitem(sys.modules, "anthropic", None)
        with (
            BatchFolder(tmp_path / "b") as folder,
            pytest.raises(MissingExtraError, match=r"pip install .*\[anthropic\]"),
        ):
            await submit(folder, api="anthropic")


def test_address_tells_the_api() -> None:
    addresses = {
        "https://api.anthropic.com/v1/": "anthropic",
        "https://anthropic.com.example/v1": "openai",
    }
    assert {url: detect_api(url) for url in addresses} == addresses
    assert detect_api("http://localhost:8000/v1") == "openai"

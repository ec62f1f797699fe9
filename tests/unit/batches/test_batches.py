"""Judging by batches: the verdicts are those of asking online, whatever becomes of a batch on its
way.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from PIL import Image as Picture

import prill
from prill.batches import BatchFolder, collect, fetch, jobs, submit, write
from prill.batches.folder import MANIFEST
from prill.batches.jobs import BatchError
from prill.errors import EndpointError, UsageError
from prill.io.store import read_verdicts
from prill.protocols import Evaluator
from prill.scoring.scorer import Tally, score_files
from prill.testing import ScriptedModel
from prill.types import Usage, Verdict
from tests.support.models.batch_server import BatchServer

COUNT = 6


@pytest.fixture(scope="module")
def server() -> Iterator[BatchServer]:
    with BatchServer() as running:
        yield running


@pytest.fixture
def trajectories(tmp_path: Path) -> Path:
    """Runs of three steps with screenshots and captions; two of them have the same goal."""
    for number in range(3):
        Picture.new("RGB", (40, 30), (80 * number, 0, 9)).save(tmp_path / f"{number}.png")
    with (tmp_path / "t.jsonl").open("w") as file:
        for i in range(COUNT):
            goal = (
                f"Order number {max(1, i)}. truth={'success' if max(1, i) % 2 == 0 else 'failure'}"
            )
            states = [
                {"screenshot": f"{n}.png", "caption": f"order {i}, page {n}", "text": f"page {n}"}
                for n in range(3)
            ]
            steps = [
                {"observation": state, "action": {"kind": "click", "text": f"click [{n}]"}}
                for n, state in enumerate(states)
            ]
            task = {"id": f"k{i}", "goal": goal, "platform": "web"}
            file.write(
                json.dumps({"id": f"t{i}", "task": task, "steps": steps[:2], "final": states[2]})
                + "\n"
            )
        file.write('{"id": "broken"}\n')
    return tmp_path / "t.jsonl"


def judge(server: BatchServer, name: str = "modular", **options: Any) -> Evaluator:
    """A judge whose model is at that server."""
    captioner = {"captioner": "given"} if name in ("modular", "steps") else {}
    model = {} if name in ("vote", "cascade") else {"model": "mock"}
    return prill.judge(name, **{**model, "base_url": server.base_url, **captioner, **options})


MODULAR = {"name": "modular", "captioner": "given", "model": "mock"}
VLM = {"name": "vlm", "model": "mock"}
JUDGES: dict[str, dict[str, Any]] = {
    "vlm": {"name": "vlm"},
    "modular": {},
    "steps": {"name": "steps"},
    "webjudge": {"name": "webjudge"},
    "rubric": {"name": "rubric"},
    "vote": {"name": "vote", "samples": 3, "judges": [MODULAR]},
    "cascade": {
        "name": "cascade",
        "band": [0.5, 1.0],
        "judges": [MODULAR, {"name": "steps", "captioner": "given", "model": "other"}],
    },
}


async def stages(
    folder: Path, asked: Evaluator, output: Path, **settings: Any
) -> tuple[Tally, int]:
    """Carries batches out until nothing is missing: the last tally, and how many times that
    took.
    """
    for count in range(1, 12):
        with BatchFolder(folder) as batch:
            await submit(batch)
            while await fetch(batch):
                pass
        tally = await collect(folder, asked, output, **settings)
        if not tally.pending:
            return tally, count
    raise AssertionError("the batch does not end")


def plain(verdicts: Path) -> dict[str, Verdict]:
    """Verdicts by id without times."""
    return {v.id: replace(v, seconds=0.0) for v in read_verdicts(verdicts)}


@pytest.mark.parametrize("name", JUDGES)
async def test_verdicts_equal_those_online(
    name: str, server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    await score_files(
        [trajectories], judge(server, **JUDGES[name]), tmp_path / "online.jsonl", concurrency=1
    )
    asked = judge(server, **JUDGES[name])
    written = await write([trajectories], asked, tmp_path / "b")
    await stages(tmp_path / "b", asked, tmp_path / "v.jsonl")
    assert written.pending == COUNT
    batched, online = plain(tmp_path / "v.jsonl"), plain(tmp_path / "online.jsonl")
    # what a goal costs is booked on whichever of its trajectories asked first
    if name in ("webjudge", "rubric"):
        bills = [
            sum((v.usage for v in verdicts.values()), Usage()) for verdicts in (batched, online)
        ]
        assert bills[0] == bills[1]
        batched, online = (
            {id: replace(v, usage=Usage()) for id, v in verdicts.items()}
            for verdicts in (batched, online)
        )
    assert batched == online
    assert len(plain(tmp_path / "v.jsonl")) == COUNT + 1


async def test_writing_asks_nothing(
    trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    asked = prill.judge("vlm", model="gpt-4o")  # at OpenAI, whose endpoint would want a key
    await write([trajectories], asked, tmp_path / "b")
    assert (await collect(tmp_path / "b", asked, tmp_path / "v.jsonl")).pending == COUNT


async def test_model_of_this_machine_is_refused(trajectories: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="runs on this machine"):
        await write(
            [trajectories],
            prill.judge("modular", captioner="given", model=ScriptedModel([])),
            tmp_path / "b",
        )
    assert not (tmp_path / "b").exists()


async def test_batches_cost_half(server: BatchServer, trajectories: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[mock]\nprompt = 100\ncompletion = 100\n")
    asked = judge(server, prices=str(tmp_path / "p.toml"))
    online = prill.score([next(prill.read_trajectories(trajectories))], asked)[0]
    await write([trajectories], asked, tmp_path / "b")
    await stages(tmp_path / "b", asked, tmp_path / "v.jsonl")
    assert online.usage.usd
    assert plain(tmp_path / "v.jsonl")["t0"].usage.usd == pytest.approx(online.usage.usd / 2)


async def test_judges_write_few_stages(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    for name, most in (("steps", 1), ("vote", 1), ("cascade", 2), ("webjudge", 3)):
        asked = judge(server, **JUDGES[name])
        await write([trajectories], asked, tmp_path / name)
        _, count = await stages(tmp_path / name, asked, tmp_path / f"{name}.jsonl")
        assert count == most, name


async def test_nothing_is_written_twice(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    asked = judge(server)
    for _ in range(2):
        await write([trajectories], asked, tmp_path / "b")
        await collect(tmp_path / "b", asked, tmp_path / "v.jsonl")
    with BatchFolder(tmp_path / "b") as folder:
        assert len(list(folder.written())) == COUNT
        before = server.stats().requests
        await submit(folder)
        await submit(folder)
        while await fetch(folder):
            pass
    assert server.stats().requests - before == COUNT
    for _ in range(2):
        await collect(tmp_path / "b", asked, tmp_path / "v.jsonl")
    assert len(plain(tmp_path / "v.jsonl")) == COUNT + 1


async def test_lost_note_of_batch_makes_no_second(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    await write([trajectories], judge(server), tmp_path / "b")
    before = (tmp_path / "b" / MANIFEST).read_bytes()
    with BatchFolder(tmp_path / "b") as folder:
        await submit(folder)
        first = folder.manifest.files[0].batch
    (tmp_path / "b" / MANIFEST).write_bytes(before)  # killed before it was noted
    with BatchFolder(tmp_path / "b") as folder:
        await submit(folder)
        assert folder.manifest.files[0].batch == first


async def test_expired_requests_are_asked_again(trajectories: Path, tmp_path: Path) -> None:
    with BatchServer(batch_expired=0.5, batch_polls=2) as server:
        asked = judge(server, "steps")
        await write([trajectories], asked, tmp_path / "b")
        _, count = await stages(tmp_path / "b", asked, tmp_path / "v.jsonl")
        await score_files([trajectories], judge(server, "steps"), tmp_path / "online.jsonl")
        assert count > 1
        assert plain(tmp_path / "v.jsonl") == plain(tmp_path / "online.jsonl")


async def test_answers_stay_in_the_order_of_coming(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    """The file that came first is read first, though the clock was set back before the second
    one.
    """
    await write([trajectories], judge(server), tmp_path / "b")
    with BatchFolder(tmp_path / "b") as folder:
        await submit(folder)
        while await fetch(folder):
            pass
        (first,) = folder.answer_files()
        year = 365 * 24 * 3600 * 10**9
        # as if written before the clock was set back
        os.utime(first, ns=(first.stat().st_mtime_ns + year,) * 2)
        (tmp_path / "again.jsonl").write_bytes(
            b"".join(first.read_bytes().splitlines(keepends=True)[::-1])
        )
        folder.take(tmp_path / "again.jsonl")
        assert folder.answer_files()[0] == first and len(folder.answer_files()) == 2


async def test_lost_answers_are_asked_for_again(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    """A batch that has ended and has no line for a request, or one that cannot be read, will never
    have another.
    """
    asked = judge(server)
    await write([trajectories], asked, tmp_path / "b")
    with BatchFolder(tmp_path / "b") as folder:
        await submit(folder)
        while await fetch(folder):
            pass
        (answers,) = folder.answer_files()
        lines = answers.read_bytes().splitlines(keepends=True)
        answers.write_bytes(b"".join([lines[0][:40] + b"\n", *lines[2:]]))
    for _ in range(2):  # a second time, they have been written already
        assert (await collect(tmp_path / "b", asked, tmp_path / "v.jsonl")).pending == 2
        with BatchFolder(tmp_path / "b") as folder:
            assert [file.requests for file in folder.manifest.files] == [COUNT, 2]
    await stages(tmp_path / "b", asked, tmp_path / "v.jsonl")
    await score_files([trajectories], judge(server), tmp_path / "online.jsonl")
    assert plain(tmp_path / "v.jsonl") == plain(tmp_path / "online.jsonl")


async def test_failed_requests_are_unscored(trajectories: Path, tmp_path: Path) -> None:
    with BatchServer(batch_failed=0.5, seed=3) as server:
        asked = judge(server)
        await write([trajectories], asked, tmp_path / "b")
        tally, count = await stages(tmp_path / "b", asked, tmp_path / "v.jsonl")
        assert count == 1
        assert 0 < tally.unscored["transport"] < COUNT
        again, _ = await stages(tmp_path / "b", asked, tmp_path / "v.jsonl", retry_failed=True)
        assert again.unscored["transport"] == 0 < again.made
    assert sum(v.success is not None for v in plain(tmp_path / "v.jsonl").values()) == COUNT


async def test_useless_replies_have_their_reason(trajectories: Path, tmp_path: Path) -> None:
    with BatchServer(garbage=0.4, refusal=0.3, seed=1) as server:
        asked = judge(server)
        await write([trajectories], asked, tmp_path / "b")
        await stages(tmp_path / "b", asked, tmp_path / "v.jsonl")
    verdicts = plain(tmp_path / "v.jsonl").values()
    assert len(verdicts) == COUNT + 1
    assert (
        {"refusal", None} <= {v.unscored for v in verdicts} <= {"parse", "refusal", "input", None}
    )


async def test_server_without_fields_is_learnt(trajectories: Path, tmp_path: Path) -> None:
    with BatchServer(no_logprobs=True, no_json_schema=True) as server:
        asked = judge(server)
        await write([trajectories], asked, tmp_path / "b")
        await stages(tmp_path / "b", asked, tmp_path / "v.jsonl")
        await score_files([trajectories], judge(server), tmp_path / "online.jsonl")
    assert plain(tmp_path / "v.jsonl") == plain(tmp_path / "online.jsonl")


def answers_to(
    requests: Path, reply: str = "Thoughts: so\nStatus: success"
) -> list[dict[str, Any]]:
    """Lines as `vllm run-batch` writes them."""
    ids = [json.loads(line)["custom_id"] for line in requests.read_text().splitlines()]
    message = {"role": "assistant", "content": reply}
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    response = {"status_code": 200, "request_id": "r", "body": body}
    return [
        {"id": f"vllm-{id}", "custom_id": id, "response": response, "error": None} for id in ids
    ]


def written_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
async def folder(server: BatchServer, trajectories: Path, tmp_path: Path) -> Path:
    """A batch of the modular judge, written."""
    await write([trajectories], judge(server), tmp_path / "b")
    return tmp_path / "b"


async def test_partial_output_is_taken_up(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    lines = answers_to(folder / "requests-01-001.jsonl")
    part = written_lines(tmp_path / "out.jsonl", lines[:2])
    part.write_text(part.read_text() + json.dumps(lines[2])[:40])
    said: list[str] = []
    first = await collect(
        folder, judge(server), tmp_path / "v.jsonl", answers=[part], say=said.append
    )
    assert (first.succeeded, first.pending) == (2, COUNT - 2)
    assert ["out.jsonl:3: not a batch answer" in words for words in said] == [True]
    whole = written_lines(tmp_path / "out.jsonl", lines[::-1])
    second = await collect(folder, judge(server), tmp_path / "v.jsonl", answers=[whole])
    assert (second.succeeded, second.pending, second.skipped) == (COUNT - 2, 0, 2)


async def test_answers_to_other_batch_are_refused(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    lines = answers_to(folder / "requests-01-001.jsonl")
    other = written_lines(
        tmp_path / "o.jsonl", [{**line, "custom_id": f"x{i}"} for i, line in enumerate(lines)]
    )
    with pytest.raises(
        UsageError, match=r"o\.jsonl: answers 6 requests, none of them of this batch"
    ):
        await collect(folder, judge(server), tmp_path / "v.jsonl", answers=[other])
    assert (await collect(folder, judge(server), tmp_path / "v.jsonl")).pending == COUNT


async def test_requests_are_no_answers(folder: Path, server: BatchServer, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"requests-01-001\.jsonl: contains no answers of this batch"
    ):
        await collect(
            folder, judge(server), tmp_path / "v.jsonl", answers=[folder / "requests-01-001.jsonl"]
        )
    assert (await collect(folder, judge(server), tmp_path / "v.jsonl")).pending == COUNT


async def test_line_with_error_is_transport(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    lines = answers_to(folder / "requests-01-001.jsonl")
    lines[0] |= {"response": None, "error": {"code": "server_error", "message": "the engine died"}}
    lines[1] |= {
        "response": {"status_code": 400, "request_id": "r", "body": None},
        "error": {"message": "too odd"},
    }
    out = written_lines(tmp_path / "o.jsonl", lines)
    await collect(folder, judge(server), tmp_path / "v.jsonl", answers=[out])
    failed = sorted(
        v.reason for v in plain(tmp_path / "v.jsonl").values() if v.unscored == "transport"
    )
    assert ["too odd" in failed[0], "the engine died" in failed[1], len(failed)] == [True, True, 2]


async def test_spent_quota_then_ends_no_run_now(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    lines = answers_to(folder / "requests-01-001.jsonl")
    spent = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    lines[0]["response"] = {"status_code": 429, "request_id": "r", "body": spent}
    lines[1]["response"] = {
        "status_code": 401,
        "request_id": "r",
        "body": {"error": {"message": "the key was revoked"}},
    }
    out = written_lines(tmp_path / "o.jsonl", lines)
    tally = await collect(folder, judge(server), tmp_path / "v.jsonl", answers=[out])
    assert (tally.succeeded, tally.unscored["transport"], tally.pending) == (COUNT - 2, 2, 0)


async def test_refusal_of_run_batch_is_learnt_from(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    """`vllm run-batch` puts an error into an error, and leaves the body out."""
    lines = answers_to(folder / "requests-01-001.jsonl")
    words = (
        "This model's maximum context length is 900 tokens. However, your request has 1200 "
        "input tokens."
    )
    error = {"error": {"message": words, "type": "BadRequestError", "param": None, "code": 400}}
    lines[0] |= {"response": {"status_code": 400, "request_id": "r", "body": None}, "error": error}
    out = written_lines(tmp_path / "o.jsonl", lines)
    tally = await collect(folder, judge(server), tmp_path / "v.jsonl", answers=[out])
    verdicts = plain(tmp_path / "v.jsonl").values()
    assert tally.pending + sum(v.unscored == "context" for v in verdicts) == 1, (
        "a smaller request, or the reason"
    )
    assert tally.unscored["transport"] == 0


async def test_same_requests_again_are_a_new_batch(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    with BatchFolder(folder) as batch:
        await submit(batch)
        while await fetch(batch):
            pass
        first = batch.manifest.files[0]
        (folder / "again.jsonl").write_bytes((folder / first.name).read_bytes())
        batch.update(
            replace(first, name="again.jsonl", stage=2, batch=None, upload=None, fetched=False)
        )
        await submit(batch)
        assert batch.manifest.files[1].batch not in (None, first.batch)


async def test_broken_download_is_told(
    folder: Path, server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx2
    from openai._response import AsyncStreamedBinaryAPIResponse

    async def broken(self: Any, *args: Any, **kwargs: Any) -> None:
        raise httpx2.ReadError("")

    monkeypatch.setattr(AsyncStreamedBinaryAPIResponse, "stream_to_file", broken)
    with BatchFolder(folder) as batch:
        await submit(batch)
        with pytest.raises(
            EndpointError, match=r"cannot be downloaded: the connection to .* broke"
        ):
            while await fetch(batch):
                pass
    monkeypatch.undo()
    with BatchFolder(folder) as batch:
        while await fetch(batch):
            pass
        assert batch.manifest.files[0].fetched


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_page_of_a_proxy_is_one_clear_error(folder: Path, kind: str) -> None:
    async def sign_in(request: web.Request) -> web.Response:
        return web.Response(text="<html>Sign in", content_type=kind)

    runner = web.AppRunner(app := web.Application())
    app.router.add_route("*", "/{path:.*}", sign_in)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with BatchFolder(folder) as batch:
        entry = replace(
            batch.manifest.files[0], base_url=f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        )
        for moment, change in (("submitted", None), ("downloaded", "batch_1")):
            batch.update(replace(entry, batch=change))
            with pytest.raises(
                EndpointError,
                match=rf"cannot be {moment}: http.* does not answer like a batch API",
            ):
                await (fetch(batch) if change else submit(batch))
    await runner.cleanup()


async def test_id_at_a_server_names_no_place(
    folder: Path, server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Path] = []

    async def look(self: object, batch: BatchFolder, entry: object) -> jobs._BatchState:
        return jobs._BatchState("completed", "", (str(folder.parent / "elsewhere"), "../elsewhere"))

    async def download(self: object, id: str, target: Path) -> None:
        places.append(target)
        target.touch()

    monkeypatch.setattr(jobs._OpenAI, "look", look)
    monkeypatch.setattr(jobs._OpenAI, "download", download)
    with BatchFolder(folder) as batch:
        await submit(batch)
        await fetch(batch)
    assert [place.parent for place in places] == [folder, folder]


async def test_full_disk_leaves_no_half_answers(folder: Path, tmp_path: Path) -> None:
    out = written_lines(tmp_path / "o.jsonl", answers_to(folder / "requests-01-001.jsonl"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with BatchFolder(folder) as batch:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            with pytest.raises(UsageError, match=r"answers/.*cannot be written"):
                batch.take(out)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not list((folder / "answers").iterdir())
        assert batch.take(out) == [] and len(batch.answer_files()) == 1


async def test_another_judge_is_refused(folder: Path, server: BatchServer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="requests were written for another judge .*max_tokens"):
        await collect(folder, judge(server, max_tokens=7), tmp_path / "v.jsonl")
    with pytest.raises(UsageError, match="calls no model at an endpoint"):
        await write([folder.parent / "t.jsonl"], prill.judge("always-fail"), tmp_path / "c")


async def test_key_in_an_address_is_not_repeated(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    await write(
        [trajectories],
        judge(server),
        tmp_path / "b",
        described={"base_url": "http://a/v1?key=sesame"},
    )
    with pytest.raises(
        UsageError, match=r"base_url http://a/v1\?… there, http://b/v1 now"
    ) as caught:
        await write(
            [trajectories], judge(server), tmp_path / "b", described={"base_url": "http://b/v1"}
        )
    assert "sesame" not in str(caught.value)


async def test_later_files_join_the_batch(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    (tmp_path / "more.jsonl").write_text(
        lines[3].replace('"t3"', '"t9"').replace("order 3", "order 9") + "\n"
    )
    await write([tmp_path / "more.jsonl"], judge(server), folder)
    tally = await collect(folder, judge(server), tmp_path / "v.jsonl")
    assert (tally.read, tally.pending) == (COUNT + 2, COUNT + 1)
    with BatchFolder(folder) as batch:
        assert [file.requests for file in batch.manifest.files] == [COUNT, 1]


async def test_changed_trajectory_is_asked_again(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    out = written_lines(tmp_path / "o.jsonl", answers_to(folder / "requests-01-001.jsonl"))
    path = tmp_path / "t.jsonl"
    path.write_text(path.read_text().replace("order 3, page 2", "another page"))
    tally = await collect(folder, judge(server), tmp_path / "v.jsonl", answers=[out])
    assert (tally.made, tally.pending) == (COUNT, 1)
    assert len((folder / "requests-02-001.jsonl").read_text().splitlines()) == 1


async def test_files_keep_to_the_limits(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    asked = judge(server, "cascade", band=[0.0, 1.0], judges=[MODULAR, VLM])
    await write([trajectories], asked, tmp_path / "b", most_requests=4)
    with BatchFolder(tmp_path / "b") as folder:
        assert [file.requests for file in folder.manifest.files] == [4, 2]
    await write([trajectories], asked, tmp_path / "c", most_bytes=3000)
    with BatchFolder(tmp_path / "c") as folder:
        assert (
            sum(file.requests for file in folder.manifest.files)
            == COUNT
            < 2 * len(folder.manifest.files)
        )


async def test_batch_that_fails_says_why(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    await write([trajectories], judge(server), tmp_path / "b")
    requests = tmp_path / "b" / "requests-01-001.jsonl"
    requests.write_text(requests.read_text() * 2)
    with BatchFolder(tmp_path / "b") as folder:
        await submit(folder)
        with pytest.raises(
            EndpointError,
            match=r"failed: The custom_id of each request must be unique.*submit it again",
        ):
            await fetch(folder)
        assert folder.manifest.files[0].batch is None


async def test_folder_has_one_worker_at_a_time(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    with (
        BatchFolder(folder),
        pytest.raises(UsageError, match="another process is using this batch"),
    ):
        await collect(folder, judge(server), tmp_path / "v.jsonl")
    assert (await collect(folder, judge(server), tmp_path / "v.jsonl")).pending == COUNT


async def test_stop_leaves_a_batch_in_order(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    out = written_lines(tmp_path / "o.jsonl", answers_to(folder / "requests-01-001.jsonl"))
    stop = asyncio.Event()
    stopped = await collect(
        folder,
        judge(server),
        tmp_path / "v.jsonl",
        answers=[out],
        stop=stop,
        progress=lambda tally: stop.set(),
    )
    rest = await collect(folder, judge(server), tmp_path / "v.jsonl")
    assert (stopped.stopped, stopped.made + rest.made, rest.pending) == (True, COUNT + 1, 0)


async def test_problem_of_a_batch_stops_no_other(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    await write([trajectories], judge(server), tmp_path / "b", most_requests=3)
    with BatchFolder(tmp_path / "b") as folder:
        await submit(folder)
        folder.update(replace(folder.manifest.files[0], batch="batch_unknown"))
        for _ in range(3):  # a batch of this server has ended at the second look
            with pytest.raises(EndpointError, match="batch batch_unknown cannot be downloaded"):
                await fetch(folder)
        assert [file.fetched for file in folder.manifest.files] == [False, True]


async def test_problem_of_a_file_stops_no_other(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    await write([trajectories], judge(server), tmp_path / "b", most_requests=2)
    first, second = (tmp_path / "b" / f"requests-01-00{number}.jsonl" for number in (1, 2))
    kept = first.read_bytes()
    first.unlink()
    with BatchFolder(tmp_path / "b") as folder:
        folder.update(replace(folder.manifest.files[1], base_url="http://127.0.0.1:9/v1"))
        with pytest.raises(BatchError) as raised:
            await submit(folder)
        assert list(raised.value.problems) == [first.name, second.name]
        gone, away = str(raised.value).split("\n")
        assert f"{first}: No such file" in gone and "cannot reach http://127.0.0.1:9" in away
        assert [file.batch is not None for file in folder.manifest.files] == [False, False, True]
        first.write_bytes(kept)
        folder.update(replace(folder.manifest.files[1], base_url=server.base_url))
        assert await submit(folder) == 3


async def test_closed_door_is_tried_once(trajectories: Path, tmp_path: Path) -> None:
    with BatchServer(refuse_key=True) as closed:
        await write([trajectories], judge(closed), tmp_path / "b", most_requests=1)
        with BatchFolder(tmp_path / "b") as folder, pytest.raises(BatchError) as raised:
            await submit(folder)
    assert list(raised.value.problems) == ["requests-01-001.jsonl"], (
        "the same key at the same place"
    )


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_refused_certificate_has_its_advice(
    api: str, folder: Path, own_certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    tls = await asyncio.start_server(
        lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    async with tls:
        with BatchFolder(folder) as batch:
            entry = replace(
                batch.manifest.files[0],
                base_url=f"https://127.0.0.1:{tls.sockets[0].getsockname()[1]}/v1",
            )
            batch.update(entry)
            with pytest.raises(
                EndpointError,
                match=r"not trusted \(self.signed certificate\); .* set \$SSL_CERT_FILE",
            ):
                await submit(batch, api=api)  # type: ignore[arg-type]

"""Judging by batches: the verdicts are those of asking online, whatever becomes of a batch on its
way.
"""

from __future__ import annotations

import asyncio
import json
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
from prill.errors import UsageError
from prill.evaluators.scoring.batch import BatchConfig, BatchResult, batch
from prill.evaluators.scoring.batches import folder as folders
from prill.evaluators.scoring.batches import jobs
from prill.evaluators.scoring.batches.folder import MANIFEST, BatchState, Manifest, opened_batch
from prill.evaluators.scoring.scorer import score_files
from prill.io.store import read_verdicts
from prill.protocols import Evaluator
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
# A judge, and how many times it has to ask one after the other.
JUDGES: dict[str, tuple[dict[str, Any], int]] = {
    "vlm": ({"name": "vlm"}, 1),
    "modular": ({}, 1),
    "steps": ({"name": "steps"}, 1),
    "webjudge": ({"name": "webjudge"}, 3),
    "rubric": ({"name": "rubric"}, 3),
    "vote": ({"name": "vote", "samples": 3, "judges": [MODULAR]}, 1),
    "cascade": (
        {
            "name": "cascade",
            "band": [0.5, 1.0],
            "judges": [MODULAR, {"name": "steps", "captioner": "given", "model": "other"}],
        },
        2,
    ),
}


async def run(folder: Path, asked: Evaluator, *paths: Path, **options: Any) -> BatchResult:
    """What the command does, without waiting long."""
    config = BatchConfig(
        folder=folder, judge=asked, trajectories=paths, every=0.001, transcripts=False, **options
    )
    return await batch.run_async(config)


def plain(verdicts: str | Path) -> dict[str, Verdict]:
    """Verdicts by id without times."""
    return {v.id: replace(v, seconds=0.0) for v in read_verdicts(verdicts)}


def read_manifest(folder: Path) -> Manifest:
    """The description of a batch that is there."""
    manifest = folders.read_manifest(folder)
    assert manifest is not None
    return manifest


def noted(folder: Path, **changes: Any) -> Manifest:
    """The description of the batch, with changes of its first request file."""
    record = json.loads((folder / MANIFEST).read_text())
    record["files"][0] |= changes
    (folder / MANIFEST).write_text(json.dumps(record))
    return read_manifest(folder)


@pytest.mark.parametrize("name", JUDGES)
async def test_verdicts_equal_those_online(
    name: str, server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    options, stages = JUDGES[name]
    await score_files(
        [trajectories], judge(server, **options), tmp_path / "online.jsonl", concurrency=1
    )
    result = await run(tmp_path / "b", judge(server, **options), trajectories)
    batched, online = plain(result.output), plain(tmp_path / "online.jsonl")
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
    assert batched == online and len(batched) == COUNT + 1
    assert max(file.stage for file in read_manifest(tmp_path / "b").files) <= stages


async def test_writing_asks_nothing(
    trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    asked = prill.judge("vlm", model="gpt-4o")  # at OpenAI, whose endpoint would want a key
    result = await run(tmp_path / "b", asked, trajectories, api="none")
    assert (result.tally.pending, result.problem) == (COUNT, None)
    assert result.waiting == (str(tmp_path / "b" / "requests-01-001.jsonl"),)


async def test_key_in_an_answer_is_in_no_file(
    server: BatchServer, trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "what was asked for")  # as the server's every reply says
    await run(tmp_path / "b", judge(server), trajectories)
    files = [path for path in (tmp_path / "b").rglob("*.jsonl") if "requests" not in path.name]
    assert len(files) > 1
    assert not any(b"what was asked for" in path.read_bytes() for path in files)


async def test_unfit_judges_are_refused(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    local = prill.judge("modular", captioner="given", model=ScriptedModel([]))
    for asked, words in (
        (local, "runs on this machine"),
        (prill.judge("always-fail"), "calls no model at an endpoint"),
    ):
        with pytest.raises(UsageError, match=words):
            await run(tmp_path / "b", asked, trajectories)
    assert not (tmp_path / "b").exists()
    await run(tmp_path / "b", judge(server), trajectories, api="none")
    with pytest.raises(UsageError, match="requests were written for another judge .*max_tokens"):
        await run(tmp_path / "b", judge(server, max_tokens=7))


async def test_batches_cost_half(server: BatchServer, trajectories: Path, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("[mock]\nprompt = 100\ncompletion = 100\n")
    asked = judge(server, prices=str(tmp_path / "p.toml"))
    online = prill.score([next(prill.iter_trajectories(trajectories))], asked)[0]
    result = await run(tmp_path / "b", asked, trajectories)
    assert online.usage.usd
    assert plain(result.output)["t0"].usage.usd == pytest.approx(online.usage.usd / 2)


async def test_nothing_is_sent_twice(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    """Also if the folder was killed before it noted the batch."""
    before = server.stats().requests
    first = await run(tmp_path / "b", judge(server), trajectories, wait=False)
    assert first.tally.pending == COUNT
    id = read_manifest(tmp_path / "b").files[0].batch
    noted(tmp_path / "b", batch=None, upload=None, status=None)
    result = await run(tmp_path / "b", judge(server))
    assert (await run(tmp_path / "b", judge(server))).tally.skipped == COUNT
    assert (result.tally.pending, read_manifest(tmp_path / "b").files[0].batch) == (0, id)
    assert server.stats().requests - before == COUNT
    assert len(plain(result.output)) == COUNT + 1


async def test_expired_requests_are_asked_again(trajectories: Path, tmp_path: Path) -> None:
    with BatchServer(batch_expired=0.5, batch_polls=2) as server:
        result = await run(tmp_path / "b", judge(server, "steps"), trajectories)
        await score_files([trajectories], judge(server, "steps"), tmp_path / "online.jsonl")
    assert len(read_manifest(tmp_path / "b").files) > 1
    assert plain(result.output) == plain(tmp_path / "online.jsonl")


async def test_lost_answers_are_asked_for_again(
    server: BatchServer, trajectories: Path, tmp_path: Path
) -> None:
    """A batch that has ended and has no line for a request, or one that cannot be read, will never
    have another.
    """
    result = await run(tmp_path / "b", judge(server), trajectories)
    Path(result.output).unlink()
    (answers,) = (tmp_path / "b" / "answers").iterdir()
    lines = answers.read_bytes().splitlines(keepends=True)
    answers.write_bytes(b"".join([lines[0][:40] + b"\n", *lines[2:]]))
    for _ in range(2):  # a second time, they have been written already
        again = await run(tmp_path / "b", judge(server), api="none")
        assert again.tally.pending == 2
        assert [file.requests for file in read_manifest(tmp_path / "b").files] == [COUNT, 2]
    await run(tmp_path / "b", judge(server), api="openai")
    await score_files([trajectories], judge(server), tmp_path / "online.jsonl")
    assert plain(result.output) == plain(tmp_path / "online.jsonl")


async def test_failed_requests_are_unscored(trajectories: Path, tmp_path: Path) -> None:
    with BatchServer(batch_failed=0.5, seed=3) as server:
        first = await run(tmp_path / "b", judge(server), trajectories)
        assert 0 < first.tally.unscored["transport"] < COUNT
        for _ in range(9):
            again = await run(tmp_path / "b", judge(server), retry_unscored=True)
            if not again.tally.unscored["transport"]:
                break
    assert sum(v.success is not None for v in plain(first.output).values()) == COUNT


@pytest.mark.parametrize(
    "faults",
    [{"garbage": 0.4, "refusal": 0.3, "seed": 1}, {"no_logprobs": True, "no_json_schema": True}],
)
async def test_faults_are_those_online(
    faults: dict[str, Any], trajectories: Path, tmp_path: Path
) -> None:
    with BatchServer(**faults) as server:
        result = await run(tmp_path / "b", judge(server), trajectories)
        await score_files([trajectories], judge(server), tmp_path / "online.jsonl")
    batched, online = plain(result.output), plain(tmp_path / "online.jsonl")
    assert {v.unscored for v in batched.values()} <= {"refusal", "parse", "input", None}
    if "garbage" not in faults:
        assert batched == online


def answers_to(folder: Path, reply: str = "Thoughts: so\nStatus: success") -> list[dict[str, Any]]:
    """Lines as `vllm run-batch` writes them."""
    requests = (folder / "requests-01-001.jsonl").read_text().splitlines()
    ids = [json.loads(line)["custom_id"] for line in requests]
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
    await run(tmp_path / "b", judge(server), trajectories, api="none")
    return tmp_path / "b"


async def test_partial_output_is_taken_up(
    folder: Path, server: BatchServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    lines = answers_to(folder)
    part = written_lines(tmp_path / "out.jsonl", lines[:2])
    part.write_text(part.read_text() + json.dumps(lines[2])[:40])
    first = await run(folder, judge(server), answers=[part])
    assert (first.tally.succeeded, first.tally.pending) == (2, COUNT - 2)
    assert "out.jsonl:3: not a batch answer" in caplog.text and first.waiting
    whole = written_lines(tmp_path / "out.jsonl", lines[::-1])
    second = await run(folder, judge(server), answers=[whole])
    assert (second.tally.succeeded, second.tally.pending, second.waiting) == (COUNT - 2, 0, ())


async def test_files_that_answer_nothing_are_refused(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    lines = [{**line, "custom_id": f"x{i}"} for i, line in enumerate(answers_to(folder))]
    for path, words in (
        (
            written_lines(tmp_path / "o.jsonl", lines),
            r"o\.jsonl: contains no answers of this batch",
        ),
        (
            folder / "requests-01-001.jsonl",
            r"requests-01-001\.jsonl: contains no answers of this batch",
        ),
    ):
        with pytest.raises(UsageError, match=words):
            await run(folder, judge(server), answers=[path])
    assert (await run(folder, judge(server))).tally.pending == COUNT


async def test_line_with_error_is_transport(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    """Also a spent quota or a revoked key, which end an online run."""
    lines = answers_to(folder)
    lines[0] |= {"response": None, "error": {"code": "server_error", "message": "the engine died"}}
    lines[1] |= {
        "response": {"status_code": 400, "request_id": "r", "body": None},
        "error": {"message": "too odd"},
    }
    spent = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    lines[2]["response"] = {"status_code": 429, "request_id": "r", "body": spent}
    revoked = {"error": {"message": "the key was revoked"}}
    lines[3]["response"] = {"status_code": 401, "request_id": "r", "body": revoked}
    out = written_lines(tmp_path / "o.jsonl", lines)
    result = await run(folder, judge(server), answers=[out])
    reasons = [v.reason for v in plain(result.output).values() if v.unscored == "transport"]
    for words in ("too odd", "the engine died", "quota", "revoked"):
        assert sum(words in reason for reason in reasons) == 1
    assert result.tally.succeeded == COUNT - 4 and len(reasons) == 4


async def test_refusal_of_run_batch_is_learnt_from(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    """`vllm run-batch` puts an error into an error, and leaves the body out."""
    lines = answers_to(folder)
    words = (
        "This model's maximum context length is 900 tokens. However, your request has 1200 "
        "input tokens."
    )
    error = {"error": {"message": words, "type": "BadRequestError", "param": None, "code": 400}}
    lines[0] |= {"response": {"status_code": 400, "request_id": "r", "body": None}, "error": error}
    out = written_lines(tmp_path / "o.jsonl", lines)
    tally = (await run(folder, judge(server), answers=[out])).tally
    assert tally.pending + tally.unscored["context"] == 1, "a smaller request, or the reason"
    assert tally.unscored["transport"] == 0


async def test_broken_download_is_told_and_resumes(
    server: BatchServer, trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx2
    from openai._response import AsyncStreamedBinaryAPIResponse

    async def broken(self: Any, *args: Any, **kwargs: Any) -> None:
        raise httpx2.ReadError("")

    monkeypatch.setattr(AsyncStreamedBinaryAPIResponse, "stream_to_file", broken)
    result = await run(tmp_path / "b", judge(server), trajectories)
    assert "cannot be downloaded: cannot reach" in str(result.problem)
    monkeypatch.undo()
    result = await run(tmp_path / "b", judge(server))
    assert (result.problem, result.tally.pending) == (None, 0)


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_page_of_a_proxy_is_one_clear_error(
    folder: Path, server: BatchServer, kind: str
) -> None:
    async def sign_in(request: web.Request) -> web.Response:
        return web.Response(text="<html>Sign in", content_type=kind)

    runner = web.AppRunner(app := web.Application())
    app.router.add_route("*", "/{path:.*}", sign_in)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    for moment, name in (("submitted", None), ("downloaded", "batch_1")):
        noted(folder, base_url=url, batch=name, api="openai")
        asked = judge(server, base_url=url)
        problem = str((await run(folder, asked, api="openai")).problem)
        assert f"cannot be {moment}: " in problem and "does not answer like a batch API" in problem
    await runner.cleanup()


async def test_id_at_a_server_names_no_place(
    folder: Path, server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Path] = []

    async def look(self: object, entry: object) -> BatchState:
        return BatchState("completed", "", (str(folder.parent / "elsewhere"), "../elsewhere"))

    async def download(self: object, id: str, target: Path) -> None:
        places.append(target)
        target.touch()

    monkeypatch.setattr(jobs._OpenAI, "look", look)
    monkeypatch.setattr(jobs._OpenAI, "download", download)
    noted(folder, batch="batch_1", api="openai")
    await run(folder, judge(server), wait=False)
    assert [place.parent for place in places] == [folder, folder]


async def test_full_disk_leaves_no_half_answers(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    out = written_lines(tmp_path / "o.jsonl", answers_to(folder))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened_batch(folder, judge(server).info) as batch:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            with pytest.raises(UsageError, match=r"answers/.*cannot be written"):
                batch.take(out)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not list((folder / "answers").iterdir())
        assert batch.take(out) == batch.take(out) == [] and len(batch.answer_files()) == 1
        with pytest.raises(UsageError, match="another process is using this batch"):
            await run(folder, judge(server))


async def test_later_and_changed_trajectories_join_the_batch(
    folder: Path, server: BatchServer, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    lines = path.read_text().splitlines()
    (tmp_path / "more.jsonl").write_text(
        lines[3].replace('"t3"', '"t9"').replace("order 3", "order 9") + "\n"
    )
    tally = (await run(folder, judge(server), tmp_path / "more.jsonl")).tally
    assert (tally.read, tally.pending) == (COUNT + 2, COUNT + 1)
    path.write_text(path.read_text().replace("order 3, page 2", "another page"))
    assert (await run(folder, judge(server))).tally.pending == COUNT + 1
    assert [file.requests for file in read_manifest(folder).files] == [COUNT, 1, 1]


async def test_files_keep_to_the_limits(
    server: BatchServer, trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value, files in (("MAX_REQUESTS", 4, 2), ("MAX_BYTES", 3000, COUNT)):
        monkeypatch.setattr(folders, name, value)
        await run(tmp_path / name, judge(server), trajectories, api="none")
        requests = [file.requests for file in read_manifest(tmp_path / name).files]
        assert (len(requests), sum(requests)) == (files, COUNT)
        monkeypatch.undo()


async def test_problem_of_a_file_stops_no_other(
    server: BatchServer, trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_REQUESTS", 1)
    folder = tmp_path / "b"
    await run(folder, judge(server), trajectories, api="none")
    first, second, third, *_ = (folder / file.name for file in read_manifest(folder).files)
    kept = first.read_bytes()
    second.write_bytes(second.read_bytes() * 2)
    noted(folder, batch="batch_unknown", api="openai")
    record = json.loads((folder / MANIFEST).read_text())
    monkeypatch.setenv("TORN_KEY", "a\nb")
    record["files"][2]["api_key_env"] = "TORN_KEY"
    (folder / MANIFEST).write_text(json.dumps(record))
    result = await run(folder, judge(server), api="openai")
    unknown, away, twice = str(result.problem).split("\n")
    assert "batch batch_unknown cannot be downloaded" in unknown
    assert f"{third.name} cannot be submitted: $TORN_KEY contains a line break" in away
    assert "failed: The custom_id of each request must be unique" in twice
    assert (result.tally.made, result.tally.pending) == (COUNT + 1 - 3, 3)
    assert first.read_bytes() == kept


async def test_closed_door_is_tried_once(
    trajectories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_REQUESTS", 1)
    with BatchServer(refuse_key=True) as closed:
        result = await run(tmp_path / "b", judge(closed), trajectories)
    assert len(str(result.problem).split("\n")) == 1, "the same key at the same place"


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_refused_certificate_has_its_advice(
    api: str,
    folder: Path,
    server: BatchServer,
    own_certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    tls = await asyncio.start_server(
        lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    async with tls:
        url = f"https://127.0.0.1:{tls.sockets[0].getsockname()[1]}/v1"
        noted(folder, base_url=url)
        problem = str((await run(folder, judge(server, base_url=url), api=api)).problem)
    assert "not trusted (self" in problem and "set $SSL_CERT_FILE" in problem

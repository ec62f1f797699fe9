"""Scoring runs: resume, broken input, failures as states, a clean stop."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import prill
from prill.captioner import GivenCaption
from prill.errors import CallTimeoutError, EndpointError, UsageError
from prill.evaluators.scoring.scorer import Tally, score_files, score_stream, verdict_key
from prill.io.store import decode_trajectory, read_verdicts
from prill.models.ledger import queued
from prill.protocols import Reply
from prill.testing import ScriptedModel
from prill.types import EvaluatorInfo, Observation, Task, Trajectory, Verdict

INFO = EvaluatorInfo("parity", "1")


class Parity:
    """Judges an even number in the goal a success; counts its calls."""

    info = INFO

    def __init__(self, fault: Callable[[int], None] = lambda number: None) -> None:
        self.calls: list[str] = []
        self.fault = fault

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return [o.screenshot for o in trajectory.observations if o.screenshot]

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        self.calls.append(trajectory.id)
        await asyncio.sleep(0)
        number = int(trajectory.task.goal)
        self.fault(number)
        if number < 0:
            return Verdict(id=trajectory.id, unscored="timeout", reason="too slow", evaluator=INFO)
        return Verdict(id=trajectory.id, success=number % 2 == 0, evaluator=INFO)


def write(path: Path, numbers: list[int]) -> str:
    path.write_text(
        "".join(
            json.dumps({"id": f"t{i}", "task": {"goal": str(n)}}) + "\n"
            for i, n in enumerate(numbers)
        )
    )
    return str(path)


def verdicts(path: Path) -> dict[str, Verdict]:
    rows = list(read_verdicts(path))
    found = {row.id: row for row in rows}
    assert len(found) == len(rows), "an id occurs twice"
    return found


async def test_second_run_makes_what_is_missing(tmp_path: Path) -> None:
    path, out = write(tmp_path / "t.jsonl", [0, 1, 2, 3]), tmp_path / "v.jsonl"
    await score_files([path], Parity(), out, limit=2)
    write(tmp_path / "t.jsonl", [0, 10, 2, 3])
    judge = Parity()
    tally = await score_files([path], judge, out)
    assert sorted(judge.calls) == ["t1", "t2", "t3"]
    assert tally.skipped == 1
    assert verdicts(out)["t1"].success


async def test_unscored_kept_until_retried(tmp_path: Path) -> None:
    path, out = write(tmp_path / "t.jsonl", [0, -1, 2]), tmp_path / "v.jsonl"
    tally = await score_files([path], Parity(), out)
    assert tally.unscored == {"timeout": 1}
    judge = Parity()
    await score_files([path], judge, out)
    assert judge.calls == []
    await score_files([path], judge, out, retry_unscored=True)
    assert judge.calls == ["t1"]
    assert len(verdicts(out)) == 3


async def test_broken_lines_vanish_when_mended(tmp_path: Path) -> None:
    path, out = tmp_path / "t.jsonl", tmp_path / "v.jsonl"
    good = '{"id": "a", "task": {"goal": "2"}}'
    path.write_text(f'not json\n{good}\n{{"id": "b", "task": {{}}}}\n{good}\n')
    tally = await score_files([path], Parity(), out)
    assert (tally.read, tally.succeeded, tally.unscored) == (4, 1, {"input": 3})
    found = verdicts(out)
    assert found.keys() == {"a", "b", f"{path}:1", f"{path}:4"}
    assert (
        found[f"{path}:4"].reason
        == f"{path}:4: duplicate id 'a', first used at {path}:2; give each trajectory an id of "
        "its own"
    )
    path.write_text(
        f'{{"id": "z", "task": {{"goal": "1"}}}}\n{good}\n{{"id": "b", "task": {{"goal": "4"}}}}\n'
    )
    await score_files([path], Parity(), out)
    found = verdicts(out)
    assert {id: v.success for id, v in found.items() if v.unscored is None} == {
        "z": False,
        "a": True,
        "b": True,
    }
    assert f"{path}:1" not in found


@pytest.mark.parametrize(
    ("content", "problem"),
    [("", "empty"), ("\n\n", "empty"), ("x\ny\n", "no trajectory could be read; .*t.jsonl:1")],
)
async def test_nothing_to_read_leaves_no_file(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(UsageError, match=problem):
        await score_files([tmp_path / "t.jsonl"], Parity(), tmp_path / "v.jsonl")
    assert not (tmp_path / "v.jsonl").exists()


async def test_run_error_keeps_what_is_judged(tmp_path: Path) -> None:
    def fault(number: int) -> None:
        if number == 20:
            raise EndpointError("the key was revoked")

    path, out = write(tmp_path / "t.jsonl", list(range(100))), tmp_path / "v.jsonl"
    judge = Parity(fault)
    with pytest.raises(EndpointError, match="revoked"):
        await score_files([path], judge, out, concurrency=4)
    assert verdicts(out).keys() == set(judge.calls) - {"t20"}
    assert len(judge.calls) < 30


async def test_stopped_run_goes_on_later(tmp_path: Path) -> None:
    path, out = write(tmp_path / "t.jsonl", list(range(100))), tmp_path / "v.jsonl"
    stop, judge = asyncio.Event(), Parity()

    def progress(tally: Tally) -> None:
        if tally.made == 10:
            stop.set()

    tally = await score_files([path], judge, out, concurrency=4, stop=stop, progress=progress)
    assert tally.stopped
    assert verdicts(out).keys() == set(judge.calls)
    assert 10 <= len(judge.calls) < 20
    await score_files([path], judge, out)
    assert sorted(judge.calls) == sorted(verdicts(out)) == sorted(f"t{i}" for i in range(100))


async def test_finished_files_are_equal_whatever_the_order_of_completion(tmp_path: Path) -> None:
    class Shuffled(Parity):
        async def __call__(self, trajectory: Trajectory) -> Verdict:
            verdict = await super().__call__(trajectory)
            for _ in range(random.randrange(20)):
                await asyncio.sleep(0)
            return verdict

    random = Random(0)
    path = write(tmp_path / "t.jsonl", list(range(100)))
    once, often = tmp_path / "once.jsonl", tmp_path / "often.jsonl"
    await score_files([path], Shuffled(), once, concurrency=1)
    for rest in (97, 50, 3, 0):
        stop = asyncio.Event()

        def progress(tally: Tally, rest: int = rest, stop: asyncio.Event = stop) -> None:
            if tally.made + tally.skipped >= 100 - rest:
                stop.set()

        options: dict[str, Any] = {"stop": stop, "progress": progress} if rest else {}
        await score_files([path], Shuffled(), often, concurrency=16, **options)
    assert often.read_bytes() == once.read_bytes()
    # The verdicts of other files stay, before.
    more = tmp_path / "more.jsonl"
    more.write_text("".join(f'{{"id": "m{i}", "task": {{"goal": "{i}"}}}}\n' for i in range(40)))
    await score_files([more], Shuffled(), often, concurrency=16)
    assert often.read_bytes().startswith(once.read_bytes())
    assert list(verdicts(often))[100:] == [f"m{i}" for i in range(40)]


async def test_stop_drops_what_only_waits_for_the_model(tmp_path: Path) -> None:
    """The model takes one call at a time: a stop waits for it, not for all that are begun."""
    path, out = write(tmp_path / "t.jsonl", list(range(40))), tmp_path / "v.jsonl"
    stop, slot, ends = asyncio.Event(), asyncio.Semaphore(1), asyncio.Event()

    class Waiting(Parity):
        async def __call__(self, trajectory: Trajectory) -> Verdict:
            with queued() as begin:
                async with slot:
                    begin()
                    stop.set()
                    await ends.wait()
                    return await super().__call__(trajectory)

    judge = Waiting()
    running = asyncio.create_task(score_files([path], judge, out, concurrency=16, stop=stop))
    await stop.wait()
    await asyncio.sleep(0.5)  # a stop is noticed
    ends.set()
    assert (await running).stopped
    assert len(judge.calls) == len(verdicts(out)) == 1


def test_key_follows_content_not_folder(tmp_path: Path) -> None:
    def key(folder: str, pixels: bytes = b"1", goal: str = "g", info: EvaluatorInfo = INFO) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "a.png").write_bytes(pixels)
        line = json.dumps(
            {"id": "a", "task": {"goal": goal}, "final": {"screenshot": "a.png"}}
        ).encode()
        trajectory = decode_trajectory(line, tmp_path / folder)
        return verdict_key(info, trajectory, Parity().screenshots(trajectory))

    same = key("x")
    assert key("y") == same
    different = {
        key("x", pixels=b"2"),
        key("x", goal="h"),
        key("x", info=EvaluatorInfo("parity", "2")),
    }
    assert len(different | {same}) == 4


async def test_failed_call_is_never_a_failure() -> None:
    class Caption:
        name = "given"

        async def __call__(self, observation: Observation) -> str:
            return "a page"

    judge = prill.judge(
        "modular",
        model=ScriptedModel([CallTimeoutError("no response within 1 s")]),
        captioner=Caption(),
    )
    state = Trajectory(id="a", task=Task(goal="g"), final=Observation(caption="x"))
    verdict = await judge(state)
    assert (verdict.success, verdict.score, verdict.unscored, verdict.reason) == (
        None,
        None,
        "timeout",
        "no response within 1 s",
    )


@pytest.mark.parametrize(("asked", "at_once"), [(None, 3), (2, 2)])
async def test_concurrency_is_the_models(asked: int | None, at_once: int) -> None:
    class Slow(ScriptedModel):
        concurrency = 3
        now = most = 0

        async def complete(self, *words: Any, **options: Any) -> Reply:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.01)
            self.now -= 1
            return await super().complete(*words, **options)

    model = Slow(lambda messages: "Thoughts: x\nStatus: success")
    runs = [
        Trajectory(id=str(i), task=Task(goal="g"), final=Observation(caption="x"))
        for i in range(12)
    ]
    verdicts = [
        v
        async for v in score_stream(
            runs, prill.judge("modular", model=model, captioner=GivenCaption()), concurrency=asked
        )
    ]
    assert (len(verdicts), model.most) == (12, at_once)


NOTEBOOK = """
import asyncio
from prill.running import wait_for

async def run():
    try:
        print("running", flush=True)
        await asyncio.Event().wait()
    finally:
        print("ended", flush=True)

async def cell():
    wait_for(run)

asyncio.new_event_loop().run_until_complete(cell())
"""


def test_an_interrupted_notebook_ends_its_run() -> None:
    """The run has a thread of its own there, which an interrupt of the cell does not reach by
    itself.
    """
    command = [sys.executable, "-c", NOTEBOOK]
    with subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (out, err.splitlines()[-1]) == ("ended\n", "KeyboardInterrupt")

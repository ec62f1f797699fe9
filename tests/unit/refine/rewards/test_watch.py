"""The watch while a reward is used: it changes, delays and fails none, and what it saw survives the
process.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import prill
from prill.errors import EndpointError, UsageError
from prill.io.store import BadLine, encode, write_labels, write_trajectories
from prill.refine.rewards import Reward, Watch, WatchRecord, WatchSpec, make_reward, read_watch
from prill.refine.rewards.watch.records import WatchLog
from prill.testing import MockServer
from prill.types import EvaluatorInfo, LabelRecord, Observation, Task, Trajectory, Usage, Verdict
from tests.support.refine.rewards.watching import said

INFO = EvaluatorInfo("says", "1")


class Says:
    """Says what the goal says; a canary that is `held` waits until it is let go."""

    info = INFO

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.held: set[str] = set()
        self.most = self._now = 0

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return []

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        id, goal = trajectory.id, trajectory.task.goal
        self.asked[id] += 1
        self._now += id.startswith("canary")
        self.most = max(self.most, self._now)
        while id in self.held:
            await asyncio.sleep(0.001)
        self._now -= id.startswith("canary")
        if goal == "gone":
            raise EndpointError("no call can succeed")
        if goal == "bug":
            raise KeyError("words of a page")
        if goal == "timeout":
            return Verdict(id=id, unscored="timeout", reason="words of a page", evaluator=INFO)
        return Verdict(
            id=id,
            success=goal == "success",
            reason="words of a page",
            usage=Usage(1, 10, 1, 0, 0.5),
            evaluator=INFO,
        )


class Unready(Says):
    def __call__(self, trajectory: Trajectory) -> Any:  # type: ignore[override]
        raise RuntimeError("no judge at all")


def attempt(goal: str, id: str = "run") -> Trajectory:
    return Trajectory(id=id, task=Task(goal=goal), final=Observation(text="a page"))


def canaries(folder: Path, *goals: str, labels: tuple[bool | None, ...] = ()) -> dict[str, Any]:
    """The settings for canaries with these goals; by default their label is success."""
    runs = [attempt(goal, f"canary-{i}") for i, goal in enumerate(goals)]
    truths = labels or (True,) * len(runs)
    write_trajectories(folder / "canaries.jsonl", runs)
    write_labels(
        folder / "labels.jsonl",
        [LabelRecord(id=run.id, success=t) for run, t in zip(runs, truths, strict=True)],
    )
    return {"canaries": folder / "canaries.jsonl", "canary_labels": folder / "labels.jsonl"}


def watched(judge: Any, **spec: Any) -> tuple[Reward, Watch]:
    watch = Watch(judge, WatchSpec(**spec))
    return Reward(judge, watch=watch), watch


async def some(reward: Reward, count: int) -> None:
    for i in range(count):
        assert await reward(attempt("success", f"run-{i}")) == 1.0


async def test_every_verdict_is_noted_in_order(tmp_path: Path) -> None:
    log = tmp_path / "new" / "watch.jsonl"
    reward, watch = watched(Says(), observations=log, student="always-fail")
    for i, goal in enumerate(("success", "failure", "timeout")):
        await reward(attempt(goal, f"run-{i}"))
    await reward(BadLine("broken", "f:1", "no JSON", b""))
    await asyncio.to_thread(watch.close)
    noted = list(read_watch(log, pytest.fail))
    assert [(one.id, one.verdict.success, one.verdict.unscored) for one in noted] == [
        ("run-0", True, None),
        ("run-1", False, None),
        ("run-2", None, "timeout"),
        ("broken", None, "input"),
    ]
    assert [one.student and one.student.success for one in noted] == [False, False, False, None]
    assert "words of a page" not in log.read_text() and "Z" in noted[0].at


async def test_canaries_come_every_n_verdicts(tmp_path: Path) -> None:
    judge = Says()
    reward, watch = watched(
        judge, canary_every=3, **canaries(tmp_path, "success", "failure", "timeout")
    )
    for i in range(7):  # rounds begin at the first, the fourth and the seventh
        await some(reward, 1)
        await asyncio.to_thread(watch.settle)
        assert judge.asked["canary-1"] == 1 + i // 3
    found = watch.report()
    assert [(one.after, one.right, one.wrong, one.unscored) for one in found.rounds] == [
        (1, 1, 1, 1),
        (4, 1, 1, 1),
        (7, 1, 1, 1),
    ]
    # of the two that could be judged, three times
    assert watch.spent == found.usage == Usage(6, 60, 6, 0, 3.0)
    watch.close()


async def test_held_canaries_delay_no_reward(tmp_path: Path) -> None:
    judge = Says()
    judge.held = {"canary-0"}
    reward, watch = watched(judge, canary_every=1, **canaries(tmp_path, "success", "success"))
    await some(reward, 20)
    while watch.report().verdicts < 20:
        await asyncio.sleep(0.001)
    # the round of the first verdict still waits
    assert judge.asked["canary-0"] == 1 and judge.asked["canary-1"] == 0
    judge.held.clear()
    await asyncio.to_thread(watch.settle)
    assert (judge.most, len(watch.report().rounds)) == (1, 1)
    watch.close()


@pytest.mark.parametrize("goal", ["gone", "bug", "timeout"])
async def test_canaries_that_break_are_unscored(goal: str, tmp_path: Path) -> None:
    reward, watch = watched(
        Says(), observations=tmp_path / "w.jsonl", **canaries(tmp_path, goal, "success")
    )
    await some(reward, 1)
    await asyncio.to_thread(watch.settle)
    [one] = watch.report().rounds
    assert (one.right, one.wrong, one.unscored) == (1, 0, 1)
    assert "words of a page" not in (tmp_path / "w.jsonl").read_text()
    watch.close()


async def test_a_broken_student_costs_no_reward() -> None:
    reward, watch = watched(Says(), student=Unready())
    await some(reward, 3)
    await asyncio.to_thread(watch.close)
    assert watch.report().verdicts == 3


async def test_a_watch_that_ended_is_soon_settled() -> None:
    class Nameless(Says):
        @property
        def info(self) -> EvaluatorInfo:  # type: ignore[override]
            raise RuntimeError("no name")

    reward, watch = watched(Says(), student=Nameless())
    await some(reward, 2)
    await asyncio.wait_for(asyncio.to_thread(watch.settle, 60.0), 50)
    assert "the monitor stopped: RuntimeError" in watch.report().trouble
    watch.close()


async def test_kept_replies_answer_no_canary(tmp_path: Path) -> None:
    with MockServer() as server:
        reward = make_reward(
            "modular",
            captioner="text",
            model="m",
            base_url=server.base_url,
            cache=str(tmp_path / "cache"),
            watch=WatchSpec(canary_every=1, **canaries(tmp_path, "success truth=success")),
        )
        assert reward.watch is not None
        for _ in range(3):
            assert await reward(attempt("Buy tea truth=success")) == 1.0
            await asyncio.to_thread(reward.watch.settle)
        assert server.stats().requests == 1 + 3  # one reward that is kept, three rounds
        reward.watch.close()


async def test_a_log_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    settings = {
        "observations": tmp_path / "w.jsonl",
        "canary_every": 2,
        **canaries(tmp_path, "success"),
    }
    for _ in range(2):
        reward, watch = watched(Says(), **settings)
        for _ in range(2):
            await some(reward, 1)
            await asyncio.to_thread(watch.settle)
        watch.close()
    _, again = watched(Says(), **settings)
    again.open()
    found = again.report()
    assert (found.verdicts, len(found.rounds), [one.after for one in found.rounds]) == (
        4,
        2,
        [1, 3],
    )
    again.close()
    assert again.report().verdicts == 4  # what was seen stays known


async def test_broken_lines_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "w.jsonl"
    reward, watch = watched(Says(), observations=log)
    await some(reward, 2)
    watch.close()
    first, second = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(first + b"{broken\n" + second + second[:40])
    reward, watch = watched(Says(), observations=log)
    with caplog.at_level(logging.WARNING):
        await some(reward, 1)
        watch.close()
    assert watch.report().verdicts == 3 and "1 broken lines ignored" in caplog.text
    assert log.read_bytes().startswith(first + b"{broken\n" + second + b'{"kind"')
    problems: list[str] = []
    assert len(list(read_watch(log, problems.append))) == 3
    assert len(problems) == 1 and problems[0].startswith(f"{log}:2: not valid JSON")


async def test_a_log_of_another_judge_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "w.jsonl"
    reward, watch = watched(Says(), observations=log)
    await some(reward, 1)
    watch.close()
    other = prill.judge("always-fail")
    before = log.read_bytes()
    with pytest.raises(UsageError, match="observations of another judge"):
        Watch(other, WatchSpec(observations=log)).open()
    assert log.read_bytes() == before


async def test_two_writers_cost_no_reward(tmp_path: Path) -> None:
    first, second = (watched(Says(), observations=tmp_path / "w.jsonl") for _ in range(2))
    for reward, watch in (first, second):
        await some(reward, 2)
        await asyncio.to_thread(watch.settle)
    assert first[1].report().trouble == ""
    found = second[1].report()
    assert found.verdicts == 2 and "another process is writing this file" in found.trouble
    for _, watch in (first, second):
        watch.close()
    assert len((tmp_path / "w.jsonl").read_text().splitlines()) == 2


def test_a_watch_outlives_event_loops(tmp_path: Path) -> None:
    reward, watch = watched(Says(), canary_every=1, **canaries(tmp_path, "success"))
    for _ in range(3):
        asyncio.run(some(reward, 1))  # as ms-swift calls it; the loop's end ends no round
        watch.settle()
    assert len(watch.report().rounds) == 3
    watch.close()
    assert not [
        one for one in threading.enumerate() if one.name == "prill-watch" and one.is_alive()
    ]


def test_a_watched_reward_can_be_pickled(tmp_path: Path) -> None:
    made = make_reward(
        "always-success",
        watch={"student": "always-fail", "observations": str(tmp_path / "w.jsonl")},
    )
    again = pickle.loads(pickle.dumps(made)).raising()
    assert asyncio.run(again(attempt("x"))) == 1.0
    again.watch.close()
    assert (
        again.watch.report().verdicts == 1
        and made.watch is not None
        and made.watch.report().verdicts == 0
    )


def test_a_file_has_the_watch_in_a_table(tmp_path: Path) -> None:
    settings = canaries(tmp_path, "success", "failure", labels=(None, True))
    path = tmp_path / "reward.toml"
    path.write_text(
        'evaluator = "self-report"\n[watch]\nwindow = 50\n'
        f'canaries = "{settings["canaries"]}"\ncanary-labels = "{settings["canary_labels"]}"\n'
        '[watch.student]\nevaluator = "always-fail"\n'
    )
    watch = prill.reward(path).watch
    assert (
        watch is not None
        and watch.spec.window == 50
        and watch.spec.canaries == str(settings["canaries"])
    )
    path.write_text('evaluator = "self-report"\n[watch]\nwindows = 50\n')
    with pytest.raises(
        UsageError,
        match="reward.toml: watch.windows: unknown option \\(did you mean 'window'\\?\\)",
    ):
        prill.reward(path)
    path.write_text('evaluator = "self-report"\nwatch = 3\n')
    with pytest.raises(UsageError, match="watch: expected a table, got 3"):
        prill.reward(path)


def test_canaries_without_labels_are_errors(tmp_path: Path) -> None:
    settings = canaries(tmp_path, "success", labels=(None,))
    with pytest.raises(UsageError, match="no canary has a decided label"):
        Watch(Says(), WatchSpec(**settings))
    with pytest.raises(UsageError, match="give both"):
        WatchSpec(canaries=settings["canaries"])
    settings["canaries"].write_text("broken\n")
    with pytest.raises(UsageError, match=r"canaries.jsonl:1: not valid JSON"):
        Watch(Says(), WatchSpec(**settings))
    with pytest.raises(UsageError, match="labels.jsonl: contains labels, not observations"):
        Watch(Says(), WatchSpec(observations=settings["canary_labels"]))


def test_only_half_an_observation_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    line = encode(WatchRecord(kind="verdict", at="", id="a", verdict=said(0.9)))
    for last, kept in ((line[:-1], 2), (line[:30], 1), (line[:3], 1)):
        path.write_bytes(line + last)
        seen: list[WatchRecord] = []
        WatchLog(path, "judge", seen.append).close()
        assert (len(seen), path.read_bytes()) == (kept, line * kept)
    for notes in (b"my notes", line + b"my notes", b'{"my": "notes"}'):
        path.write_bytes(notes)
        with pytest.raises(UsageError, match="not an observation"):
            WatchLog(path, "judge", lambda record: None)
        assert path.read_bytes() == notes

"""Retries by a judge's verdicts: who is shown what, what is done next, and what is counted;
whatever breaks in between.
"""

from __future__ import annotations

import json
import typing
from dataclasses import replace
from pathlib import Path

import pytest

from prill.episodes.record import Pool
from prill.errors import CallTimeoutError, EndpointError, UsageError
from prill.io.retries import SETTINGS, read_results
from prill.io.store import iter_trajectories, read_labels, read_verdicts
from prill.refine.outcomes import table_lines
from prill.refine.reflexion import PlaySettings, run_reflexion
from prill.refine.retries import RetrySpec
from prill.types import Trajectory, Verdict
from tests.support.refine.retrying import CANARY, Room, Scribe, Written, challenges, oracle, run


def recorded(out: Path) -> list[Trajectory]:
    return [
        item
        for item in iter_trajectories(out / "trajectories.jsonl")
        if isinstance(item, Trajectory)
    ]


# The bookkeeping, with agent, judge and oracle by script


async def test_judge_content_at_third_attempt(tmp_path: Path) -> None:
    model = Scribe()
    results = await run(tmp_path, {"t": [False, False, True]}, Written({"t": "FFS"}), model=model)
    (task,) = results.tasks
    assert (len(task.attempts), task.ended, task.answer) == (3, "accepted", 2)
    assert recorded(tmp_path)[2].metadata["lessons"] == ["lesson 0 of find t", "lesson 1 of find t"]
    assert [attempt.answer for attempt in task.attempts] == ["0", "1", "2"], (
        "the agent saw as many lessons"
    )
    assert task.attempts[2].truth is True
    assert ["TRIAL 0:" in prompt for prompt in model.lessons_asked] == [False, True]


async def test_false_positive_gives_up_a_retry(tmp_path: Path) -> None:
    results = await run(tmp_path, {"t": [False]}, Written({"t": "S"}))
    assert (len(results.tasks[0].attempts), results.tasks[0].attempts[0].truth) == (1, False)
    assert results.table is not None
    assert (results.table.kept_by_false_positives, results.table.rows[3].solved) == (1, 0)


async def test_false_negative_loses_what_was_right(tmp_path: Path) -> None:
    model = Scribe()
    truths = {"t": [True, False, False, False]}
    results = await run(tmp_path / "plain", truths, Written({"t": "FFFF"}), model=model)
    assert (len(results.tasks[0].attempts), len(model.lessons_asked)) == (4, 3), (
        "no reflection after the last attempt"
    )
    assert results.table is not None
    assert [row.solved for row in results.table.rows] == [1, 0, 0, 0]
    assert (results.table.lost_to_false_negatives, results.tasks[0].ended) == (1, "attempts")
    best = await run(
        tmp_path / "best", truths, Written({"t": [0.4, 0.1, 0.4, 0.2]}), keep_best=True
    )
    assert best.tasks[0].answer == 0, "the highest score, the earliest of equals"
    assert best.table is not None
    assert ([row.solved for row in best.table.rows], best.table.lost_to_false_negatives) == (
        [1, 1, 1, 1],
        0,
    )


async def test_unscored_attempts_are_no_failures(tmp_path: Path) -> None:
    model, judge = Scribe(), Written({"a": "U", "b": "FU"})
    results = await run(tmp_path, {"a": [True], "b": [False, True]}, judge, model=model)
    assert [(task.ended, len(task.attempts)) for task in results.tasks] == [
        ("unscored", 1),
        ("unscored", 2),
    ]
    assert len(model.lessons_asked) == 1
    judge.verdicts = {"a": "S", "b": "FS"}
    again = await run(
        tmp_path, {"a": [True], "b": [False, True]}, judge, retry={"retry_unscored": True}
    )
    assert [task.ended for task in again.tasks] == ["accepted", "accepted"]
    assert judge.seen.count("b-a0") == 1


async def test_stops_when_lessons_repeat(tmp_path: Path) -> None:
    model = Scribe(lambda prompt: "Look\n twice" if "TRIAL 0" in prompt else "look twice")
    results = await run(tmp_path, {"t": [False] * 4}, Written({"t": "FFFF"}), model=model)
    assert (results.tasks[0].ended, len(results.tasks[0].attempts)) == ("repeated_lesson", 2)


async def test_no_lesson_is_a_state_of_its_own(tmp_path: Path) -> None:
    def silent(prompt: str) -> str:
        raise CallTimeoutError("no answer in time")

    results = await run(tmp_path, {"t": [False] * 4}, Written({"t": "FFFF"}), model=Scribe(silent))
    (task,) = results.tasks
    assert (task.ended, task.attempts[0].lesson, task.attempts[0].problem) == (
        "no_lesson",
        None,
        "timeout: no answer in time",
    )
    again = await run(
        tmp_path, {"t": [False] * 4}, Written({"t": "FFFF"}), retry={"retry_unscored": True}
    )
    assert again.tasks[0].ended == "attempts"


FOUR = {"a": [False, False, True], "b": [True], "c": [False, True], "d": [False, False, False]}
LETTERS = {"a": "FFS", "b": "S", "c": "FS", "d": "FFF"}
BY_TASK = ["a-a0", "a-a1", "a-a2", "b-a0", "c-a0", "c-a1", "d-a0", "d-a1", "d-a2"]


class Stops(Written):
    """A judge whose endpoint is gone after so many verdicts."""

    calls = 0

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        if len(self.seen) == self.calls:
            raise EndpointError("stopped")
        return await super().__call__(trajectory)


@pytest.mark.parametrize(
    ("order", "played"), [("task", BY_TASK), ("attempt", sorted(BY_TASK, key=lambda id: id[-1]))]
)
async def test_attempts_follow_in_that_order(tmp_path: Path, order: str, played: list[str]) -> None:
    results = await run(tmp_path / "whole", FOUR, Written(LETTERS), attempts=3, order=order)
    assert [trajectory.id for trajectory in recorded(tmp_path / "whole")] == played
    assert results.settings["retries"]["order"] == order
    for calls in (1, 4, 8):  # stopped anywhere, it goes on in the same order
        out, stopping = tmp_path / str(calls), Stops(LETTERS)
        stopping.calls = calls
        with pytest.raises(EndpointError, match="stopped"):
            await run(out, FOUR, stopping, attempts=3, order=order)
        again = await run(out, FOUR, Written(LETTERS), attempts=3, order=order)
        assert [trajectory.id for trajectory in recorded(out)] == played
        assert (again.tasks, again.table) == (results.tasks, results.table)


async def test_as_many_tasks_as_environments(tmp_path: Path) -> None:
    """Task by task, two environments play two tasks at the same time; the attempts at each follow
    one another.
    """
    pool, tasks = Pool([Room(), Room()]), challenges(list(FOUR), Scribe())
    spec = RetrySpec(attempts=3, order="task")
    results = await run_reflexion(
        pool, tasks, Written(LETTERS), tmp_path, spec, play=PlaySettings(oracle=oracle(FOUR))
    )
    ids = [trajectory.id for trajectory in recorded(tmp_path)]
    assert (
        sorted(ids) == sorted(BY_TASK) and [task.ended for task in results.tasks][-1] == "attempts"
    )
    assert ids.index("c-a0") > ids.index("b-a0"), "a task begins when one before it has ended"
    assert ids.index("d-a0") > ids.index("c-a1")


async def test_task_by_task_shares_no_site(tmp_path: Path) -> None:
    """A task that has begun keeps its site until it has ended, though one before it in the list
    wants it, too.
    """
    pool = Pool([Room(), Room()])
    sites = {"a": {"x"}, "b": {"x", "y"}, "c": {"y"}, "d": {"y"}}
    tasks = [
        replace(task, needs=frozenset(sites[task.name]))
        for task in challenges(list(FOUR), Scribe())
    ]
    letters = {"a": "S", "b": "FS", "c": "FFS", "d": "S"}
    spec = RetrySpec(attempts=3, order="task")
    await run_reflexion(
        pool,
        tasks,
        Written(letters),
        tmp_path,
        spec,
        play=PlaySettings(oracle=oracle({t: [True] * 3 for t in letters})),
    )
    ids = [trajectory.id for trajectory in recorded(tmp_path)]
    assert sorted(ids[:2]) == ["a-a0", "c-a0"] and ids[2:] == [
        "c-a1",
        "c-a2",
        "b-a0",
        "b-a1",
        "d-a0",
    ]


async def test_threshold_decides_instead_of_judge(tmp_path: Path) -> None:
    truths = {"t": [True, False, False, False]}
    low = await run(tmp_path / "low", truths, Written({"t": [0.4, 0.9]}), threshold=0.3)
    assert (low.tasks[0].ended, len(low.tasks[0].attempts)) == ("accepted", 1)
    high = await run(tmp_path / "high", truths, Written({"t": [0.6, 0.9]}), threshold=0.8)
    assert (high.tasks[0].ended, len(high.tasks[0].attempts)) == ("accepted", 2)
    written = read_verdicts(tmp_path / "high/verdicts.jsonl")
    assert [verdict.success for verdict in written] == [False, True], "as a report shows them"


async def test_leftover_state_is_on_record(tmp_path: Path) -> None:
    words = "the site keeps what was changed"
    results = await run(tmp_path, {"t": [False, False]}, Written({"t": "FS"}), leftovers=words)
    assert results.warnings == (words,)
    assert ["state" in trajectory.metadata for trajectory in recorded(tmp_path)] == [False, True]


# Who is shown what


async def test_no_prompt_depends_on_the_oracle(tmp_path: Path) -> None:
    seen = []
    for name, truth in (("right", True), ("wrong", False), ("silent", None)):
        model = Scribe()
        await run(tmp_path / name, {"t": [truth] * 4}, Written({"t": "FFFS"}), model=model)
        seen.append(
            [str(part) for messages in model.seen for message in messages for part in message.parts]
        )
    assert seen[0] == seen[1] == seen[2]
    assert not [text for text in seen[0] if CANARY in text], (
        "neither label nor note nor source is shown to anyone"
    )
    assert CANARY in (tmp_path / "right" / "labels.jsonl").read_text()
    assert CANARY not in (tmp_path / "right" / "trajectories.jsonl").read_text()


async def test_oracle_as_judge_tells_a_bit(tmp_path: Path) -> None:
    model = Scribe()
    results = await run(tmp_path, {"t": [False, True]}, None, model=model)
    assert (results.evaluator.name, results.tasks[0].ended, len(results.tasks[0].attempts)) == (
        "oracle",
        "accepted",
        2,
    )
    assert "\nFAILED\n" in model.lessons_asked[0].partition("STATUS:")[2]


@pytest.mark.parametrize(("status", "words"), [("language", "the page shows F"), ("bit", "FAILED")])
async def test_status_is_reason_or_bit(tmp_path: Path, status: str, words: str) -> None:
    model = Scribe()
    await run(tmp_path, {"t": [False, True]}, Written({"t": "FS"}), model=model, status=status)
    assert json.loads((tmp_path / "lessons.jsonl").read_text())["status"] == words
    assert words in model.lessons_asked[0] and ("the page shows" in model.lessons_asked[0]) == (
        status == "language"
    )


# Several judges on the same attempts


async def test_other_judge_plays_where_it_differs(tmp_path: Path) -> None:
    truths = {"a": [False, True], "b": [False, True, True], "c": [True]}
    room = Room()
    await run(tmp_path / "one", truths, Written({"a": "FS", "b": "FS", "c": "S"}), room=room)
    assert room.begun == 5
    room, model, judge = Room(), Scribe(), Written({"a": "FS", "b": "FFS", "c": "S"})
    results = await run(
        tmp_path / "two",
        truths,
        judge,
        room=room,
        model=model,
        retry={"baseline": tmp_path / "one"},
    )
    assert room.begun == 1, "only where the second judge went on after the first was content"
    assert [len(task.attempts) for task in results.tasks] == [2, 3, 1]
    assert results.table is not None and (results.table.played, results.table.reused) == (1, 5)
    assert len(model.lessons_asked) == 1, "lessons from the same words are taken from the other run"
    assert {label.id: label.success for label in read_labels(tmp_path / "two" / "labels.jsonl")}[
        "b-a2"
    ] is True
    other = Scribe()
    judge = Written({"a": "FS", "b": "FS", "c": "S"}, reason="another view: {word}")
    room = Room()
    await run(
        tmp_path / "three",
        truths,
        judge,
        room=room,
        model=other,
        retry={"baseline": tmp_path / "one"},
    )
    assert (room.begun, len(other.lessons_asked)) == (0, 2), (
        "from other words, another lesson is drawn"
    )


@pytest.mark.parametrize("settings", [b"", b"[]", b"\xff", b'{"a": ' + b"[" * 5_000])
async def test_broken_settings_are_one_error(settings: bytes, tmp_path: Path) -> None:
    await run(tmp_path, {"t": [True]}, Written({"t": "S"}))
    (tmp_path / SETTINGS).write_bytes(settings)
    with pytest.raises(UsageError, match=f"{SETTINGS}: not the settings of a run"):
        await run(tmp_path, {"t": [True]}, Written({"t": "S"}))


# Taken up


async def test_finished_run_asks_nothing_again(tmp_path: Path) -> None:
    truths = {"a": [False, True], "b": [True]}
    await run(tmp_path, truths, Written({"a": "FS", "b": "S"}))
    before = (tmp_path / "results.json").read_bytes()
    model, judge, room = Scribe(), Written({}), Room()
    await run(tmp_path, truths, judge, model=model, room=room)
    assert (model.seen, judge.seen, room.begun) == ([], [], 0)
    assert (tmp_path / "results.json").read_bytes() == before


@pytest.mark.parametrize("calls", range(0, 11, 2))
async def test_stop_anywhere_changes_no_result(tmp_path: Path, calls: int) -> None:
    """A model that dies after so many calls, with half a line written to each file, as a killed
    process may leave it.
    """
    truths = {"a": [False, False, True], "b": [True, False, False, False]}
    judge = Written({"a": "FFS", "b": "FFFF"})
    await run(tmp_path / "whole", truths, judge)

    class Mortal(Scribe):
        def say(self, messages: typing.Any) -> str:
            if len(self.seen) > calls:
                raise ZeroDivisionError("killed")
            return super().say(messages)

    with pytest.raises(ZeroDivisionError):
        await run(tmp_path / "stopped", truths, judge, model=Mortal())
    # What a bug leaves is an episode on record as broken; a kill leaves none of it.
    path = tmp_path / "stopped" / "trajectories.jsonl"
    lines = (
        [line for line in path.read_text().splitlines(True) if "a bug ended" not in line]
        if path.exists()
        else []
    )
    path.write_text("".join(lines) + '{"id":"half')
    for name in ("verdicts.jsonl", "lessons.jsonl"):
        with (tmp_path / "stopped" / name).open("a") as file:
            file.write('{"id":"ha')
    await run(tmp_path / "stopped", truths, judge)
    whole, stopped = (
        (tmp_path / name / "results.json").read_bytes() for name in ("whole", "stopped")
    )
    assert stopped == whole
    ids = [trajectory.id for trajectory in recorded(tmp_path / "stopped")]
    assert len(ids) == len(set(ids)) == 7


async def test_broken_attempts_can_be_played_again(tmp_path: Path) -> None:
    class Restless(Scribe):
        def say(self, messages: typing.Any) -> str:
            if len(self.seen) == 3:
                raise CallTimeoutError("no answer in time")
            return super().say(messages)

    truths, judge = {"t": [False, True]}, Written({"t": "FS"})
    results = await run(tmp_path, truths, judge, model=Restless())
    (task,) = results.tasks
    assert (task.ended, task.answer, [attempt.status for attempt in task.attempts]) == (
        "broken",
        0,
        ["failure", "broken"],
    )
    assert judge.seen == ["t-a0"], "what broke off is not judged"
    again = await run(tmp_path, truths, judge)
    assert again.tasks[0].ended == "broken", "only when it is asked for"
    again = await run(tmp_path, truths, judge, retry={"retry_broken": True})
    assert (again.tasks[0].ended, again.tasks[0].answer) == ("accepted", 1)


# The figures


async def test_costs_are_those_of_all_roles(tmp_path: Path) -> None:
    results = await run(tmp_path, {"t": [False, True]}, Written({"t": "FS"}))
    table = read_results(tmp_path).table
    assert table == results.table and table is not None
    assert (table.actor.calls, table.reflector.calls, table.judge.calls) == (2, 1, 0)
    assert (table.calls_per_solved, table.tokens_per_solved) == (3.0, 36.0)
    assert table.usd_per_solved == pytest.approx(36e-6)
    lines = "\n".join(table_lines(table))
    assert (
        "| 1 | 1 | 1 | 100.0% |" in lines
        and "a solved task: 3.0 calls, 36 tokens, $0.0000" in lines
    )

"""Retries that broke off, or whose budget was spent: every figure speaks of all tasks, or says of
how many.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from prill.errors import BudgetSpentError, CallTimeoutError
from prill.protocols import Message
from prill.refine.outcomes import table_lines
from prill.types import Trajectory, Verdict
from tests.support.refine.retrying import Scribe, Written, run

TRUTHS: dict[str, list[bool | None]] = {f"t{n}": [False] * 4 for n in range(9)} | {
    f"u{n}": [False, True] for n in range(3)
}
VERDICTS = {name: "FFFF" if name[0] == "t" else "FS" for name in TRUTHS}


async def test_tables_speak_of_all_tasks(tmp_path: Path) -> None:
    """Nine tasks of twelve broke off: three solved are not all of them."""

    class Failing(Scribe):
        def say(self, messages: Sequence[Message]) -> str:
            if "find t" in str(messages[-1].parts[0]):
                raise CallTimeoutError("no answer in time")
            return super().say(messages)

    results = await run(tmp_path, TRUTHS, Written(VERDICTS), model=Failing())
    assert results.table is not None
    row = results.table.rows[3]
    assert (row.solved, row.decided, row.tasks, row.success, row.high) == (3, 3, 12, 0.25, 1.0)
    lines = list(table_lines(results.table))
    assert lines[5].startswith("| 3 | 3 | 12 | 25.0% |") and lines[5].endswith("| 9 |")


@dataclass
class Budget(Scribe):
    """A model that has so many calls."""

    calls: int = 10**6

    def __post_init__(self) -> None:
        super().__init__()

    def say(self, messages: Sequence[Message]) -> str:
        if self.calls == 0:
            raise BudgetSpentError("the budget of $1 is used up")
        self.calls -= 1
        return super().say(messages)


@dataclass
class Judge(Written):
    """A judge that has so many verdicts."""

    calls: int = 10**6
    spent: list[str] = field(default_factory=list)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        if self.calls == 0:
            self.spent.append(trajectory.id)
            return Verdict(
                id=trajectory.id,
                unscored="budget",
                reason="the budget of $1 is used up",
                evaluator=self.info,
            )
        self.calls -= 1
        return await super().__call__(trajectory)


@pytest.mark.parametrize("calls", range(9))
async def test_further_budget_takes_up_what_the_last_one_left(calls: int, tmp_path: Path) -> None:
    truths: dict[str, list[bool | None]] = {"a": [False, False, True], "b": [False, True]}
    verdicts = {"a": "FFS", "b": "FS"}
    whole = await run(tmp_path / "whole", truths, Written(verdicts))
    for name, model, judge in (
        ("model", Budget(calls=calls), Written(verdicts)),
        ("judge", Scribe(), Judge(verdicts, calls=calls)),
    ):
        out = tmp_path / name
        stopped = await run(out, truths, judge, model=model)
        if stopped.tasks != whole.tasks:
            assert {task.ended for task in stopped.tasks} & {"not_begun", "no_lesson", "unscored"}
        again = await run(out, truths, Written(verdicts))
        assert again.tasks == whole.tasks
        ids = [
            json.loads(line)["id"] for line in (out / "trajectories.jsonl").read_text().splitlines()
        ]
        assert len(ids) == len(set(ids)) == 5

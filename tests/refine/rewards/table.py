"""The five things that can come of a judge, as trainers see them: `docs/how-to/rewards.md` has a
row for each adapter.

An adapter is a function of a reward and a trajectory that goes through the framework's own call and
gives what the trainer is handed; what it raises counts as `raises NAME`. Put it into ADAPTERS of
test_table.py, and its row into the document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import prill
from prill.refine.rewards import Reward
from prill.types import Observation, Task, Trajectory

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/how-to/rewards.md"
CASES = ("success", "failure", "unscored", "timeout", "garbage reply")
# What on_unscored may say.
POLICIES: dict[str, dict[str, Any]] = {
    "abstain": {},
    "value": {"on_unscored": "value", "value": -0.5},
    "raise": {"on_unscored": "raise"},
}
COMMON: dict[str, Any] = {
    "captioner": "text",
    "model": "mock",
    "api_key_env": "NO_SUCH_KEY",
    "retries": 0,
}
Adapter = Callable[[Reward, Trajectory], Any]


def documented(policy: str = "abstain") -> dict[str, dict[str, str]]:
    """What the document says by adapter and case: the first code in the cell.

    Its second table has the other policies, with a trajectory that shows nothing; other reasons
    have errors of their own.
    """
    told = _table("| framework | success |", CASES)
    if policy == "abstain":
        return told
    others = {
        name: row[policy]
        for name, row in _table("| framework | value |", ("value", "raise")).items()
    }
    errors = {"timeout": "CallTimeoutError", "garbage reply": "UnparsableError"}
    for name, row in told.items():
        cell = others[name]
        if cell == row["unscored"]:  # the same as abstaining, also for other reasons
            continue
        for case in ("unscored", "timeout", "garbage reply"):
            row[case] = cell.replace("NoEvidenceError", errors.get(case, "NoEvidenceError"))
    return told


def _table(beginning: str, columns: Sequence[str]) -> dict[str, dict[str, str]]:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(beginning))
    heads = [cell.strip() for cell in lines[start].strip("|").split("|")]
    table: dict[str, dict[str, str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        cells = dict(zip(heads, (cell.strip() for cell in line.strip("|").split("|")), strict=True))
        table[cells["framework"]] = {column: cells[column].split("`")[1] for column in columns}
    return table


def made(options: dict[str, Any], **more: Any) -> Reward:
    """A reward with these options, of the judge that all frameworks are tried with."""
    return prill.reward("modular", **options, **more)


def trajectory_for(case: str) -> Trajectory:
    """One whose verdict by the mock endpoint is that of the case; without text on its page there is
    nothing to judge.
    """
    page = (
        None
        if case == "unscored"
        else f"A page. truth={'failure' if case == 'failure' else 'success'}"
    )
    return Trajectory(id=f"t-{case}", task=Task(goal="buy tea"), final=Observation(text=page))


def seen(adapter: Adapter, reward: Reward, trajectory: Trajectory) -> str:
    """What the trainer is handed, in the words of the table."""
    try:
        return repr(adapter(reward, trajectory))
    except Exception as error:  # noqa: BLE001 - whatever a framework makes of it
        return f"raises {type(error).__name__}"


def in_loop(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """The result of an async function, on a loop of its own."""
    return asyncio.run(function(*args, **keywords))

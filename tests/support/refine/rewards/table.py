"""The five possible results of a judge, as trainers see them. `docs/how-to/rewards.md` has a row
for each adapter.

An adapter is a function of a reward and a trajectory. It calls the framework's own code and returns
the trainer's input; an exception counts as `raises NAME`. To add one, add it to ADAPTERS of
test_table.py and its row to the document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import prill
from prill.refine.rewards import Reward
from prill.types import Observation, Task, Trajectory
from tests.support.paths import ROOT

DOCUMENT = ROOT / "docs/how-to/rewards.md"
CASES = ("success", "failure", "unscored", "timeout", "garbage reply")
# The values of on_unscored.
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
    """Returns the document's entries by adapter and case: the first code span in the cell.

    Its second table has the other policies, with a trajectory without evidence. Other reasons have
    their own errors.
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
        if cell == row["unscored"]:  # equal to abstaining, also for other reasons
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
    """Returns a reward with these options, of the judge used for all frameworks."""
    return prill.reward("modular", **options, **more)


def trajectory_for(case: str) -> Trajectory:
    """Returns a trajectory whose verdict by the mock endpoint is that of the case. A page without
    text is unscored.
    """
    page = (
        None
        if case == "unscored"
        else f"A page. truth={'failure' if case == 'failure' else 'success'}"
    )
    return Trajectory(id=f"t-{case}", task=Task(goal="buy tea"), final=Observation(text=page))


def seen(adapter: Adapter, reward: Reward, trajectory: Trajectory) -> str:
    """Returns the trainer's input, in the terms of the table."""
    try:
        return repr(adapter(reward, trajectory))
    except Exception as error:  # noqa: BLE001 - whatever a framework makes of it
        return f"raises {type(error).__name__}"


def in_loop(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Returns the result of an async function, run in its own event loop."""
    return asyncio.run(function(*args, **keywords))

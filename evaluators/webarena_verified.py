"""WebArena-Verified as a second oracle: the same 812 tasks with mended checks, graded without a model by its own package.

It reads the agent's answer as JSON of a fixed shape (`task_type`, `status`, `retrieved_data`, `error_details`) and the
recorded network traffic instead of the sites' pages, and its task texts ask for that shape: its results are not comparable
with those of WebArena. Record the traffic with Playwright: `new_context(record_har_path=…, record_har_content="embed")`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prill.datasets.webarena_tasks import SITES
from prill.errors import InputError, UsageError
from prill.types import LabelRecord, Trajectory

if TYPE_CHECKING:
    from webarena_verified import WebArenaVerified

SOURCE = "webarena-verified"
_INSTALL = "webarena-verified is not installed; run: pip install webarena-verified (it wants an environment of its own)"


class WebArenaVerifiedOracle:
    """Grades answers and recorded traffic. The sites' addresses are those of `environ` (os.environ): SHOPPING, REDDIT, …

    Raises UsageError when the package is not installed, or no address is set.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        try:
            from webarena_verified import WebArenaVerified
            from webarena_verified.types.config import WebArenaVerifiedConfig
        except ImportError:
            raise UsageError(_INSTALL) from None
        values = os.environ if environ is None else environ
        addresses = {f"__{site}__": {"urls": [values[site].rstrip("/")]} for site in SITES if values.get(site)}
        if not addresses:
            raise UsageError(f"set the addresses of the sites: {', '.join(SITES)}")
        self._judge: WebArenaVerified = WebArenaVerified(config=WebArenaVerifiedConfig(environments=addresses))

    async def grade(self, trajectory: Trajectory, har: Path) -> LabelRecord:
        """The label, with what did not match in the note; no decision where the package could not evaluate.

        `har` is the episode's network traffic. Raises UsageError for a task that is none of the 812.
        """
        if trajectory.error is not None:
            return _label(trajectory, None, f"the episode broke off: {trajectory.error}")
        return await asyncio.to_thread(self._grade, trajectory, har)

    def _grade(self, trajectory: Trajectory, har: Path) -> LabelRecord:
        number = task_number(trajectory)
        if not har.is_file():
            raise InputError(f"{har}: there is no such file; it should hold the network traffic of {trajectory.id}")
        result = self._judge.evaluate_task(task_id=number, agent_response=trajectory.answer, network_trace=har)
        status = str(result.status)
        if status == "error":
            problems = [result.error_msg, *(one.error_msg for one in result.evaluators_results)]
            return _label(trajectory, None, "; ".join(str(problem) for problem in problems if problem) or "no result")
        failed = [
            f"{one.evaluator_name}: {assertion.assertion_name}: {'; '.join(assertion.assertion_msgs or ())}"
            for one in result.evaluators_results
            for assertion in one.assertions or ()
            if str(assertion.status) != "success"
        ]
        return _label(trajectory, status == "success", "; ".join(failed) or None)


def task_number(trajectory: Trajectory) -> int:
    """The number in `webarena.<number>`."""
    name, _, number = trajectory.task.id.partition(".")
    if name != "webarena" or not number.isdecimal() or int(number) > 811:
        raise UsageError(f"trajectory {trajectory.id}: {trajectory.task.id!r} is none of webarena.0 to webarena.811")
    return int(number)


def _label(trajectory: Trajectory, success: bool | None, note: str | None) -> LabelRecord:
    return LabelRecord(id=trajectory.id, success=success, source=SOURCE, note=note)

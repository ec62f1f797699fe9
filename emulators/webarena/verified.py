"""WebArena-Verified as a second oracle: the same 812 tasks, graded by its own package.

It reads the agent's answer as a JSON object (`task_type`, `status`, `retrieved_data`,
`error_details`), which its task texts request, and the recorded network traffic instead of the
sites' pages. Its results are not comparable with those of WebArena. Record the traffic with
Playwright: `new_context(record_har_path=…, record_har_content="embed")`.
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
_LAST = 811
_FORM = """

Your final answer is one JSON object and nothing else:
{"task_type": …, "status": …, "retrieved_data": …, "error_details": …}
task_type: RETRIEVE when something was to be found out, MUTATE to be changed, NAVIGATE when a page was to be shown.
status: SUCCESS, or why it cannot be done: NOT_FOUND_ERROR, PERMISSION_DENIED_ERROR, ACTION_NOT_ALLOWED_ERROR, \
DATA_VALIDATION_ERROR, UNKNOWN_ERROR.
retrieved_data: for RETRIEVE a list of what was found, with numbers as numbers; null otherwise.
error_details: null with SUCCESS, else the reason in a sentence."""  # noqa: E501
_INSTALL = (
    "webarena-verified is not installed; run: pip install webarena-verified (it needs a "
    "separate environment)"
)


class WebArenaVerifiedOracle:
    """An oracle that grades answers and recorded traffic.

    The sites' addresses are read from `environ` (os.environ): SHOPPING, REDDIT and the others.

    Raises UsageError if the package is not installed, or no address is set.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        try:
            from webarena_verified import WebArenaVerified
            from webarena_verified.types.config import WebArenaVerifiedConfig
        except ImportError:
            raise UsageError(_INSTALL) from None
        values = os.environ if environ is None else environ
        addresses = {
            f"__{site}__": {"urls": [values[site].rstrip("/")]}
            for site in SITES
            if values.get(site)
        }
        if not addresses:
            raise UsageError(f"set the URLs of the sites: {', '.join(SITES)}")
        self._judge: WebArenaVerified = WebArenaVerified(
            config=WebArenaVerifiedConfig(environments=addresses)
        )

    def goal(self, number: int) -> str:
        """Returns the task's text in this benchmark, followed by the required form of the answer.

        An agent needs both to answer correctly. Raises UsageError for an unknown task number.
        """
        if number > _LAST:
            raise UsageError(f"webarena-verified has no task {number}; its tasks are 0 to {_LAST}")
        return str(self._judge.get_task(number).intent) + _FORM

    async def grade(self, trajectory: Trajectory, har: Path) -> LabelRecord:
        """Labels an episode; the note lists the failed checks.

        The label is undecided if the package could not evaluate the episode. `har` is the file with
        the episode's network traffic. Raises UsageError for an unknown task.
        """
        if trajectory.error is not None:
            return _label(trajectory, None, f"ended with an error: {trajectory.error}")
        return await asyncio.to_thread(self._grade, trajectory, har)

    def _grade(self, trajectory: Trajectory, har: Path) -> LabelRecord:
        number = task_number(trajectory)
        if not har.is_file():
            raise InputError(
                f"{har}: no such file; it should contain the network traffic of {trajectory.id}"
            )
        result = self._judge.evaluate_task(
            task_id=number, agent_response=trajectory.answer, network_trace=har
        )
        status = str(result.status)
        if status == "error":
            problems = [result.error_msg, *(one.error_msg for one in result.evaluators_results)]
            return _label(
                trajectory,
                None,
                "; ".join(str(problem) for problem in problems if problem) or "no result",
            )
        failed = [
            (
                f"{one.evaluator_name}: {assertion.assertion_name}: "
                f"{'; '.join(assertion.assertion_msgs or ())}"
            )
            for one in result.evaluators_results
            for assertion in one.assertions or ()
            if str(assertion.status) != "success"
        ]
        return _label(trajectory, status == "success", "; ".join(failed) or None)


def task_number(trajectory: Trajectory) -> int:
    """Parses the number in `webarena.<number>`."""
    name, _, number = trajectory.task.id.partition(".")
    if name != "webarena" or not number.isdecimal() or int(number) > _LAST:
        raise UsageError(
            f"trajectory {trajectory.id}: {trajectory.task.id!r} is not one of webarena.0 "
            f"to webarena.{_LAST}"
        )
    return int(number)


def _label(trajectory: Trajectory, success: bool | None, note: str | None) -> LabelRecord:
    return LabelRecord(id=trajectory.id, success=success, source=SOURCE, note=note)

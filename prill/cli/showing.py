"""Progress, plans, tallies and log messages of commands, as text and JSON."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from prill.errors import UsageError
from prill.runs.plan import RunPlan
from prill.scoring.scorer import Tally

if TYPE_CHECKING:
    from tqdm import tqdm

_MAX_PROBLEMS = 20


def show_plan(command: str, plan: RunPlan, *, as_json: bool) -> int:
    """Prints what a run would do; the exit code of a dry run."""
    if as_json:
        print(json.dumps(plan.table()))
    else:
        for line in plan.lines():
            print(line)
    for problem in plan.problems[:_MAX_PROBLEMS]:
        print(f"prill {command}: {problem}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def logs_shown(command: str) -> Iterator[None]:
    """Shows on standard error what the library logs meanwhile: warnings, errors with their
    traceback, and what is for users.
    """
    handler = _Lines(command)
    logger = logging.getLogger("prill")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Lines(logging.Handler):
    def __init__(self, command: str) -> None:
        super().__init__(logging.INFO)
        self._command = command

    def filter(self, record: logging.LogRecord) -> bool:
        """Warnings, what is for users, and what runs say; not what has handlers of its own, such as
        the log of a service.
        """
        if record.name != "prill" and logging.getLogger(record.name).handlers:
            return False
        return (
            record.levelno >= logging.WARNING
            or getattr(record, "for_users", False)
            or record.name == "prill.runs"
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Prints the record; what a run says of its work has no prefix. What cannot be shown ends
        nothing.
        """
        plain = record.name == "prill.runs" and record.levelno < logging.WARNING
        with contextlib.suppress(OSError, UsageError):
            print(
                f"{'' if plain else f'prill {self._command}: '}{self.format(record)}",
                file=sys.stderr,
            )


def figures(tally: Tally) -> dict[str, Any]:
    """The figures of a run, for JSON."""
    return {
        "read": tally.read,
        "skipped": tally.skipped,
        "success": tally.succeeded,
        "failure": tally.failed,
        "unscored": dict(tally.unscored),
        "usage": msgspec.to_builtins(tally.usage),
    }


def say_counts(tally: Tally, output: str) -> None:
    """Says on stderr how many verdicts of which kind there are, and why some are none."""
    unscored = sum(tally.unscored.values())
    counts = (
        f"{tally.succeeded} success, {tally.failed} failure, {unscored} unscored, "
        f"{tally.skipped} already there"
    )
    lines = [f"{counts} -> {output}"]
    if unscored:
        lines += [
            "unscored: "
            + ", ".join(f"{reason} {count}" for reason, count in tally.unscored.most_common())
        ]
        lines += [f"  {problem}" for problem in tally.problems[:10]]
    if unscored > 10:
        lines += [f"  … and {unscored - 10} more, with their reasons, in {output}"]
    for line in lines:
        print(line, file=sys.stderr)


def say_problems(command: str, problems: Sequence[str], most: int = 10) -> None:
    """Says on stderr what could not be used, the first of it and how much more there is."""
    for problem in problems[:most]:
        print(f"prill {command}: {problem}", file=sys.stderr)
    if len(problems) > most:
        print(f"prill {command}: … and {len(problems) - most} more", file=sys.stderr)


def progress_bar(*items: Any, **options: Any) -> tqdm[NoReturn]:
    """tqdm's, by a clock that is never set back: with tqdm's own a bar stands still until the old
    time is reached again.
    """
    return _kind()(*items, **options)


@cache
def _kind() -> Any:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        @property
        def _time(self) -> Callable[[], float]:
            return time.monotonic

        @_time.setter
        def _time(self, clock: Callable[[], float]) -> None:
            """Takes no size: tqdm sets its own."""

    return Bar

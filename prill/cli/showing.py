"""Progress, plans, tallies and log messages of commands, as text and JSON."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from prill.cli.layout import Switches, say
from prill.errors import UsageError
from prill.io.outputs import message_stream
from prill.io.store import encode
from prill.io.tables import printable

if TYPE_CHECKING:
    import asyncio

    from tqdm import tqdm

    from prill.runs.plan import RunPlan
    from prill.scoring.scorer import Tally

T = TypeVar("T")
_MAX_PROBLEMS = 20


def show_plan(command: str, plan: RunPlan, *, as_json: bool) -> int:
    """Prints the plan of a run and returns the exit code of a dry run."""
    if as_json:
        print(json.dumps(plan.table()))
    else:
        for line in plan.lines():
            print(line)
    print_problems(command, plan.problems, _MAX_PROBLEMS)
    return 0


@contextlib.contextmanager
def show_logs(command: str) -> Iterator[None]:
    """Shows the library's log messages on standard error inside the block.

    Shown are warnings, errors with their traceback, and messages for users.
    """
    handler = _StderrHandler(command)
    logger = logging.getLogger("prill")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _StderrHandler(logging.Handler):
    def __init__(self, command: str) -> None:
        super().__init__(logging.INFO)
        self._command = command

    def filter(self, record: logging.LogRecord) -> bool:
        """Passes warnings, messages for users, and messages of runs.

        Loggers with their own handlers, such as a service's log, are excluded.
        """
        if record.name != "prill" and logging.getLogger(record.name).handlers:
            return False
        return (
            record.levelno >= logging.WARNING
            or getattr(record, "for_users", False)
            or record.name == "prill.runs"
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Prints the record; messages of a run have no prefix.

        A record that cannot be printed is ignored.
        """
        plain = record.name == "prill.runs" and record.levelno < logging.WARNING
        with contextlib.suppress(OSError, UsageError):
            say(f"{'' if plain else f'prill {self._command}: '}{self.format(record)}")


def figures(tally: Tally) -> dict[str, Any]:
    """Returns the figures of a run, for JSON."""
    return {
        "read": tally.read,
        "skipped": tally.skipped,
        "success": tally.succeeded,
        "failure": tally.failed,
        "unscored": dict(tally.unscored),
        "usage": msgspec.to_builtins(tally.usage),
    }


def print_counts(tally: Tally, output: str) -> None:
    """Prints the counts of verdicts by outcome on stderr, and the reasons for unscored ones."""
    unscored = sum(tally.unscored.values())
    counts = (
        f"{tally.succeeded} success, {tally.failed} failure, {unscored} unscored, "
        f"{tally.skipped} already in the file"
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
        say(line)


def print_result(
    result: object, table: Callable[[], object], switches: Switches, *outputs: str | Path | None
) -> None:
    """Prints a result, or its `table()` as JSON: on stderr if an output goes to stdout."""
    text = encode(table()).decode().rstrip() if switches.json else result
    print(text, file=message_stream(*outputs))


def print_problems(command: str, problems: Sequence[str], most: int = 10) -> None:
    """Prints the first problems on stderr, and the number of further ones."""
    for problem in problems[:most]:
        say(f"prill {command}: {printable(problem)}")
    if len(problems) > most:
        say(f"prill {command}: … and {len(problems) - most} more")


def progress_bar(*items: Any, **options: Any) -> tqdm[NoReturn]:
    """Makes a tqdm bar on standard error, with a monotonic clock.

    With tqdm's own clock, a bar stops while a clock that was set back catches up.
    """
    usual = {"dynamic_ncols": True, "file": sys.stderr, "smoothing": 0.1, "delay": 0.2}
    return _kind()(*items, **{**usual, **options})


@cache
def _kind() -> Any:
    from threading import RLock

    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        @property
        def _time(self) -> Callable[[], float]:
            return time.monotonic

        @_time.setter
        def _time(self, clock: Callable[[], float]) -> None:
            """Ignores the assignment: tqdm sets its own clock."""

    Bar.set_lock(RLock())  # tqdm would make one for processes, too; only this one draws
    return Bar


class PhaseBar:
    """A bar for the current phase of a run, on standard error."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._phase: str | None = None
        self._bar: tqdm[NoReturn] | None = None

    def show(self, phase: str, done: int, total: int, note: str = "", before: int = 0) -> None:
        """Shows the state of a phase. Its rate does not count the first `before` items."""
        if self._bar is None or phase != self._phase:
            self.close()
            self._phase = phase
            options = {**self._options, "total": total or None, "initial": before, "desc": phase}
            self._bar = progress_bar(**options)
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done - self._bar.n)

    def say(self, text: str) -> None:
        """Prints a line on standard error, below the bar."""
        self.close()
        say(text)

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def run_async(run: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine.

    Raises KeyboardInterrupt if its calls in progress were cancelled.
    """
    import asyncio

    try:
        return asyncio.run(run)
    except asyncio.CancelledError:
        raise KeyboardInterrupt(
            "cancelled the calls in progress; the same command resumes the run"
        ) from None


@contextlib.contextmanager
def stoppable(command: str, **options: Any) -> Iterator[tuple[asyncio.Event, tqdm[NoReturn]]]:
    """Shows a progress bar with these options, and yields it with an event for the run.

    The first Ctrl-C (or TERM) sets the event, so that calls in flight finish; the second one
    cancels them.
    """
    import asyncio

    from prill.runs.base import on_interrupt

    stop, task = asyncio.Event(), asyncio.current_task()

    def interrupt() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
            return
        stop.set()
        say(f"\nprill {command}: finishing the calls in progress; press Ctrl-C again to cancel")

    with on_interrupt(interrupt), progress_bar(**options) as bar:
        yield stop, bar

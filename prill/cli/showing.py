"""How a command runs and shows its result: progress, text or JSON, notes, log messages."""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from prill.cli.layout import Switches, say
from prill.config.registry import load_object
from prill.errors import UsageError
from prill.io.outputs import message_stream
from prill.io.store import encode
from prill.running import EXIT_ALL, EXIT_INTERRUPTED, Quoted, on_interrupt, wait_for

if TYPE_CHECKING:
    from tqdm import tqdm

    from prill.cli.commands.base import Command
    from prill.config.values import Config
    from prill.running import Printed

# The fields of configurations that name a file to write, which may be stdout.
_OUTPUTS = (
    *("output", "plot", "junit", "markdown"),
    *("disagreements", "out_of_fold", "learning_curve"),
)
_FIELD = re.compile(r"`([\w.]+)`")
SLOW = 5.0  # seconds of waiting for an answer that are told


def present(
    name: str,
    command: Command,
    config: Config,
    switches: Switches,
    get_flag: Callable[[str], str],
) -> int:
    """Runs a command, or plans it in a dry run, shows the result, and returns the exit code."""
    place = command.run.partition(":")[0]
    run: Any = load_object(f"{place}:{command.plan}" if switches.dry_run else command.run)
    # of the processes that `accelerate launch` started, only the first shows anything
    silent = os.environ.get("RANK", "0") != "0"
    with contextlib.ExitStack() as around:
        if command.quiet:
            around.enter_context(_quiet_libraries())
        total = None if switches.dry_run or silent else _count(config, command.unit)
        options = {"total": total, "unit": command.unit, "disable": silent}
        bar = around.enter_context(contextlib.closing(ProgressBar(**options)))
        hooks = inspect.signature(getattr(run, "__wrapped__", run)).parameters
        shown: dict[str, Any] = {"progress": bar, "say": bar, "as_json": switches.json}
        shown["opened"] = partial(_announce, name, switches.json)
        given = {key: show for key, show in shown.items() if key in hooks}
        if command.stops and not switches.dry_run:
            result = wait_for(lambda: _stoppable(name, bar, run, config, given))
        else:
            result = run(config, **given)
    if silent or result is None:
        return EXIT_ALL
    return show_result(result, config, get_flag, as_json=switches.json)


def show_result(
    result: Printed, config: Config, get_flag: Callable[[str], str], *, as_json: bool
) -> int:
    """Prints a result, or its JSON: on stderr if an output goes to stdout. Returns the exit code.

    The text of a run that wrote files, and the notes, go to stderr; in notes, fields in backticks
    become their flags.

    Raises:
        KeyboardInterrupt: The run was stopped.
    """
    stream = message_stream(*(getattr(config, name, None) for name in _OUTPUTS))
    if as_json:
        # Escaped to ASCII: terminals interpret some characters that JSON leaves unescaped.
        parts = json.loads(encode(result.to_dict()))
        print(json.dumps(parts, separators=(",", ":")), file=stream)
    if result.of_files:
        say(result)
    elif not as_json:
        print(result, file=stream)
    for note in result.notes():
        named = _FIELD.sub(lambda match: _named(match, get_flag), note)
        say(note if isinstance(note, Quoted) else named)
    if result.exit_code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return result.exit_code


def _named(match: re.Match[str], get_flag: Callable[[str], str]) -> str:
    flag = get_flag(match[1])
    return match[0] if flag == match[1] else flag


def _announce(name: str, as_json: bool, url: str) -> None:
    if as_json:
        print(json.dumps({"url": url}), flush=True)
    else:
        say(f"prill {name}: open {url}\nPress Ctrl-C to stop.")


def _count(config: Config, unit: str) -> int | None:
    """Counts the trajectories to read, for the bar; about, if others read some of them."""
    if unit not in ("traj", "turn"):
        return None
    from prill.datasets.inputs import count_trajectories
    from prill.io.shards import Shard

    given: Any = vars(config)
    paths, shard = given["trajectories"], given.get("shard")
    paths = [paths] if isinstance(paths, str) else paths
    total = count_trajectories(paths, given.get("limit"))
    return total if shard is None else round(total / Shard.read(str(shard)).count)


async def _stoppable(
    name: str, bar: ProgressBar, run: Any, config: Config, given: dict[str, Any]
) -> Any:
    """Runs until the first Ctrl-C (or TERM) ends it, so that calls in flight finish; the second one
    cancels them.
    """
    import asyncio

    stop, task = asyncio.Event(), asyncio.current_task()

    def interrupt() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
            return
        stop.set()
        say(f"\nprill {name}: finishing the calls in progress; press Ctrl-C again to cancel")

    with on_interrupt(interrupt):
        telling = asyncio.create_task(_tell_waiting(bar))
        try:
            return await run.run_async(config, stop=stop, **given)
        finally:
            telling.cancel()


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Silences the progress bars and notices of libraries; failures raise errors."""
    from prill.refine.training.weights import silence_libraries

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        silence_libraries()
        # Threads that busy-wait for each other are very slow if another process uses a core. The
        # variable is read when torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        yield


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


def progress_bar(**options: Any) -> tqdm[NoReturn]:
    """Makes a tqdm bar on standard error, with a monotonic clock.

    With tqdm's own clock, a bar stops while a clock that was set back catches up. The remaining
    time is that of the mean rate since the start, without `initial`: a moving rate would count what
    a resumed run skips as done in no time.
    """
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
    usual = {"dynamic_ncols": True, "file": sys.stderr, "smoothing": 0, "delay": 0.2}
    return Bar(**{**usual, **options})


class ProgressBar:
    """The progress of a run as a bar on standard error, a new one for each phase.

    Called with what a run tells: a tally whose `state` is a phase, its count, its total and a note;
    these values themselves; or nothing, for one more item.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._phase = ""
        self._bar: tqdm[NoReturn] | None = None

    def __call__(self, *told: Any) -> None:
        """Shows what the run tells."""
        if self._options.get("disable"):
            return
        if told and hasattr(told[-1], "state"):
            state = list(told[-1].state)
            if len(told) > 1:  # the total comes first
                state[2] = told[0]
            self.show(*state)
        elif len(told) > 1:
            self.show(*told)
        else:
            self.bar.update()

    @property
    def bar(self) -> tqdm[NoReturn]:
        """Returns the bar; it begins with the first phase."""
        if self._bar is None:
            self._bar = progress_bar(**self._options, desc=self._phase or None)
        return self._bar

    def show(
        self,
        phase: str,
        done: int,
        total: int | None = None,
        note: str | None = "",
        before: int = 0,
    ) -> None:
        """Shows the state of a phase. Its rate does not count the first `before` items."""
        if phase != self._phase:
            self.close()
            self._phase = phase
            before = before or max(0, done - 1)
        bar = self.bar
        bar.total = total or bar.total
        bar.initial = before or bar.initial
        bar.set_postfix_str(note or "", refresh=False)
        bar.update(done - bar.n)

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


async def _tell_waiting(shown: ProgressBar) -> None:
    """Shows how many calls wait for a slow endpoint, and for how long the oldest does."""
    import asyncio

    from prill.models.transport import calls_waiting

    pause = SLOW
    while True:
        await asyncio.sleep(pause)
        count, oldest = calls_waiting()
        pause = SLOW
        if oldest >= SLOW:
            shown.bar.set_description_str(f"{count} calls wait, the oldest for {oldest:.0f} s")
            pause = 1.0 if sys.stderr.isatty() else 30.0
        elif shown.bar.desc:
            shown.bar.set_description_str("")

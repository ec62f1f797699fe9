"""Helpers that runs share: sync wrappers, one budget for all models, trajectory files."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TypeVar

import msgspec
from msgspec import Meta

from prill.config.values import Config
from prill.datasets.formats import FormatLike
from prill.datasets.recordings import Recording, is_native, opened_recordings
from prill.errors import InputError, UsageError
from prill.io.kinds import trajectory_files, transcript_folder
from prill.io.lines import is_stream, read_lines
from prill.io.outputs import is_stdout
from prill.io.store import read_verdicts
from prill.io.tables import Verdicts, printable
from prill.models.registry import ModelLike

if TYPE_CHECKING:
    import asyncio

    from prill.io.spending import SpendingFile

# A run that reads files needs neither an event loop nor a budget, so these are imported where they
# are used.
P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("prill.runs")
# Options that several runs share.
Recordings = Annotated[
    Sequence[str | Path],
    Meta(
        description="Trajectory files (.jsonl, .jsonl.gz), other tools' recordings, "
        "folders of these, or - for stdin."
    ),
]
FormatOption = Annotated[
    FormatLike | None,
    Meta(description="Format of the recordings (default: detected from their content)."),
]
GoalOption = Annotated[
    str | None, Meta(description="The agent's goal, for recordings without one.")
]
GoalsOption = Annotated[
    str | Path | None,
    Meta(
        description="Goals for recordings without one: a JSON object from id to goal, or lines "
        "with id and goal."
    ),
]
JudgeModelOption = Annotated[
    ModelLike | None,
    Meta(description="Model that the judge calls, unless the judge's options name another."),
]
JudgeLimitOption = Annotated[
    int | None, Meta(ge=1, description="Judge only the first N trajectories.")
]
ResumeVerdictsOption = Annotated[
    bool,
    Meta(
        description="Continue the verdict files in the folder. Otherwise they are "
        "renamed to FILE.bak and new ones are started."
    ),
]
RetryUnscoredOption = Annotated[
    bool, Meta(description="Judge unscored trajectories again, in addition to missing ones.")
]
TranscriptsOption = Annotated[
    str | Path | bool,
    Meta(description="Folder for prompts and replies of models (default: next to the output)."),
]
RunFolderOption = Annotated[
    str | Path, Meta(description="Output folder. An interrupted run resumes there.")
]


def result_dict(result: Any) -> dict[str, Any]:
    """Returns the fields of a result, besides its configuration, as a JSON object."""
    names = [part.name for part in fields(result) if part.name != "config"]
    return {name: msgspec.to_builtins(getattr(result, name)) for name in names}


def run_outside_loop(run: Callable[[], R]) -> R:
    """Runs work that starts its own event loop.

    It runs in a thread if a loop is already running, as in a notebook.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


@contextlib.contextmanager
def on_interrupt(handler: Callable[[], object]) -> Iterator[None]:
    """Calls the handler at Ctrl-C and SIGTERM, in the loop of the main thread."""
    import asyncio

    loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def stopped(by: asyncio.Event | None) -> Iterator[asyncio.Event]:
    """Yields the event that ends a page: `by`, or one that Ctrl-C and SIGTERM set."""
    import asyncio

    stop = by or asyncio.Event()
    is_main = threading.current_thread() is threading.main_thread()
    with on_interrupt(stop.set) if by is None and is_main else contextlib.nullcontext():
        yield stop


def synchronous(run: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Wraps an async run, named `…_async`, for scripts and notebooks."""

    @wraps(run)
    def synchronously(*args: P.args, **kwargs: P.kwargs) -> R:
        from prill.scoring.scorer import wait_for

        return wait_for(lambda: run(*args, **kwargs))

    synchronously.__name__ = synchronously.__qualname__ = run.__name__.removesuffix("_async")
    return synchronously


def asynchronous(run: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Wraps a run as a coroutine, named `…_async`, that runs it and its callbacks in a thread."""

    @wraps(run)
    async def asynchronously(*args: P.args, **kwargs: P.kwargs) -> R:
        import asyncio

        return await asyncio.to_thread(run, *args, **kwargs)

    asynchronously.__name__ = asynchronously.__qualname__ = f"{run.__name__}_async"
    return asynchronously


def opened_folders(paths: Iterable[str | Path]) -> list[str]:
    """Returns the trajectory files that paths and folders name, and logs the other files in the
    folders. Raises UsageError.
    """
    return [str(path) for path in trajectory_files(list(map(str, paths)), log.warning)]


@dataclass(frozen=True, kw_only=True)
class RecordingsConfig(Config):
    """Configuration of a run that reads recordings: the files, and what they do not say."""

    trajectories: Recordings
    format: FormatOption = None
    goal: GoalOption = None
    goals: GoalsOption = None

    def opened(self) -> contextlib.AbstractContextManager[tuple[list[str], list[Recording]]]:
        """Opens the trajectory files, and other tools' recordings as temporary ones.

        Returns:
            A context manager that yields the trajectory files, and the recordings among them.

        Raises:
            UsageError: A file is missing, or nothing could be read.
            InputError: The file of goals is broken.
        """
        return opened_recordings(self.trajectories, self.format, self.goal, self.goals)


@contextlib.contextmanager
def opened_trajectories(config: RecordingsConfig) -> Iterator[list[str]]:
    """Opens the trajectory files of a run, as `RecordingsConfig.opened`, without those of folders
    that hold something else.
    """
    with config.opened() as (paths, _):
        yield opened_folders(paths)


class VerdictFile:
    """A result whose verdicts are in a file, `output`, including those of earlier runs."""

    output: str

    def verdicts(self) -> Verdicts:
        """Returns the verdicts in the file, including those of earlier runs."""
        return Verdicts(read_verdicts(self.output))

    def to_pandas(self) -> Any:
        """Returns the verdicts as a pandas DataFrame."""
        return self.verdicts().to_pandas()


class Printed:
    """A result that a notebook shows as it is printed, below its chart if it has one."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as a JSON object."""
        return result_dict(self)

    def svg(self) -> str:
        """Returns its chart as SVG text; empty without one."""
        return ""

    def _repr_html_(self) -> str:
        # names in it may come from others' files
        text = "\n".join(map(printable, str(self).splitlines()))
        return f"<div>{self.svg()}<pre>{escape(text)}</pre></div>"


class UncalledModel:
    """A stub model, for building prompts and policies without calling a model."""

    name = "none"

    async def complete(
        self, messages: Any, *, form: Any = None, max_tokens: int = 1024, prompt: str = ""
    ) -> NoReturn:
        """Raises UsageError."""
        raise UsageError("no model is called here")


def count_lines(paths: Iterable[str], limit: int | None = None) -> int:
    """Counts the lines of some files, up to `limit`. A damaged archive is counted up to the
    damage.
    """
    count = 0
    for path in paths:
        with contextlib.suppress(InputError):
            for _ in read_lines(path):
                count += 1
    return count if limit is None else min(count, limit)


def count_trajectories(paths: Iterable[str | Path], limit: int | None = None) -> int:
    """Counts the lines of trajectory files and folders, for a progress bar; 0 if the run will
    fail.
    """
    try:
        if not all(map(is_native, paths)):  # recordings are counted while they are read
            return 0
        return count_lines(map(str, trajectory_files(list(map(str, paths)))), limit)
    except UsageError:
        return 0


@contextlib.contextmanager
def run_budget(
    limit: float | None,
    *,
    folder: str | Path | None = None,
    file: str | Path | None = None,
    begin_again: bool = False,
    planned: bool = False,
) -> Iterator[None]:
    """Provides one budget for all models made inside the block; it persists across restarts of the
    run.

    The amount spent is recorded in the run's `folder`, with or without a limit. A run without a
    folder records it next to its output `file`, and only if there is a limit.

    Args:
        limit: US dollars for all calls; None: no limit.
        folder: The run's output folder.
        file: The run's output file, for runs without a folder.
        begin_again: Whether to discard the amount spent by earlier runs.
        planned: Whether this is a dry run, which spends nothing and writes no file.

    Raises:
        UsageError: The file with the amount spent cannot be read.
    """
    from prill.models.ledger import Budget, spending_from

    if file is not None and (limit is None or is_stdout(file) or is_stream(file)):
        file = None
    if planned:
        with spending_from(Budget(limit)) if limit is not None else contextlib.nullcontext():
            yield
        return
    if limit is None and folder is None:
        yield
        return
    record, spent = None, 0.0
    if folder is not None or file is not None:
        record, spent = _spending(
            Path(folder or file or ""), limit, begin_again=begin_again, is_folder=folder is not None
        )
    if limit is not None and spent:
        log.info("$%.4f of the budget of $%g was already spent", spent, limit)
    budget = Budget(limit, spent_usd=spent, record=record)
    try:
        with spending_from(budget):
            yield
    finally:
        budget.close()


def _spending(
    output: Path, limit: float | None, *, begin_again: bool, is_folder: bool
) -> tuple[SpendingFile | None, float]:
    """Returns the file with the amount a run has spent, and the amount.

    The result is None if another process holds the file and there is no limit.
    """
    from prill.io.spending import SPENDING, SpendingFile, recorded_spending, spending_path

    record = SpendingFile(
        output / SPENDING if is_folder else spending_path(output), needed=limit is not None
    )
    if record.path.parent.is_dir() and not record.lock():
        return None, 0.0
    try:
        if begin_again:
            record.clear()
        known = record.read_all()
    except UsageError:
        record.unlock()
        raise
    if limit is None or begin_again or (is_folder and known is not None):
        return record, known or 0.0
    # A folder without such a file was recorded by a version that did not write one. Next to a
    # verdict file it is kept only if there is a budget.
    return record, max(
        known or 0.0, recorded_spending(sorted(output.glob("*.jsonl")) if is_folder else [output])
    )


def kept_transcripts(transcripts: str | Path | bool, output: str | Path) -> str | None:
    """Returns the folder for model transcripts: the named one, or one next to the verdict file.

    None: no transcripts are kept.
    """
    if not isinstance(transcripts, bool):
        return str(transcripts)
    on_disk = not is_stdout(output) and not is_stream(output)
    return str(transcript_folder(output)) if transcripts and on_disk else None

"""Shared by runs: sync wrappers, one budget for all models, trajectory files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from html import escape
from pathlib import Path
from typing import Annotated, Any, ParamSpec, Protocol, TypeVar

from msgspec import Meta

from prill.datasets.formats import FormatLike
from prill.datasets.recordings import is_native, opened_recordings
from prill.errors import InputError, UsageError
from prill.io.kinds import trajectory_files
from prill.io.lines import is_stream, read_lines
from prill.io.outputs import is_stdout
from prill.io.spending import SPENDING, SpendingFile, spending_beside, spent_on_record
from prill.io.store import read_verdicts
from prill.io.tables import Verdicts, printable
from prill.models.ledger import Budget, spending_from
from prill.scoring.scorer import wait_for as wait_for  # here, too: plans use it
from prill.transcripts import transcript_folder

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("prill.runs")
# As options of runs.
Recordings = Annotated[
    Sequence[str | Path],
    Meta(
        description="trajectory files (.jsonl, .jsonl.gz), other tools' recordings, folders of "
        "these, or -"
    ),
]
FormatOption = Annotated[
    FormatLike | None,
    Meta(description="format of the recordings (default: recognised by their content)"),
]
GoalOption = Annotated[
    str | None, Meta(description="the agent's goal, for recordings that have none")
]
GoalsOption = Annotated[
    str | Path | None,
    Meta(description="file of such goals: a JSON object, id to goal, or lines with id and goal"),
]


def apart(run: Callable[[], R]) -> R:
    """Runs work that starts its own event loop; in a thread where a loop is already running, as in
    a notebook.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def synchronous(run: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Wraps an async run for scripts and notebooks.

    Args:
        run: The coroutine function of the run, named `…_async`.

    Returns:
        A function with the run's parameters and documentation.
    """

    @wraps(run)
    def synchronously(*args: P.args, **kwargs: P.kwargs) -> R:
        return wait_for(lambda: run(*args, **kwargs))

    synchronously.__name__ = synchronously.__qualname__ = run.__name__.removesuffix("_async")
    return synchronously


def asynchronous(run: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Wraps a synchronous run as a coroutine that runs it in a thread.

    Args:
        run: The run. What it reports, such as `progress`, is called in that thread.

    Returns:
        A coroutine function with the run's parameters and documentation, named `…_async`.
    """

    @wraps(run)
    async def asynchronously(*args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(run, *args, **kwargs)

    asynchronously.__name__ = asynchronously.__qualname__ = f"{run.__name__}_async"
    return asynchronously


def opened_folders(paths: Iterable[str | Path]) -> list[str]:
    """The trajectory files that paths and folders name; other files in the folders are logged.
    Raises UsageError.
    """
    return [str(path) for path in trajectory_files(list(map(str, paths)), log.warning)]


class _ReadsRecordings(Protocol):
    """A configuration with trajectory files or recordings."""

    @property
    def trajectories(self) -> Sequence[str | Path]: ...

    @property
    def format(self) -> FormatLike | None: ...

    @property
    def goal(self) -> str | None: ...

    @property
    def goals(self) -> str | Path | None: ...


@contextlib.contextmanager
def opened_trajectories(config: _ReadsRecordings) -> Iterator[list[str]]:
    """The trajectory files of a run; those of recordings in another format are there during the
    block only.

    Args:
        config: The run's configuration.

    Raises:
        UsageError: A file is missing, or nothing could be read.
        InputError: The file of goals is broken.
    """
    with opened_recordings(config.trajectories, config.format, config.goal, config.goals) as (
        paths,
        _,
    ):
        yield opened_folders(paths)


class VerdictFile:
    """A result whose verdicts are in a file, `output`, those of earlier runs included."""

    output: str

    def verdicts(self) -> Verdicts:
        """The verdicts in the file, those of earlier runs included."""
        return Verdicts(read_verdicts(self.output))

    def to_pandas(self) -> Any:
        """The verdicts as a pandas table."""
        return self.verdicts().to_pandas()


def preformatted(text: str) -> str:
    """Lines of text as a notebook shows them; names in them may come from files of others."""
    return f"<pre>{escape(chr(10).join(map(printable, text.splitlines())))}</pre>"


def count_lines(paths: Iterable[str], limit: int | None = None) -> int:
    """The number of lines of some files, at most `limit`. A damaged archive counts up to the
    damage.
    """
    count = 0
    for path in paths:
        with contextlib.suppress(InputError):
            for _ in read_lines(path):
                count += 1
    return count if limit is None else min(count, limit)


def count_trajectories(paths: Iterable[str | Path], limit: int | None = None) -> int:
    """The number of lines that trajectory files and folders of them have, for a progress bar; 0
    where the run will fail.
    """
    try:
        if not all(map(is_native, paths)):  # recordings are counted as they are read
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
    """One budget for all models made inside; it holds over restarts of the run.

    What the run spends is kept in a file of its `folder`, where it has one, without a budget, too;
    with a budget beside its output `file`.

    Args:
        limit: US dollars for all calls; None: no limit.
        folder: The folder that the run writes.
        file: The file that the run writes, where it has no folder.
        begin_again: Forget what was spent before.
        planned: Nothing is spent, and no file says so.

    Raises:
        UsageError: The file of what was spent cannot be read.
    """
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
        log.info("$%.4f of the budget of $%g were spent before", spent, limit)
    budget = Budget(limit, spent_usd=spent, record=record)
    try:
        with spending_from(budget):
            yield
    finally:
        budget.close()


def _spending(
    output: Path, limit: float | None, *, begin_again: bool, is_folder: bool
) -> tuple[SpendingFile | None, float]:
    """The file with what a run has spent, and that; None where another process keeps it, and there
    is no limit.
    """
    record = SpendingFile(
        output / SPENDING if is_folder else spending_beside(output), needed=limit is not None
    )
    if record.path.parent.is_dir() and not record.lock():
        return None, 0.0
    try:
        if begin_again:
            record.clear()
        known = record.take_up()
    except UsageError:
        record.unlock()
        raise
    if limit is None or begin_again or (is_folder and known is not None):
        return record, known or 0.0
    # A folder that has no such file was recorded before there was one; beside a verdict file it is
    # kept with a budget only.
    return record, max(
        known or 0.0, spent_on_record(sorted(output.glob("*.jsonl")) if is_folder else [output])
    )


def kept_transcripts(transcripts: str | Path | bool, output: str | Path) -> str | None:
    """The folder for what models were asked and answered: a named one, or next to a verdict file;
    None: nothing is kept.
    """
    if not isinstance(transcripts, bool):
        return str(transcripts)
    on_disk = not is_stdout(output) and not is_stream(output)
    return str(transcript_folder(output)) if transcripts and on_disk else None

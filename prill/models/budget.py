"""What runs that call models share: options, one budget that survives restarts, transcripts."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from msgspec import Meta

from prill.errors import UsageError
from prill.io.kinds import transcript_folder
from prill.io.lines import is_stream
from prill.io.outputs import is_stdout
from prill.models.registry import ModelLike

if TYPE_CHECKING:
    from prill.io.spending import SpendingFile

log = logging.getLogger("prill.runs")
# Options that several runs share.
JudgeModelOption = Annotated[
    ModelLike | None,
    Meta(description="Model that the judge calls, unless the judge's options name another."),
]
TRANSCRIPTS = Meta(
    description="Folder of prompts and replies of models (default: next to the verdicts)."
)
TranscriptsOption = Annotated[str | Path | bool, TRANSCRIPTS]


class UncalledModel:
    """A stub model, for building prompts and policies without calling a model."""

    name = "none"

    async def complete(
        self, messages: Any, *, form: Any = None, max_tokens: int = 1024, prompt: str = ""
    ) -> NoReturn:
        """Raises UsageError."""
        raise UsageError("no model is called here")


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
        known = record.read() or 0.0
    except UsageError:
        record.unlock()
        raise
    if is_folder or begin_again:
        return record, known
    # next to a verdict file, spending is recorded only if there is a budget
    return record, max(known, recorded_spending(output))


def kept_transcripts(transcripts: str | Path | bool, output: str | Path) -> str | None:
    """Returns the folder for model transcripts: the named one, or one next to the verdict file.

    None: no transcripts are kept.
    """
    if not isinstance(transcripts, bool):
        return str(transcripts)
    on_disk = not is_stdout(output) and not is_stream(output)
    return str(transcript_folder(output)) if transcripts and on_disk else None

"""Serves a page in a browser to read, search, compare and label many runs while files grow."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from msgspec import Meta

from prill.captioner.files import Choice
from prill.captioner.training import DECISIONS
from prill.errors import UsageError
from prill.evaluators.questions import judge_questions
from prill.io.outputs import check_output, expect_file
from prill.io.truth import SourceOption, TruthOption
from prill.refine.rewards.watch.site import WatchSite, find_watch_files
from prill.runs.annotate import AskedOption, PortOption, annotator_name
from prill.runs.base import (
    Recordings,
    RecordingsConfig,
    opened_folders,
    stopped,
    synchronous,
)
from prill.runs.report import FiltersOption, ReportConfig, with_retries
from prill.ui.report.entries import Retry
from prill.ui.serving import Site, serving
from prill.ui.view.captions import CaptionSite, open_site
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library
from prill.ui.view.session import LabelSession
from prill.ui.view.site import Reveal, ViewSite

log = logging.getLogger("prill.runs")
_OF_RUNS = ("verdicts", "labels", "output", "blind", "by")


@dataclass(frozen=True, kw_only=True)
class ViewConfig(RecordingsConfig):
    """Configuration of `prill view`: serve a page to read, search, compare and label many runs."""

    trajectories: Recordings = ()
    verdicts: Annotated[
        Sequence[str | Path],
        Meta(
            description="Verdict files, one judge per file. A file may not exist yet if a "
            "run is about to write it."
        ),
    ] = ()
    labels: Annotated[Sequence[str | Path], Meta(description="Label files.")] = ()
    annotator: Annotated[
        str | None,
        Meta(description="Collect labels next to the verdicts, under this annotator's name."),
    ] = None
    output: Annotated[
        str | Path | None,
        Meta(description="Label file of the annotator. Labels by other annotators are kept."),
    ] = None
    captions: Annotated[
        str | Path | None,
        Meta(
            description="Caption file from `prill caption`. The annotator accepts, edits or "
            "rejects its captions on a page of their own."
        ),
    ] = None
    watch: Annotated[
        Sequence[str | Path],
        Meta(
            description="Observations of a reward (`prill watch`), or folders with them. A page "
            "of their own follows them."
        ),
    ] = ()
    blind: Annotated[
        bool,
        Meta(
            description="Hide verdicts, others' labels and statistics of a run until the "
            "annotator has labelled it."
        ),
    ] = False
    judge: AskedOption = None
    source: SourceOption = None
    truth: TruthOption = "majority"
    transcripts: Annotated[bool, Meta(description="Show prompts and replies of models.")] = True
    by: FiltersOption = ()
    port: PortOption = 0
    title: Annotated[str, Meta(description="Title of the page.")] = "prill view"

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: The options conflict.
        """
        if not self.trajectories:
            if self.captions is None and not self.watch:
                raise UsageError(
                    "give trajectories, a caption file (captions) or observations (watch)",
                    parameters=("trajectories", "captions", "watch"),
                )
            if given := [name for name in _OF_RUNS if getattr(self, name)]:
                raise UsageError(
                    f"{', '.join(given)}: only with trajectories", parameters=("trajectories",)
                )
        if self.captions is not None and self.annotator is None:
            raise UsageError("captions: give an annotator, too", parameters=("annotator",))
        has_labels = self.output is not None
        if self.annotator is None if has_labels else self.annotator and self.captions is None:
            missing = "annotator" if has_labels else "output"
            raise UsageError(
                "annotator and output (the label file): give both or neither",
                parameters=(missing,),
            )
        if self.annotator is not None:
            object.__setattr__(self, "annotator", annotator_name(self.annotator))
        for name in ("blind", "judge"):
            if getattr(self, name) and not has_labels:
                raise UsageError(
                    f"{name}: only for annotators; give annotator and output",
                    parameters=("annotator", "output"),
                )


@dataclass(frozen=True)
class OpenedView:
    """The page when it opens.

    Attributes:
        url: The page's address.
        files: The number of trajectory files that it reads.
    """

    url: str
    files: int


@dataclass(frozen=True, kw_only=True)
class CaptionReview:
    """The decisions of a session about captions.

    Args:
        file: The file with the decisions.
        written: The number of decisions of this session.
        total: The number of captions.
        choices: The number of decisions of each type, also of earlier sessions.
    """

    file: str
    written: int
    total: int
    choices: Mapping[str, int]

    @property
    def left(self) -> int:
        """The number of captions without a decision."""
        return self.total - sum(self.choices.values())

    def table(self) -> dict[str, Any]:
        """Returns the result as a JSON object."""
        return {"file": self.file, "written": self.written, "left": self.left, **self.choices}

    def __str__(self) -> str:
        choices = ", ".join(f"{count} {name}" for name, count in self.choices.items())
        return (
            f"{self.file}: {self.written} captions reviewed now; of {self.total} captions "
            f"{choices}, {self.left} left"
        )


@dataclass(frozen=True, kw_only=True)
class ViewResult:
    """Result of a session.

    Args:
        runs: The number of runs that were read.
        problems: Messages about what could not be read.
        output: The label file; None if no labels were collected.
        written: The number of labels of this session.
        done: The number of runs that the annotator has labelled.
        captions: The decisions about captions; None if none were shown.
    """

    runs: int
    problems: tuple[str, ...] = ()
    output: str | None = None
    written: int = 0
    done: int = 0
    captions: CaptionReview | None = None

    def table(self) -> dict[str, Any]:
        """Returns the result as a JSON object."""
        captions = {} if self.captions is None else {"captions": self.captions.table()}
        return captions | {
            "runs": self.runs,
            "problems": len(self.problems),
            "output": self.output,
            "written": self.written,
            "done": self.done,
        }

    def __str__(self) -> str:
        runs = f"{self.runs} runs"
        if self.output is not None:
            runs = (
                f"{self.output}: {self.written} labelled now, {self.done} of {self.runs} in total"
            )
        return runs if self.captions is None else f"{runs}\n{self.captions}"


def _log_address(page: OpenedView) -> None:
    log.info("open %s", page.url)


async def view_async(
    config: ViewConfig,
    *,
    stop: asyncio.Event | None = None,
    opened: Callable[[OpenedView], object] = _log_address,
) -> ViewResult:
    """Serves the page until it is stopped, and follows files that grow.

    Args:
        config: The files to show, and the label file.
        stop: An event; the page closes once it is set (default: at Ctrl-C or SIGTERM).
        opened: Called with the page once it can be opened; by default its address is logged.

    Returns:
        The result of the session.

    Raises:
        UsageError: A file cannot be read or written, or the port is in use.
    """
    if not config.trajectories:
        with stopped(stop) as stop:
            return await _served(config, None, stop, opened)
    report, retries = with_retries(
        ReportConfig(
            trajectories=config.trajectories,
            output="-",
            verdicts=config.verdicts,
            labels=config.labels,
        )
    )
    config = config.copy_with(
        trajectories=report.trajectories, verdicts=report.verdicts, labels=report.labels
    )
    if config.output is not None:
        inputs = [*config.trajectories, *config.verdicts]
        expect_file(str(config.output), "labels")
        check_output(config.output, "labels", inputs, continued=True)
    for path in map(Path, config.verdicts):
        if not path.exists() and not path.parent.is_dir():
            raise UsageError(f"{path}: no such file", parameters=("verdicts",))
    with stopped(stop) as stop, config.opened() as (paths, _):
        return await _served(config.copy_with(trajectories=paths), retries, stop, opened)


view = synchronous(view_async)
"""Runs `view_async` with the same parameters, for scripts and notebooks."""


async def _served(
    config: ViewConfig,
    retries: Mapping[str, Retry] | None,
    stop: asyncio.Event,
    opened: Callable[[OpenedView], object],
) -> ViewResult:
    trajectories = opened_folders(config.trajectories)
    async with contextlib.AsyncExitStack() as stack:
        sites: list[Site] = []
        runs = captions = watch = None
        if trajectories:
            runs = _opened_runs(config, trajectories, retries, stack)
            sites.append(runs)
        if config.watch:
            watch = WatchSite(find_watch_files(config.watch), title=config.title)
            sites.append(watch)
        if config.captions is not None:
            decisions = str(Path(config.captions).parent / DECISIONS)
            expect_file(decisions, "decisions")
            check_output(decisions, "captions", [config.captions], continued=True)
            captions, log_of_captions = open_site(
                str(config.captions), decisions, config.annotator or ""
            )
            stack.enter_context(log_of_captions)
            sites.append(captions)
        if runs is not None:
            await stack.enter_async_context(runs.following())
        async with serving(sites[0], config.port, sites[1:]) as url:
            opened(OpenedView(url, len(trajectories)))
            await stop.wait()
        session = None if runs is None else runs.session
        return ViewResult(
            runs=0 if runs is None else len(runs.library),
            problems=(
                *(() if runs is None else runs.library.problems),
                *(() if watch is None else watch.problems),
            ),
            output=None if config.output is None else str(config.output),
            written=0 if session is None else session.written,
            done=0 if session is None else session.done,
            captions=None if captions is None else _reviewed(captions),
        )


def _reviewed(site: CaptionSite) -> CaptionReview:
    choices = Counter(
        site.decisions[caption.id].choice
        for caption in site.captions
        if caption.id in site.decisions
    )
    return CaptionReview(
        file=str(site.log.path),
        written=site.written,
        total=len(site.captions),
        choices={name: choices[name] for name in get_args(Choice)},
    )


def _opened_runs(
    config: ViewConfig,
    trajectories: Sequence[str],
    retries: Mapping[str, Retry] | None,
    stack: contextlib.AsyncExitStack,
) -> ViewSite:
    labels = None
    questions = () if config.judge is None else judge_questions(config.judge)
    if config.output is not None:
        labels = stack.enter_context(LabelLog(config.output, config.annotator or ""))
    library = stack.enter_context(
        contextlib.closing(
            Library(
                trajectories,
                config.verdicts,
                config.labels,
                source=config.source,
                truth=config.truth,
                by=config.by,
                retries=retries,
                transcripts=config.transcripts,
            )
        )
    )
    session = None
    if labels is not None:
        library.begin_labels(labels)
        session = LabelSession(library, labels, questions=questions)
    reveal: Reveal = "after" if config.blind else "always"
    return ViewSite(library, session, reveal=reveal, title=config.title)

"""Serves a page in a browser to read, search, compare and label many runs while files grow."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from prill.captioner.training import DECISIONS
from prill.config.registry import OptionError
from prill.datasets.inputs import Recordings, opened_folders
from prill.errors import UsageError
from prill.evaluators.agreement.sampling import draw_informative
from prill.evaluators.combine import as_score
from prill.evaluators.labels import latest_verdicts
from prill.evaluators.registry import JudgeLike, judge_questions
from prill.io.lines import is_stream
from prill.io.outputs import check_output, expect_file
from prill.io.store import read_verdicts
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, first_of, stopped
from prill.ui.report.run import PageConfig, with_retries
from prill.ui.serving import serving
from prill.ui.view.captions import CaptionReview
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library
from prill.ui.view.session import LabelSession
from prill.ui.view.site import ViewSite

log = logging.getLogger("prill.runs")
_MAX_NAME = 200  # characters; the name is written on every line of the label file


@dataclass(frozen=True, kw_only=True)
class ViewConfig(PageConfig):
    """Configuration of `prill view`: serve a page to read, search, compare and label many runs."""

    trajectories: Recordings = ()
    annotator: Annotated[
        str | None, Meta(description="Name of the annotator, stored with each label.")
    ] = None
    output: Annotated[
        str | Path | None,
        Meta(description="Label file of the annotator. Labels by other annotators are kept."),
    ] = None
    blind: Annotated[
        bool,
        Meta(
            description="Hide verdicts, others' labels and statistics of a run until the "
            "annotator has labelled it."
        ),
    ] = False
    judge: Annotated[
        JudgeLike | None,
        Meta(
            description="Judge `ask`, as `prill score` takes it: its questions are asked on the "
            "page, too, and the answers are stored in the labels."
        ),
    ] = None
    order: Annotated[
        Literal["file", "random", "informative"],
        Meta(
            description="random: the order depends only on the seed, even if files grow. "
            "informative: draws `limit` trajectories, preferring those whose score in the "
            "first verdict file is uncertain, and stores the sampling probabilities for "
            "`prill rate`."
        ),
    ] = "file"
    seed: Annotated[int, Meta(description="Seed of the random order.")] = 0
    captions: Annotated[
        str | Path | None,
        Meta(
            description="Caption file from `prill caption`. The annotator accepts, edits or "
            "rejects its captions in a tab."
        ),
    ] = None
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port on this machine (default: any free port).")
    ] = 0

    def check(self) -> None:
        """Validates options that depend on each other."""
        if not self.trajectories and (self.output is not None or self.captions is None):
            raise UsageError(
                "give trajectories, or captions alone", parameters=("trajectories", "captions")
            )
        if self.annotator is not None:
            object.__setattr__(self, "annotator", _checked_name(self.annotator))
        if (self.annotator is None) == (self.output is not None or self.captions is not None):
            raise UsageError(
                "give an annotator, and what they write: output (the label file), captions or both",
                parameters=("annotator", "output", "captions"),
            )
        for name in ("blind", "judge"):
            if getattr(self, name) and self.output is None:
                raise UsageError(
                    f"{name}: only for annotators; give annotator and output",
                    parameters=("annotator", "output"),
                )
        if self.order == "informative" and not (self.verdicts and self.limit):
            raise UsageError(
                "the informative order needs limit and verdicts: it draws `limit` "
                "trajectories by the scores of the verdicts",
                parameters=("verdicts" if self.limit else "limit", "order"),
            )


@dataclass(frozen=True, kw_only=True)
class ViewResult(Printed):
    """Result of a session.

    Args:
        runs: The number of runs that were read.
        problems: Messages about what could not be read.
        output: The label file; None if no labels were collected.
        written: The number of labels of this session.
        done: The number of runs that the annotator has labelled.
        captions: The number of captions; 0 if none were shown.
        choices: The number of decisions about captions by type, also of earlier sessions.
    """

    runs: int
    problems: tuple[str, ...] = ()
    output: str | None = None
    written: int = 0
    done: int = 0
    captions: int = 0
    choices: Mapping[str, int] = field(default_factory=dict)

    of_files = True

    def notes(self) -> Iterator[str]:
        """Yields what could not be read."""
        return first_of(self.problems)

    @property
    def exit_code(self) -> int:
        """Returns 3 if something could not be read."""
        return EXIT_SOME if self.problems else EXIT_ALL

    def to_dict(self) -> dict[str, Any]:
        """Returns the result as a JSON object."""
        return {
            "runs": self.runs,
            "problems": len(self.problems),
            "output": self.output,
            "written": self.written,
            "done": self.done,
            "captions": self.captions,
            **self.choices,
        }

    def __str__(self) -> str:
        said = f"{self.runs} runs"
        if self.output is not None:
            said = (
                f"{self.output}: {self.written} labelled now, {self.done} of {self.runs} in total"
            )
        if self.captions:
            choices = ", ".join(f"{count} {name}" for name, count in self.choices.items())
            left = self.captions - sum(self.choices.values())
            said += f"\n{self.captions} captions: {choices}, {left} left"
        return said


def _log_address(url: str) -> None:
    log.info("open %s", url)


@as_run(ViewConfig)
async def view(
    config: ViewConfig,
    *,
    stop: asyncio.Event | None = None,
    opened: Callable[[str], object] = _log_address,
) -> ViewResult:
    """Serves the page until it is stopped, and follows files that grow.

    Every decision is on disk before the next one.

    Args:
        config: The files to show, and the label file.
        stop: An event; the page closes once it is set (default: at Ctrl-C or SIGTERM).
        opened: Called with the page's address once it is served; by default it is logged.

    Returns:
        The result of the session.

    Raises:
        UsageError: A file cannot be read or written, or the port is in use.
    """
    config, retries = with_retries(config)
    for path in map(Path, config.verdicts):
        if not path.exists() and not path.parent.is_dir():
            raise UsageError(f"{path}: no such file", parameters=("verdicts",))
    async with contextlib.AsyncExitStack() as stack:
        paths, _ = stack.enter_context(config.opened())
        trajectories = opened_folders(paths)
        _expect_files(trajectories)
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
                    annotator=None if config.output is None else config.annotator,
                    limit=config.limit if config.order == "file" else None,
                )
            )
        )
        inclusion = {} if config.order == "file" else _drawn(config, library)
        # only now: a signal during a read above, which may block, ends the process
        stop = stack.enter_context(stopped(stop))
        session = None if config.output is None else _begun(config, library, inclusion, stack)
        captions = None if config.captions is None else _reviewed(config, stack)
        site = ViewSite(library, session, captions, blind=config.blind)
        await stack.enter_async_context(site.following())
        async with serving(site, config.port) as url:
            opened(url)
            await stop.wait()
        return ViewResult(
            runs=len(library),
            problems=tuple(library.problems),
            output=None if config.output is None else str(config.output),
            written=0 if session is None else session.written,
            done=0 if session is None else session.done,
            captions=0 if captions is None else len(captions.captions),
            choices={} if captions is None else captions.choices,
        )


@as_run(ViewConfig)
async def annotate(
    config: ViewConfig,
    *,
    stop: asyncio.Event | None = None,
    opened: Callable[[str], object] = _log_address,
) -> ViewResult:
    """Serves the page for labelling, without verdicts: `view` with `blind`."""
    return await view.run_async(config.copy_with(blind=True), stop=stop, opened=opened)


def _expect_files(trajectories: Sequence[str]) -> None:
    for path in trajectories:
        if not is_stream(path) and not Path(path).exists():
            raise UsageError(f"{path}: no such file", parameters=("trajectories",))


def _drawn(config: ViewConfig, library: Library) -> Mapping[str, float]:
    """Reads the library, reduces it to the runs of the order, and returns the inclusion
    probabilities of an informative one.
    """
    for _ in library.read_rows():
        pass
    rows = [row for row in library.rows if row.broken is None]
    inclusion: dict[str, float] = {}
    if config.order == "random":  # by a hash of seed and id: stable when runs are added
        ids = [row.id for row in rows]
        ids.sort(key=lambda id: hashlib.sha256(f"{config.seed}:{id}".encode()).digest())
    else:
        _, latest = latest_verdicts(read_verdicts(config.verdicts[0]))
        inclusion = draw_informative(
            {row.id: row.task for row in rows},
            {id: as_score(verdict) for id, verdict in latest.items()},
            config.limit or len(rows),
            config.seed,
        )
        ids = list(inclusion)
    library.keep([library.places[id] for id in ids[: config.limit]])
    return inclusion


def _begun(
    config: ViewConfig,
    library: Library,
    inclusion: Mapping[str, float],
    stack: contextlib.AsyncExitStack,
) -> LabelSession:
    output = str(config.output)
    expect_file(output, "labels")
    check_output(output, "labels", [*config.trajectories, *config.verdicts], continued=True)
    questions = () if config.judge is None else judge_questions(config.judge)
    labels = stack.enter_context(LabelLog(output, config.annotator or ""))
    _expect_same_draw(output, inclusion, labels)
    library.begin_labels(labels)
    return LabelSession(library, labels, questions=questions, inclusion=inclusion)


def _expect_same_draw(output: str, inclusion: Mapping[str, float], labels: LabelLog) -> None:
    """Raises UsageError if the inclusion probabilities of existing labels differ from this
    draw's.
    """
    for record in (*labels.mine.values(), *labels.others):
        chance = inclusion.get(record.id)
        if (record.inclusion or None) != chance and (inclusion or record.inclusion):
            raise UsageError(
                f"{output}: the label of {record.id!r} was drawn with a different "
                "probability (other trajectories, verdicts, seed, limit or order); give "
                "the same inputs as before, or choose another output",
                parameters=("output", "order"),
            )


def _reviewed(config: ViewConfig, stack: contextlib.AsyncExitStack) -> CaptionReview:
    captions = str(config.captions)
    decisions = str(Path(captions).parent / DECISIONS)
    expect_file(decisions, "decisions")
    check_output(decisions, "captions", [captions], continued=True)
    review = CaptionReview(captions, decisions, config.annotator or "")
    return stack.enter_context(contextlib.closing(review))


def _checked_name(text: str) -> str:
    """Returns the annotator's name, which is written on every label. Raises OptionError for an
    invalid one.
    """
    name = text.strip()
    problem = ""
    if not name:
        problem = "expected a name, got an empty one; it distinguishes the labels of several people"
    elif len(name) > _MAX_NAME:
        problem = f"{len(name):,} characters are too many; use at most {_MAX_NAME}"
    elif any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        problem = f"{name!a}: expected valid UTF-8 without control characters"
    if problem:
        raise OptionError(f"annotator: {problem}", "annotator")
    return name

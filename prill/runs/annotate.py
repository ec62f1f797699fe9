"""Serves the annotation UI in a browser, where a person labels trajectories."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from prill.config.registry import OptionError
from prill.errors import UsageError
from prill.evaluators.combine import as_score
from prill.evaluators.labels import latest_verdicts
from prill.evaluators.questions import judge_questions
from prill.evaluators.registry import JudgeLike
from prill.io.checksums import expect_unchanged
from prill.io.lines import is_stream
from prill.io.outputs import check_output, expect_file
from prill.io.store import read_labels, read_verdicts
from prill.io.tables import printable
from prill.runs.base import (
    RecordingsConfig,
    opened_folders,
    stopped,
    synchronous,
)
from prill.ui.serving import serving
from prill.ui.view.label_log import SOURCE, LabelLog
from prill.ui.view.library import Library
from prill.ui.view.questions import PairAgreement
from prill.ui.view.queue import keep_queue
from prill.ui.view.session import LabelSession
from prill.ui.view.site import Reveal, ViewSite

log = logging.getLogger("prill.runs")
_MAX_PROBLEMS = 20
_MAX_NAME = 200  # characters; the name is written on every line of the label file
AskedOption = Annotated[
    JudgeLike | None,
    Meta(
        description="Judge `ask`, as `prill score` takes it: its questions are asked on the page, "
        "too, and the answers are stored in the labels."
    ),
]
PortOption = Annotated[
    int, Meta(ge=0, le=65535, description="Port on this machine (default: any free port).")
]


@dataclass(frozen=True, kw_only=True)
class AnnotateConfig(RecordingsConfig):
    """Configuration of `prill annotate`: serve a page on which a person labels trajectories."""

    annotator: Annotated[str, Meta(description="Name of the annotator, stored with each label.")]
    output: Annotated[
        str | Path, Meta(description="Label file. Labels by other annotators are kept.")
    ]
    port: PortOption = 0
    earlier: Annotated[
        Sequence[str | Path],
        Meta(description="Label files of other annotators, used to show agreement."),
    ] = ()
    verdicts: Annotated[
        Sequence[str | Path],
        Meta(
            description="Verdict files. Their verdicts on a trajectory are shown after you "
            "have labelled it."
        ),
    ] = ()
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
    limit: Annotated[
        int | None, Meta(ge=1, description="Show only the first N trajectories in that order.")
    ] = None
    blind: Annotated[
        bool, Meta(description="Never show others' labels, agreement or verdicts on the page.")
    ] = False
    show_verdicts: Annotated[
        bool, Meta(description="Show verdicts before you label, too. They will bias your labels.")
    ] = False
    judge: AskedOption = None

    def check(self) -> None:
        """Validates options that depend on each other.

        Raises:
            UsageError: The options conflict.
        """
        object.__setattr__(self, "annotator", annotator_name(self.annotator))
        if self.blind and self.show_verdicts:
            raise UsageError(
                "blind hides what show_verdicts shows; give only one of them",
                parameters=("blind", "show_verdicts"),
            )
        if self.order == "informative" and not (self.verdicts and self.limit):
            raise UsageError(
                "the informative order needs limit and verdicts: it draws `limit` "
                "trajectories by the scores of the verdicts",
                parameters=("verdicts" if self.limit else "limit", "order"),
            )
        if not self.trajectories:
            raise UsageError("give trajectories", parameters=("trajectories",))


@dataclass(frozen=True)
class Opened:
    """The annotation page when it opens.

    Attributes:
        url: The page's address.
        total: The number of trajectories.
        done: The number of trajectories that this annotator has labelled.
    """

    url: str
    total: int
    done: int


@dataclass(frozen=True, kw_only=True)
class AnnotateResult:
    """Result of an annotation session.

    Attributes:
        file: The file with the labels.
        annotator: The annotator who made them.
        written: The number of decisions made in this session.
        done: The number of this annotator's decisions about these trajectories.
        left: The number of trajectories without a decision.
        revised: Decisions that the annotator changed after seeing those of others.
        pairs: The agreement with each other annotator.
        broken: Broken lines, which were skipped.
    """

    file: str
    annotator: str
    written: int
    done: int
    left: int
    revised: int = 0
    pairs: tuple[PairAgreement, ...] = ()
    broken: int = 0

    def table(self) -> dict[str, Any]:
        """Returns the result as a JSON object."""
        table = asdict(self)
        del table["broken"]
        return table

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        total = self.done + self.left
        yield (
            f"{self.file}: {self.written} trajectories labelled now, {self.done} of {total} "
            f"in total, {self.left} left"
        )
        if self.revised:
            yield (
                f"{self.revised} labels were changed after seeing the opinions of others: "
                "their agreement is not independent"
            )
        for pair in self.pairs:
            kappa = "undefined" if pair.kappa is None else f"{pair.kappa:.2f}"
            agreed = (
                f"{pair.agreed} of {pair.common} agree, kappa {kappa}"
                if pair.common
                else "no trajectory was decided by both"
            )
            left_open = f"; {pair.undecided} undecided by one or both" if pair.undecided else ""
            # names come from others' files
            about = f" on {printable(pair.question)!r}" if pair.question else ""
            yield f"With {printable(pair.annotator)}{about}: {agreed}{left_open}"


def _log_address(page: Opened) -> None:
    log.info("open %s (%d trajectories, %d left)", page.url, page.total, page.total - page.done)


async def annotate_async(
    config: AnnotateConfig,
    *,
    stop: asyncio.Event | None = None,
    opened: Callable[[Opened], object] = _log_address,
) -> AnnotateResult:
    """Serves the annotation page until it is stopped.

    Every decision is on disk before the next trajectory is shown.

    Args:
        config: The items to label, the annotator, and the output file.
        stop: An event; the page closes once it is set (default: at Ctrl-C or SIGTERM).
        opened: Called with the page once it can be opened; by default its address is logged.

    Returns:
        The decisions of the session.

    Raises:
        UsageError: A file cannot be read or written, or the port is in use.
    """
    check_output(config.output, "labels", config.trajectories, continued=True)
    with stopped(stop) as stop, config.opened() as (paths, _):
        return await _labelled(config.copy_with(trajectories=paths), stop, opened)


annotate = synchronous(annotate_async)
"""Runs `annotate_async` with the same parameters, for scripts and notebooks."""


async def _labelled(
    config: AnnotateConfig, stop: asyncio.Event, opened: Callable[[Opened], object]
) -> AnnotateResult:
    trajectories = opened_folders(config.trajectories)
    output = str(config.output)
    questions = () if config.judge is None else judge_questions(config.judge)
    expect_file(output, "labels")
    check_output(output, "labels", [*trajectories, *config.verdicts], continued=True)
    _check_earlier(config)
    scores = None
    if config.order == "informative":
        _, latest = latest_verdicts(read_verdicts(config.verdicts[0]))
        scores = {id: as_score(verdict) for id, verdict in latest.items()}
    _check_files(config, trajectories)
    limit = config.limit if config.order == "file" else None
    with contextlib.closing(Library(trajectories, config.verdicts, limit=limit)) as library:
        broken = _read(library)
        for message in broken[:_MAX_PROBLEMS]:
            log.warning("left out: %s", message)
        if len(broken) > _MAX_PROBLEMS:
            log.warning("… and %d more", len(broken) - _MAX_PROBLEMS)
        inclusion = keep_queue(
            library, order=config.order, seed=config.seed, limit=config.limit, scores=scores
        )
        with LabelLog(output, config.annotator) as labels:
            _expect_same_draw(output, inclusion, labels)
            library.begin_labels(labels, config.earlier)
            session = LabelSession(library, labels, questions=questions, inclusion=inclusion)
            reveal: Reveal = (
                "never" if config.blind else "verdicts" if config.show_verdicts else "after"
            )
            site = ViewSite(
                library, session, reveal=reveal, title="prill annotate", command="prill annotate"
            )
            async with site.following(), serving(site, config.port) as url:
                opened(Opened(url, len(library), session.done))
                await stop.wait()
            return AnnotateResult(
                file=output,
                annotator=config.annotator,
                written=session.written,
                done=session.done,
                left=len(library) - session.done,
                revised=session.revised,
                pairs=session.pairs,
                broken=len(broken),
            )


def _check_files(config: AnnotateConfig, trajectories: Sequence[str]) -> None:
    """Raises UsageError for a missing file, and for one that differs from its checksum."""
    for path in (*trajectories, *config.verdicts):
        if not is_stream(path) and not Path(path).exists():
            raise UsageError(f"{path}: no such file")
    for path in trajectories:
        expect_unchanged(path)


def _read(library: Library) -> list[str]:
    """Reads runs and verdicts, and returns what is left out.

    Raises UsageError if no run, or not every verdict, can be read.
    """
    for _ in library.read_rows():
        pass
    left_out = library.left_out()
    if all(row.broken is not None for row in library.rows):
        raise UsageError(left_out[0] if left_out else "no trajectory was found")
    for problem in library.problems:
        if problem not in left_out:
            raise UsageError(problem)
    return left_out


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


def annotator_name(text: str) -> str:
    """Returns the validated annotator name, which is written on every label. Raises OptionError for
    an invalid name.
    """
    name = text.strip()
    if not name:
        raise OptionError(
            "annotator: expected a name, got an empty one; it distinguishes the labels of "
            "several people",
            "annotator",
        )
    if len(name) > _MAX_NAME:
        raise OptionError(
            f"annotator: {len(name):,} characters are too many; use at most {_MAX_NAME}",
            "annotator",
        )
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        raise OptionError(
            f"annotator: {name!a}: expected valid UTF-8 without control characters", "annotator"
        )
    return name


def _check_earlier(config: AnnotateConfig) -> None:
    """Logs which labels of other files are left out. Raises UsageError for unreadable ones."""
    for path in config.earlier:
        records = list(read_labels(path))
        people = [record for record in records if record.source == SOURCE]
        own = sum(record.annotator == config.annotator for record in people)
        if not_people := len(records) - len(people):
            log.warning("%s: left out %d labels that were not made by people", path, not_people)
        if own:
            log.warning(
                "%s: left out %d labels of %s: only labels in the output file are continued",
                path,
                own,
                config.annotator,
            )

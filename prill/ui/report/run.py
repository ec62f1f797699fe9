"""One HTML page with screenshots, verdicts and labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from prill.config.shared import LabelFiles, LimitOption
from prill.datasets.inputs import RecordingsConfig, opened_folders
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.lines import get_name, is_stream
from prill.io.outputs import check_output, is_stdout
from prill.io.store import BadLine, TrajectoryReader, read_labels
from prill.io.truth import SourceOption, TruthOption
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, first_of
from prill.types import Trajectory
from prill.ui.report.entries import Retry, file_names, read_judges
from prill.ui.report.page import ReportSummary, write_report

_MAX_PROBLEMS = 10
_MAX_SHOWN = 20_000_000  # bytes of a page that is embedded in a notebook


@dataclass(frozen=True, kw_only=True)
class PageConfig(RecordingsConfig):
    """What a page shows, in a file (`prill report`) or served (`prill view`)."""

    verdicts: Annotated[
        Sequence[str | Path],
        Meta(
            description="Verdict files, shown side by side. A served page waits for those that a "
            "run is about to write."
        ),
    ] = ()
    labels: LabelFiles = ()
    source: SourceOption = None
    truth: TruthOption = "majority"
    transcripts: Annotated[bool, Meta(description="Show prompts and replies of models.")] = True
    limit: LimitOption = None
    by: Annotated[
        Sequence[str],
        Meta(
            description="Additional filters besides site, agent, platform and truncated: "
            "task, or keys of the metadata."
        ),
    ] = ()


_Page = TypeVar("_Page", bound=PageConfig)


@dataclass(frozen=True, kw_only=True)
class ReportConfig(PageConfig):
    """Configuration of `prill report`: write one HTML page with screenshots, verdicts and
    labels.
    """

    output: Annotated[
        str | Path,
        Meta(description="HTML file to write, for example report.html, or - for stdout."),
    ]
    embed: Annotated[
        bool,
        Meta(
            description="Embed images instead of linking to them. Images of recordings are "
            "always embedded."
        ),
    ] = False


@dataclass(frozen=True)
class ReportResult(Printed):
    """The page that was written; a notebook shows it.

    Attributes:
        output: The page's file.
        size: Its length in bytes; None where it went to a pipe.
        judges: The number of verdict files shown.
        summary: The contents: trajectories, and lines that could not be read.
        embedded: Whether the images are embedded in the page.
    """

    output: str
    size: int | None
    judges: int
    summary: ReportSummary
    embedded: bool
    of_files = True

    @property
    def exit_code(self) -> int:
        """Returns 3 if some lines or images could not be read."""
        return EXIT_SOME if self.broken else EXIT_ALL

    @property
    def broken(self) -> bool:
        """Returns whether some lines or images could not be read."""
        return bool(self.summary.broken or self.summary.missing)

    def notes(self) -> Iterator[str]:
        """Yields messages for unreadable lines and images, and for judges fitted to these
        trajectories.
        """
        summary = self.summary
        missing = [f"{path}: missing, or not an image" for path in summary.missing]
        yield from first_of(summary.broken, end=" lines that could not be read")
        yield from first_of(missing, end=" images that cannot be shown")
        if summary.outside:
            yield (
                f"{summary.outside} images are outside the page's folder, so the page shows "
                "them only on this machine; embed stores them in the page"
            )
        yield from (
            caution
            for name, overlap in summary.fitted.items()
            if (caution := overlap.caution(name))
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the contents of the page as numbers."""
        summary = self.summary
        return {
            "output": self.output,
            "bytes": self.size,
            "trajectories": summary.trajectories,
            "broken": len(summary.broken),
            "missing_images": len(summary.missing),
            "images_elsewhere": summary.outside,
            "fitted": summary.fitted,
        }

    def __str__(self) -> str:
        size = "" if self.size is None else f", {self.size / 1e6:.1f} MB"
        return (
            f"{self.output}: {self.summary.trajectories} trajectories, judges: {self.judges}{size}"
        )

    def _repr_html_(self) -> str:
        """Returns the page in an iframe.

        The iframe holds the page itself if its images are embedded; else it loads the file.
        """
        from html import escape

        line = f"<p>{escape(str(self))}</p>"
        if self.size is None:
            return line
        if self.embedded and self.size <= _MAX_SHOWN:
            shown = f'srcdoc="{escape(Path(self.output).read_text(encoding="utf-8"))}"'
        else:
            shown = f'src="{escape(Path(os.path.relpath(self.output)).as_posix())}"'
        return f'{line}<iframe sandbox="allow-scripts" width="100%" height="700" {shown}></iframe>'


@as_run(ReportConfig)
def report(
    config: ReportConfig, *, progress: Callable[[int], object] = lambda count: None
) -> ReportResult:
    """Writes one HTML page with screenshots, verdicts and labels.

    Args:
        config: The contents of the page and its file.
        progress: Called after every trajectory with 1.

    Returns:
        The result; a notebook shows the page.

    Raises:
        UsageError: The configuration is invalid, or nothing could be read.
    """
    config, retries = with_retries(config)
    check_output(
        config.output, "a report", [*config.trajectories, *config.verdicts, *config.labels]
    )
    with config.opened() as (paths, recordings):
        config = config.copy_with(trajectories=paths, embed=config.embed or bool(recordings))
        return _written(config, retries, progress)


def _written(
    config: ReportConfig, retries: Mapping[str, Retry] | None, progress: Callable[[int], object]
) -> ReportResult:
    trajectories = opened_folders(config.trajectories)
    inputs = [*trajectories, *config.verdicts, *config.labels]
    check_output(config.output, "a report", inputs)
    judges = read_judges(list(map(str, config.verdicts)), transcripts=config.transcripts)
    reader = TrajectoryReader(trajectories, config.limit)
    names = {get_name(path): name for path, name in file_names(trajectories).items()}
    files: dict[str, str] = {}

    def items() -> Iterator[Trajectory | BadLine]:
        for place, item in reader:
            if name := names.get(place.rpartition(":")[0]):
                files[item.id] = name
            yield item

    try:
        summary = write_report(
            config.output,
            items(),
            judges,
            chain.from_iterable(map(read_labels, config.labels)),
            source=config.source,
            truth=config.truth,
            embed=config.embed,
            by=config.by,
            retries=retries,
            files=files if names else None,
            progress=lambda: progress(1),
        )
    finally:
        reader.close()
    streamed = is_stdout(config.output) or is_stream(config.output)
    size = None if streamed else Path(config.output).stat().st_size
    return ReportResult(str(config.output), size, len(judges), summary, config.embed)


def with_retries(config: _Page) -> tuple[_Page, Mapping[str, Retry] | None]:
    """Reads the outcome of each attempt in folders of `prill reflexion`.

    Their verdicts and labels are used unless the configuration names others.

    The second value is None if there is no such folder.
    """
    folders = [folder for folder in map(Path, config.trajectories) if _was_retried(folder)]
    if not folders:
        return config, None
    from prill.io.retries import LESSONS, RESULTS, VERDICTS, read_lessons, read_results

    config = config.copy_with(
        trajectories=[
            path / TRAJECTORIES if path in folders else path
            for path in map(Path, config.trajectories)
        ],
        verdicts=config.verdicts
        or [path for folder in folders if _filled(path := folder / VERDICTS)],
        labels=config.labels or [path for folder in folders if _filled(path := folder / LABELS)],
    )
    found: dict[str, Retry] = {}
    for folder in folders:
        for id, lesson in read_lessons(folder / LESSONS).items():
            found[id] = Retry(lesson=lesson.text, problem=lesson.problem)
        if not (folder / RESULTS).is_file():  # the run has not finished
            continue
        for task in read_results(folder).tasks:
            for index, attempt in enumerate(task.attempts):
                found[attempt.id] = Retry(
                    lesson=attempt.lesson,
                    problem=attempt.problem,
                    ended=task.ended if attempt is task.attempts[-1] else None,
                    answer=index == task.answer,
                )
    return config, found


def _was_retried(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    from prill.io.retries import LESSONS, SETTINGS

    return (folder / SETTINGS).is_file() or (folder / LESSONS).is_file()


def _filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0

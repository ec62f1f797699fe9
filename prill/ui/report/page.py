"""Writes the report as one HTML file.

The file opens with the summary and the list, and ends with one block of JSON for each trajectory,
read when it is shown: a browser paints the first before it has read the last. Whatever came from a
page, an agent or a model is data there; the page's policy lets no script run but its own, and lets
nothing be fetched but the images.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from markupsafe import Markup

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import Calibration
from prill.evaluators.fitted.overlap import Overlap, find_overlap
from prill.evaluators.labels import gold_labels
from prill.io.lines import is_stream
from prill.io.outputs import check_output, writing
from prill.io.store import BadLine, encode
from prill.types import LabelRecord, Trajectory
from prill.ui.report.calls import packed_calls
from prill.ui.report.entries import Judge, ReportRow, Retry, detail, get_series, row
from prill.ui.report.failures import FailedRun, failed_run
from prill.ui.report.pictures import Pictures
from prill.ui.report.summary import ReportContents, Summary, summary
from prill.ui.templates import render_page

# What the list can always be filtered by, where trajectories differ in it.
_FILTER_KEYS = ("site", "agent", "platform", "truncated")
_NAMES = (
    "dom picture steps verdicts timeline calls print attempts beside detail filters columns list "
    "address main"
)
SCRIPTS = tuple(f"ui/report/{name}.js" for name in _NAMES.split())
"""What the report and the page of `prill view` share; each has its own `data.js` before them."""


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """Counts of a report page: trajectories, unreadable lines and images, and images linked
    elsewhere.

    For judges fitted to labels: how many of these trajectories they were fitted on.
    """

    trajectories: int
    broken: tuple[str, ...]
    missing: tuple[str, ...]
    outside: int
    fitted: Mapping[str, Overlap] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overview:
    judges: tuple[str, ...]
    source: str
    parts: Sequence[str]
    rows: Sequence[ReportRow]


def write_report(
    out: str | os.PathLike[str],
    items: Iterable[Trajectory | BadLine],
    judges: Sequence[Judge] = (),
    labels: Iterable[LabelRecord] = (),
    *,
    source: str | None = None,
    truth: str = "majority",
    embed: bool = False,
    threshold: float | None = None,
    calibrations: Sequence[Calibration] = (),
    by: Sequence[str] = (),
    retries: Mapping[str, Retry] | None = None,
    title: str = "prill report",
    progress: Callable[[], object] = lambda: None,
) -> ReportSummary:
    """Writes the page; it appears under its name when it is whole.

    Figures are about the trajectories in the page. `source` and `truth` say which labels count (see
    `gold_labels`); the curves mark the score `threshold`, else the one that a judge's calibration
    chose. Images are linked by relative path unless `embed` is set; `by` are more keys to filter
    by, such as one of the metadata; `progress` is called after every trajectory. With `retries`, by
    trajectory id, the attempts at a task stand side by side; their metadata count them under
    `attempt`. Raises UsageError when `out` cannot be written, the source of the labels is unclear
    or no trajectory has a key.
    """
    check_output(out, "a report")
    folder = Path() if is_stream(out) else Path(out).parent
    by_id: dict[str, list[LabelRecord]] = defaultdict(list)
    for label in labels:
        by_id[label.id].append(label)
    label_source, gold = gold_labels(
        (label for group in by_id.values() for label in group), source, truth
    )
    keys = list(dict.fromkeys((*_FILTER_KEYS, *(("attempt",) if retries is not None else ()), *by)))
    rows: list[ReportRow] = []
    failures: list[FailedRun] = []
    # of the page's runs, those that a calibration was fitted to
    chosen = [Counter[str]() for _ in calibrations]
    series: dict[tuple[object, ...], int] = {}
    try:
        with (
            writing(out) as page,
            tempfile.TemporaryFile(dir=None if is_stream(out) else folder) as spool,
        ):
            pictures = Pictures(folder, _embedding(spool) if embed else None)
            for item in items:
                if isinstance(item, Trajectory):
                    for counts, calibration in zip(chosen, calibrations, strict=True):
                        known = calibration.fitted_to
                        counts["unknown" if known is None else known.relation(item)] += 1
                line = row(item, judges, item.id in gold, gold.get(item.id), keys)
                if retries is not None and (place := get_series(item)) is not None:
                    line = replace(
                        line, series=series.setdefault(place[0], len(series)), attempt=place[1]
                    )
                rows.append(line)
                if isinstance(item, Trajectory) and (
                    failed := failed_run(item, judges, gold.get(item.id), label_source)
                ):
                    failures.append(failed)
                own_labels = [
                    label for label in by_id.get(item.id, ()) if label.source == label_source
                ]
                retry = None if retries is None else retries.get(item.id)
                # its pictures come before it
                entry = detail(item, judges, own_labels, pictures, retry)
                spool.write(_block(f"t{len(rows) - 1}", "application/json", _json(entry)))
                progress()
            _write_calls(spool, judges, rows)
            if unknown := [
                key for key in by if all(row.parts[keys.index(key)] is None for row in rows)
            ]:
                raise UsageError(
                    f"no trajectory has a value for {unknown[0]!r}; give task, or a key of the "
                    "metadata",
                    parameters=("by",),
                )
            contents = ReportContents(
                rows=rows,
                judges=judges,
                labels=[
                    label
                    for group in by_id.values()
                    for label in group
                    if label.source == label_source
                ],
                source=label_source,
                truth=truth,
                threshold=threshold,
                calibrations=calibrations,
                calibrated_on=[Overlap(**counts) for counts in chosen],
                missing=len(pictures.missing),
                retries=retries or {},
                failures=failures,
            )
            listed = [replace(row, task="") for row in rows]  # tasks are for the figures alone
            overview = _Overview(
                judges=tuple(judge.name for judge in judges),
                source=label_source,
                parts=keys,
                rows=listed,
            )
            opening, closing = _frame(title, summary(contents), _json(overview))
            page.write(opening)
            spool.seek(0)
            shutil.copyfileobj(spool, page, 1 << 20)
            page.write(closing)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UsageError(f"{out}: cannot be written: {error.strerror}") from None
    broken = tuple(row.broken for row in rows if row.broken is not None)
    seen = {
        judge.name: find_overlap(judge.verdicts[row.id] for row in rows if row.id in judge.verdicts)
        for judge in judges
    }
    fitted = {name: overlap for name, overlap in seen.items() if overlap is not None}
    return ReportSummary(
        len(rows) - len(broken), broken, tuple(pictures.missing), pictures.outside, fitted
    )


def _write_calls(spool: BinaryIO, judges: Sequence[Judge], rows: Sequence[ReportRow]) -> None:
    for number, judge in enumerate(judges):
        calls = packed_calls(judge)
        for place, line in enumerate(rows):
            if line.id in calls:
                spool.write(_block(f"c{place}-{number}", "text/plain", calls[line.id]))


def _embedding(spool: BinaryIO) -> Callable[[int, bytes], object]:
    return lambda number, url: spool.write(_block(f"p{number}", "text/plain", url))


def _block(id: str, type_: str, data: bytes) -> bytes:
    return b'<script type="%s" id="%s">%s</script>\n' % (type_.encode(), id.encode(), data)


def _json(record: object) -> bytes:
    """JSON that can stand inside a script element: nothing in it ends the element or opens a
    comment.
    """
    data = encode(record).rstrip()
    for character in "<>&\u2028\u2029":
        data = data.replace(character.encode(), f"\\u{ord(character):04x}".encode())
    return data


def _frame(title: str, summary: Summary, overview: bytes) -> tuple[bytes, bytes]:
    """What stands before the trajectories, and what stands behind them."""
    page = render_page(
        "ui/report/page.html",
        styles=("ui/report/page.css",),
        scripts=("ui/look.js", "ui/report/data.js", *SCRIPTS),
        images="'self' file: data:",
        generator="prill report",
        title=title,
        summary=summary,
        overview=Markup(overview.decode()),
    )
    opening, body, closing = page.rpartition("</body>")  # nothing but the template stands behind it
    return opening.encode(), f"{body}{closing}".encode()

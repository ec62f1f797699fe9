"""Writes the report as one HTML file.

The file begins with the summary and the list, and ends with one JSON block for each trajectory,
parsed when it is shown; browsers therefore paint the beginning before they have read the end. Text
from pages, agents and models is embedded as data. The page's content security policy allows only
its own scripts to run and only images to be fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from prill.errors import UsageError
from prill.evaluators.agreement.trivial import Telemetry
from prill.evaluators.fitted.overlap import Overlap, find_overlap
from prill.evaluators.labels import gold_labels
from prill.io.joining import expect_same_runs, record_digest
from prill.io.lines import is_stream
from prill.io.outputs import Writer, check_output, writing
from prill.io.store import BadLine, encode
from prill.types import LabelRecord, Trajectory
from prill.ui.report.calls import packed_calls
from prill.ui.report.causes import Cause, find_cause
from prill.ui.report.entries import (
    NO_EVALUATOR,
    Detail,
    Judge,
    ReportRow,
    Retry,
    detail,
    get_series,
    row,
)
from prill.ui.report.pictures import Pictures
from prill.ui.report.summary import ReportContents, Summary, summary
from prill.ui.templates import compile_templates, page_pieces

# What a trajectory's block leaves out: the scripts take what is absent for empty. Quotes inside
# strings are escaped, so that only keys match.
_EMPTY = (
    rb'"(?:screenshot|text|url|caption|target|point|end_point|value|thought|final|answer|error|'
    rb"start_url|steps|rewards|opinions|findings|fitted_on|not_executable|undecided|note|retry|"
    rb'src|embedded)":null|"flagged":false|"earlier":\[\]|"metadata":\{\}|"evaluator":'
    + re.escape(encode(NO_EVALUATOR).strip())
)
_ABSENT = re.compile(rb"(?<=\{)(?:%b),|,(?:%b)" % (_EMPTY, _EMPTY))
# Keys that the list can always be filtered by, if trajectories differ in them.
_FILTER_KEYS = ("site", "agent", "platform", "truncated")
_TEMPLATE = "ui/report/page.html"
# Quotes and tags in texts are escaped, so only the template has these.
_LIST, _END = b'id="overview">', b"</body>"
_TEMPLATES = (
    _TEMPLATE,
    "ui/base.html",
    "ui/macros.html",
    "ui/report/summary.html",
    "ui/report/body.html",
)
_NAMES = (
    "dom picture steps verdicts timeline calls print attempts beside detail filters columns list "
    "example address main"
)
SCRIPTS = tuple(f"ui/report/{name}.js" for name in _NAMES.split())
"""The scripts that the report and the page of `prill view` share; each adds its own `data.js`
first.
"""


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """Counts of a report page: trajectories, unreadable lines and images, and images linked
    elsewhere.

    For judges fitted to labels, it also counts the trajectories they were fitted on.
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
    by: Sequence[str] = (),
    retries: Mapping[str, Retry] | None = None,
    files: Mapping[str, str] | None = None,
    title: str = "prill report",
    progress: Callable[[], object] = lambda: None,
) -> ReportSummary:
    """Writes the report page atomically.

    Figures cover the trajectories in the page. `source` and `truth` select the labels (see
    `gold_labels`). Images are linked by relative path unless `embed` is set; `by` are more keys to
    filter by, such as one of the metadata; `progress` is called after every trajectory. With
    `retries`, by trajectory id, the attempts at a task are shown side by side; their metadata has
    the attempt number under `attempt`. `files` has the short name of each trajectory's file by id,
    if there are several; it may grow as `items` are read. Raises UsageError if `out` cannot be
    written, verdicts are on other contents of these trajectories, the source of the labels is
    ambiguous, or no trajectory has a key.
    """
    check_output(out, "a report")
    compile_templates(*_TEMPLATES)
    folder = Path() if is_stream(out) else Path(out).parent
    by_id: dict[str, list[LabelRecord]] = defaultdict(list)
    for label in labels:
        by_id[label.id].append(label)
    label_source, gold = gold_labels(
        (label for group in by_id.values() for label in group), source, truth
    )
    more = [*(["attempt"] if retries is not None else ()), *(["file"] if files is not None else ())]
    keys = list(dict.fromkeys((*_FILTER_KEYS, *more, *by)))
    rows: list[ReportRow] = []
    causes: dict[str, Cause | None] = {}
    series: dict[tuple[object, ...], int] = {}
    records: dict[str, str] = {}
    shown: dict[str, tuple[bool, int]] = {}
    telemetry = Telemetry()
    try:
        with (
            writing(out) as page,
            tempfile.TemporaryFile(dir=None if is_stream(out) else folder) as spool,
        ):
            pictures = Pictures(folder, _embedding(spool) if embed else None)
            for item in items:
                file = files.get(item.id) if files is not None else None
                line = row(item, judges, item.id in gold, gold.get(item.id), keys, file)
                if retries is not None and (place := get_series(item, file)) is not None:
                    line = replace(
                        line, series=series.setdefault(place[0], len(series)), attempt=place[1]
                    )
                if isinstance(item, Trajectory):
                    records[item.id] = record_digest(item)
                    telemetry.add(item)
                    if "failure" in (line.truth, *line.outcomes):
                        causes[item.id] = find_cause(item)
                rows.append(line)
                own_labels = [
                    label for label in by_id.get(item.id, ()) if label.source == label_source
                ]
                retry = None if retries is None else retries.get(item.id)
                # its images come before it
                entry = detail(item, judges, own_labels, pictures, retry)
                if (picture := _shown(entry)) is not None:
                    shown[item.id] = picture
                block = _ABSENT.sub(b"", _json(entry))
                spool.write(_block(f"t{len(rows) - 1}", "application/json", block))
                progress()
            _write_calls(spool, judges, rows)
            for judge in judges:
                expect_same_runs(judge.verdicts.values(), records)
            expect_same_runs(chain.from_iterable(by_id.values()), records)
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
                missing=len(pictures.missing),
                retries=retries or {},
                causes=causes,
                records=records,
                telemetry=telemetry,
                shown=shown,
            )
            overview = _Overview(
                judges=tuple(judge.name for judge in judges),
                source=label_source,
                parts=keys,
                rows=rows,
            )
            for piece in _frame(title, summary(contents)):
                head, mark, rest = piece.partition(_LIST)
                if mark:
                    page.write(head + mark)
                    _write_overview(page, overview)
                    head, rest = rest, b""
                head, mark, rest = head.partition(_END)
                page.write(head)
                if mark:
                    spool.seek(0)
                    shutil.copyfileobj(spool, page)
                    page.write(mark + rest)
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


def _shown(entry: Detail) -> tuple[bool, int] | None:
    """Returns the last state with a screenshot and an action drawn on it, else the last one."""
    steps = entry.trajectory.steps if entry.trajectory else ()
    return max(
        (
            (i < len(steps) and steps[i].action.point is not None, i)
            for i, picture in enumerate(entry.pictures)
            if picture is not None and picture.width
        ),
        default=None,
    )


def _write_overview(page: Writer, overview: _Overview) -> None:
    """Writes the list's data row by row: all rows would be held three times over as text."""
    page.write(_json(replace(overview, rows=())).removesuffix(b"]}"))
    for number, line in enumerate(overview.rows):
        # tasks are used by the figures only
        page.write(b"," * (number > 0) + _json(replace(line, task="")))
    page.write(b"]}")


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
    """Returns JSON that is safe inside a script element: it cannot end the element or open a
    comment.
    """
    data = encode(record).rstrip()
    for character in "<>&\u2028\u2029":
        data = data.replace(character.encode(), f"\\u{ord(character):04x}".encode())
    return data


def _frame(title: str, summary: Summary) -> Iterator[bytes]:
    """Yields the HTML without the data: the list's follows `_LIST`, all trajectories' are before
    `_END`.
    """
    pieces = page_pieces(
        _TEMPLATE,
        styles=("ui/report/page.css",),
        scripts=("ui/look.js", "ui/report/data.js", *SCRIPTS),
        images="'self' file: data:",
        generator="prill report",
        title=title,
        summary=summary,
    )
    return (piece.encode() for piece in pieces)

"""Monitors a reward for signs of over-optimisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill.errors import InputError, UsageError
from prill.io.lines import read_lines
from prill.io.outputs import check_output, detect_line_content, write_output
from prill.io.tables import data_frame
from prill.refine.rewards.watch.live import read_scores
from prill.refine.rewards.watch.page import headline, watch_page
from prill.refine.rewards.watch.records import (
    WatchRecord,
    get_name,
    read_valid_verdicts,
    read_watch,
    records_from_verdicts,
    to_opinion,
)
from prill.refine.rewards.watch.signs import WatchReport, WatchTally
from prill.refine.rewards.watch.spec import WatchLimits
from prill.runs.base import asynchronous
from prill.types import Opinion

_MAX_TURNED = 10  # canaries listed by name


@dataclass(frozen=True, kw_only=True)
class WatchConfig(WatchLimits):
    """Configuration of `prill watch`: check the logs of a reward for drift and reward hacking."""

    logs: Annotated[
        Sequence[str | Path],
        Meta(
            min_length=1,
            description="Observations of `prill serve` or `prill.reward`, or verdicts in "
            "chronological order.",
        ),
    ]
    output: Annotated[
        str | Path | None, Meta(description="HTML page to write, for example watch.html.")
    ] = None
    student: Annotated[
        Sequence[str | Path],
        Meta(description="Verdicts of a second judge on the same ids, for verdict files."),
    ] = ()


@dataclass(frozen=True)
class WatchResult:
    """Signs that the logs of a reward show.

    Attributes:
        reports: The final state of each log.
        problems: Lines that could not be read.
    """

    reports: tuple[tuple[str, WatchReport], ...]
    problems: tuple[str, ...] = ()

    @property
    def alarms(self) -> tuple[str, ...]:
        """Returns the names of the signs that are alarms at the end of a log."""
        return tuple(
            dict.fromkeys(sign.name for _, report in self.reports for sign in report.alarms)
        )

    @property
    def page(self) -> str:
        """Returns the page with text and plots, as HTML."""
        return watch_page(self.reports)

    def table(self) -> list[dict[str, Any]]:
        """Returns the reports as JSON objects, without their history."""
        return [{"log": log, **_plain(report)} for log, report in self.reports]

    def to_pandas(self) -> Any:
        """Returns a pandas DataFrame with a row for each sign of each log."""
        signs = [(log, sign) for log, report in self.reports for sign in report.signs]
        columns = ["log", "sign", "state", "since", "words"]
        return data_frame(
            [(log, one.name, one.state, one.since, one.words) for log, one in signs],
            columns=columns,
        )

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.page)}" style="width: 100%; height: 40em; border: '
            '0"></iframe>'
        )

    def __str__(self) -> str:
        return "\n".join(_format_report(log, report) for log, report in self.reports)


def watch(
    config: WatchConfig, *, progress: Callable[[str], None] = lambda log: None
) -> WatchResult:
    """Checks logs, and writes the page if the configuration names one.

    Args:
        config: The logs, and the alarm limits.
        progress: Called with the log's name after every line.

    Returns:
        The final state of each log.

    Raises:
        UsageError: Nothing could be read, or a file holds other records.
    """
    logs, students = list(map(str, config.logs)), list(map(str, config.student))
    if config.output:
        check_output(config.output, "a page of a watch", [*logs, *students, config.reference])
    problems: list[str] = []
    opinions = {
        verdict.id: to_opinion(verdict, get_name(verdict.evaluator))
        for path in students
        for verdict in read_valid_verdicts(path, problems.append)
    }
    reports = tuple((path, _report(path, config, opinions, problems, progress)) for path in logs)
    if not any(report.verdicts or report.rounds for _, report in reports):
        nothing = "; ".join(problems[:3]) if problems else "these files are empty"
        raise UsageError(
            f"{', '.join(logs)}: {f'no line could be read: {nothing}' if problems else nothing}"
        )
    result = WatchResult(reports, tuple(problems))
    if config.output:
        write_output(config.output, result.page.encode())
    return result


watch_async = asynchronous(watch)
"""Runs `watch` in a thread, with the same parameters, for programs with an event loop."""


def _report(
    path: str,
    limits: WatchLimits,
    students: dict[str, Opinion],
    problems: list[str],
    progress: Callable[[str], None],
) -> WatchReport:
    tally = WatchTally(limits, read_scores(limits.reference))
    try:
        for record in _records(path, students, problems):
            tally.add(record)
            progress(path)
    except InputError as error:  # a damaged archive: what was read before the damage counts
        problems.append(str(error))
    return tally.report()


def _records(path: str, students: dict[str, Opinion], problems: list[str]) -> Iterator[WatchRecord]:
    """Yields observations from either of the two file types."""
    first = next((line.data for line in read_lines(path) if detect_line_content(line.data)), b"")
    if detect_line_content(first) == "verdicts":
        return records_from_verdicts(path, students, problems.append)
    if students:
        raise UsageError(
            f"{path}: second: only for verdict files; observations already contain the "
            "second judge's verdicts"
        )
    return read_watch(path, problems.append)


def _plain(report: WatchReport) -> dict[str, Any]:
    table = {
        key: value
        for key, value in asdict(report).items()
        if key not in ("course", "lost", "trouble")
    }
    return {
        **table,
        "usage": msgspec.to_builtins(report.usage),
        "alarms": [sign.name for sign in report.alarms],
    }


def _format_report(path: str, report: WatchReport) -> str:
    who = f" by {report.judge}" if report.judge else ""
    lines = [
        (
            f"{path}: {headline([(path, report)])}; {report.verdicts:,} verdicts, "
            f"{report.unscored:,} unscored{who}"
        )
    ]
    for sign in report.signs:
        since = f" (since verdict {sign.since:,})" if sign.state in ("alarm", "notice") else ""
        lines.append(f"  {sign.state:<8} {sign.name:<13} {sign.words}{since}")
    lines += [
        f"  changed: {one.id}, label {one.label}, at first {one.at_first}, now {one.now}"
        for one in report.turned[:_MAX_TURNED]
    ]
    return "\n".join(lines)

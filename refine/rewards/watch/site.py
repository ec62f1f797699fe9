"""The page of a reward monitor in `prill view`, which follows logs that are growing."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from prill.errors import PrillError, UsageError
from prill.io.faults import line_fault
from prill.io.lines import UNREADABLE, Line, get_name, read_lines
from prill.io.outputs import Content, detect_line_content
from prill.refine.rewards.watch.page import PAGE_CSS, headline, watch_section
from prill.refine.rewards.watch.records import WatchRecord, verdict_record
from prill.refine.rewards.watch.signs import WatchReport, WatchTally
from prill.refine.rewards.watch.spec import WatchLimits
from prill.types import Verdict
from prill.ui.serving import Handler, Link, json_response
from prill.ui.templates import render, served_page
from prill.ui.view.following import FollowedFile

if TYPE_CHECKING:
    from aiohttp import web

_MAX_PROBLEMS = 20  # of a log, that are shown
_SLICE = 0.5  # seconds of reading before the page is answered
_READ: tuple[Content, ...] = ("observations", "verdicts")


class FollowedWatch:
    """The state of a watch, counted while its log grows: observations of `prill serve` or
    `prill.reward`, or verdicts in chronological order. The file may not exist yet.

    `problems` are messages about lines that could not be read.
    """

    def __init__(self, path: str | os.PathLike[str], limits: WatchLimits) -> None:
        self.path = os.fspath(path)
        self._limits = limits
        self._begin()

    def _begin(self) -> None:
        self.problems: list[str] = []
        self._file = FollowedFile(self.path)
        self._tally = WatchTally(self._limits)
        self._type: type[WatchRecord | Verdict] | None = None

    def read_new(self) -> Iterator[None]:
        """Reads the lines since the last call; yields after each."""
        if not Path(self.path).exists():
            return
        if self._file.was_replaced():
            self._begin()
        try:
            for line in self._file.new_lines():
                if not self._take(line):
                    self._file.forget(line)
                    return
                yield
        except PrillError as error:
            self._problem(str(error))

    def share(self) -> tuple[int, int]:
        """Returns the number of bytes that were read, and of all."""
        return (self._file.read, self._file.size) if Path(self.path).exists() else (0, 0)

    def report(self) -> WatchReport:
        """Reports the current state of every sign."""
        return self._tally.report()

    def _take(self, line: Line) -> bool:
        """Counts a line; returns False for one that is not complete yet."""
        if self._type is None:
            is_verdicts = detect_line_content(line.data) == "verdicts"
            self._type = Verdict if is_verdicts else WatchRecord
        try:
            record = msgspec.json.decode(line.data, type=self._type)
        except UNREADABLE as error:
            if line.complete:
                fault = line_fault(line.data, error, self._type)
                self._problem(f"{get_name(self.path)}:{line.number}: {fault}")
            return line.complete
        self._tally.add(verdict_record(record) if isinstance(record, Verdict) else record)
        return True

    def _problem(self, message: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS and message not in self.problems:
            self.problems.append(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """The page's content: `read` is the fraction of the logs that was read, from 0 to 1."""

    headline: str
    read: float
    html: str


class WatchSite:
    """The page for logs of a reward (see `FollowedWatch`); they are read when the page asks. Raises
    UsageError for a file that cannot be read, or has other content.
    """

    name = "Rewards"
    command = "prill view"

    def __init__(
        self,
        logs: Sequence[str | os.PathLike[str]],
        *,
        title: str = "prill view",
    ) -> None:
        self.title = title
        self.links: Sequence[Link] = ()
        for path in logs:
            _expect_watch(path)
        self.logs = [FollowedWatch(path, WatchLimits()) for path in logs]
        self._lock = threading.Lock()
        self._reading: Iterator[None] = iter(())

    @property
    def problems(self) -> list[str]:
        """Returns messages about lines that could not be read."""
        return [problem for log in self.logs for problem in log.problems]

    def files(self) -> Mapping[str, str]:
        """Returns the page, its style and its script."""
        return served_page(
            "refine/rewards/watch/served.html",
            styles=(PAGE_CSS,),
            scripts=("refine/rewards/watch/follow.js",),
            title=self.title,
            links=self.links,
        )

    def routes(self) -> Iterable[tuple[str, Handler | None, Handler | None]]:
        """Yields the route of the state."""
        return (("api/state", self._show_state, None),)

    async def _show_state(self, request: web.Request) -> web.StreamResponse:
        return json_response(await asyncio.to_thread(self.state))

    def state(self) -> WatchState:
        """Reads on for half a second at most, and returns the state."""
        with self._lock:
            has_more = self._read()
            shares = [log.share() for log in self.logs]
            done, size = (sum(column) for column in zip(*shares, strict=True))
            reports = [(get_name(log.path), log.report()) for log in self.logs]
            problems = self.problems
        html = render(
            "refine/rewards/watch/sections.html",
            sections=[(name, watch_section(report)) for name, report in reports],
            problems=problems,
        )
        read = min(0.99, done / max(size, 1)) if has_more else 1.0
        return WatchState(headline=headline(reports), read=read, html=html)

    def _read(self) -> bool:
        """Reads for a moment; returns whether there is more."""
        end = time.monotonic() + _SLICE
        if any(time.monotonic() >= end for _ in self._reading):
            return True
        self._reading = (one for log in self.logs for one in log.read_new())
        return any(time.monotonic() >= end for _ in self._reading)


def find_watch_files(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Returns the files, and for each folder its files of observations. Raises UsageError for a
    folder without any.
    """
    files: list[str] = []
    for path in paths:
        if not Path(path).is_dir():
            files.append(os.fspath(path))
            continue
        own = [one for one in sorted(Path(path).glob("*.jsonl")) if _content(one) == "observations"]
        if not own:
            raise UsageError(f"{path}: no file with observations", parameters=("watch",))
        files += map(str, own)
    return files


def _content(path: str | os.PathLike[str]) -> Content | None:
    return next((detect_line_content(line.data) for line in read_lines(path)), None)


def _expect_watch(path: str | os.PathLike[str]) -> None:
    """Raises UsageError for a file whose first line is neither an observation nor a verdict."""
    if not Path(path).exists():
        if Path(path).parent.is_dir():
            return  # a run is about to write it
        raise UsageError(f"{path}: no such file", parameters=("watch",))
    content = _content(path)
    if content not in (None, *_READ):
        raise UsageError(
            f"{path}: contains {content}, not observations; choose another file",
            parameters=("watch",),
        )

"""The page of `prill view`: its files and its routes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from prill.errors import InputError
from prill.types import Observation
from prill.ui.history import ConflictError
from prill.ui.report.entries import Detail, ReportRow, judged_row, truth_outcome
from prill.ui.report.page import SCRIPTS
from prill.ui.serving import (
    PLACE,
    Handler,
    Link,
    UndoRequest,
    change_response,
    json_response,
    picture_response,
)
from prill.ui.templates import render, served_page
from prill.ui.view.library import JudgeProgress, Library
from prill.ui.view.questions import PairAgreement, ShownQuestion, shown_question
from prill.ui.view.session import LabelDecision, LabelSession

if TYPE_CHECKING:
    from aiohttp import web

_MAX_ROWS = 2000  # per response
_PAUSE = 1.0  # seconds between two reads of the files
_SCRIPTS = (
    "ui/view/questions.js",
    "ui/view/labels.js",
    "ui/view/follow.js",
    "ui/view/paper.js",
)
_SLICE = 0.05  # seconds of reading before requests are handled
Reveal = Literal["always", "verdicts", "after", "never"]
"""When the page shows what others say of a run: `always`, only `verdicts` before the annotator's
label, all of it `after` the label, or `never`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequest(LabelDecision):
    """A decision, the id of the run, and the version of the state it was made on; None for any."""

    id: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedRow:
    """A row that is new or has changed; `mine` is the label of the annotator at the page, which
    leaves `unanswered` questions open.
    """

    number: int
    row: ReportRow
    mine: str | None = None
    unanswered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The changes since the page's last request.

    A page with another `generation` reloads. `known` is the number of changes that it knows after
    this response, of `changes`; `read` is the fraction of the files that was read.
    """

    generation: int
    known: int
    changes: int
    read: float
    judges: tuple[JudgeProgress, ...]
    source: str
    parts: tuple[str, ...]
    problems: tuple[str, ...]
    annotator: str | None
    blind: bool
    questions: tuple[ShownQuestion, ...] = ()
    pairs: tuple[PairAgreement, ...] = ()
    rows: tuple[NumberedRow, ...] = field(default=())


class ViewSite:
    """The page, which reads files in the background while `following`.

    Args:
        library: The runs to show.
        session: The session for labels; None: no labels are collected.
        reveal: When verdicts, others' labels and figures are shown. Unless `always`, the page is
            blind: the annotator decides, saves, and is led to the next run.
        title: The title of the page.
        command: The command that serves the page.
    """

    name = "Trajectories"

    def __init__(
        self,
        library: Library,
        session: LabelSession | None = None,
        *,
        reveal: Reveal = "always",
        title: str = "prill view",
        command: str = "prill view",
    ) -> None:
        self.title = title
        self.command = command
        self.links: Sequence[Link] = ()
        self.library = library
        self.session = session
        self._questions = tuple(map(shown_question, session.questions)) if session else ()
        self.reveal: Reveal = reveal if session is not None else "always"

    @property
    def blind(self) -> bool:
        """Returns whether anything is hidden."""
        return self.reveal != "always"

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follows the files inside the block."""
        reading = asyncio.create_task(self._read())
        try:
            yield
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    async def _read(self) -> None:
        while True:
            changes = self.library.refresh()
            while await _unbroken(asyncio.to_thread(_some, changes)):
                pass
            await asyncio.sleep(_PAUSE)

    def files(self) -> Mapping[str, str]:
        """Returns the page, its style and its script."""
        return served_page(
            "ui/view/view.html",
            styles=("ui/report/page.css", "ui/decisions.css", "ui/view/view.css"),
            scripts=("ui/view/data.js", *SCRIPTS, "ui/decisions.js", *_SCRIPTS),
            title=self.title,
            links=self.links,
            labels=self.session is not None,
            blind=self.blind,
            questions=bool(self._questions),
        )

    def routes(self) -> Iterable[tuple[str, Handler | None, Handler | None]]:
        """Yields the routes of rows, runs, images, calls, the summary and labels."""
        return (
            ("api/state", self.state, None),
            ("api/search", self.search, None),
            ("api/summary", self.summary, None),
            (f"api/runs/{PLACE}", self.run, None),
            (f"api/calls/{PLACE}/{{judge:[0-9]{{1,4}}}}", self.calls, None),
            (f"pictures/{PLACE}/{{state:[0-9]{{1,9}}}}", self.picture, None),
            (f"texts/{PLACE}/{{state:[0-9]{{1,9}}}}", self.text, None),
            (f"api/labels/{PLACE}", self.label, self.save),
            ("api/undo", None, self.undo),
        )

    async def state(self, request: web.Request) -> web.StreamResponse:
        """Returns the changes since the page's last request."""
        library = self.library
        since = _number(request, "since")
        if _number(request, "generation") != library.generation:
            since = 0
        known, rows = library.changes(since, _MAX_ROWS)
        return json_response(
            State(
                generation=library.generation,
                known=known,
                changes=library.changed,
                read=library.read_share(),
                judges=self._judges(),
                source=library.label_source,
                parts=tuple(library.parts),
                problems=tuple(library.problems),
                annotator=self.session.log.annotator if self.session is not None else None,
                blind=self.blind,
                questions=self._questions,
                pairs=self.session.pairs
                if self.session is not None and self.reveal != "never"
                else (),
                rows=tuple(self._numbered(number, row) for number, row in rows),
            )
        )

    async def search(self, request: web.Request) -> web.StreamResponse:
        """Returns the numbers of the runs that match a query; null: all."""
        query = request.query.get("q", "")
        reasons = self.reveal in ("always", "verdicts")
        found = await asyncio.to_thread(self.library.search, query, reasons=reasons)
        return json_response(None if found is None else sorted(found))

    async def summary(self, request: web.Request) -> web.StreamResponse:
        """Returns the figures as HTML; a blind page has none."""
        from aiohttp import web

        if self.blind:
            raise web.HTTPForbidden(text="figures are not shown while labels are given blindly\n")
        figures = await asyncio.to_thread(self.library.summary)
        text = render("ui/report/summary.html", summary=figures)
        return web.Response(text=text, content_type="text/html", charset="utf-8")

    async def run(self, request: web.Request) -> web.StreamResponse:
        """Returns a run with its verdicts and labels."""
        number = self._number(request)
        shown = await asyncio.to_thread(self.library.detail, number)
        return json_response(self._shown_detail(self.library.ids[number], shown))

    async def calls(self, request: web.Request) -> web.StreamResponse:
        """Returns the model transcript of a judge on a run."""
        from aiohttp import web

        number = self._number(request)
        if not self._shows_verdicts(self.library.ids[number]):
            raise web.HTTPForbidden(text="not before your label\n")
        judge = int(request.match_info["judge"])
        found = await asyncio.to_thread(self.library.calls, number, judge)
        return json_response(found)

    async def picture(self, request: web.Request) -> web.StreamResponse:
        """Returns the screenshot of a state."""
        return await picture_response((await self._state(request)).screenshot)

    async def text(self, request: web.Request) -> web.StreamResponse:
        """Returns the whole page text of a state."""
        from aiohttp import web

        body = ((await self._state(request)).text or "").encode("utf-8", "replace")
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    async def _state(self, request: web.Request) -> Observation:
        from aiohttp import web

        state = int(request.match_info["state"])
        try:
            run = await asyncio.to_thread(self.library.__getitem__, self._number(request))
        except InputError:
            raise web.HTTPNotFound from None
        if state >= len(run.observations):
            raise web.HTTPNotFound
        return run.observations[state]

    async def label(self, request: web.Request) -> web.StreamResponse:
        """Returns the label of the annotator at the page, with its version."""
        session, number = self._labelling(), self._number(request)
        return json_response(session.decision(number))

    async def save(self, request: web.Request) -> web.StreamResponse:
        """Saves the label of a run durably before responding."""
        session, number = self._labelling(), self._number(request)

        async def saved(asked: SaveRequest) -> object:
            if asked.id not in (None, self.library.ids[number]):
                raise ConflictError("The files were replaced meanwhile.")
            change = await session.put(number, asked, asked.version)
            self._relabel()
            return change

        return await change_response(request, SaveRequest, saved)

    async def undo(self, request: web.Request) -> web.StreamResponse:
        """Undoes a label; null: there is nothing to undo."""
        session = self._labelling()

        async def undone(asked: UndoRequest) -> object:
            change = await session.undo(asked.version)
            self._relabel()
            return change

        return await change_response(request, UndoRequest, undone)

    def _labelling(self) -> LabelSession:
        from aiohttp import web

        if self.session is None:
            raise web.HTTPNotFound(
                text="this page takes no labels: name an annotator and a label file\n"
            )
        return self.session

    def _relabel(self) -> None:
        if self.session is not None:
            self.library.own = dict(self.session.log.mine)
            self.library.relabel()

    def _number(self, request: web.Request) -> int:
        from aiohttp import web

        number = int(request.match_info["index"])
        if number >= len(self.library):
            raise web.HTTPNotFound
        return number

    def _numbered(self, number: int, row: ReportRow) -> NumberedRow:
        shown = NumberedRow(number=number, row=self._shown(row))
        if self.session is None:
            return shown
        session, id = self.session, row.id
        return replace(shown, mine=session.choice(id), unanswered=session.unanswered(id))

    def _shows_verdicts(self, id: str) -> bool:
        return self.reveal in ("always", "verdicts") or self._shows_labels(id)

    def _shows_labels(self, id: str) -> bool:
        return self.reveal == "always" or (
            self.reveal != "never" and self.session is not None and self.session.is_decided(id)
        )

    def _judges(self) -> tuple[JudgeProgress, ...]:
        if self.reveal == "never":
            return ()
        judges = self.library.progress()
        return tuple(replace(judge, unscored={}) if self.blind else judge for judge in judges)

    def _shown(self, row: ReportRow) -> ReportRow:
        """Returns the row without what must not be seen; a blind page's label is the annotator's
        own.
        """
        if self.session is None or not self.blind:
            return row
        mine = self.session.log.mine.get(row.id)
        row = replace(row, truth="" if mine is None else truth_outcome(mine.success))
        if not self._shows_labels(row.id):  # an attempt was followed by others where it failed
            keys = self.library.parts
            parts = tuple(
                None if key == "attempt" else part
                for key, part in zip(keys, row.parts, strict=False)
            )
            row = replace(row, series=None, attempt=None, parts=parts, cause="")
        if not self._shows_verdicts(row.id):
            hidden = () if self.reveal == "never" else self.library.judges
            row = judged_row(row, [replace(judge, verdicts={}) for judge in hidden])
        return row

    def _shown_detail(self, id: str, shown: Detail) -> Detail:
        if self.session is None or not self.blind:
            return shown
        mine = self.session.log.annotator
        if self._shows_labels(id):
            others = any(label.annotator != mine for label in shown.labels)
            if others or any(verdict is not None for verdict in shown.verdicts):
                self.session.reveal(id)
            return shown
        labels = tuple(label for label in shown.labels if label.annotator == mine)
        verdicts = shown.verdicts
        if not self._shows_verdicts(id):
            verdicts = () if self.reveal == "never" else (None,) * len(verdicts)
        # Metadata may hold the outcome, and checked claims are a judgement.
        return replace(shown, labels=labels, verdicts=verdicts, notes="", claims=(), retry=None)


async def _unbroken(reading: Coroutine[None, None, bool]) -> bool:
    """Awaits what a thread reads, also when cancelled: the library is closed afterwards."""
    task = asyncio.ensure_future(reading)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _some(changes: Iterator[int]) -> bool:
    """Reads for a moment; returns False if there is nothing more."""
    end = time.monotonic() + _SLICE
    return any(time.monotonic() >= end for _ in changes)


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0

"""The page of `prill view`: its files and its routes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from prill.errors import InputError
from prill.types import Observation
from prill.ui.history import ConflictError
from prill.ui.report.entries import Detail, ReportRow, judged_row, truth_outcome
from prill.ui.report.page import SCRIPTS
from prill.ui.serving import (
    PLACE,
    Handler,
    UndoRequest,
    change_response,
    json_response,
    picture_response,
)
from prill.ui.templates import render, served_page
from prill.ui.view.captions import CaptionReview
from prill.ui.view.library import JudgeProgress, Library
from prill.ui.view.questions import ShownQuestion, shown_question
from prill.ui.view.session import LabelDecision, LabelSession

if TYPE_CHECKING:
    from aiohttp import web

_MAX_ROWS = 2000  # per response
_PAUSE = 1.0  # seconds between two reads of the files
_SCRIPTS = (
    "ui/view/questions.js",
    "ui/view/labels.js",
    "ui/view/follow.js",
    "ui/view/captions.js",
    "ui/view/paper.js",
)
_SLICE = 0.05  # seconds of reading before requests are handled
_PATIENCE = 2.0  # seconds that the end of the page waits for a read


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequest(LabelDecision):
    """A decision, the id and the digest of the run that the page showed, and the version of the
    state it was made on; None for any.
    """

    id: str | None = None
    digest: str | None = None
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
    rows: tuple[NumberedRow, ...] = field(default=())


class ViewSite:
    """The page, which reads files in the background while `following`.

    Args:
        library: The runs to show.
        session: The session for labels; None: no labels are collected.
        captions: The captions to review in a tab; None: no such tab.
        blind: Whether verdicts, others' labels and figures of a run are hidden until the annotator
            has labelled it. The annotator decides, saves, and is led to the next run.
        title: The title of the page.
    """

    def __init__(
        self,
        library: Library,
        session: LabelSession | None = None,
        captions: CaptionReview | None = None,
        *,
        blind: bool = False,
        title: str = "prill",
    ) -> None:
        self.title = title
        self.library = library
        self.session = session
        self.captions = captions
        self.blind = blind and session is not None
        self._questions = tuple(map(shown_question, session.questions)) if session else ()

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
            while await _some(changes):
                pass
            await asyncio.sleep(_PAUSE)

    def files(self) -> Mapping[str, str]:
        """Returns the page, its style and its script."""
        return served_page(
            "ui/view/view.html",
            styles=("ui/report/page.css", "ui/view/view.css"),
            scripts=("ui/view/data.js", *SCRIPTS, "ui/view/decisions.js", *_SCRIPTS),
            title=self.title,
            runs=self.captions is None or bool(self.library.files),
            captions=self.captions is not None,
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
            *(() if self.captions is None else self.captions.routes()),
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
                rows=tuple(self._numbered(number, row) for number, row in rows),
            )
        )

    async def search(self, request: web.Request) -> web.StreamResponse:
        """Returns the numbers of the runs that match a query; null: all."""
        query = request.query.get("q", "")
        found = await asyncio.to_thread(self.library.search, query, reasons=not self.blind)
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
        if not self._is_shown(self.library.ids[number]):
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
            try:
                now = await asyncio.to_thread(self.library.digest, number)
            except InputError as error:
                raise ConflictError(f"The run can no longer be read: {error}.") from None
            if asked.digest not in (None, now):
                raise ConflictError("The run was changed meanwhile; look at it again.")
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

    def _is_shown(self, id: str) -> bool:
        """Returns whether what others say of a run is shown."""
        return not self.blind or (self.session is not None and self.session.is_decided(id))

    def _judges(self) -> tuple[JudgeProgress, ...]:
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
        if self._is_shown(row.id):
            return row
        # An attempt was followed by others where it failed.
        parts = tuple(
            None if key == "attempt" else part
            for key, part in zip(self.library.parts, row.parts, strict=False)
        )
        row = replace(row, series=None, attempt=None, parts=parts)
        return judged_row(row, [replace(judge, verdicts={}) for judge in self.library.judges])

    def _shown_detail(self, id: str, shown: Detail) -> Detail:
        if self.session is None or self._is_shown(id):
            return shown
        mine = self.session.log.annotator
        labels = tuple(label for label in shown.labels if label.annotator == mine)
        verdicts = (None,) * len(shown.verdicts)
        # Metadata may hold the outcome.
        return replace(shown, labels=labels, verdicts=verdicts, notes="", retry=None)


async def _some(changes: Iterator[int]) -> bool:
    """Reads for a moment in a thread; returns False if there is nothing more.

    Also when cancelled, it waits until the thread has read: the library is closed afterwards. It
    does not wait for a read that blocks, and neither does the end of the process.
    """
    loop = asyncio.get_running_loop()
    read: asyncio.Future[bool] = loop.create_future()

    def work() -> None:
        end = time.monotonic() + _SLICE
        found: Callable[[], object]
        try:
            more = any(time.monotonic() >= end for _ in changes)
            found = partial(read.set_result, more)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            found = partial(read.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(found)

    threading.Thread(target=work, daemon=True).start()
    try:
        return await asyncio.shield(read)
    except asyncio.CancelledError:
        await asyncio.wait([read], timeout=_PATIENCE)
        raise


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0

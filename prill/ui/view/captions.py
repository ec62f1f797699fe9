"""The caption review page: accept, edit or reject; every decision is saved before the next one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, CaptionLog, Choice, read_captions, read_decisions
from prill.errors import InputError, UsageError
from prill.ui.history import ConflictError, History
from prill.ui.serving import (
    PLACE,
    Handler,
    Link,
    UndoRequest,
    change_response,
    json_response,
    picture_response,
)
from prill.ui.templates import served_page

if TYPE_CHECKING:
    from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionDecision:
    """A person's decision: `accept` with a text other than the captioner's is a corrected caption.

    `version` is that of the card it was made on, None for any.
    """

    choice: Literal["accept", "reject"]
    caption: str = ""
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionCard:
    """One caption as the page shows it.

    `decided` and `text` are the person's own, if there is a decision; `version` is its number in
    this session, 0 for an earlier one.
    """

    index: int
    version: int
    image: str
    caption: str
    truncated: bool
    problem: str
    decided: Choice | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionOverview:
    """The state of the session; `at` is the first caption without a decision, or the first of
    all.
    """

    annotator: str
    captioner: str
    at: int
    choices: tuple[Choice | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionChange:
    """The result of a decision or an undo: the new card, and the next one without a decision.

    The next one is None if all are decided.

    `undone` is the text of the decision that was undone, if there was one.
    """

    card: CaptionCard
    next: int | None
    undone: str | None = None


class CaptionSite:
    """The page for a caption file; decisions go to `log`, a caption file of the person.

    The images are at the paths that `captions` states.

    `written` counts the decisions of this session. Raises UsageError or InputError for a file that
    cannot be used.
    """

    name = "Captions"
    command = "prill view"

    def __init__(
        self,
        captions: str | os.PathLike[str],
        log: CaptionLog,
        decisions: dict[str, Caption],
    ) -> None:
        self.links: Sequence[Link] = ()
        self.root = Path(captions).resolve().parent
        self.captions = list({caption.id: caption for caption in read_captions(captions)}.values())
        self.log = log
        self.decisions = dict(decisions)
        self.written = 0
        self._decoder = msgspec.json.Decoder(CaptionDecision)
        self._history = History[int, Caption]()
        self._writing = asyncio.Lock()

    @property
    def done(self) -> int:
        """Returns the number of captions with a decision."""
        return sum(caption.id in self.decisions for caption in self.captions)

    def files(self) -> Mapping[str, str]:
        """Returns the page, its style and its scripts."""
        return served_page(
            "ui/view/captions.html",
            styles=("ui/decisions.css", "ui/view/captions.css"),
            scripts=("ui/decisions.js", "ui/view/captions.js"),
            title=f"{self.command}: captions",
            command=self.command,
            links=self.links,
        )

    def routes(self) -> Iterable[tuple[str, Handler | None, Handler | None]]:
        """Yields the routes of cards and images, by index."""
        return (
            ("api/overview", self._show_overview, None),
            (f"api/cards/{PLACE}", self._show_card, self._save),
            ("api/undo", None, self._take_back),
            (f"pictures/{PLACE}", self._show_picture, None),
        )

    def card(self, index: int) -> CaptionCard:
        """Returns a caption by its index."""
        caption = self.captions[index]
        decision = self.decisions.get(caption.id)
        text = (decision.caption if decision else None) or caption.caption or ""
        return CaptionCard(
            index=index,
            version=self._history.version(index),
            image=caption.image,
            caption=caption.caption or "",
            truncated=caption.truncated,
            problem=f"{caption.unscored}: {caption.reason}" if caption.unscored else "",
            decided=decision.choice if decision else None,
            text=text,
        )

    async def save(self, index: int, decision: CaptionDecision) -> CaptionChange:
        """Saves a decision.

        Raises InputError if an empty caption is accepted, ConflictError if the card has another
        version by now, and UsageError if the decision cannot be written.
        """
        caption = self.captions[index]
        text = _typed(decision.caption)
        if decision.choice == "accept" and not text:
            raise InputError("an empty caption cannot be accepted; reject it")
        choice: Choice = (
            "rejected"
            if decision.choice == "reject"
            else "accepted"
            if text == _typed(caption.caption or "")
            else "mended"
        )
        record = self._record(
            caption,
            choice,
            None if choice == "rejected" else text,
            choice == "accepted" and caption.truncated,
        )
        async with self._writing:
            before = self.decisions.get(caption.id)
            if not self._history.is_current(index, decision.version):
                if before == record:  # the response to an earlier request was lost
                    return CaptionChange(card=self.card(index), next=self._next(index))
                saved = before.choice if before else "undone"
                raise ConflictError(f"It was {saved} on another page meanwhile.")
            await asyncio.to_thread(self.log.append, record)
            self._history.add(index, before)
            self.decisions[caption.id] = record
            self.written += 1
        return CaptionChange(card=self.card(index), next=self._next(index))

    async def undo(self, version: int | None = None) -> CaptionChange | None:
        """Undoes the decision of this number, or the last one of this session.

        The result is None if there is nothing to undo.

        Raises ConflictError if another decision has replaced it, and UsageError like `save`.
        """
        async with self._writing:
            step = self._history.find(version)
            if step is None:
                return None
            caption = self.captions[step.key]
            undone = self.decisions[caption.id].caption
            # Without a previous decision, append a line without a decision: lines are never removed
            # from the file.
            await asyncio.to_thread(
                self.log.append, step.before or self._record(caption, None, None, False)
            )
            self._history.drop(step)
            if step.before is None:
                del self.decisions[caption.id]
            else:
                self.decisions[caption.id] = step.before
            self.written -= 1
        return CaptionChange(card=self.card(step.key), next=self._next(step.key), undone=undone)

    def _record(
        self, caption: Caption, choice: Choice | None, text: str | None, truncated: bool
    ) -> Caption:
        place = os.path.relpath(self.root / caption.image, self.log.path.resolve().parent)
        name = str(self.log.evaluator)
        return Caption(
            id=caption.id,
            captioner=name,
            image=place,
            caption=text,
            truncated=truncated,
            choice=choice,
        )

    def _next(self, index: int) -> int | None:
        order = (*range(index + 1, len(self.captions)), *range(index + 1))
        return next((i for i in order if self.captions[i].id not in self.decisions), None)

    def _index(self, request: web.Request) -> int:
        from aiohttp import web

        index = int(request.match_info["index"])
        if index >= len(self.captions):
            raise web.HTTPNotFound
        return index

    async def _show_overview(self, request: web.Request) -> web.StreamResponse:
        choices = tuple(
            (self.decisions[one.id].choice if one.id in self.decisions else None)
            for one in self.captions
        )
        captioner = self.captions[0].captioner if self.captions else ""
        at = self._next(-1) or 0
        return json_response(
            CaptionOverview(
                annotator=str(self.log.evaluator), captioner=captioner, at=at, choices=choices
            )
        )

    async def _show_card(self, request: web.Request) -> web.StreamResponse:
        return json_response(self.card(self._index(request)))

    async def _show_picture(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        caption = self.captions[self._index(request)]
        path = str(self.root / caption.image)
        try:
            # The file may come from others: only the image that was captioned is shown.
            is_it = await asyncio.to_thread(image_id, path) == caption.id
        except InputError:
            is_it = False
        if not is_it:
            raise web.HTTPNotFound
        return await picture_response(path)

    async def _save(self, request: web.Request) -> web.StreamResponse:
        index = self._index(request)
        return await change_response(
            request, CaptionDecision, lambda decision: self.save(index, decision)
        )

    async def _take_back(self, request: web.Request) -> web.StreamResponse:
        return await change_response(request, UndoRequest, lambda asked: self.undo(asked.version))


def _typed(text: str) -> str:
    """Normalises line ends as a browser's text field does."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def open_site(captions: str, decisions: str, annotator: str) -> tuple[CaptionSite, CaptionLog]:
    """Opens the page for a caption file, and the log of earlier decisions.

    Raises UsageError or InputError.
    """
    before = read_decisions(decisions)
    log = CaptionLog(decisions, annotator)
    try:
        return CaptionSite(captions, log, before), log
    except (UsageError, InputError):
        log.close()
        raise

"""The captions tab of the page: accept, edit or reject; every decision is on disk at once."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, CaptionLog, Choice, read_captions, read_decisions
from prill.errors import InputError
from prill.ui.history import Decisions
from prill.ui.serving import (
    PLACE,
    Handler,
    UndoRequest,
    change_response,
    json_response,
    picture_response,
)

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


class CaptionReview:
    """The review of a caption file by one person, whose decisions are a caption file, too.

    Args:
        captions: The caption file; its images are at the paths that it states.
        decisions: The file of decisions; that of an earlier session is continued.
        annotator: The person.

    Raises:
        UsageError: A file cannot be used.
        InputError: A file is broken.
    """

    def __init__(self, captions: str, decisions: str, annotator: str) -> None:
        self._root = Path(captions).resolve().parent
        self.captions = list({caption.id: caption for caption in read_captions(captions)}.values())
        self._places = {caption.id: place for place, caption in enumerate(self.captions)}
        before = read_decisions(decisions)
        self.log = CaptionLog(decisions, annotator)
        self.decisions = Decisions[Caption](before, self._write, lambda one: str(one.choice))

    @property
    def choices(self) -> Mapping[str, int]:
        """Returns the number of decisions of each type, also of earlier sessions."""
        decided = self.decisions.now
        counts = Counter(decided[one.id].choice for one in self.captions if one.id in decided)
        return {name: counts[name] for name in get_args(Choice)}

    def close(self) -> None:
        """Closes the file of decisions."""
        self.log.close()

    def routes(self) -> Iterable[tuple[str, Handler | None, Handler | None]]:
        """Yields the routes of cards and images, by index."""
        return (
            ("api/captions", self._show_overview, None),
            ("api/captions/undo", None, self._take_back),
            (f"api/captions/{PLACE}", self._show_card, self._save),
            (f"captions/{PLACE}", self._show_picture, None),
        )

    def card(self, index: int) -> CaptionCard:
        """Returns a caption by its index."""
        caption = self.captions[index]
        decision = self.decisions.now.get(caption.id)
        return CaptionCard(
            index=index,
            version=self.decisions.version(caption.id),
            image=caption.image,
            caption=caption.caption or "",
            truncated=caption.truncated,
            problem=f"{caption.unscored}: {caption.reason}" if caption.unscored else "",
            decided=decision.choice if decision else None,
            text=(decision.caption if decision else None) or caption.caption or "",
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
        record = self._record(caption, "rejected")
        if decision.choice == "accept" and text == _typed(caption.caption or ""):
            record = self._record(caption, "accepted", text, caption.truncated)
        elif decision.choice == "accept":
            record = self._record(caption, "mended", text)
        await self.decisions.save(caption.id, decision.version, lambda before: record)
        return CaptionChange(card=self.card(index), next=self._next(index))

    async def undo(self, version: int | None = None) -> CaptionChange | None:
        """Undoes the decision of this number, or the last one of this session.

        The result is None if there is nothing to undo.

        Raises ConflictError if another decision has replaced it, and UsageError like `save`.
        """
        undone = await self.decisions.undo(version)
        if undone is None:
            return None
        index = self._places[undone[0]]
        return CaptionChange(
            card=self.card(index), next=self._next(index), undone=undone[1].caption
        )

    def _write(self, id: str, record: Caption | None) -> None:
        # Lines are never removed from the file: one without a decision takes the last one back.
        self.log.append(record or self._record(self.captions[self._places[id]], None))

    def _record(
        self,
        caption: Caption,
        choice: Choice | None,
        text: str | None = None,
        truncated: bool = False,
    ) -> Caption:
        return Caption(
            id=caption.id,
            captioner=str(self.log.evaluator),
            image=os.path.relpath(self._root / caption.image, self.log.path.resolve().parent),
            caption=text,
            truncated=truncated,
            choice=choice,
        )

    def _next(self, index: int) -> int | None:
        order = (*range(index + 1, len(self.captions)), *range(index + 1))
        return next((i for i in order if self.captions[i].id not in self.decisions.now), None)

    def _index(self, request: web.Request) -> int:
        from aiohttp import web

        index = int(request.match_info["index"])
        if index >= len(self.captions):
            raise web.HTTPNotFound
        return index

    async def _show_overview(self, request: web.Request) -> web.StreamResponse:
        now = self.decisions.now
        return json_response(
            CaptionOverview(
                annotator=str(self.log.evaluator),
                captioner=self.captions[0].captioner,
                at=self._next(-1) or 0,
                choices=tuple(
                    now[one.id].choice if one.id in now else None for one in self.captions
                ),
            )
        )

    async def _show_card(self, request: web.Request) -> web.StreamResponse:
        return json_response(self.card(self._index(request)))

    async def _show_picture(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        caption = self.captions[self._index(request)]
        path = str(self._root / caption.image)
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

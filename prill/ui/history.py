"""Decisions of one person that are written at once, with undo and conflict detection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from prill.errors import UsageError

_T = TypeVar("_T")


class ConflictError(UsageError):
    """Another page has changed the decision that was to be replaced or undone."""


@dataclass(frozen=True, slots=True)
class _Saved(Generic[_T]):
    id: str
    version: int
    version_before: int
    before: _T | None


class Decisions(Generic[_T]):
    """The newest decision of each id, and those of this session, numbered.

    The version of an id is the number of its newest decision of this session; 0: none yet.

    Args:
        now: The decisions of earlier sessions, by id.
        write: Writes a decision durably; None takes the one of this id back. It raises UsageError
            if that is impossible.
        words: Describes a decision, for messages.
    """

    def __init__(
        self,
        now: dict[str, _T],
        write: Callable[[str, _T | None], object],
        words: Callable[[_T], str],
    ) -> None:
        self.now = now
        self._write = write
        self._words = words
        self._saved: list[_Saved[_T]] = []
        self._versions: dict[str, int] = {}
        self._numbered = 0
        self._writing = asyncio.Lock()

    @property
    def written(self) -> int:
        """Returns the number of decisions of this session."""
        return len(self._saved)

    def version(self, id: str) -> int:
        """Returns the number that a page must send to replace the decision of an id."""
        return self._versions.get(id, 0)

    async def save(self, id: str, version: int | None, make: Callable[[_T | None], _T]) -> None:
        """Saves what `make` returns for the decision before; `version` None replaces any.

        Raises ConflictError if another page has saved one meanwhile, and UsageError if it cannot
        be written.
        """
        async with self._writing:
            before = self.now.get(id)
            record = make(before)
            if version not in (None, self.version(id)):
                if before == record:  # the response to an earlier request was lost
                    return
                saved = "undone" if before is None else f"saved as {self._words(before)}"
                raise ConflictError(f"It was {saved} on another page meanwhile.")
            await self._put(id, record)
            self._numbered += 1
            self._saved.append(_Saved(id, self._numbered, self.version(id), before))
            self._versions[id] = self._numbered

    async def undo(self, version: int | None = None) -> tuple[str, _T] | None:
        """Undoes the decision of this number, or the last one of this session.

        Returns its id and the decision; None if there is nothing to undo. Raises as `save`.
        """
        async with self._writing:
            one = next(
                (one for one in reversed(self._saved) if version in (None, one.version)), None
            )
            if one is None:
                return None
            if one.version != self.version(one.id):
                raise ConflictError(
                    "it was changed on another page meanwhile; open it to see the saved one"
                )
            undone = self.now[one.id]
            await self._put(one.id, one.before)
            self._saved.remove(one)
            self._versions[one.id] = one.version_before
            return one.id, undone

    async def _put(self, id: str, record: _T | None) -> None:
        await asyncio.to_thread(self._write, id, record)
        if record is None:
            self.now.pop(id, None)
        else:
            self.now[id] = record

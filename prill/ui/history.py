"""Numbered decisions of a session, with undo and conflict detection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from prill.errors import UsageError

_T = TypeVar("_T")


class ConflictError(UsageError):
    """Another page has changed the decision that was to be replaced or undone."""


@dataclass(frozen=True, slots=True)
class SavedDecision(Generic[_T]):
    """A decision about the item at `index`: its number, and the number and decision that it
    replaced.
    """

    index: int
    version: int
    version_before: int
    before: _T | None


class History(Generic[_T]):
    """The decisions saved since the server started.

    The version of an item is the number of its newest decision; 0: none yet.
    """

    def __init__(self) -> None:
        self._saved: list[SavedDecision[_T]] = []
        self._versions: dict[int, int] = {}
        self._numbered = 0

    def version(self, index: int) -> int:
        """Returns the number that a page must send to replace the decision about an item."""
        return self._versions.get(index, 0)

    def is_current(self, index: int, version: int | None) -> bool:
        """Returns whether a page with this version shows the current decision; None skips the
        check.
        """
        return version is None or version == self.version(index)

    def add(self, index: int, before: _T | None) -> None:
        """Records a decision that was saved."""
        self._numbered += 1
        self._saved.append(SavedDecision(index, self._numbered, self.version(index), before))
        self._versions[index] = self._numbered

    def find(self, version: int | None) -> SavedDecision[_T] | None:
        """Returns the decision of this number, or the newest of all.

        The result is None if there is none, or it was undone.

        Raises ConflictError if a newer one has replaced it.
        """
        decision = next(
            (decision for decision in reversed(self._saved) if version in (None, decision.version)),
            None,
        )
        if decision is not None and decision.version != self.version(decision.index):
            raise ConflictError(
                "it was replaced on another page meanwhile; open it to see what stands in the file"
            )
        return decision

    def drop(self, decision: SavedDecision[_T]) -> None:
        """Removes a decision that was undone."""
        self._saved.remove(decision)
        self._versions[decision.index] = decision.version_before

"""Numbered decisions of a session, with undo and conflict detection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from prill.errors import UsageError

_K = TypeVar("_K")
_T = TypeVar("_T")


class ConflictError(UsageError):
    """Another page has changed the decision that was to be replaced or undone."""


@dataclass(frozen=True, slots=True)
class SavedDecision(Generic[_K, _T]):
    """A decision about the item `key`: its number, and the number and decision that it replaced."""

    key: _K
    version: int
    version_before: int
    before: _T | None


class History(Generic[_K, _T]):
    """The decisions saved since the server started.

    The version of an item is the number of its newest decision; 0: none yet.
    """

    def __init__(self) -> None:
        self._saved: list[SavedDecision[_K, _T]] = []
        self._versions: dict[_K, int] = {}
        self._numbered = 0

    def version(self, key: _K) -> int:
        """Returns the number that a page must send to replace the decision about an item."""
        return self._versions.get(key, 0)

    def is_current(self, key: _K, version: int | None) -> bool:
        """Returns whether a page with this version shows the current decision; None skips the
        check.
        """
        return version is None or version == self.version(key)

    def add(self, key: _K, before: _T | None) -> None:
        """Records a decision that was saved."""
        self._numbered += 1
        self._saved.append(SavedDecision(key, self._numbered, self.version(key), before))
        self._versions[key] = self._numbered

    def find(self, version: int | None) -> SavedDecision[_K, _T] | None:
        """Returns the decision of this number, or the newest of all.

        The result is None if there is none, or it was undone.

        Raises ConflictError if a newer one has replaced it.
        """
        decision = next(
            (decision for decision in reversed(self._saved) if version in (None, decision.version)),
            None,
        )
        if decision is not None and decision.version != self.version(decision.key):
            raise ConflictError(
                "it was changed on another page meanwhile; open it to see the saved one"
            )
        return decision

    def drop(self, decision: SavedDecision[_K, _T]) -> None:
        """Removes a decision that was undone."""
        self._saved.remove(decision)
        self._versions[decision.key] = decision.version_before

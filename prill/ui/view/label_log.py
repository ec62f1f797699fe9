"""The label file during annotation: consistent on disk after every decision."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from prill.errors import UsageError
from prill.io.append_log import AppendLog
from prill.io.lines import decode_as
from prill.io.store import encode
from prill.types import LabelRecord

SOURCE = "human"
_OF_A_VERDICT = frozenset({"evaluator", "unscored"})


class LabelLog(AppendLog[LabelRecord]):
    """The labels of one annotator in a label file that others may share; only this process writes
    it.

    A new label is appended; replacing or removing one rewrites the file. Lines of other annotators
    and sources keep their bytes and their order. `mine` is the newest label of each id; `others`
    are the human labels of all other people.
    """

    def __init__(self, path: str | os.PathLike[str], annotator: str) -> None:
        self.annotator = annotator
        self.mine: dict[str, LabelRecord] = {}
        self.others: list[LabelRecord] = []
        super().__init__(path, LabelRecord, self._take, what="label", decode=_decode, durable=True)

    def put(self, record: LabelRecord) -> None:
        """Writes a label durably. Raises UsageError, with the file unchanged, if it cannot."""
        self._expect_ours()
        if record.id in self.mine:
            self.replace(self._without(record.id, encode(record)))
        else:
            self.append(record)
        self.mine[record.id] = record

    def remove(self, id: str) -> None:
        """Removes this annotator's label of a trajectory from the file."""
        self._expect_ours()
        self.replace(self._without(id))
        self.mine.pop(id, None)

    def _expect_ours(self) -> None:
        if not self.is_ours():
            raise UsageError(
                f"{self.path}: cannot be written: another program has changed or replaced it; "
                "start the command again"
            )

    def _without(self, id: str, line: bytes = b"") -> Iterator[bytes]:
        """Yields the file's lines without this annotator's for `id`.

        `line` replaces the first of them.
        """
        for _, raw in self.lines():
            if (record := _decode(raw)).id == id and self._is_mine(record):
                yield line
                line = b""
            else:
                yield raw

    def _is_mine(self, record: LabelRecord) -> bool:
        return record.source == SOURCE and record.annotator == self.annotator

    def _take(self, record: LabelRecord, start: int) -> None:
        if self._is_mine(record):
            self.mine[record.id] = record
        elif record.source == SOURCE:
            self.others.append(record)


def _decode(raw: bytes) -> LabelRecord:
    record = decode_as(raw, LabelRecord)
    if msgspec.json.decode(raw).keys() & _OF_A_VERDICT:
        raise ValueError("it is a judge's verdict")
    return record

"""The label file while it is being written: right on disk after every decision, whoever kills the process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from prill.errors import UsageError
from prill.io.checksums import growing
from prill.io.outputs import append_whole, is_there, locked
from prill.io.store import encode
from prill.types import LabelRecord

SOURCE = "human"
_BEGINNING = b'{"id":"'
_OF_A_VERDICT = frozenset({"evaluator", "unscored"})


class LabelLog:
    """The labels of one annotator in a file that others may share; only this process writes it.

    A new label is appended; one that replaces or removes another makes the file anew beside the old and renames it, so that
    no moment has both or neither. Lines of other annotators and sources keep their bytes and their order. `mine` is the
    newest label of each id; `others` are the human labels of everybody else.
    """

    def __init__(self, path: str | os.PathLike[str], annotator: str) -> None:
        self.path = Path(path).resolve()  # renaming onto a link would replace the link
        self.annotator = annotator
        self.mine: dict[str, LabelRecord] = {}
        self.others: list[LabelRecord] = []
        self._decoder = msgspec.json.Decoder(LabelRecord)
        self._copy = self.path.with_name(f".{self.path.name}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._growing = growing(self.path)  # one of a run folder: what people say of its episodes goes on record
            self._file = locked(self.path)
            _sync_folder(self.path.parent)
            self._copy.unlink(missing_ok=True)  # of a process that was killed while it made one
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
        with ExitStack() as on_failure:
            on_failure.callback(os.close, self._file)
            self._take_up()
            if self._growing is not None:
                self._growing.restart()
            on_failure.pop_all()

    def put(self, record: LabelRecord) -> None:
        """Writes a label; it survives the machine from here on. Raises UsageError, with the file as before, when it cannot."""
        with self._failures():
            if record.id in self.mine:
                self._rewrite(record.id, encode(record))
            else:
                self._append(encode(record))
        self.mine[record.id] = record

    def remove(self, id: str) -> None:
        """Takes this annotator's label of a trajectory out of the file."""
        with self._failures():
            self._rewrite(id, b"")
        self.mine.pop(id, None)

    def close(self) -> None:
        """Gives the file free for others; safe to call twice."""
        if self._file >= 0:
            if self._growing is not None:
                self._growing.close()
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            if not is_there(self._file, self.path):
                raise UsageError(f"{self.path}: cannot be written: another program has replaced it; start prill annotate anew")
            yield
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written: {error.strerror}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"{self.path}: another program has written to this file ({error}); nothing was changed") from None

    def _append(self, line: bytes) -> None:
        with self._growing.adding(line) if self._growing else nullcontext():
            append_whole(self._file, line)
        os.fsync(self._file)

    def _rewrite(self, id: str, line: bytes) -> None:
        """The file with this annotator's lines for `id` gone, and `line` where the first of them was."""
        # Only who holds the lock of the file makes a copy, so that one name is enough.
        copy = os.open(self._copy, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        with ExitStack() as on_failure:
            on_failure.callback(self._copy.unlink, missing_ok=True)
            on_failure.callback(os.close, copy)
            fcntl.flock(copy, fcntl.LOCK_EX)  # held before the name appears: nobody can slip in between
            lines = []
            with open(self.path, "rb") as file:
                for raw in file:
                    if not raw.strip() or not self._is_mine(record := self._decoder.decode(raw)) or record.id != id:
                        lines.append(raw)
                    else:
                        lines.append(line)
                        line = b""
            append_whole(copy, b"".join(lines) + line)
            os.fsync(copy)
            os.fchmod(copy, os.fstat(self._file).st_mode & 0o777)
            with self._growing.replacing(self._copy) if self._growing else nullcontext():
                os.replace(self._copy, self.path)
            on_failure.pop_all()
        if self._growing is not None:
            self._growing.restart()
        os.close(self._file)
        self._file = copy
        _sync_folder(self.path.parent)

    def _is_mine(self, record: LabelRecord) -> bool:
        return record.source == SOURCE and record.annotator == self.annotator

    def _take_up(self) -> None:
        end, whole = 0, True
        with open(self.path, "rb") as file:
            for number, raw in enumerate(file, 1):
                if raw.strip():
                    try:
                        record = self._decode(raw)
                    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                        # A torn line of ours begins like a label; a file of something else must not be cut.
                        if not raw.endswith(b"\n") and (end or raw.startswith(_BEGINNING) or _BEGINNING.startswith(raw)):
                            break
                        raise UsageError(
                            f"{self.path}:{number}: not a label ({error}); choose another file", parameters=("output",)
                        ) from None
                    if self._is_mine(record):
                        self.mine[record.id] = record
                    elif record.source == SOURCE:
                        self.others.append(record)
                end += len(raw)
                whole = raw.endswith(b"\n")
        os.ftruncate(self._file, end)
        if not whole:
            os.write(self._file, b"\n")

    def _decode(self, raw: bytes) -> LabelRecord:
        record = self._decoder.decode(raw)
        if msgspec.json.decode(raw).keys() & _OF_A_VERDICT:
            raise ValueError("it is a judge's verdict")
        return record


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

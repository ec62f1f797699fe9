"""What a watch notes, a line for each verdict, and the file that the lines are appended to. Format: docs/formats.md."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from prill.errors import InputError, UsageError
from prill.io.faults import line_fault
from prill.io.lines import read_lines
from prill.io.outputs import Content, append_whole, content_of_line, failures, locked, make_folder
from prill.io.store import encode
from prill.types import EvaluatorInfo, Opinion, Verdict

_T = TypeVar("_T")
_BEGINNING = b'{"kind":"'  # of a line that is written here


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRecord:
    """One observation: a verdict that was given as a reward, or one on a canary. Reasons are left out: they quote pages.

    Args:
        kind: Which of the two.
        at: When, in UTC, where it is known.
        id: The trajectory's id.
        verdict: What the judge said.
        student: What the second judge said of it. None: there is none, or it had no time.
        label: The canary's label.
        round: The round of canaries, from 1; 0 for other verdicts.
    """

    kind: Literal["verdict", "canary"]
    at: str
    id: str
    verdict: Opinion
    student: Opinion | None = None
    label: bool | None = None
    round: int = 0


def name_of(info: EvaluatorInfo) -> str:
    """Who judged, in a word or two, and a code that tells two settings of a judge apart."""
    code = hashlib.sha256(msgspec.json.encode(info, order="deterministic")).hexdigest()[:8]
    return " ".join(part for part in (info.name, info.model, code) if part)


def opinion_of(verdict: Verdict, judge: str) -> Opinion:
    """A verdict without its words."""
    return Opinion(judge=judge, success=verdict.success, score=verdict.score, unscored=verdict.unscored, usage=verdict.usage)


class WatchLog:
    """The file while it is written: a line is there whole, or not at all. Raises UsageError, also where it cannot be written.

    What was noted before is told to `known`, in order; `broken` lines among it are passed over and stay as they are, but half a
    last line, left by a crash, is cut.
    """

    def __init__(self, path: str | os.PathLike[str], judge: str, known: Callable[[WatchRecord], object]) -> None:
        self.path, self.broken = Path(path), 0
        make_folder(path)
        self._file = locked(os.path.realpath(path))
        try:
            self._take_up(judge, known)
        except (UsageError, InputError):
            self.close()
            raise

    def append(self, record: WatchRecord) -> None:
        """Writes a record; it survives the process from here on."""
        with failures(self.path):
            append_whole(self._file, encode(record))

    def close(self) -> None:
        """Lets others write the file; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _take_up(self, judge: str, known: Callable[[WatchRecord], object]) -> None:
        def note(problem: str) -> None:
            self.broken += 1

        with failures(self.path):
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                end = _end_of_lines(self._file, size)
                last = os.pread(self._file, size - end, end)
                if _is_record(last):  # only its newline is missing, as editors may leave it
                    append_whole(self._file, b"\n")
                elif last.startswith(_BEGINNING) or _BEGINNING.startswith(last):
                    os.ftruncate(self._file, size := end)
                else:
                    words = f"{self.path}: its last line is no observation, nor the half of one; choose another file"
                    raise UsageError(words, parameters=("observations",))
        for record in read_watch(self.path, note) if size else ():
            if record.verdict.judge != judge:
                raise UsageError(
                    f"{self.path} holds observations of another judge ({record.verdict.judge} there, {judge} now); choose "
                    "another file",
                    parameters=("observations",),
                )
            known(record)


def _is_record(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=WatchRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _end_of_lines(file: int, size: int) -> int:
    """Where the last whole line of a file ends."""
    step = 1 << 16
    while size:
        begin = max(0, size - step)
        if (place := os.pread(file, size - begin, begin).rfind(b"\n")) >= 0:
            return begin + place + 1
        size = begin
    return 0


def read_watch(path: str | os.PathLike[str], broken: Callable[[str], object]) -> Iterator[WatchRecord]:
    """Reads the observations of a watch file, in order.

    Args:
        path: The file.
        broken: Called with the problem of each broken line; reading goes on.

    Returns:
        The observations.

    Raises:
        UsageError: The file holds something else.
    """
    return _read(path, WatchRecord, "observations", broken)


def of_verdicts(
    path: str | os.PathLike[str], students: Mapping[str, Opinion], broken: Callable[[str], object]
) -> Iterator[WatchRecord]:
    """The lines of a verdict file as observations, in the order of the file; `students` has the second judge's by id."""
    for verdict in whole_verdicts(path, broken):
        said = opinion_of(verdict, name_of(verdict.evaluator))
        yield WatchRecord(kind="verdict", at="", id=verdict.id, verdict=said, student=students.get(verdict.id))


def whole_verdicts(path: str | os.PathLike[str], broken: Callable[[str], object]) -> Iterator[Verdict]:
    """The verdicts of a file; `broken` is told of lines that are none. Raises UsageError for a file of something else."""
    return _read(path, Verdict, "verdicts", broken)


def _read(path: str | os.PathLike[str], type_: type[_T], what: Content, broken: Callable[[str], object]) -> Iterator[_T]:
    decoder = msgspec.json.Decoder(type_)
    for count, line in enumerate(read_lines(path)):
        try:
            record = decoder.decode(line.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if not count and (content := content_of_line(line.data)) not in (None, what):
                raise UsageError(f"{path}: holds {content}, not {what}; name another file") from None
            broken(f"{path}:{line.number}: {line_fault(line.data, error, type_)}")
            continue
        yield record

"""The records of a reward monitor, one line per verdict."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from prill.errors import UsageError
from prill.io.append_log import AppendLog
from prill.io.faults import line_fault
from prill.io.lines import read_lines
from prill.io.outputs import Content, content_of_line
from prill.types import EvaluatorInfo, Opinion, Verdict

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRecord:
    """One observation: a verdict that was given as a reward, or one on a canary. Reasons are left
    out: they quote pages.

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


def get_name(info: EvaluatorInfo) -> str:
    """Who judged, in a word or two, and a code that tells two settings of a judge apart."""
    code = hashlib.sha256(msgspec.json.encode(info, order="deterministic")).hexdigest()[:8]
    return " ".join(part for part in (info.name, info.model, code) if part)


def to_opinion(verdict: Verdict, judge: str) -> Opinion:
    """A verdict without its words."""
    return Opinion(
        judge=judge,
        success=verdict.success,
        score=verdict.score,
        unscored=verdict.unscored,
        usage=verdict.usage,
    )


class WatchLog(AppendLog[WatchRecord]):
    """The file while it is written. What was noted before is told to `known`, in order; `broken`
    lines stay as they are.
    """

    def __init__(
        self, path: str | os.PathLike[str], judge: str, known: Callable[[WatchRecord], object]
    ) -> None:
        self.broken = 0

        def take(record: WatchRecord, start: int) -> None:
            if record.verdict.judge != judge:
                raise UsageError(
                    f"{path} holds observations of another judge ({record.verdict.judge} there, "
                    f"{judge} now); choose another "
                    "file",
                    parameters=("observations",),
                )
            known(record)

        def passed_over(problem: str) -> None:
            self.broken += 1

        super().__init__(
            path,
            WatchRecord,
            take,
            what="observation",
            broken=passed_over,
            parameter="observations",
        )


def read_watch(
    path: str | os.PathLike[str], broken: Callable[[str], object]
) -> Iterator[WatchRecord]:
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
    """The lines of a verdict file as observations, in the order of the file; `students` has the
    second judge's by id.
    """
    for verdict in whole_verdicts(path, broken):
        said = to_opinion(verdict, get_name(verdict.evaluator))
        yield WatchRecord(
            kind="verdict", at="", id=verdict.id, verdict=said, student=students.get(verdict.id)
        )


def whole_verdicts(
    path: str | os.PathLike[str], broken: Callable[[str], object]
) -> Iterator[Verdict]:
    """The verdicts of a file; `broken` is told of lines that are none. Raises UsageError for a file
    of something else.
    """
    return _read(path, Verdict, "verdicts", broken)


def _read(
    path: str | os.PathLike[str], type_: type[_T], what: Content, broken: Callable[[str], object]
) -> Iterator[_T]:
    decoder = msgspec.json.Decoder(type_)
    for count, line in enumerate(read_lines(path)):
        try:
            record = decoder.decode(line.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if not count and (content := content_of_line(line.data)) not in (None, what):
                raise UsageError(
                    f"{path}: holds {content}, not {what}; name another file"
                ) from None
            broken(f"{path}:{line.number}: {line_fault(line.data, error, type_)}")
            continue
        yield record

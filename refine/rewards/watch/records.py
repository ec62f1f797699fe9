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
from prill.io.lines import UNREADABLE, read_lines
from prill.io.outputs import Content, detect_line_content
from prill.types import EvaluatorInfo, Opinion, Verdict

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRecord:
    """One observation: a verdict used as a reward, or a verdict on a canary. Reasons are left out,
    since they quote pages.

    Args:
        kind: The kind of verdict.
        at: The time in UTC, if known.
        id: The trajectory's id.
        verdict: The judge's opinion.
        student: The second judge's opinion. None: there is none.
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
    """Returns a short name of a judge, with a hash that distinguishes its settings."""
    code = hashlib.sha256(msgspec.json.encode(info, order="deterministic")).hexdigest()[:8]
    return " ".join(part for part in (info.name, info.model, code) if part)


def to_opinion(verdict: Verdict, judge: str) -> Opinion:
    """Converts a verdict to an opinion, without its reason."""
    return Opinion(
        judge=judge,
        success=verdict.success,
        score=verdict.score,
        unscored=verdict.unscored,
        usage=verdict.usage,
    )


class WatchLog(AppendLog[WatchRecord]):
    """The file of observations, open for appending. `known` is called with each earlier record, in
    order; `broken` lines stay unchanged.
    """

    def __init__(
        self, path: str | os.PathLike[str], judge: str, known: Callable[[WatchRecord], object]
    ) -> None:
        self.broken = 0

        def take(record: WatchRecord, start: int) -> None:
            if record.verdict.judge != judge:
                raise UsageError(
                    f"{path} contains observations of another judge ({record.verdict.judge} "
                    f"in the file, {judge} now); choose another file",
                    parameters=("observations",),
                )
            known(record)

        def count_broken(problem: str) -> None:
            self.broken += 1

        super().__init__(
            path,
            WatchRecord,
            take,
            what="observation",
            broken=count_broken,
            parameter="observations",
        )


def read_watch(
    path: str | os.PathLike[str], broken: Callable[[str], object]
) -> Iterator[WatchRecord]:
    """Reads the observations of a watch file, in order.

    Args:
        path: The file.
        broken: Called with the problem of each broken line; reading continues.

    Returns:
        The observations.

    Raises:
        UsageError: The file has other content.
    """
    return _read(path, WatchRecord, "observations", broken)


def records_from_verdicts(
    path: str | os.PathLike[str], students: Mapping[str, Opinion], broken: Callable[[str], object]
) -> Iterator[WatchRecord]:
    """Converts the lines of a verdict file to observations, in order; `students` has the second
    judge's verdicts by id.
    """
    for verdict in read_valid_verdicts(path, broken):
        yield verdict_record(verdict, students.get(verdict.id))


def verdict_record(verdict: Verdict, student: Opinion | None = None) -> WatchRecord:
    """Converts a verdict, and the second judge's opinion, to an observation."""
    opinion = to_opinion(verdict, get_name(verdict.evaluator))
    return WatchRecord(kind="verdict", at="", id=verdict.id, verdict=opinion, student=student)


def read_valid_verdicts(
    path: str | os.PathLike[str], broken: Callable[[str], object]
) -> Iterator[Verdict]:
    """Reads the verdicts of a file; `broken` is called for each invalid line. Raises UsageError for
    a file with other content.
    """
    return _read(path, Verdict, "verdicts", broken)


def _read(
    path: str | os.PathLike[str], type_: type[_T], what: Content, broken: Callable[[str], object]
) -> Iterator[_T]:
    decoder = msgspec.json.Decoder(type_)
    for count, line in enumerate(read_lines(path)):
        try:
            record = decoder.decode(line.data)
        except UNREADABLE as error:
            if not count and (content := detect_line_content(line.data)) not in (None, what):
                raise UsageError(
                    f"{path}: contains {content}, not {what}; choose another file"
                ) from None
            broken(f"{path}:{line.number}: {line_fault(line.data, error, type_)}")
            continue
        yield record

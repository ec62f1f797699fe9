"""Judges items concurrently and keys each verdict by its input."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import msgspec

from prill.errors import AnswerPendingError, InputError, PrillError, UnscoredError, UsageError
from prill.io.images import file_hash
from prill.io.store import BadLine, Item
from prill.models.calls import Transcript, transcribed
from prill.protocols import Evaluator
from prill.transcripts.files import TranscriptLog
from prill.types import EvaluatorInfo, Trajectory, Verdict

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_encode, _read = msgspec.json.Encoder().encode, msgspec.json.Decoder(Verdict).decode
_log = logging.getLogger("prill.judges")


Judge = Callable[[Trajectory], Awaitable[Verdict]]
KeyMade = Callable[[], str]


class Stop(Protocol):
    """Says that nothing more is to be begun; an `asyncio.Event` is one."""

    def is_set(self) -> bool:
        """Whether the run is to end."""
        ...

    def set(self) -> None:
        """Ends the run once what has begun is done."""
        ...


def verdict_key(info: EvaluatorInfo, trajectory: Trajectory, screenshots: Sequence[str]) -> str:
    """`sha256:` over the evaluator and what it judges: the record (image folders aside) and the
    bytes of `screenshots`.
    """
    digest = hashlib.sha256(_encode_sorted(info))
    record = msgspec.json.encode(trajectory)
    # As the record has it, not as pathlib would write it.
    for folder in {os.path.dirname(o.screenshot) for o in trajectory.observations if o.screenshot}:  # noqa: PTH120
        record = record.replace(msgspec.json.encode(folder)[:-1], b'"')
    digest.update(record)
    for path in screenshots:
        try:
            digest.update(bytes.fromhex(file_hash(path)))
        except InputError:
            digest.update(b"unreadable")
    return f"sha256:{digest.hexdigest()}"


def transcript_log(
    folder: str | os.PathLike[str] | None, *, resume: bool = True
) -> AbstractContextManager[TranscriptLog | None]:
    """Where transcripts go; None: nowhere."""
    return nullcontext() if folder is None else TranscriptLog(folder, resume=resume)


async def judge_items(
    evaluator: Evaluator,
    source: Iterable[tuple[Any, Item]],
    workers: int,
    stop: Stop,
    record: Callable[[Any, Verdict], None],
    is_done: Callable[[Any, str, KeyMade], bool] = lambda place, id, key: False,
    log: TranscriptLog | None = None,
    later: Callable[[], None] = lambda: None,
    judge: Judge | None = None,
) -> None:
    """Hands every item's verdict to `record`, in the same breath as it is there: nothing else runs
    in between.

    The calls that led to it go into `log` just before: where there is a verdict, there is its
    transcript. `judge` makes the verdicts, with their keys, where that is not to be done here.

    Items that are done, by place, id and key, are passed over; `later` is called for each whose
    answers are still to come. After a first error, or when `stop` is set, no item is begun; those
    under way are finished, then the error is raised.
    """
    items, judge = iter(source), judge or partial(keyed_verdict, evaluator, faults=JudgeFaults())

    async def work() -> None:
        with ExitStack() as on_failure:
            on_failure.callback(stop.set)
            while not stop.is_set() and (entry := next(items, None)) is not None:
                place, item = entry
                if isinstance(item, BadLine):
                    key = partial(bad_key, evaluator.info, item)
                    if not is_done(place, item.id, key):
                        record(place, bad_verdict(evaluator.info, item, key()))
                    continue
                if is_done(place, item.id, partial(make_key, evaluator, item)):
                    await asyncio.sleep(0)
                    continue
                try:
                    verdict = await _transcribed(judge, item, log)
                except AnswerPendingError:
                    later()
                else:
                    record(place, verdict)
            on_failure.pop_all()

    for result in await asyncio.gather(*(work() for _ in range(workers)), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def _transcribed(judge: Judge, item: Trajectory, log: TranscriptLog | None) -> Verdict:
    if log is None:
        return await judge(item)
    with transcribed() as calls:
        verdict = await judge(item)
    if calls:
        log.append(Transcript(item.id, verdict.key, tuple(calls)))
    return verdict


def make_key(evaluator: Evaluator, trajectory: Trajectory) -> str:
    """The key of the verdict that this evaluator would make now."""
    return verdict_key(evaluator.info, trajectory, evaluator.screenshots(trajectory))


class JudgeFaults:
    """What a judge raised that is not an error of prill: a bug, which costs its trajectory, not the
    run. Each is told once.
    """

    def __init__(self) -> None:
        self._told: set[tuple[type[Exception], str, int]] = set()

    def verdict(self, info: EvaluatorInfo, trajectory: Trajectory, bug: Exception) -> Verdict:
        """The trajectory's verdict: unscored, with the name of the exception; its words may quote a
        page, or a key.
        """
        name = type(bug).__name__
        traceback = bug.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        place = (
            ("", 0)
            if traceback is None
            else (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        )
        if (type(bug), *place) not in self._told:
            self._told.add((type(bug), *place))
            _log.error(
                "the judge %r raised %s for %r, which is unscored (parse); what it raises there "
                "again is not shown",
                info.name,
                name,
                trajectory.id,
                exc_info=bug,
            )
        return Verdict(
            id=trajectory.id,
            unscored="parse",
            reason=f"the judge {info.name!r} raised {name}",
            evaluator=info,
        )


async def keyed_verdict(
    evaluator: Evaluator, trajectory: Trajectory, *, faults: JudgeFaults
) -> Verdict:
    """The judge's verdict. Its key is that of the content before: what changes meanwhile is judged
    again by the next run.

    What a user's own judge raises becomes an unscored verdict. Raises UsageError where it gives
    something else than a verdict: a file that held it could not be read; EndpointError and its
    like, which are about the whole run.
    """
    key = ""
    try:
        key = make_key(evaluator, trajectory)
        verdict = await evaluator(trajectory)
    except UnscoredError as failure:
        verdict = Verdict(
            id=trajectory.id, unscored=failure.code, reason=str(failure), evaluator=evaluator.info
        )
    except PrillError:
        raise
    except Exception as bug:  # noqa: BLE001 - a judge's, whatever it is: the other trajectories are judged
        verdict = faults.verdict(evaluator.info, trajectory, bug)
    check_verdict(verdict, trajectory, evaluator.info)
    return replace(verdict, key=key or verdict_key(evaluator.info, trajectory, ()))


def check_verdict(verdict: object, trajectory: Trajectory, info: EvaluatorInfo) -> None:
    """Raises UsageError for what a user's own judge gave that is not a verdict about this
    trajectory, or cannot be written.
    """
    try:
        if not isinstance(verdict, Verdict):
            raise TypeError(f"a {type(verdict).__name__}")
        _read(_encode(verdict))
        if verdict.id != trajectory.id:
            raise ValueError(f"one about {verdict.id!r}")
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the judge {info.name!r} gave no sound verdict for {trajectory.id!r} ({error}); it "
            "is to give a "
            "prill.types.Verdict"
        ) from None


def bad_key(info: EvaluatorInfo, line: BadLine) -> str:
    """The key of what is said of a line that is no trajectory."""
    return f"sha256:{hashlib.sha256(_encode_sorted(info) + line.raw + line.problem.encode()).hexdigest()}"  # noqa: E501


def bad_verdict(info: EvaluatorInfo, line: BadLine, key: str) -> Verdict:
    """What is said of it."""
    return Verdict(id=line.id, unscored="input", reason=line.message, evaluator=info, key=key)

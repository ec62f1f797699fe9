"""Judges items concurrently and computes a key for each verdict from its input."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from prill.errors import AnswerPendingError, InputError, PrillError, UnscoredError, UsageError
from prill.io.images import file_hash
from prill.io.joining import record_digest
from prill.io.store import BadLine, Item
from prill.models.calls import Transcript, transcribed
from prill.models.transcripts.files import TranscriptLog
from prill.protocols import Evaluator
from prill.types import EvaluatorInfo, Trajectory, Verdict
from prill.work.items import Stop, work_through

_T = TypeVar("_T")
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_encode, _read = msgspec.json.Encoder().encode, msgspec.json.Decoder(Verdict).decode
_log = logging.getLogger("prill.judges")


Judge = Callable[[Trajectory], Awaitable[Verdict]]
KeyMade = Callable[[], str]


def verdict_key(info: EvaluatorInfo, trajectory: Trajectory, screenshots: Sequence[str]) -> str:
    """Returns a SHA-256 key (`sha256:…`) of the judge and its input.

    The input is the record, without the folders of images, and the bytes of `screenshots`.
    """
    digest = hashlib.sha256(_encode_sorted(info))
    record = msgspec.json.encode(trajectory)
    # Use the path exactly as in the record: pathlib would normalise it.
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
    """Opens the log of transcripts in a folder; None disables transcripts."""
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
    """Judges items and passes every verdict to `record` before the next `await`.

    The model calls of a verdict are written to `log` just before, so that every verdict has its
    transcript. `judge` makes the verdicts and their keys, if given. Items for which `is_done`
    returns True are skipped. `later` is called for each item whose answers are pending.
    `stop` and errors: see `work_through`.
    """
    judge = judge or partial(keyed_verdict, evaluator, faults=JudgeFaults())

    async def work(entry: tuple[Any, Item]) -> None:
        place, item = entry
        if isinstance(item, BadLine):
            key = partial(bad_key, evaluator.info, item)
            if not is_done(place, item.id, key):
                info = evaluator.info
                record(
                    place,
                    Verdict(
                        id=item.id, unscored="input", reason=item.message, evaluator=info, key=key()
                    ),
                )
            return
        if is_done(place, item.id, partial(make_key, evaluator, item)):
            await asyncio.sleep(0)
            return
        try:
            verdict = await _transcribed(judge, item, log)
        except AnswerPendingError:
            later()
        else:
            record(place, verdict)

    await work_through(iter(source), workers, stop, work)


async def _transcribed(judge: Judge, item: Trajectory, log: TranscriptLog | None) -> Verdict:
    if log is None:
        return await judge(item)
    with transcribed() as calls:
        verdict = await judge(item)
    if calls:
        log.append(Transcript(item.id, verdict.key, tuple(calls)))
    return verdict


def make_key(evaluator: Evaluator, trajectory: Trajectory) -> str:
    """Returns the key of the verdict that this judge would make now."""
    return verdict_key(evaluator.info, trajectory, evaluator.screenshots(trajectory))


class JudgeFaults:
    """Handles a judge's unexpected exceptions: only the trajectory is unscored, and each is logged
    once.
    """

    def __init__(self) -> None:
        self._reported: set[tuple[type[Exception], str, int]] = set()

    def verdict(self, info: EvaluatorInfo, trajectory: Trajectory, bug: Exception) -> Verdict:
        """Returns an unscored verdict with the exception's name.

        The exception's message is left out, because it may quote a page or a key.
        """
        name = type(bug).__name__
        traceback = bug.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        line_of_code = (
            ("", 0)
            if traceback is None
            else (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        )
        if (type(bug), *line_of_code) not in self._reported:
            self._reported.add((type(bug), *line_of_code))
            _log.error(
                "the judge %r raised %s for %r, which is unscored (parse); further errors "
                "of this kind are not logged",
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
    """Returns the judge's verdict with its key and the digest of the run.

    The key is computed before judging, so that content that changes meanwhile is judged again by
    the next run. Exceptions of a custom judge become an unscored verdict. Raises UsageError if the
    judge returns anything but a valid verdict, and errors such as EndpointError that concern the
    whole run.
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
    key = key or verdict_key(evaluator.info, trajectory, ())
    return replace(verdict, key=key, record=record_digest(trajectory))


def check_verdict(verdict: object, trajectory: Trajectory, info: EvaluatorInfo) -> None:
    """Raises UsageError if a custom judge's result is not a writable verdict about this
    trajectory.
    """
    try:
        if not isinstance(verdict, Verdict):
            raise TypeError(f"a {type(verdict).__name__}")
        _read(_encode(verdict))
        if verdict.id != trajectory.id:
            raise ValueError(f"one about {verdict.id!r}")
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the judge {info.name!r} returned an invalid verdict for "
            f"{trajectory.id!r} ({error}); return a prill.types.Verdict"
        ) from None


def bad_key(info: EvaluatorInfo, line: BadLine) -> str:
    """Returns the key of the verdict on a line that is not a trajectory."""
    return f"sha256:{hashlib.sha256(_encode_sorted(info) + line.raw + line.problem.encode()).hexdigest()}"  # noqa: E501

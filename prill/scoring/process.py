"""One of several processes that judge together: it gets a judge, then trajectories, and gives verdicts back.

    python -P -m prill.scoring SOCKET

`prill.scoring.pool` starts it and talks to it. What is known to be of plain types travels as MessagePack and JSON, which take a
fifth of the time of a pickle.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import socket
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from prill.config.registry import load_file, loaded_files
from prill.errors import PrillError
from prill.io.store import encode
from prill.models.calls import Call, transcribed
from prill.protocols import Evaluator, unsupported_params
from prill.scoring.items import JudgeFaults, keyed_verdict
from prill.scoring.line import Line
from prill.types import Trajectory, Verdict

# What pickle raises for what cannot be pickled, or be made again from a pickle.
UNPICKLABLE = (pickle.PickleError, TypeError, AttributeError, ValueError, LookupError, RecursionError)
_Judged = tuple[Verdict, tuple[Call, ...]]


class Setup(msgspec.Struct, frozen=True, tag=True):
    """The first message: a pickled judge, and the files of those modules of it that are no part of any package."""

    judge: bytes
    files: tuple[bytes, ...]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The answer to it. `problem`: why there is no judge."""

    problem: str | None = None


class Job(msgspec.Struct, frozen=True, tag=True):
    """A trajectory to judge, as JSON. `transcribed`: the calls are wanted too."""

    number: int
    trajectory: bytes
    transcribed: bool


class Done(msgspec.Struct, frozen=True, tag=True):
    """What came of a job: a verdict, as JSON, or the error that ends the run. `error` and `calls` are pickles, or empty."""

    number: int
    verdict: bytes = b""
    error: bytes = b""
    calls: bytes = b""


class End(msgspec.Struct, frozen=True, tag=True):
    """From the pool: that was all. From a process, in answer: what its models were found not to take."""

    lessons: tuple[str, ...] = ()


packed = msgspec.msgpack.Encoder().encode
_message = msgspec.msgpack.Decoder(Setup | Job | End).decode
_trajectory = msgspec.json.Decoder(Trajectory).decode


class _Work:
    """What this process is at. `over` is set when the line is closed."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self._line = Line(self._take, self._lost)
        self._judge: Evaluator
        self._faults = JudgeFaults()
        self._running: set[asyncio.Task[_Judged]] = set()
        self._ended = False

    async def begin(self, end: socket.socket) -> None:
        """Works for the other end of the line."""
        await self._line.open(end)

    def _take(self, data: bytes) -> None:
        match _message(data):
            case Job() as job:
                self._running.add(task := asyncio.create_task(_judged(self._judge, job, self._faults)))
                task.add_done_callback(partial(self._finish, job.number))
            case Setup() as setup:
                self._set_up(setup)
            case End():
                self._line.send(packed(End(tuple(unsupported_params(self._judge)))))
                self._close()

    def _lost(self) -> None:
        if not self._ended:
            os._exit(1)  # nobody wants what threads are still at
        self.over.set()

    def _close(self) -> None:
        self._ended = True
        self._line.close()

    def _set_up(self, setup: Setup) -> None:
        try:
            self._judge = unpacked(setup)
        except (*UNPICKLABLE, ImportError, PrillError) as error:
            self._line.send(packed(Ready(f"{type(error).__name__}: {error}")))
            self._close()
        else:
            self._line.send(packed(Ready()))

    def _finish(self, number: int, task: asyncio.Task[_Judged]) -> None:
        self._running.discard(task)
        try:
            if task.cancelled():  # the judge did that itself; unanswered, the pool would wait for ever
                done = Done(number, error=_pickled(RuntimeError("the judge was cancelled while it was at a trajectory")))
            elif (error := task.exception()) is not None:
                done = Done(number, error=_pickled(error))
            else:
                verdict, calls = task.result()
                done = Done(number, encode(verdict), calls=pickle.dumps(calls) if calls else b"")
        except UNPICKLABLE as problem:
            done = Done(number, error=_pickled(RuntimeError(f"the verdict cannot be handed over: {problem}")))
        self._line.send(packed(done))


def setup_of(judge: Any) -> Setup:
    """What another process needs to make the judge, or whatever else this is. Raises what pickle raises."""
    return Setup(pickle.dumps(judge), tuple(os.fsencode(file) for file in loaded_files()))


def unpacked(setup: Setup) -> Any:
    """What another process has packed. Raises what pickle raises, ImportError and PrillError."""
    for file in setup.files:
        load_file(Path(os.fsdecode(file)))
    return pickle.loads(setup.judge)


async def _judged(judge: Evaluator, job: Job, faults: JudgeFaults) -> _Judged:
    trajectory = _trajectory(job.trajectory)
    if not job.transcribed:
        return await keyed_verdict(judge, trajectory, faults=faults), ()
    with transcribed() as calls:
        verdict = await keyed_verdict(judge, trajectory, faults=faults)
    return verdict, tuple(calls)


def _pickled(error: BaseException) -> bytes:
    """The error as it can be raised in another process, with its traceback where it is none of prill's own."""
    if not isinstance(error, PrillError):
        error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(data := pickle.dumps(error))
    except UNPICKLABLE:
        return pickle.dumps(RuntimeError("".join(traceback.format_exception(error))))
    return data


async def _work(end: socket.socket) -> None:
    """Judges until there is no more, or the other end goes without a word."""
    work = _Work()
    await work.begin(end)
    await work.over.wait()


def main(words: Sequence[str]) -> None:
    """Works at the socket of that number."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pool, which finishes what is under way
    gc.set_threshold(10_000)  # each look for garbage goes through all calls under way
    asyncio.run(_work(socket.socket(fileno=int(words[0]))))

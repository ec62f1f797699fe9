"""One of several processes that judge together: it gets a judge, then trajectories, and gives verdicts back.

    python -P -m prill.workers SOCKET

`prill.workers.pool` starts it and talks to it, in frames: eight bytes of length, and a pickle. Both ends are this program's
own, connected by a pair of sockets that nobody else has. Messages are named tuples, pickled in half the time of others.
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
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from prill.errors import PrillError
from prill.models.images import KnownHash, learn_hashes
from prill.protocols import Evaluator, lessons_of
from prill.registry import load_file
from prill.store import encode
from prill.transcripts.calls import Call, transcribed
from prill.types import Trajectory, Verdict
from prill.workers.items import judged

BUFFER = 1 << 20
# What pickle raises for what cannot be pickled, or be made again from a pickle.
UNPICKLABLE = (pickle.PickleError, TypeError, AttributeError, ValueError, LookupError, RecursionError)
_LENGTH = 8
_Judged = tuple[Verdict, tuple[Call, ...]]
_read = msgspec.json.Decoder(Trajectory).decode


class Setup(NamedTuple):
    """The first frame: a pickled judge, and the files of those modules of it that are no part of any package."""

    judge: bytes
    files: tuple[Path, ...]


class Ready(NamedTuple):
    """The answer to it. `problem`: why there is no judge."""

    problem: str | None = None


class Job(NamedTuple):
    """A trajectory to judge, as JSON, which is written and read five times as fast as a pickle. `hashes` are those of its
    pictures that are known; `transcribed`: the calls are wanted too."""

    number: int
    trajectory: bytes
    hashes: tuple[KnownHash, ...]
    transcribed: bool


class Done(NamedTuple):
    """What came of a job: a verdict, as JSON too, or the error that ends the run."""

    number: int
    outcome: bytes | BaseException
    calls: tuple[Call, ...]


class End(NamedTuple):
    """From the pool: that was all. From a process, in answer: what its models were found not to take."""

    lessons: tuple[str, ...] = ()


def framed(message: object) -> bytes:
    """The frame of a message."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH) + data


class Outbox:
    """Sends messages: those of one turn of the event loop in one write, since each write wakes the other end."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._frames: list[bytes] = []

    def send(self, message: object) -> None:
        """Puts a message into the next write. Raises what pickle raises."""
        frame = framed(message)
        if not self._frames:
            asyncio.get_running_loop().call_soon(self.flush)
        self._frames.append(frame)

    def flush(self) -> None:
        """Writes now."""
        if self._frames:
            self.writer.write(b"".join(self._frames))
            self._frames.clear()


async def next_message(reader: asyncio.StreamReader) -> Any:
    """The next message; None when the other end is gone."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH))
        return pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def wait_for_message(end: BinaryIO) -> Any:
    """The same, for a process or a thread that waits."""
    try:
        length = int.from_bytes(end.read(_LENGTH))
        data = end.read(length)
    except (ConnectionError, ValueError):  # it was closed here meanwhile
        return None
    return pickle.loads(data) if length and len(data) == length else None


async def _work(end: socket.socket) -> None:
    """Judges until there is no more, or the other end goes without a word."""
    reader, writer = await asyncio.open_connection(sock=end, limit=BUFFER)
    if not isinstance(setup := await next_message(reader), Setup):
        return
    try:
        judge: Evaluator = unpacked(setup)
    except (*UNPICKLABLE, ImportError, PrillError) as error:
        writer.write(framed(Ready(f"{type(error).__name__}: {error}")))
        await writer.drain()
        return
    writer.write(framed(Ready()))
    outbox = Outbox(writer)
    running: set[asyncio.Task[_Judged]] = set()

    def begin(job: Job) -> None:
        def finish(task: asyncio.Task[_Judged]) -> None:
            running.discard(task)
            try:
                if task.cancelled():  # the judge did that itself; unanswered, the pool would wait for ever
                    done = Done(job.number, RuntimeError("the judge was cancelled while it was at a trajectory"), ())
                elif (error := task.exception()) is not None:
                    done = Done(job.number, _portable(error), ())
                else:
                    verdict, calls = task.result()
                    done = Done(job.number, encode(verdict), calls)
                outbox.send(done)
            except UNPICKLABLE as problem:
                outbox.send(Done(job.number, RuntimeError(f"the verdict cannot be handed over: {problem}"), ()))

        learn_hashes(job.hashes)
        running.add(task := asyncio.create_task(_judged(judge, job)))
        task.add_done_callback(finish)

    while isinstance(message := await next_message(reader), Job):
        begin(message)
    if message is None:
        os._exit(1)  # nobody wants what threads are still at
    outbox.send(End(tuple(lessons_of(judge))))
    outbox.flush()
    await writer.drain()


def unpacked(setup: Setup) -> Any:
    """What another process has packed. Raises what pickle raises, ImportError and PrillError."""
    for file in setup.files:
        load_file(file)
    return pickle.loads(setup.judge)


async def _judged(judge: Evaluator, job: Job) -> _Judged:
    trajectory = _read(job.trajectory)
    if not job.transcribed:
        return await judged(judge, trajectory), ()
    with transcribed() as calls:
        verdict = await judged(judge, trajectory)
    return verdict, tuple(calls)


def _portable(error: BaseException) -> BaseException:
    """The error as it can be raised in another process, with its traceback where it is none of prill's own."""
    if not isinstance(error, PrillError):
        error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except UNPICKLABLE:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


def main(words: Sequence[str]) -> None:
    """Works at the socket of that number."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pool, which finishes what is under way
    gc.set_threshold(10_000)  # each look for garbage goes through all calls under way
    asyncio.run(_work(socket.socket(fileno=int(words[0]))))

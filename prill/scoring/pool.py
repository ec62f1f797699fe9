"""Trajectories that are handed to several processes to judge; one reads the input and writes the verdicts."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from itertools import count
from types import TracebackType
from typing import Self

import msgspec

from prill.errors import PrillError, UsageError
from prill.io.store import encode
from prill.models.calls import is_transcribed, note
from prill.protocols import Evaluator
from prill.scoring.line import Line
from prill.scoring.process import UNPICKLABLE, Done, End, Job, Ready, Setup, packed, setup_of
from prill.scoring.seats import Seat, Table, packing_for
from prill.types import Trajectory, Verdict

_message = msgspec.msgpack.Decoder(Ready | Done | End).decode
_verdict = msgspec.json.Decoder(Verdict).decode
# A trajectory that so many processes were at when they died is not given to another one.
_MOST_LOSSES = 3
_TO_END = 10.0  # seconds for a process that has nothing left to do


class _Lost(PrillError):
    """A process has died; what it was at may be begun anew by another one."""


class Workers:
    """The judge, in `processes` processes; `async with` starts and ends them.

    Each has its share of the calls at once that a model of the judge may make, at least one, and all of them have one budget.
    They make verdicts and nothing else. One that dies is replaced, and what it was at is judged by whoever is idle. They end
    with this process, however that ends. Raises UsageError for a judge that cannot be pickled.

    What a judge keeps in memory, it keeps in each process.
    """

    def __init__(self, judge: Evaluator, processes: int) -> None:
        self.judge = judge
        self.lessons: list[str] = []
        self._table = Table(processes)
        self._workers: list[_Worker] = []

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict of the process with the least to do, with its key."""
        losses = 0
        while True:
            worker = min(self._workers, key=lambda worker: worker.load)
            try:
                return await worker.judge(trajectory)
            except _Lost as loss:
                losses += 1
                self._replace(worker)
                if losses == _MOST_LOSSES:
                    raise PrillError(
                        f"{trajectory.id}: {losses} processes died while they were at it, among others: {loss}"
                    ) from None

    async def __aenter__(self) -> Self:
        with ExitStack() as on_failure:
            on_failure.callback(self._kill)
            self._workers = [self._start(number) for number in range(self._table.seats)]
            await asyncio.gather(*(worker.ready for worker in self._workers))
            on_failure.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                ends = await asyncio.gather(*(worker.end() for worker in self._workers))
                self.lessons = list(dict.fromkeys(lesson for end in ends for lesson in end.lessons))
        finally:
            self._kill()

    def _start(self, number: int) -> _Worker:
        seat = Seat(self._table, number)
        try:
            with packing_for(seat):
                setup = setup_of(self.judge)
        except UNPICKLABLE as error:
            raise _unfit(self.judge, str(error)) from None
        return _Worker(setup, self.judge, self._table.file)

    def _replace(self, worker: _Worker) -> None:
        """Puts another process in the place of one that has died; its place may have been taken already."""
        if worker in self._workers:
            number = self._workers.index(worker)
            worker.kill()
            self._workers[number] = self._start(number)

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._table.close()


class _Worker:
    """One process, and what it is at. `ready` ends when it has the judge."""

    def __init__(self, setup: Setup, judge: Evaluator, shared: int) -> None:
        ours, theirs = socket.socketpair()
        words = [sys.executable, "-P", "-m", "prill.scoring", str(theirs.fileno())]
        # It finds what this process finds. Ctrl-C in a terminal is not for it, and what its judge prints is no output.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        with theirs:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=environment,
                pass_fds=(theirs.fileno(), shared),
                start_new_session=True,
            )
        self.load = 0
        self._numbers = count()
        self._at: dict[int, asyncio.Future[Done]] = {}
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Ready] = self._loop.create_future()
        self._ended: asyncio.Future[End] = self._loop.create_future()
        self._line = Line(self._take, self._lost)
        self.ready = asyncio.create_task(self._begin(ours, setup, judge))

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """Its verdict. Raises what the judge raised there, and _Lost."""
        self.load += 1
        number = next(self._numbers)
        try:
            if not self.ready.done():
                await asyncio.shield(self.ready)
            self.ready.result()
            if self._ended.done():
                raise self._loss()
            self._at[number] = waiting = self._loop.create_future()
            self._line.send(packed(Job(number, encode(trajectory), is_transcribed())))
            done = await waiting
        finally:
            self.load -= 1
            self._at.pop(number, None)
        if done.calls:
            for call in pickle.loads(done.calls):
                note(call)
        if done.error:
            raise pickle.loads(done.error)
        return _verdict(done.verdict)

    async def end(self) -> End:
        """Lets it end, and what it has to say then."""
        with suppress(_Lost, TimeoutError):
            async with asyncio.timeout(_TO_END):
                await self.ready
                self._line.send(packed(End()))
                return await self._ended
        return End()

    def kill(self) -> None:
        """Ends it at once, where it has not ended."""
        self.ready.cancel()
        self._line.close()
        self._process.kill()
        self._process.wait()

    async def _begin(self, end: socket.socket, setup: Setup, judge: Evaluator) -> None:
        await self._line.open(end)
        self._line.send(packed(setup))
        answer = await self._answer
        if answer.problem is not None:
            raise _unfit(judge, answer.problem)

    def _take(self, data: bytes) -> None:
        match _message(data):
            case Done() as done:
                if (waiting := self._at.get(done.number)) is not None and not waiting.done():
                    waiting.set_result(done)
            case Ready() as answer:
                self._answer.set_result(answer)
            case End() as end:
                self._ended.set_result(end)

    def _lost(self) -> None:
        if not self._ended.done():
            self._ended.set_result(End())
        if not self._answer.done():
            self._answer.set_exception(self._loss())
        for waiting in self._at.values():
            if not waiting.done():
                waiting.set_exception(self._loss())

    def _loss(self) -> _Lost:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)  # its socket is closed before it is gone
        return _Lost(f"a process that judged has died (exit code {self._process.returncode})")


def _unfit(judge: Evaluator, problem: str) -> UsageError:
    return UsageError(
        f"judge {judge.info.name!r} cannot be handed to other processes ({problem}); judge in one, or make it of classes and "
        "functions that stand in a module",
        parameters=("processes",),
    )

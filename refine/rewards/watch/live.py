"""Monitors a reward in use, in a background thread.

Failures of the monitor never affect a reward. They are counted and reported.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prill.errors import InputError, PrillError, UsageError
from prill.evaluators.combine import as_score
from prill.evaluators.fitted.student import Student
from prill.evaluators.registry import make_judge
from prill.io.cache import without_disk_cache
from prill.io.outputs import check_output, read_content
from prill.io.store import BadLine, Item, read_labels, read_trajectories
from prill.io.truth import gold_labels
from prill.protocols import Evaluator, get_concurrency
from prill.refine.rewards.loops import LoopThread
from prill.refine.rewards.watch.records import (
    WatchLog,
    WatchRecord,
    get_name,
    read_valid_verdicts,
    to_opinion,
)
from prill.refine.rewards.watch.signs import WatchReport, WatchTally
from prill.refine.rewards.watch.spec import FEWEST, WatchSpec
from prill.types import Opinion, Trajectory, Usage, Verdict

_log = logging.getLogger("prill.rewards.watch")
_MAX_WAITING = 1024  # verdicts in the queue; each holds its trajectory
_AT_EXIT = 10.0  # seconds for recording the queued verdicts when the process ends


@dataclass(frozen=True, slots=True)
class _Seen:
    trajectory: Trajectory | None  # None: a broken line
    verdict: Verdict


class Watch:
    """A monitor of a judge's verdicts while they are used as rewards.

    Canaries are judged one after another, alongside the rewards, one round at a time, and without
    cached replies. A watch can be pickled; the copy starts from the file of observations, if no
    other process writes to it.

    Args:
        judge: The judge, for canaries.
        spec: The options.

    Raises:
        UsageError: A file cannot be read or written, or a canary has no label.
    """

    def __init__(self, judge: Evaluator, spec: WatchSpec) -> None:
        self.judge, self.spec = judge, spec
        self._canaries = _canaries(spec)
        self._student = _student(spec.student)
        if spec.observations is not None:
            inputs = (spec.canaries, spec.canary_labels, spec.reference)
            check_output(
                spec.observations, "observations", inputs, continued=True, parameter="observations"
            )
        self._scores = read_scores(spec.reference)
        self._name = get_name(judge.info)
        self._begin_again()

    def __reduce__(self) -> tuple[type[Watch], tuple[Evaluator, WatchSpec]]:
        return type(self), (self.judge, self.spec)

    def _begin_again(self) -> None:
        self._owner = os.getpid()
        # `_gate` is held briefly, since rewards wait for it; `_lock` is held during file access.
        self._gate, self._lock = threading.Lock(), threading.RLock()
        self._tally = WatchTally(self.spec, self._scores)
        self._log: WatchLog | None = None
        self._thread: LoopThread | None = None
        self._queue: asyncio.Queue[_Seen]
        self._working: Future[None]
        self._round: asyncio.Task[None] | None = None
        self._since = 0  # verdicts since a round began; the first verdict begins one
        self._begun = self._opened = False
        self._waiting = self._lost = 0
        self._trouble = ""
        self._alarmed: set[str] = set()
        self._spent = Usage()

    @property
    def spent(self) -> Usage:
        """The usage of canaries and of the second judge in this process."""
        return self._spent

    def open(self) -> None:
        """Reads the file of observations and locks it; without this call, the first verdict does.

        Raises:
            UsageError: The file has other content, or another process writes to it.
        """
        with self._lock:
            if self._opened or self.spec.observations is None:
                return
            self._opened = True
            tally = WatchTally(self.spec, self._scores)
            self._log = WatchLog(self.spec.observations, self._name, tally.add)
            self._tally = tally
            if self._log.broken:
                self._warn(f"{self.spec.observations}: {self._log.broken} broken lines ignored")
            self._alarmed = {sign.name for sign in self._tally.report().alarms}

    def saw(self, trajectory: Item, verdict: Verdict) -> None:
        """Queues a verdict for recording; returns at once, from any thread, and never raises.

        Args:
            trajectory: The trajectory.
            verdict: Its verdict.
        """
        if self._owner != os.getpid():  # in a forked child the thread is the parent's
            self._begin_again()
        seen = _Seen(None if isinstance(trajectory, BadLine) else trajectory, verdict)
        with self._gate:
            if self._waiting >= _MAX_WAITING:
                self._lost += 1
                return
            try:
                self._running().loop.call_soon_threadsafe(self._queue.put_nowait, seen)
                self._waiting += 1
            except RuntimeError:  # no more threads, or the interpreter is shutting down
                self._lost += 1

    def report(self) -> WatchReport:
        """Reports the current state of every sign."""
        with self._lock:
            return replace(
                self._tally.report(), judge=self._name, lost=self._lost, trouble=self._trouble
            )

    def settle(self, timeout: float | None = None) -> None:
        """Waits until all verdicts are recorded and the round of canaries under way has ended.

        It blocks: async code calls it by `asyncio.to_thread`.

        Args:
            timeout: The longest wait, in seconds. None: no limit.
        """
        self._wait(self._settled(with_round=True), timeout)

    def close(self) -> None:
        """Records the queued verdicts, cancels the current round of canaries, and closes the file;
        safe to call twice.

        It blocks for ten seconds at most. It also runs when the process ends.
        """
        self._wait(self._settled(with_round=False), _AT_EXIT)
        atexit.unregister(self.close)
        with self._gate:
            thread, self._thread = self._thread, None
        if thread is not None and self._owner == os.getpid():
            thread.stop()
        with self._lock:
            if self._log is not None:
                self._log.close()
            self._log, self._opened = None, False

    def _running(self) -> LoopThread:
        """Returns the thread with its loop, and starts it if needed; call it with the gate held."""
        if self._thread is None:
            thread = LoopThread("prill-watch")
            atexit.register(self.close)  # runs before the loop's own handler
            self._queue = asyncio.Queue()
            self._waiting, self._begun = 0, False
            self._working = asyncio.run_coroutine_threadsafe(self._work(), thread.loop)
            self._working.add_done_callback(self._ended)
            self._thread = thread
        return self._thread

    def _ended(self, work: Future[None]) -> None:
        if not work.cancelled() and (failure := work.exception()) is not None:
            self._warn_of_trouble(f"the monitor stopped: {type(failure).__name__}")

    def _wait(self, work: Coroutine[Any, Any, None], timeout: float | None) -> None:
        with self._gate:
            thread = self._thread
        if thread is None or self._owner != os.getpid() or not thread.thread.is_alive():
            work.close()
            return
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, thread.loop)
        with suppress(TimeoutError):
            future.result(timeout)
        future.cancel()

    async def _settled(self, *, with_round: bool) -> None:
        joined = asyncio.ensure_future(self._queue.join())
        await asyncio.wait(
            [joined, asyncio.wrap_future(self._working)], return_when=asyncio.FIRST_COMPLETED
        )
        joined.cancel()  # the queue never empties if the worker has ended
        if self._round is not None:
            if not with_round:
                self._round.cancel()
            await asyncio.wait([self._round])

    async def _work(self) -> None:
        at_once = (self._student is not None and get_concurrency(self._student)) or 1
        while True:
            batch = [await self._queue.get()]
            while len(batch) < at_once and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                self._open_or_warn()
                opinions = await asyncio.gather(*map(self._second_opinion, batch))
                for seen, student in zip(batch, opinions, strict=True):
                    verdict = to_opinion(seen.verdict, self._name)
                    self._note(
                        WatchRecord(
                            kind="verdict",
                            at=_now(),
                            id=seen.verdict.id,
                            verdict=verdict,
                            student=student,
                        )
                    )
                    self._begin_round_when_due()
            finally:
                with self._gate:
                    self._waiting -= len(batch)
                for _ in batch:
                    self._queue.task_done()

    async def _second_opinion(self, seen: _Seen) -> Opinion | None:
        if self._student is None or seen.trajectory is None:
            return None
        return await _ask(self._student, seen.trajectory, get_name(self._student.info))

    def _begin_round_when_due(self) -> None:
        self._since += 1
        is_due = not self._begun or self._since >= self.spec.canary_every
        if self._canaries and is_due and (self._round is None or self._round.done()):
            self._since, self._begun = 0, True
            self._round = asyncio.get_running_loop().create_task(
                self._canary_round(self._tally.round + 1)
            )

    async def _canary_round(self, number: int) -> None:
        with without_disk_cache():
            for trajectory, label in self._canaries:
                verdict = await _ask(self.judge, trajectory, self._name)
                self._note(
                    WatchRecord(
                        kind="canary",
                        at=_now(),
                        id=trajectory.id,
                        verdict=verdict,
                        label=label,
                        round=number,
                    )
                )

    def _note(self, record: WatchRecord) -> None:
        with self._lock:
            self._spent += record.verdict.usage if record.kind == "canary" else Usage()
            self._spent += record.student.usage if record.student is not None else Usage()
            if self._log is not None:
                try:
                    self._log.append(record)
                except UsageError as error:
                    self._warn_of_trouble(str(error))
            if not self._tally.add(record):
                return
            alarms = {sign.name: sign for sign in self._tally.report().alarms}
            for name in alarms.keys() - self._alarmed:
                self._warn(f"alarm: {name}: {alarms[name].words}")
            self._alarmed = set(alarms)

    def _open_or_warn(self) -> None:
        try:
            self.open()
        except (UsageError, InputError) as error:
            self._warn_of_trouble(str(error))

    def _warn_of_trouble(self, message: str) -> None:
        if not self._trouble:
            self._warn(f"observations cannot be written: {message}")
        self._trouble = message

    def _warn(self, message: str) -> None:
        _log.warning("%s", message)


async def _ask(judge: Evaluator, trajectory: Trajectory, name: str) -> Opinion:
    """Returns a judge's opinion. If the judge raises, the opinion is unscored with `transport`."""

    async def judged() -> Verdict:
        return await judge(trajectory)

    task = asyncio.create_task(judged())
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        raise
    failure = None if task.cancelled() else task.exception()
    if task.cancelled() or failure is not None:
        reason = (
            str(failure)
            if isinstance(failure, PrillError)
            else f"the judge raised {type(failure).__name__}"
        )
        return Opinion(judge=name, success=None, unscored="transport", reason=reason)
    return to_opinion(task.result(), name)


def _canaries(spec: WatchSpec) -> Sequence[tuple[Trajectory, bool]]:
    """Reads each canary with its label, without those whose label is undecided."""
    if spec.canaries is None or spec.canary_labels is None:
        return ()
    try:
        _, labels = gold_labels(read_labels(spec.canary_labels))
    except UsageError as error:
        raise UsageError(f"{spec.canary_labels}: {error}", parameters=("canary_labels",)) from None
    found: dict[str, tuple[Trajectory, bool]] = {}
    for item in read_trajectories(spec.canaries, on_error="yield"):
        if isinstance(item, BadLine):
            raise UsageError(item.message, parameters=("canaries",))
        if (label := labels.get(item.id)) is not None:
            found[item.id] = (item, label)
    if not found:
        raise UsageError(
            f"{spec.canaries}: no canary has a decided label in {spec.canary_labels}",
            parameters=("canaries", "canary_labels"),
        )
    return tuple(found.values())


def _student(student: str | Mapping[str, Any] | Evaluator | None) -> Evaluator | None:
    if student is None:
        return None
    is_file = (
        isinstance(student, str) and Path(student).suffix == ".json" and Path(student).is_file()
    )
    if isinstance(student, str) and is_file and read_content(student) == "a fitted judge":
        return Student.load(student)
    return make_judge(student)


def read_scores(path: str | Path | None) -> Sequence[float]:
    """Reads the reference scores for drift. Raises UsageError for a file with too few of them."""
    if path is None:
        return ()

    def broken(problem: str) -> None:
        raise UsageError(problem, parameters=("reference",))

    scores = map(as_score, read_valid_verdicts(path, broken))
    values = [score for score in scores if score is not None]
    if len(values) < FEWEST:
        raise UsageError(
            f"{path}: {len(values)} verdicts with a score are too few; {FEWEST} are needed",
            parameters=("reference",),
        )
    return values


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_watch(judge: Evaluator, spec: WatchSpec | Mapping[str, Any] | None) -> Watch | None:
    """Makes a judge's monitor from settings or a table. Raises OptionError and UsageError."""
    return None if spec is None else Watch(judge, WatchSpec.read(spec, "watch"))

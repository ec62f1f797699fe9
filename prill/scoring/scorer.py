"""Scoring of many trajectories with one judge, in memory or from files.

Runs on files can be resumed and stopped cleanly. `plan_files` determines what a run would need,
without any call.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing, closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from prill.checks import checked_trajectories, expect_judge
from prill.errors import InputError, UsageError
from prill.io.lines import is_stream
from prill.io.outputs import check_output, expect_file, is_stdout
from prill.io.shards import Shard
from prill.io.store import BadLine, Item, TrajectoryReader, read_trajectories, read_verdicts
from prill.io.tables import Verdicts
from prill.io.verdict_log import VerdictLog, VerdictStream, lasts, open_log
from prill.protocols import Engine, Evaluator, get_concurrency
from prill.scoring.engines import make_engine
from prill.scoring.items import (
    JudgeFaults,
    KeyMade,
    judge_items,
    keyed_verdict,
    make_key,
    transcript_log,
)
from prill.scoring.items import verdict_key as verdict_key  # re-exported
from prill.scoring.processes import Processes
from prill.scoring.shards import JudgeShard, ShardedRun, ShardResult, Shards, gather_leftover
from prill.transcripts.files import TranscriptLog
from prill.types import Trajectory, Usage, Verdict

CONCURRENCY = 16
R = TypeVar("R")
_MAX_PROBLEMS = 20
_read_verdict = msgspec.json.Decoder(Verdict).decode


@dataclass(slots=True, kw_only=True)
class RunTally:
    """Counts of a run that calls models: failures by reason, usage, and whether it was stopped."""

    unscored: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    stopped: bool = False

    def note(self, problem: str) -> None:
        """Stores a problem if it is among the first ones."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)


@dataclass(slots=True, kw_only=True)
class Tally(RunTally):
    """The progress of a run.

    `read` counts trajectories and invalid lines of the input, `skipped` those that are already in
    the file, and `soft` scores that are neither 0 nor 1. `untranscribed` counts the verdicts whose
    transcript could not be written. `pending` counts trajectories whose batch answers are pending.
    `fitted` counts verdicts by what the judge was fitted on. At the end, `unknown_keys` counts
    unknown keys of the input, and `unsupported_params` has the parameters that models in other
    processes rejected.
    """

    read: int = 0
    skipped: int = 0
    succeeded: int = 0
    failed: int = 0
    soft: int = 0
    fitted: Counter[str] = field(default_factory=Counter)
    untranscribed: int = 0
    unknown_keys: Counter[str] = field(default_factory=Counter)
    pending: int = 0
    unsupported_params: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Counts a verdict; the first reasons for unscored verdicts are stored for display."""
        if verdict.unscored is not None:
            self.unscored[verdict.unscored] += 1
            self.note(f"{verdict.id}: {verdict.unscored}: {verdict.reason}")
        elif verdict.success:
            self.succeeded += 1
        else:
            self.failed += 1
        self.soft += verdict.score not in (None, 0.0, 1.0)
        if verdict.fitted_on is not None:
            self.fitted[verdict.fitted_on] += 1
        self.usage += verdict.usage

    @property
    def made(self) -> int:
        """Returns the number of verdicts made by this run, including unscored ones."""
        return self.succeeded + self.failed + sum(self.unscored.values())


async def score_async(
    trajectories: Iterable[Item] | str | os.PathLike[str],
    judge: Evaluator,
    *,
    concurrency: int | None = None,
    transcripts: str | os.PathLike[str] | None = None,
) -> Verdicts:
    """Judges trajectories in memory, or those of one file, as `prill.score_async` documents.

    The default of `concurrency` is that of the judge's model. All items of a list are checked
    before the first is judged. Invalid lines (`BadLine`) become verdicts unscored with `input`. If
    the judge raised an exception, the reason contains its name, and its traceback is logged once.
    """
    expect_judge(judge)
    at_once = concurrency or _concurrency(judge)
    with transcript_log(transcripts) as log:
        source = enumerate(_items(trajectories))
        verdicts = {index: verdict async for index, verdict in _stream(judge, source, at_once, log)}
    return Verdicts(verdicts[index] for index in sorted(verdicts))


def wait_for(run: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Runs a coroutine and returns its result, also in a notebook with a running event loop.

    An interrupt cancels the coroutine in both cases.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    from concurrent.futures import ThreadPoolExecutor

    cancel: list[Callable[[], object]] = []
    interrupted = threading.Event()

    async def cancellable() -> R:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            cancel.append(lambda: loop.call_soon_threadsafe(task.cancel))
        if interrupted.is_set():  # the interrupt came before the task existed
            raise asyncio.CancelledError
        return await run()

    with ThreadPoolExecutor(1) as thread:
        try:  # an interrupt may come before this thread waits
            return thread.submit(lambda: asyncio.run(cancellable())).result()
        except KeyboardInterrupt:
            interrupted.set()
            for end in cancel:
                end()
            raise


async def score_stream(
    trajectories: Iterable[Item] | str | os.PathLike[str],
    judge: Evaluator,
    *,
    concurrency: int | None = None,
    transcripts: str | os.PathLike[str] | None = None,
) -> AsyncGenerator[Verdict]:
    """Judges trajectories and yields each verdict when it is ready; the input is read lazily.

    Args:
        trajectories: As for `score`.
        judge: As for `score`.
        concurrency: The number of trajectories judged at the same time. None: the concurrency of
            the judge's model.
        transcripts: The folder for transcripts of the model calls. None: no transcripts.

    Yields:
        The verdicts, in the order in which they are ready.

    Raises:
        InputError: As `score`; for iterables other than lists, when the trajectory is read.
        UsageError: As `score`.
        EndpointError: As `score`.
    """
    expect_judge(judge)
    at_once = concurrency or _concurrency(judge)
    with transcript_log(transcripts) as log:
        async with aclosing(
            _stream(judge, enumerate(_items(trajectories)), at_once, log)
        ) as verdicts:
            async for _, verdict in verdicts:
                yield verdict


def _items(trajectories: Iterable[Item] | str | os.PathLike[str]) -> Iterable[Item]:
    if isinstance(trajectories, str | os.PathLike):
        return read_trajectories(trajectories, on_error="yield")
    return checked_trajectories(trajectories, BadLine)


class FileOptions(TypedDict, total=False):
    """The options of `score_files`, which documents them."""

    concurrency: int | None
    processes: int
    engine: str | Mapping[str, Any] | Engine | None
    limit: int | None
    shard: Shard | None
    resume: bool
    retry_unscored: bool
    transcripts: str | os.PathLike[str] | None


async def score_files(
    paths: Sequence[str | os.PathLike[str]],
    judge: Evaluator,
    output: str | os.PathLike[str],
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[Tally], None] = lambda tally: None,
    **options: Unpack[FileOptions],
) -> Tally:
    """Judges trajectory files into a verdict file, and skips trajectories that it already contains.

    Invalid lines become verdicts unscored with `input`. A few more trajectories than `concurrency`
    are prepared in advance; the model's own limit determines how many calls run.

    Args:
        paths: Trajectory files, or folders of them; `-` is standard input.
        judge: The judge.
        output: The verdict file. `-` is standard output, where no trajectory can be skipped.
        stop: An event that stops the run before the next trajectory. None: all trajectories are
            judged.
        progress: Called after every input; with several processes, shortly after.
        **options: `concurrency` (the maximum number of trajectories at a time; default: the
            concurrency of the judge's model), `processes` (the number of processes, each of which
            judges a shard; concurrency and budgets are divided among them; default 1), `engine`
            (workers of a cluster that judge instead, as a name or an object;
            `prill.scoring.engines`), `limit` (the maximum number of inputs, counted from the
            first), `shard` (judge only this shard; `prill.merge_verdicts` merges shards), `resume`
            (keep the verdicts of the output; default True; False: rename the file to `.bak`),
            `retry_unscored` (judge unscored trajectories of the output again) and `transcripts` (a
            folder for transcripts of the model calls; if it cannot be written, verdicts are still
            made; default: no transcripts).

    Returns:
        The number of trajectories that succeeded, failed, were unscored and were skipped.

    Raises:
        UsageError: No trajectory could be read, or the output is an input or holds something else.
        EndpointError: The judge's model cannot be used at all.
    """
    expect_judge(judge)
    concurrency = options.get("concurrency") or _concurrency(judge)
    engine = _engine(options, concurrency, output)
    tally, start, resume = Tally(), time.monotonic(), options.get("resume", True)
    with closing(TrajectoryReader(paths, options.get("limit"), options.get("shard"))) as reader:
        check_output(output, "verdicts", reader.paths, continued=resume)
        items = iter(reader)
        # raises if there is nothing to judge, before the output is changed
        first = list(islice(items, 1))
        retry = options.get("retry_unscored", False)
        with (
            open_log(output, judge.info, resume=resume, retry_unscored=retry) as log,
            transcript_log(options.get("transcripts"), resume=resume) as calls,
        ):
            run = _FileRun(judge, log, calls, reader, tally, stop or asyncio.Event(), progress)
            try:
                if isinstance(log, VerdictLog):
                    run.resume_shards(resume=resume, is_sharded=engine is not None)
                if engine is None:
                    await run.judge(chain(first, items), concurrency)
                else:
                    await run.judge_shards(engine, output, concurrency, options)
            finally:
                tally.untranscribed += calls.lost if calls else 0
                tally.seconds = time.monotonic() - start
                tally.stopped = run.stop.is_set()
                tally.unknown_keys += reader.unknown
    return tally


def _engine(
    options: FileOptions, concurrency: int, output: str | os.PathLike[str]
) -> Engine | None:
    """Returns the engine that judges the shards of a run; None: this process judges everything."""
    processes, engine = options.get("processes", 1), options.get("engine")
    if engine is None:
        return Processes(min(processes, concurrency)) if min(processes, concurrency) > 1 else None
    expect_file(output, "verdicts of several machines")
    if processes > 1:
        raise UsageError(
            "processes: an engine has workers of its own; set their number in the engine's options",
            parameters=("engine", "processes"),
        )
    return make_engine(engine)


@dataclass(slots=True)
class _FileRun:
    """A run that judges files: its input and output."""

    evaluator: Evaluator
    log: VerdictLog | VerdictStream
    calls: TranscriptLog | None
    reader: TrajectoryReader
    tally: Tally
    stop: asyncio.Event
    progress: Callable[[Tally], None]

    def resume_shards(self, *, resume: bool, is_sharded: bool) -> None:
        """Takes over the results of an interrupted run in shards."""
        assert isinstance(self.log, VerdictLog)
        shards = Shards(self.log.path, self.evaluator.info)
        if is_sharded or shards.exists():
            gather_leftover(self.log, shards, self.calls, resume=resume)
            if not is_sharded:
                shards.end()

    async def judge(self, source: Iterable[tuple[str, Item]], concurrency: int) -> None:
        """Judges in this process."""

        def is_done(place: str, id: str, key: KeyMade) -> bool:
            if id != place:
                self.log.drop(place)
            if not self.log.done(id, key):
                return False
            self.tally.skipped += 1
            self._tell()
            return True

        def record(place: str, verdict: Verdict) -> None:
            self.log.append(verdict)
            self.tally.add(verdict)
            self._tell()

        def later() -> None:
            self.tally.pending += 1
            self._tell()

        at_once = concurrency + max(1, concurrency // 8)
        await judge_items(
            self.evaluator, source, at_once, self.stop, record, is_done, self.calls, later
        )

    async def judge_shards(
        self, engine: Engine, output: str | os.PathLike[str], concurrency: int, options: FileOptions
    ) -> None:
        """Runs the shards on an engine and collects their results."""
        tally, info = self.tally, self.evaluator.info
        run = ShardedRun(
            engine, self.evaluator, f"judge {info.name!r}", Shards(output, info), self.stop
        )
        folder, paths = str(run.shards.folder), tuple(os.fspath(path) for path in self.reader.paths)
        streams = [
            (path, str(run.shards.folder / f"{number}.stream"))
            for number, path in enumerate(paths)
            if is_stream(path)
        ]
        work = self._shard_work(folder, paths, tuple(streams), output, concurrency, options)

        def gather(line: bytes) -> None:
            self.log.append(verdict := _read_verdict(line))
            tally.add(verdict)
            tally.read = tally.skipped + tally.made
            self.progress(tally)

        def skipped(count: int) -> None:
            if count != tally.skipped:
                tally.skipped, tally.read = count, count + tally.made
                self.progress(tally)

        def note(end: ShardResult) -> None:
            for name in end.dropped:
                self.log.drop(name)
            tally.untranscribed += end.untranscribed
            tally.pending += end.pending
            tally.unknown_keys.update(end.unknown)
            tally.unsupported_params = list(
                dict.fromkeys([*tally.unsupported_params, *end.unsupported_params])
            )

        self.reader.unknown.clear()  # the shards count them
        await run.run_shards(work, gather, note, skipped, streams=streams)

    def _shard_work(
        self,
        folder: str,
        paths: tuple[str, ...],
        streams: tuple[tuple[str, str], ...],
        output: str | os.PathLike[str],
        concurrency: int,
        options: FileOptions,
    ) -> JudgeShard:
        transcripts = options.get("transcripts")
        return JudgeShard(
            folder=folder,
            directory=str(Path.cwd()),
            paths=paths,
            streams=streams,
            output=os.path.realpath(output) if isinstance(self.log, VerdictLog) else None,
            limit=options.get("limit"),
            shard=options.get("shard"),
            retry_unscored=options.get("retry_unscored", False),
            concurrency=concurrency,
            transcripts=None if transcripts is None else os.path.abspath(transcripts),
        )

    def _tell(self) -> None:
        self.tally.read = self.reader.read
        self.progress(self.tally)


def _concurrency(judge: Evaluator) -> int:
    return get_concurrency(judge) or CONCURRENCY


async def _stream(
    evaluator: Evaluator,
    source: Iterable[tuple[int, Item]],
    concurrency: int,
    log: TranscriptLog | None,
) -> AsyncGenerator[tuple[int, Verdict]]:
    ready: asyncio.Queue[tuple[int, Verdict] | None] = asyncio.Queue()
    stop, faults = asyncio.Event(), JudgeFaults()
    # Backpressure: the input is read only as fast as the verdicts are consumed.
    room, pending = asyncio.Semaphore(2 * concurrency), 0

    async def judge(trajectory: Trajectory) -> Verdict:
        nonlocal pending
        await room.acquire()
        with ExitStack() as without_verdict:
            without_verdict.callback(room.release)
            verdict = await keyed_verdict(evaluator, trajectory, faults=faults)
            without_verdict.pop_all()
        pending += 1
        return verdict

    def record(place: int, verdict: Verdict) -> None:
        ready.put_nowait((place, verdict))

    async def run() -> None:
        try:
            await judge_items(evaluator, source, concurrency, stop, record, log=log, judge=judge)
        finally:
            ready.put_nowait(None)

    running = asyncio.create_task(run())
    try:
        while (entry := await ready.get()) is not None:
            if pending:  # invalid lines are not judged
                pending -= 1
                room.release()
            yield entry
        await running
    finally:
        stop.set()
        running.cancel()


@dataclass(frozen=True, slots=True)
class Plan:
    """A dry run's result.

    `trajectories` would be judged, `done` already have a verdict, and `problems` are the inputs
    that cannot be used, with the reasons.
    """

    trajectories: int
    done: int
    problems: tuple[str, ...]
    usage: Usage


def plan_files(
    evaluator: Evaluator,
    paths: Sequence[str | os.PathLike[str]],
    estimate: Callable[[Trajectory], Usage] | None,
    limit: int | None = None,
    keys: Mapping[str, str] | None = None,
    shard: Shard | None = None,
) -> Plan:
    """Plans a run on trajectory files, or on a shard of them.

    `estimate` returns the usage of a verdict; None: unknown, counted as none. `keys` maps ids to
    keys of existing verdicts that stay valid.
    """
    count, done, problems, usage = 0, 0, [], Usage()
    with closing(TrajectoryReader(paths, limit, shard)) as reader:
        for place, item in reader:
            try:
                if isinstance(item, BadLine):
                    raise InputError(item.problem)
                if keys and keys.get(item.id) == make_key(evaluator, item):
                    done += 1
                    continue
                usage += estimate(item) if estimate else Usage()
                count += 1
            except InputError as error:
                problems.append(f"{place}: {error}")
    return Plan(count, done, tuple(problems), usage)


def lasting_keys(path: str | os.PathLike[str], *, retry_unscored: bool) -> dict[str, str]:
    """Returns id and key of a file's verdicts that a run would keep; empty if there is no file."""
    if (
        is_stdout(path)
        or is_stream(path)
        or not os.path.exists(path)
        or Path(path).stat().st_size == 0
    ):
        return {}
    return {
        v.id: v.key for v in read_verdicts(path) if lasts(v.unscored, retry_unscored=retry_unscored)
    }

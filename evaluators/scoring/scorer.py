"""Scoring of many trajectories with one judge, in memory or from files.

Runs on files can be resumed and stopped cleanly. `plan_files` determines what a run would need,
without any call.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from prill.datasets.inputs import iter_recordings
from prill.errors import InputError
from prill.evaluators.scoring.items import (
    JudgeFaults,
    KeyMade,
    judge_items,
    keyed_verdict,
    make_key,
    transcript_log,
)
from prill.evaluators.scoring.items import verdict_key as verdict_key  # re-exported
from prill.io.checks import checked_trajectories, expect_judge
from prill.io.lines import is_stream
from prill.io.outputs import check_output, is_stdout
from prill.io.shards import Shard
from prill.io.store import BadLine, Item, TrajectoryReader, read_verdicts
from prill.io.tables import Verdicts
from prill.io.verdict_log import lasts, open_log
from prill.protocols import Engine, Evaluator, get_concurrency, unsupported_params
from prill.types import Trajectory, Usage, Verdict
from prill.work.engines import make_engine
from prill.work.items import RunTally
from prill.work.remote import RemoteJudge, worked_by

CONCURRENCY = 16
R = TypeVar("R")


@dataclass(slots=True, kw_only=True)
class Tally(RunTally):
    """The progress of a run.

    `read` counts trajectories and invalid lines of the input, `skipped` those that are already in
    the file, and `soft` scores that are neither 0 nor 1. `untranscribed` counts the verdicts whose
    transcript could not be written. `pending` counts trajectories whose batch answers are pending.
    `fitted` counts verdicts by what the judge was fitted on. At the end, `unknown_keys` counts
    unknown keys of the input, and `unsupported_params` has the parameters that the models rejected.
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

    @property
    def state(self) -> tuple[Any, ...]:
        """Returns what a progress bar shows: the phase, the count, the total (None: not known), a
        note, and how many of the count an earlier run did.
        """
        unscored = f"{sum(self.unscored.values())} unscored"
        return "", self.skipped + self.made, None, f"{self.costs}, {unscored}", self.skipped

    def figures(self) -> dict[str, Any]:
        """Returns the counts as a JSON object."""
        return {
            "read": self.read,
            "skipped": self.skipped,
            "success": self.succeeded,
            "failure": self.failed,
            "unscored": dict(self.unscored),
            "usage": msgspec.to_builtins(self.usage),
        }

    def notes(self, output: str) -> Iterator[str]:
        """Yields the reasons for unscored verdicts, and the first of them in full."""
        if self.unscored:
            counts = (f"{reason} {count}" for reason, count in self.unscored.most_common())
            yield f"unscored: {', '.join(counts)}"
            yield from (f"  {problem}" for problem in self.problems[:10])
        if (more := sum(self.unscored.values()) - 10) > 0:
            yield f"  … and {more} more, with their reasons, in {output}"

    def __str__(self) -> str:
        unscored = f"{sum(self.unscored.values())} unscored"
        skipped = f"{self.skipped} already in the file"
        return f"{self.succeeded} success, {self.failed} failure, {unscored}, {skipped}"


async def judge_all(
    trajectories: Iterable[Item] | str | os.PathLike[str],
    judge: Evaluator,
    *,
    concurrency: int | None = None,
    transcripts: str | os.PathLike[str] | None = None,
) -> Verdicts:
    """Judges trajectories in memory, or those of one file, as `prill.score` documents.

    The default of `concurrency` is that of the judge's model. All items of a list are checked
    before the first is judged. Invalid lines (`BadLine`) become verdicts unscored with `input`. If
    the judge raised an exception, the reason contains its name, and its traceback is logged once.
    """
    expect_judge(judge)
    at_once = concurrency or _concurrency(judge)
    with transcript_log(transcripts) as log:
        verdicts, stop = dict[int, Verdict](), asyncio.Event()
        source, record = enumerate(_items(trajectories)), verdicts.__setitem__
        await judge_items(judge, source, at_once, stop, record, log=log)
    return Verdicts(verdicts[index] for index in sorted(verdicts))


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
    ready: asyncio.Queue[Verdict | None] = asyncio.Queue()
    stop, faults = asyncio.Event(), JudgeFaults()
    # Backpressure: the input is read only as fast as the verdicts are consumed.
    room, pending = asyncio.Semaphore(2 * at_once), 0

    async def make(trajectory: Trajectory) -> Verdict:
        nonlocal pending
        await room.acquire()
        with ExitStack() as without_verdict:
            without_verdict.callback(room.release)
            verdict = await keyed_verdict(judge, trajectory, faults=faults)
            without_verdict.pop_all()
        pending += 1
        return verdict

    def record(place: int, verdict: Verdict) -> None:
        ready.put_nowait(verdict)

    async def run() -> None:
        source = enumerate(_items(trajectories))
        try:
            with transcript_log(transcripts) as log:
                await judge_items(judge, source, at_once, stop, record, log=log, judge=make)
        finally:
            ready.put_nowait(None)

    running = asyncio.create_task(run())
    try:
        while (verdict := await ready.get()) is not None:
            if pending:  # invalid lines are not judged
                pending -= 1
                room.release()
            yield verdict
        await running
    finally:
        stop.set()
        running.cancel()


def _items(trajectories: Iterable[Item] | str | os.PathLike[str]) -> Iterable[Item]:
    if isinstance(trajectories, str | os.PathLike):
        return iter_recordings(trajectories, "yield")
    return checked_trajectories(trajectories, BadLine)


class FileOptions(TypedDict, total=False):
    """The options of `score_files`, which documents them."""

    concurrency: int | None
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
        progress: Called after every input.
        **options: `concurrency` (the maximum number of trajectories at a time; default: the
            concurrency of the judge's model), `engine` (workers of a cluster that judge instead, as
            a name or an object; `prill.work.engines`), `limit` (the maximum number of inputs,
            counted from the first), `shard` (judge only this shard), `resume` (keep the verdicts of
            the output; default True; False: rename the file to `.bak`), `retry_unscored` (judge
            unscored trajectories of the output again) and `transcripts` (a folder for transcripts
            of the model calls; if it cannot be written, verdicts are still made; default: no
            transcripts).

    Returns:
        The number of trajectories that succeeded, failed, were unscored and were skipped.

    Raises:
        UsageError: No trajectory could be read, or the output is an input or holds something else.
        EndpointError: The judge's model cannot be used at all.
    """
    expect_judge(judge)
    concurrency = options.get("concurrency") or _concurrency(judge)
    engine = make_engine(like) if (like := options.get("engine")) is not None else None
    tally, start, resume = Tally(), time.monotonic(), options.get("resume", True)
    stop = stop or asyncio.Event()

    def tell() -> None:
        tally.read = reader.read
        progress(tally)

    def is_done(at: tuple[int, str], id: str, key: KeyMade) -> bool:
        number, place = at
        if id != place:
            log.drop(place)
        if not log.done(id, key, number):
            return False
        tally.skipped += 1
        tell()
        return True

    def record(at: tuple[int, str], verdict: Verdict) -> None:
        log.append(verdict, at[0])
        tally.add(verdict)
        tell()

    def later() -> None:
        tally.pending += 1
        tell()

    with closing(TrajectoryReader(paths, options.get("limit"), options.get("shard"))) as reader:
        check_output(output, "verdicts", reader.paths, continued=resume)
        items = (((number, place), item) for number, (place, item) in enumerate(reader))
        # raises if there is nothing to judge, before the output is changed
        first = list(islice(items, 1))
        retry = options.get("retry_unscored", False)
        with (
            open_log(output, judge.info, resume=resume, retry_unscored=retry) as log,
            transcript_log(options.get("transcripts"), resume=resume) as calls,
        ):
            try:
                async with worked_by(engine, judge, RemoteJudge) as judge:
                    source, at_once = chain(first, items), concurrency + max(1, concurrency // 8)
                    await judge_items(judge, source, at_once, stop, record, is_done, calls, later)
                log.finished = not stop.is_set()
            finally:
                tally.untranscribed += calls.lost if calls else 0
                tally.seconds = time.monotonic() - start
                tally.stopped = stop.is_set()
                tally.unknown_keys += reader.unknown
                tally.unsupported_params = unsupported_params(judge)
    return tally


def _concurrency(judge: Evaluator) -> int:
    return get_concurrency(judge) or CONCURRENCY


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

"""Judging by the workers of an engine: what one of them does with a part, and the run that hands parts out."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from prill.errors import PrillError
from prill.io.store import BadLine, Item
from prill.io.verdict_log import VerdictLog
from prill.protocols import Engine, Evaluator, unsupported_params
from prill.scoring.items import KeyMade, bad_key, bad_verdict, judge_items, key_of, transcript_log
from prill.scoring.parts import (
    Ended,
    Place,
    Shards,
    StopFile,
    attempt,
    in_parts,
    pack,
    places,
    read_part,
    read_places,
    shard_of,
    unpacked_here,
    whole_lines,
    work_off,
)
from prill.scoring.process import Setup
from prill.scoring.seats import Share
from prill.transcripts.files import TranscriptLog, read_transcripts
from prill.types import EvaluatorInfo, Verdict


@dataclass(frozen=True, slots=True)
class JudgePart:
    """What a worker of an engine does: judges a part into its shard."""

    judge: Setup
    folder: str
    at_once: int
    transcribed: bool

    async def __call__(self, part: bytes) -> bytes:
        """Judges what the part's shard does not hold already."""
        todo = read_part(part)
        ended, known = Ended(todo.number), {place.name: place.known for place in todo.places}
        shard = shard_of(self.folder, todo.number)

        def is_done(place: str, id: str, key: KeyMade) -> bool:
            if known[place] and known[place] == key():
                ended.skipped += 1
                return True
            return log.done(id, key)

        def record(place: str, verdict: Verdict) -> None:
            log.append(verdict)

        try:
            judge: Evaluator = unpacked_here(self.judge)
            attempt(self.folder, todo.number)
            with (
                VerdictLog(shard, judge.info) as log,
                transcript_log(shard.with_suffix("") if self.transcribed else None) as calls,
            ):
                await judge_items(judge, read_places(todo.places), self.at_once, StopFile(self.folder), record, is_done, calls)
                ended.untranscribed = calls.lost if calls else 0
            ended.lessons = unsupported_params(judge)
        except PrillError as error:
            ended.error = pickle.dumps(error)
        return msgspec.msgpack.encode(ended)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A run whose trajectories are judged by the workers of an engine."""

    evaluator: Evaluator
    concurrency: int
    log: VerdictLog
    calls: TranscriptLog | None
    record: Callable[[str, Verdict], None]
    is_done: Callable[[str, str, KeyMade], bool]
    stop: asyncio.Event
    resume: bool

    async def judge(
        self,
        engine: Engine,
        source: Iterable[tuple[str, Item]],
        paths: Sequence[str | os.PathLike[str]],
        note: Callable[[Ended], None],
    ) -> None:
        """Gathers what an earlier run has left, then has judged what is missing. `note` is told of each part that has ended.

        What workers have finished is gathered also where this raises.
        """
        evaluator, shards = self.evaluator, gather_left_over(self.log, self.evaluator.info, self.calls, resume=self.resume)
        todo: list[bytes] = []
        for part in in_parts(self._missing(source, paths), "places"):
            todo.append(part)
            await asyncio.sleep(0)  # Ctrl-C is heard

        def work(workers: int) -> JudgePart:
            share = Share(workers).share(self.concurrency)
            packed = pack(evaluator, f"judge {evaluator.info.name!r}", workers)
            return JudgePart(packed, str(shards.folder), share + max(1, share // 8), self.calls is not None)

        def gather(shard: Path) -> None:
            _gather(shard, self.calls, lambda verdict: self.record(verdict.id, verdict))

        await work_off(engine, work, todo, shards, self.stop, gather, note)

    def _missing(self, source: Iterable[tuple[str, Item]], paths: Sequence[str | os.PathLike[str]]) -> Iterator[Place]:
        """Where those trajectories are that may have to be judged. Whether one with pictures has its verdict already, the
        workers find out: what there is to read is theirs to read."""
        for name, item, place in places(source, paths):
            if self.stop.is_set():
                return
            if isinstance(item, BadLine):
                key = partial(bad_key, self.evaluator.info, item)
                if not self.is_done(name, item.id, key):
                    self.record(name, bad_verdict(self.evaluator.info, item, key()))
                continue
            assert place is not None
            known, pictures = self.log.lasting_key(item.id), self.evaluator.screenshots(item)
            if known is not None and not pictures and self.is_done(name, item.id, partial(key_of, self.evaluator, item)):
                continue
            if item.id != name:
                self.log.drop(name)  # a line could not be read before, and now it can
            yield replace(place, known=known or "")


def gather_left_over(log: VerdictLog, maker: EvaluatorInfo, calls: TranscriptLog | None, *, resume: bool) -> Shards:
    """Takes into the log what a run by an engine has left that broke off. Raises UsageError as `Shards.left_over` does."""
    shards = Shards(log.path, maker)
    for shard in shards.left_over(resume=resume):
        _gather(shard, calls, log.append)
    return shards


def _gather(shard: Path, calls: TranscriptLog | None, take: Callable[[Verdict], None]) -> None:
    """Moves what a shard holds into the output, transcripts first."""
    folder = shard.with_suffix("")
    if calls is not None and folder.exists():
        for transcript in read_transcripts(folder):
            calls.append(transcript)
        shutil.rmtree(folder)
    for line in whole_lines(shard):
        take(msgspec.json.decode(line, type=Verdict))

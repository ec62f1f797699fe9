"""Shards of a long run: what each process judges, and how the results are gathered.

A shard is a run of its own over the same input files. It takes every N-th line, passes over what
the output holds already, and writes its records to a file of its own, of the same kind as the
output, in a folder beside that. Whoever takes the place of a process that died resumes its shard,
so nothing is judged twice. The run reads the shards as they grow, and appends what they hold to the
output; what a run that broke off has left is gathered by the next one.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, closing, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from prill.config.registry import load_file, loaded_files
from prill.errors import PrillError, UsageError
from prill.io.cache import scratch_database
from prill.io.lines import adopt_stream, is_stream, read_lines, save_stream
from prill.io.outputs import is_stdout, write_output
from prill.io.shards import Packing, Shard, packing_for
from prill.io.store import TrajectoryReader
from prill.io.verdict_log import RETRIED, Logged, VerdictLog
from prill.protocols import Engine, Evaluator, Work, unsupported_params
from prill.scoring.items import KeyMade, judge_items, transcript_log
from prill.temporary.folders import TempFolder
from prill.transcripts.files import TranscriptLog, read_transcripts
from prill.types import EvaluatorInfo, Usage, Verdict

# What pickle raises for what cannot be pickled, or be made again from a pickle.
UNPICKLABLE = (
    pickle.PickleError,
    TypeError,
    AttributeError,
    ValueError,
    LookupError,
    RecursionError,
)
_FORMAT = "prill shards 1"
_MANIFEST, _STOP, _SKIPPED = "manifest.json", "stop", ".skipped"
_STOP_EVERY = 0.5  # seconds between two looks for the file that says stop
_GATHER_EVERY = 0.2  # seconds between two looks at what shards hold
_TELL_EVERY = 256  # trajectories that are passed over between two times that a shard tells how many


class Setup(msgspec.Struct, frozen=True):
    """A judge or a captioner, pickled, and the files of those modules of it that are no part of any
    package.
    """

    name: str
    pickled: bytes
    files: tuple[bytes, ...]


class Part(msgspec.Struct, frozen=True):
    """What a worker gets: which shard of how many, who judges or captions, and the pictures to
    caption.
    """

    number: int
    count: int
    setup: Setup
    pictures: tuple[str, ...] = ()

    @property
    def shard(self) -> Shard:
        """The shard; its number is from 1."""
        return Shard(self.number + 1, self.count)


@dataclass(slots=True)
class Ended:
    """What came of a shard, beside its file. `skipped` needed no work, `pending` have no answer
    yet, `unknown` counts keys that no record has; `unreadable`: what is wrong with pictures;
    `dropped`: names of lines that could not be read before and now can; `error`: what ends the run,
    pickled.
    """

    number: int
    skipped: int = 0
    pending: int = 0
    untranscribed: int = 0
    usage: Usage = field(default_factory=Usage)
    unknown: dict[str, int] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    lessons: list[str] = field(default_factory=list)
    error: bytes = b""

    def fail(self, error: Exception, folder: str) -> None:
        """Notes what ends the run, and lets no worker begin anything more."""
        self.error = pickle.dumps(error)
        _stop(folder)


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What the shards of a folder are of."""

    maker: EvaluatorInfo | str
    output: str
    parts: int = 0
    format: str = _FORMAT


def read_part(data: bytes) -> Part:
    """The part that a worker is given."""
    return msgspec.msgpack.decode(data, type=Part)


def failed(part: bytes, error: PrillError) -> bytes:
    """What came of a part that nobody could finish."""
    return msgspec.msgpack.encode(Ended(read_part(part).number, error=pickle.dumps(error)))


def pack(thing: Any, name: str, packing: Packing) -> Setup:
    """The judge, or the captioner, for one shard. Raises UsageError for what cannot be pickled."""
    try:
        with packing_for(packing):
            return Setup(
                name, pickle.dumps(thing), tuple(os.fsencode(file) for file in loaded_files())
            )
    except UNPICKLABLE as error:
        raise _unfit(name, str(error)) from None


@lru_cache(4)
def unpacked(setup: Setup) -> Any:
    """What was packed: made once in each worker, so that its shards share connections and limits.
    Raises UsageError.
    """
    try:
        for file in setup.files:
            load_file(Path(os.fsdecode(file)))
        return pickle.loads(setup.pickled)
    except (*UNPICKLABLE, ImportError) as error:
        raise _unfit(setup.name, f"{type(error).__name__}: {error}") from None


def _unfit(name: str, problem: str) -> UsageError:
    return UsageError(
        f"{name} cannot be handed to other processes ({problem}); do it in one process, or make "
        "it of classes and functions "
        "that stand in a module, which each machine needs",
        parameters=("processes", "engine"),
    )


class Shards:
    """The folder of a run's shards, beside its output; of an output that goes through a pipe, a
    temporary one.
    """

    def __init__(self, output: str | os.PathLike[str], maker: EvaluatorInfo | str) -> None:
        self._temporary = (
            TempFolder("prill-shards-") if is_stdout(output) or is_stream(output) else None
        )
        target = (
            self._temporary.path / "output" if self._temporary else Path(os.path.realpath(output))
        )
        self.folder = target.with_name(target.name + ".shards")
        self._manifest = _Manifest(maker, target.name)

    def left_over(self, *, resume: bool = True) -> list[Path]:
        """The shards that an earlier run has left; without `resume` they get the ending `.bak`.

        Raises UsageError when they are of another judge, or nothing of ours.
        """
        if not self.folder.exists() or self._is_remains():
            return []
        if not resume:
            endings = (".bak" if number == 1 else f".bak{number}" for number in count(1))
            names = (self.folder.with_name(self.folder.name + ending) for ending in endings)
            self.folder.rename(next(name for name in names if not os.path.lexists(name)))
            return []
        try:
            there = msgspec.json.decode((self.folder / _MANIFEST).read_bytes(), type=_Manifest)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise UsageError(
                f"{self.folder}: is in the way, and no folder of shards; move it, or choose "
                "another output"
            ) from None
        if there.maker != self._manifest.maker:
            raise UsageError(
                f"{self.folder} holds shards of another judge, of a run that broke off; choose "
                "another output, or remove it",
                parameters=("output",),
            )
        return sorted(shard for shard in self.folder.glob("*.jsonl") if shard.stat().st_size)

    def is_there(self) -> bool:
        """Whether a run of ours has left a folder. What else has that name is in the way of runs in
        shards alone.
        """
        return (self.folder / _MANIFEST).exists()

    def _is_remains(self) -> bool:
        """Whether a run was killed while it made the folder, or removed it: no manifest, and no
        shard.
        """
        names = (
            [file.name for file in self.folder.iterdir()] if self.folder.is_dir() else ["a file"]
        )
        return all(
            name == _STOP or name.endswith((".attempts", ".part", _SKIPPED)) for name in names
        )

    def begin(self) -> None:
        """An empty folder."""
        self._clear()
        self.folder.mkdir(parents=True)
        write_output(self.folder / _MANIFEST, msgspec.json.encode(self._manifest) + b"\n")

    def stop(self) -> None:
        """Lets all workers begin nothing more."""
        _stop(self.folder)

    def end(self) -> None:
        """Removes the folder."""
        self._clear()
        if self._temporary is not None:
            self._temporary.close()
            self._temporary = None

    def _clear(self) -> None:
        """Removes what says whose the folder is last: where this is cut short, the next run goes
        on.
        """
        if self.folder.exists():
            for name in {file.name for file in self.folder.iterdir()} - {_MANIFEST}:
                path = self.folder / name
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            shutil.rmtree(self.folder)


def _stop(folder: str | os.PathLike[str]) -> None:
    with suppress(FileNotFoundError):
        (Path(folder) / _STOP).touch()


def shard_path(folder: str | os.PathLike[str], number: int) -> Path:
    """The file of a shard, from 0."""
    return Path(folder) / f"{number:06}.jsonl"


class StopFile:
    """An event that the run sets for all of its workers; setting it here is for this worker
    alone.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = Path(folder) / _STOP
        self._is_set = False
        self._looked = 0.0

    def is_set(self) -> bool:
        """Whether nothing more is to be begun."""
        if not self._is_set and time.monotonic() - self._looked > _STOP_EVERY:
            self._is_set, self._looked = os.path.exists(self._path), time.monotonic()
        return self._is_set

    def set(self) -> None:
        """Begins nothing more in this shard."""
        self._is_set = True


class _Growing:
    """The file of a shard while a worker appends to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0

    def lines(self) -> Iterator[bytes]:
        """The whole lines that it has got since this was asked before."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._end)
            for line in file:
                if not line.endswith(b"\n"):  # somebody is writing it, or died while he did
                    return
                self._end += len(line)
                yield line

    def skipped(self) -> int:
        """How many trajectories the worker says that it has passed over."""
        try:
            return int(self.path.with_suffix(_SKIPPED).read_text())
        except (OSError, ValueError):  # it is written just now
            return 0


class _Known:
    """What need not be judged: ids and keys of the output's verdicts, and of those of the shard, in
    a temporary database.
    """

    def __init__(self, output: str | None, shard: Path, *, retry_unscored: bool) -> None:
        self._database = scratch_database(self)
        self._database.execute(
            "CREATE TABLE known (id TEXT PRIMARY KEY, key TEXT, here INT) WITHOUT ROWID"
        )
        if output is not None:
            self._add(
                output,
                lambda e: e.unscored is None or not (retry_unscored or e.unscored in RETRIED),
                here=False,
            )
        self._add(shard, lambda entry: True, here=True)
        self._is_empty = not self._database.total_changes

    def _add(self, path: str | Path, lasts: Callable[[_Entry], bool], *, here: bool) -> None:
        if os.path.exists(path):
            rows = (
                (e.id, e.key, here)
                for line in read_lines(path)
                if line.complete and lasts(e := _entry(line.data))
            )
            self._database.executemany("INSERT OR REPLACE INTO known VALUES (?, ?, ?)", rows)

    def find(self, id: str) -> tuple[str, bool]:
        """The key of its verdict, and whether the shard holds it; without a verdict an empty
        key.
        """
        if self._is_empty:
            return "", False
        row = self._database.execute("SELECT key, here FROM known WHERE id = ?", (id,)).fetchone()
        return ("", False) if row is None else (row[0], bool(row[1]))

    def close(self) -> None:
        """Drops the temporary database."""
        self._database.close()


class _Entry(msgspec.Struct):
    id: str
    key: str = ""
    unscored: str | None = None


_entry = msgspec.json.Decoder(_Entry).decode


@dataclass(frozen=True, slots=True)
class JudgeShard:
    """What a worker does: it judges its shard of some files. `streams` says where pipes among them
    are saved; `output` is the verdict file that is there already.
    """

    folder: str
    directory: str
    paths: tuple[str, ...]
    streams: tuple[tuple[str, str], ...]
    output: str | None
    limit: int | None
    shard: Shard | None
    retry_unscored: bool
    concurrency: int
    transcripts: str | None

    async def __call__(self, part: bytes) -> bytes:
        """Judges what neither the output nor the shard's file holds."""
        todo = read_part(part)
        ended = Ended(todo.number)
        try:
            with suppress(OSError):
                os.chdir(self.directory)  # paths may be relative to it
            for name, copy in self.streams:
                adopt_stream(name, copy)
            await self._judge(todo, ended)
        except PrillError as error:
            ended.fail(error, self.folder)
        except asyncio.CancelledError:  # the judge did that itself
            ended.fail(
                RuntimeError("the judge was cancelled while it was at a trajectory"), self.folder
            )
        return msgspec.msgpack.encode(ended)

    async def _judge(self, todo: Part, ended: Ended) -> None:
        judge: Evaluator = unpacked(todo.setup)
        path, at_once = shard_path(self.folder, todo.number), todo.shard.share(self.concurrency)
        with ExitStack() as stack:
            known = stack.enter_context(
                closing(_Known(self.output, path, retry_unscored=self.retry_unscored))
            )
            reader = stack.enter_context(
                closing(TrajectoryReader(self.paths, self.limit, self.shard, todo.shard))
            )
            log = stack.enter_context(VerdictLog(path, judge.info))
            calls = stack.enter_context(transcript_log(self.transcripts))

            def is_done(place: str, id: str, key: KeyMade) -> bool:
                if id != place and known.find(place)[0]:
                    ended.dropped.append(place)
                there, is_here = known.find(id)
                if not there or there != key():
                    return False
                ended.skipped += not is_here
                if ended.skipped % _TELL_EVERY == 0:
                    path.with_suffix(_SKIPPED).write_text(str(ended.skipped))
                return True

            def record(place: str, verdict: Verdict) -> None:
                log.append(verdict)

            def later() -> None:
                ended.pending += 1

            at_a_time = at_once + max(1, at_once // 8)
            await judge_items(
                judge, iter(reader), at_a_time, StopFile(self.folder), record, is_done, calls, later
            )
            ended.untranscribed, ended.unknown = calls.lost if calls else 0, dict(reader.unknown)
        ended.lessons = unsupported_params(judge)


def gather_left_over(
    log: VerdictLog, shards: Shards, calls: TranscriptLog | None, *, resume: bool
) -> None:
    """Takes into the log what a run in shards has left that broke off. Raises UsageError as
    `Shards.left_over` does.
    """
    for shard in shards.left_over(resume=resume):
        folder = shard.with_suffix("")
        # of an older version: now they go to their folder at once
        if calls is not None and folder.exists():
            for transcript in read_transcripts(folder):
                calls.append(transcript)
            shutil.rmtree(folder)
        for line in _Growing(shard).lines():
            take_once(log, msgspec.json.decode(line, type=Verdict))


def take_once(log: VerdictLog, record: Logged) -> None:
    """Appends what was left over, unless the run that broke off had gathered it."""
    if log.lasting_key(record.id) != record.key:
        log.append(record)


@dataclass(slots=True)
class ShardedRun:
    """A run whose shards are judged, or captioned, by the workers of an engine."""

    engine: Engine
    thing: Any
    name: str
    shards: Shards
    stop: asyncio.Event

    async def work_off(
        self,
        work: Work,
        gather: Callable[[bytes], None],
        note: Callable[[Ended], None],
        skipped: Callable[[int], None] = lambda count: None,
        pictures: Sequence[str] | None = None,
        streams: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Has all shards done, or as much as is begun before `stop` is set.

        `gather` gets each line of a shard soon after it was written, `skipped` the number of
        trajectories passed over, `note` what came of each shard. What workers have finished is
        gathered also where this raises: what a worker raised is raised here when the others have
        ended. The engine is closed in the end.
        """
        shards, files, ended = self.shards, list[_Growing](), Counter[int]()
        shards.begin()
        budgets: list[Any] = []

        def parts(workers: int) -> list[bytes]:
            found = []
            for number in range(workers):
                packing = Packing(Shard(number + 1, workers), shards.folder, budgets)
                some = () if pictures is None else tuple(pictures[number::workers])
                found.append(
                    msgspec.msgpack.encode(
                        Part(number, workers, pack(self.thing, self.name, packing), some)
                    )
                )
                files.append(_Growing(shard_path(shards.folder, number)))
            return found

        def look() -> None:
            for file in files:
                for line in file.lines():
                    gather(line)
            skipped(
                sum(
                    ended[number] if number in ended else file.skipped()
                    for number, file in enumerate(files)
                )
            )

        try:
            for name, copy in streams:
                save_stream(name, Path(copy))
            if not self.stop.is_set():
                async with aclosing(self._ends(work, parts)) as ends:
                    async for end in ends:
                        if end is not None:
                            ended[end.number] = end.skipped
                        look()
                        if end is not None:
                            note(end)
        finally:
            look()
            for budget in budgets:
                budget.take_back()
            shards.end()

    async def _ends(
        self, work: Work, make_parts: Callable[[int], Sequence[bytes]]
    ) -> AsyncGenerator[Ended | None]:
        """What came of each shard, as it ends; None every now and then."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()
        executor, is_over, engine = ThreadPoolExecutor(1), threading.Event(), self.engine

        def run() -> None:
            workers = engine.start()
            if is_over.is_set():
                engine.close()  # given up while it started: there was nothing to close yet
            elif not self.stop.is_set():
                for done in engine.run(work, make_parts(workers)):
                    loop.call_soon_threadsafe(queue.put_nowait, done)

        async def pass_on() -> None:
            await self.stop.wait()
            self.shards.stop()

        passing_on = asyncio.create_task(pass_on())
        running = loop.run_in_executor(executor, run)
        running.add_done_callback(lambda _: queue.put_nowait(None))
        failure = None
        try:
            while True:
                try:
                    data = await asyncio.wait_for(queue.get(), _GATHER_EVERY)
                except TimeoutError:
                    yield None
                    continue
                if data is None:
                    break
                ended = msgspec.msgpack.decode(data, type=Ended)
                if ended.error:
                    failure = failure or pickle.loads(ended.error)
                    self.shards.stop()
                yield ended
            await running
            if failure is not None:
                raise failure
        finally:
            passing_on.cancel()
            is_over.set()
            running.cancel()  # where it still runs, its end is told to nobody
            engine.close()
            executor.shutdown(wait=False)

"""Shards of a long run: the work of each process, and how the results are collected.

A shard is a run of its own over the same input files. It judges every N-th line, skips what the
output already contains, and writes to its own file, of the same kind as the output, in a folder
next to it. A process that replaces a dead one resumes its shard, so nothing is judged twice. The
run reads the shard files while they grow and appends their records to the output. Records left by
an interrupted run are collected by the next one.
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
from pathlib import Path
from typing import Any

import msgspec

from prill.config.registry import load_file, loaded_files
from prill.errors import PrillError, UsageError
from prill.io.cache import scratch_database
from prill.io.lines import UNREADABLE, adopt_stream, is_stream, read_lines, save_stream
from prill.io.outputs import backup_path, is_stdout, write_output
from prill.io.shards import Packing, Shard, packing_for
from prill.io.store import TrajectoryReader
from prill.io.verdict_log import Logged, VerdictLog, lasts
from prill.protocols import Engine, Evaluator, Work, unsupported_params
from prill.scoring.items import KeyMade, judge_items, transcript_log
from prill.temporary import TempFolder
from prill.transcripts.files import TranscriptLog, read_transcripts
from prill.types import EvaluatorInfo, Usage, Verdict

# Exceptions of pickle for objects that cannot be pickled or unpickled.
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
_STOP_EVERY = 0.5  # seconds between checks for the stop file
_GATHER_EVERY = 0.2  # seconds between reads of the shard files
_TELL_EVERY = 256  # a shard reports its number of skipped trajectories at this interval


class Setup(msgspec.Struct, frozen=True):
    """A pickled judge or captioner, and the files of its modules that belong to no package."""

    name: str
    pickled: bytes
    files: tuple[bytes, ...]


class ShardTask(msgspec.Struct, frozen=True):
    """A worker's input: shard, judge or captioner, and images."""

    number: int
    count: int
    setup: Setup
    pictures: tuple[str, ...] = ()

    @property
    def shard(self) -> Shard:
        """Returns the shard; its number starts at 1."""
        return Shard(self.number + 1, self.count)


@dataclass(slots=True)
class ShardResult:
    """The result of a shard besides its file.

    `skipped` counts trajectories that needed no work, `pending` those with pending answers, and
    `unknown` unknown keys. `unreadable` are problems of images. `dropped` are names of lines that
    were unreadable before and are readable now. `error` is the pickled exception that ends the run.
    """

    number: int
    skipped: int = 0
    pending: int = 0
    untranscribed: int = 0
    usage: Usage = field(default_factory=Usage)
    unknown: dict[str, int] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    unsupported_params: list[str] = field(default_factory=list)
    error: bytes = b""

    def fail(self, error: Exception, folder: str) -> None:
        """Stores the exception that ends the run, and stops all workers from starting further
        items.
        """
        self.error = pickle.dumps(error)
        _stop(folder)


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The judge or captioner that the shards of a folder belong to."""

    maker: EvaluatorInfo | str
    output: str
    parts: int = 0
    format: str = _FORMAT


def read_part(data: bytes) -> ShardTask:
    """Decodes a worker's input."""
    return msgspec.msgpack.decode(data, type=ShardTask)


def failed(part: bytes, error: PrillError) -> bytes:
    """Returns the result of a shard that no worker could finish."""
    return msgspec.msgpack.encode(ShardResult(read_part(part).number, error=pickle.dumps(error)))


def pack(thing: Any, name: str, packing: Packing) -> Setup:
    """Pickles the judge or captioner for one shard. Raises UsageError if it cannot be pickled."""
    try:
        with packing_for(packing):
            return Setup(
                name, pickle.dumps(thing), tuple(os.fsencode(file) for file in loaded_files())
            )
    except UNPICKLABLE as error:
        raise _unfit(name, str(error)) from None


@lru_cache(4)
def unpack(setup: Setup) -> Any:
    """Unpickles a judge or captioner.

    This happens once per worker, so that its shards share connections and limits. Raises
    UsageError.
    """
    try:
        for file in setup.files:
            load_file(Path(os.fsdecode(file)))
        return pickle.loads(setup.pickled)
    except (*UNPICKLABLE, ImportError) as error:
        raise _unfit(setup.name, f"{type(error).__name__}: {error}") from None


def _unfit(name: str, problem: str) -> UsageError:
    return UsageError(
        f"{name} cannot be sent to other processes ({problem}); use one process, or build "
        "it from classes and functions of an importable module",
        parameters=("processes", "engine"),
    )


class Shards:
    """The folder of a run's shards, next to its output; for a pipe, a temporary folder."""

    def __init__(self, output: str | os.PathLike[str], maker: EvaluatorInfo | str) -> None:
        self._temporary = (
            TempFolder("prill-shards-") if is_stdout(output) or is_stream(output) else None
        )
        target = (
            self._temporary.path / "output" if self._temporary else Path(os.path.realpath(output))
        )
        self.folder = target.with_name(target.name + ".shards")
        self._manifest = _Manifest(maker, target.name)

    def leftover_shards(self, *, resume: bool = True) -> list[Path]:
        """Returns the shards that an earlier run left; without `resume`, they are renamed to
        `.bak`.

        Raises UsageError if they belong to another judge, or if the folder has other content.
        """
        if not self.folder.exists() or self._is_remains():
            return []
        if not resume:
            self.folder.rename(backup_path(self.folder))
            return []
        try:
            there = msgspec.json.decode((self.folder / _MANIFEST).read_bytes(), type=_Manifest)
        except (OSError, *UNREADABLE):
            raise UsageError(
                f"{self.folder}: exists but is not a folder of shards; move it, or choose "
                "another output"
            ) from None
        if there.maker != self._manifest.maker:
            raise UsageError(
                f"{self.folder}: contains shards of another judge, from an interrupted run; "
                "choose another output, or delete it",
                parameters=("output",),
            )
        return sorted(shard for shard in self.folder.glob("*.jsonl") if shard.stat().st_size)

    def exists(self) -> bool:
        """Returns whether an earlier run left a folder.

        Other files of that name only prevent runs in shards.
        """
        return (self.folder / _MANIFEST).exists()

    def _is_remains(self) -> bool:
        """Returns whether a run was killed while creating or removing the folder.

        The folder then contains neither a manifest nor a shard.
        """
        names = (
            [file.name for file in self.folder.iterdir()] if self.folder.is_dir() else ["a file"]
        )
        return all(
            name == _STOP or name.endswith((".attempts", ".part", _SKIPPED)) for name in names
        )

    def begin(self) -> None:
        """Creates an empty folder."""
        self._clear()
        self.folder.mkdir(parents=True)
        write_output(self.folder / _MANIFEST, msgspec.json.encode(self._manifest) + b"\n")

    def stop(self) -> None:
        """Stops all workers from starting further items."""
        _stop(self.folder)

    def end(self) -> None:
        """Deletes the folder."""
        self._clear()
        if self._temporary is not None:
            self._temporary.close()
            self._temporary = None

    def _clear(self) -> None:
        """Deletes the folder's content, with the manifest last, so that the next run can continue
        an interrupted deletion.
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
    """Returns the file of a shard, numbered from 0."""
    return Path(folder) / f"{number:06}.jsonl"


class StopFile:
    """An event that the run sets for all workers; setting it in a worker only affects that
    worker.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = Path(folder) / _STOP
        self._is_set = False
        self._looked = 0.0

    def is_set(self) -> bool:
        """Returns whether no further items should be started."""
        if not self._is_set and time.monotonic() - self._looked > _STOP_EVERY:
            self._is_set, self._looked = os.path.exists(self._path), time.monotonic()
        return self._is_set

    def set(self) -> None:
        """Stops this shard from starting further items."""
        self._is_set = True


class _Growing:
    """The file of a shard while a worker appends to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0

    def lines(self) -> Iterator[bytes]:
        """Yields the complete lines that were added since the last call."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._end)
            for line in file:
                if not line.endswith(
                    b"\n"
                ):  # an unfinished line: its writer is still writing, or has died
                    return
                self._end += len(line)
                yield line

    def skipped(self) -> int:
        """Returns the worker's reported number of skipped trajectories."""
        try:
            return int(self.path.with_suffix(_SKIPPED).read_text())
        except (OSError, ValueError):  # it is being written
            return 0


class _KnownVerdicts:
    """Ids and keys of the existing verdicts of the output and the shard, in a temporary
    database.
    """

    def __init__(self, output: str | None, shard: Path, *, retry_unscored: bool) -> None:
        self._database = scratch_database(self)
        self._database.execute(
            "CREATE TABLE known (id TEXT PRIMARY KEY, key TEXT, here INT) WITHOUT ROWID"
        )
        if output is not None:
            self._add(
                output, lambda e: lasts(e.unscored, retry_unscored=retry_unscored), here=False
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
        """Returns the key of an id's verdict (or an empty text), and whether the shard contains
        it.
        """
        if self._is_empty:
            return "", False
        row = self._database.execute("SELECT key, here FROM known WHERE id = ?", (id,)).fetchone()
        return ("", False) if row is None else (row[0], bool(row[1]))

    def close(self) -> None:
        """Deletes the temporary database."""
        self._database.close()


class _Entry(msgspec.Struct):
    id: str
    key: str = ""
    unscored: str | None = None


_entry = msgspec.json.Decoder(_Entry).decode


@dataclass(frozen=True, slots=True)
class JudgeShard:
    """The work of a worker that judges its shard of some files.

    `streams` maps pipes among them to saved copies. `output` is the existing verdict file.
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
        """Judges the trajectories that neither the output nor the shard's file contains."""
        todo = read_part(part)
        ended = ShardResult(todo.number)
        try:
            with suppress(OSError):
                os.chdir(self.directory)  # paths may be relative to it
            for name, copy in self.streams:
                adopt_stream(name, copy)
            await self._judge(todo, ended)
        except PrillError as error:
            ended.fail(error, self.folder)
        except asyncio.CancelledError:  # the judge raised it
            ended.fail(RuntimeError("the judge was cancelled during a trajectory"), self.folder)
        return msgspec.msgpack.encode(ended)

    async def _judge(self, todo: ShardTask, ended: ShardResult) -> None:
        judge: Evaluator = unpack(todo.setup)
        path, at_once = shard_path(self.folder, todo.number), todo.shard.share(self.concurrency)
        with ExitStack() as stack:
            known = stack.enter_context(
                closing(_KnownVerdicts(self.output, path, retry_unscored=self.retry_unscored))
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
        ended.unsupported_params = unsupported_params(judge)


def gather_leftover(
    log: VerdictLog, shards: Shards, calls: TranscriptLog | None, *, resume: bool
) -> None:
    """Appends the results of an interrupted run in shards to the log.

    Raises UsageError as `Shards.left_over` does.
    """
    for shard in shards.leftover_shards(resume=resume):
        folder = shard.with_suffix("")
        # written by an older version; transcripts now go directly to their folder
        if calls is not None and folder.exists():
            for transcript in read_transcripts(folder):
                calls.append(transcript)
            shutil.rmtree(folder)
        for line in _Growing(shard).lines():
            append_once(log, msgspec.json.decode(line, type=Verdict))


def append_once(log: VerdictLog, record: Logged) -> None:
    """Appends a left-over record, unless the interrupted run had already collected it."""
    if log.lasting_key(record.id) != record.key:
        log.append(record)


@dataclass(slots=True)
class ShardedRun:
    """A run whose shards are judged or captioned by the workers of an engine."""

    engine: Engine
    thing: Any
    name: str
    shards: Shards
    stop: asyncio.Event

    async def run_shards(
        self,
        work: Work,
        gather: Callable[[bytes], None],
        note: Callable[[ShardResult], None],
        skipped: Callable[[int], None] = lambda count: None,
        pictures: Sequence[str] | None = None,
        streams: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Runs all shards, or those that are started before `stop` is set.

        `gather` is called with each line of a shard soon after it was written, `skipped` with the
        number of skipped trajectories, and `note` with the result of each shard. If a worker
        raises, the exception is raised here after the other workers have ended, and finished
        records are still collected. The engine is closed at the end.
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
                        ShardTask(number, workers, pack(self.thing, self.name, packing), some)
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
                budget.collect_shards()
            shards.end()

    async def _ends(
        self, work: Work, make_parts: Callable[[int], Sequence[bytes]]
    ) -> AsyncGenerator[ShardResult | None]:
        """Yields the result of each shard when it ends, and None at regular intervals."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()
        executor, is_over, engine = ThreadPoolExecutor(1), threading.Event(), self.engine

        def run() -> None:
            workers = engine.start()
            if is_over.is_set():
                engine.close()  # cancelled during the start: nothing to close yet
            elif not self.stop.is_set():
                for done in engine.run(work, make_parts(workers)):
                    loop.call_soon_threadsafe(queue.put_nowait, done)

        async def stop_shards() -> None:
            await self.stop.wait()
            self.shards.stop()

        passing_on = asyncio.create_task(stop_shards())
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
                ended = msgspec.msgpack.decode(data, type=ShardResult)
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
            running.cancel()  # if it is still running, its result is discarded
            engine.close()
            executor.shutdown(wait=False)

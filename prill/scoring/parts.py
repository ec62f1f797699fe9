"""A long run in parts: what an engine hands to workers, the shards that they write, and what is gathered from these.

What travels is where trajectories stand (file, byte, length); each worker reads them itself. Each part has a shard of its own,
a file of the same kind as the run's output, in a folder beside that. A worker that takes over a part goes on in its shard, so
nothing is judged twice. Shards are gathered into the output as parts end; what a run that broke off has left is gathered by
the next one.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec

from prill.errors import InputError, PrillError, UsageError
from prill.io.lines import Line, folder_of, name_of, read_lines
from prill.io.outputs import write_output
from prill.io.store import BadLine, Item, decode_trajectory
from prill.protocols import Engine, Work
from prill.scoring.process import UNPICKLABLE, Setup, setup_of, unpacked
from prill.scoring.seats import Share, packing_for
from prill.types import EvaluatorInfo, Usage

PART = 256  # trajectories or pictures; those that a worker was at when it died are what may be asked twice
_MOST_LOSSES = 3  # as many workers may die with a part
_FORMAT = "prill shards 1"
_MANIFEST, _STOP = "manifest.json", "stop"
_STOP_EVERY = 0.5  # seconds between two looks for the file that says stop


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trajectory stands. `data` is its line, where that has no place in a file of its own: in an archive, say.

    `known` is the key of the verdict that is there already.
    """

    name: str
    path: str
    start: int
    size: int
    data: bytes = b""
    known: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What one worker gets at a time: trajectories by their places, or pictures by their paths."""

    number: int
    places: tuple[Place, ...] = ()
    pictures: tuple[str, ...] = ()


@dataclass(slots=True)
class Ended:
    """What came of a part, beside its shard. `skipped`: what needed no work; `unreadable`: what is wrong
    with files; `error`: what ends the run, pickled."""

    number: int
    skipped: int = 0
    untranscribed: int = 0
    usage: Usage = field(default_factory=Usage)
    unreadable: list[str] = field(default_factory=list)
    lessons: list[str] = field(default_factory=list)
    error: bytes = b""


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What the shards of a folder are of."""

    maker: EvaluatorInfo | str
    output: str
    parts: int
    format: str = _FORMAT


def places(
    items: Iterable[tuple[str, Item]], paths: Sequence[str | os.PathLike[str]]
) -> Iterator[tuple[str, Item, Place | None]]:
    """The items of some files as an `Intake` gives them, each with its place; None for a broken line."""
    lines = _lines(paths)
    for name, item in items:
        if isinstance(item, BadLine):
            yield name, item, None
            continue
        path, line = next((path, line) for path, line in lines if f"{name_of(path)}:{line.number}" == name)
        where = os.path.abspath(path)
        if line.start is None or not os.path.isfile(path):
            yield name, item, Place(name, str(folder_of(path) / "-"), 0, 0, line.data)
        else:
            yield name, item, Place(name, where, line.start, line.size)


def _lines(paths: Sequence[str | os.PathLike[str]]) -> Iterator[tuple[str | os.PathLike[str], Line]]:
    for path in paths:
        with suppress(InputError):  # the items tell of it
            for line in read_lines(path):
                yield path, line


def read_places(places: Iterable[Place]) -> Iterator[tuple[str, Item]]:
    """The trajectories, each with its name. One that is no longer as it was when it was looked for is a broken line."""
    for place in places:
        data = place.data
        try:
            if not data:
                with open(place.path, "rb") as file:
                    data = os.pread(file.fileno(), place.size, place.start).strip()
            yield place.name, decode_trajectory(data, folder_of(place.path))
        except (OSError, InputError) as error:
            yield place.name, BadLine(place.name, place.name, str(error), data)


def in_parts(things: Iterable[Any], kind: str, size: int = PART) -> Iterator[bytes]:
    """Parts of so many things each; `kind` is the field of Part that has them."""
    rest, number = iter(things), 0
    while some := tuple(islice(rest, size)):
        yield msgspec.msgpack.encode(Part(number, **{kind: some}))
        number += 1


def read_part(data: bytes) -> Part:
    """The part that a worker is given."""
    return msgspec.msgpack.decode(data, type=Part)


def pack(thing: Any, name: str, workers: int) -> Setup:
    """The judge, or the captioner, for one of so many workers. Raises UsageError for what cannot be pickled."""
    try:
        with packing_for(Share(workers)):
            return setup_of(thing)
    except UNPICKLABLE as error:
        raise UsageError(
            f"{name} cannot be handed to other processes ({error}); do without an engine, or make it of classes and functions "
            "that stand in a module",
            parameters=("engine",),
        ) from None


@lru_cache(4)
def unpacked_here(setup: Setup) -> Any:
    """What was packed: made once in each worker, so that its parts share connections and limits. Raises UsageError."""
    try:
        return unpacked(setup)
    except (*UNPICKLABLE, ImportError) as error:
        raise UsageError(
            f"a worker cannot make what it is given ({type(error).__name__}: {error}); each machine needs the same packages "
            "and files",
            parameters=("engine",),
        ) from None


class Shards:
    """The folder of a run's shards, beside its output."""

    def __init__(self, output: str | os.PathLike[str], maker: EvaluatorInfo | str) -> None:
        target = Path(os.path.realpath(output))
        self.folder = target.with_name(target.name + ".shards")
        self._manifest = _Manifest(maker, target.name, 0)

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
                f"{self.folder}: is in the way, and no folder of shards; move it, or choose another output"
            ) from None
        if there.maker != self._manifest.maker:
            raise UsageError(
                f"{self.folder} holds shards of another judge, of a run that broke off; choose another output, or remove it",
                parameters=("output",),
            )
        return sorted(shard for shard in self.folder.glob("*.jsonl") if shard.stat().st_size)

    def is_there(self) -> bool:
        """Whether a run of ours has left a folder. What else has that name is in the way of engines alone."""
        return (self.folder / _MANIFEST).exists()

    def _is_remains(self) -> bool:
        """Whether a run was killed while it made the folder, or removed it: no manifest, and no shard."""
        names = os.listdir(self.folder) if self.folder.is_dir() else ["a file"]
        return all(name == _STOP or name.endswith((".attempts", ".part")) for name in names)

    def begin(self, parts: int) -> None:
        """An empty folder for a run of so many parts."""
        self.end()
        self.folder.mkdir(parents=True)
        write_output(self.folder / _MANIFEST, msgspec.json.encode(replace(self._manifest, parts=parts)) + b"\n")

    def stop(self) -> None:
        """Lets all workers begin nothing more."""
        with suppress(FileNotFoundError):
            (self.folder / _STOP).touch()

    def end(self) -> None:
        """Removes the folder, and what says whose it is last: where this is cut short, the next run goes on."""
        if self.folder.exists():
            for name in set(os.listdir(self.folder)) - {_MANIFEST}:
                path = self.folder / name
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            shutil.rmtree(self.folder)


def shard_of(folder: str | os.PathLike[str], number: int) -> Path:
    """The shard of a part."""
    return Path(folder) / f"{number:06}.jsonl"


def attempt(folder: str | os.PathLike[str], number: int) -> None:
    """Notes that a worker begins a part. Raises PrillError where too many have died with it."""
    with open(shard_of(folder, number).with_suffix(".attempts"), "ab") as file:
        file.write(b".")
        losses = file.tell() - 1
    if losses >= _MOST_LOSSES:
        raise PrillError(f"{losses} workers died while they were at the same part ({shard_of(folder, number)})")


class StopFile:
    """An event that the run sets for all of its workers; setting it here is for this worker alone."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = os.path.join(folder, _STOP)
        self._is_set = False
        self._looked = 0.0

    def is_set(self) -> bool:
        """Whether nothing more is to be begun."""
        if not self._is_set and time.monotonic() - self._looked > _STOP_EVERY:
            self._is_set, self._looked = os.path.exists(self._path), time.monotonic()
        return self._is_set

    def set(self) -> None:
        """Begins nothing more in this part."""
        self._is_set = True


def whole_lines(shard: Path) -> Iterator[bytes]:
    """The lines of a shard; what a worker was writing when it died is none, and is done again."""
    if shard.exists():
        yield from (line.data for line in read_lines(shard) if line.complete)


async def work_off(
    engine: Engine,
    make_work: Callable[[int], Work],
    parts: Sequence[bytes],
    shards: Shards,
    stop: asyncio.Event,
    gather: Callable[[Path], None],
    note: Callable[[Ended], None],
) -> None:
    """Has all parts done, or as many as are begun before `stop` is set. `make_work` gets the number of workers.

    As a part ends, `gather` takes its shard, which is then removed, and `note` is told. What workers have finished is gathered
    also where this raises: what a worker raised is raised here when the others have ended. The engine is closed in the end.
    """
    shards.begin(len(parts))

    def take(shard: Path) -> None:
        gather(shard)
        shard.unlink(missing_ok=True)

    try:
        if parts and not stop.is_set():
            async with aclosing(_ends(engine, make_work, parts, shards, stop)) as ends:
                async for ended in ends:
                    take(shard_of(shards.folder, ended.number))
                    note(ended)
    finally:
        for shard in shards.left_over():
            take(shard)
        shards.end()


async def _ends(
    engine: Engine,
    make_work: Callable[[int], Work],
    parts: Sequence[bytes],
    shards: Shards,
    stop: asyncio.Event,
) -> AsyncGenerator[Ended]:
    """What came of each part, as it ends."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()
    executor, is_over = ThreadPoolExecutor(1), threading.Event()

    def run() -> None:
        workers = engine.start()
        if is_over.is_set():
            engine.close()  # given up while it started: there was nothing to close yet
        elif not stop.is_set():
            for done in engine.run(make_work(workers), parts):
                loop.call_soon_threadsafe(queue.put_nowait, done)

    async def pass_on() -> None:
        await stop.wait()
        shards.stop()

    passing_on = asyncio.create_task(pass_on())
    running = loop.run_in_executor(executor, run)
    running.add_done_callback(lambda _: queue.put_nowait(None))
    failure = None
    try:
        while (data := await queue.get()) is not None:
            ended = msgspec.msgpack.decode(data, type=Ended)
            if ended.error:
                failure = failure or pickle.loads(ended.error)
                shards.stop()
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

"""Reads and writes trajectory, label and verdict files, one line at a time."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, overload

import msgspec

from prill.checks import check_record, expect_several, missing_image, unwritable
from prill.errors import InputError, UsageError
from prill.io.cache import scratch_database
from prill.io.checksums import expect_unchanged
from prill.io.faults import duplicate, line_fault, take_unknown
from prill.io.images import open_image_file
from prill.io.kinds import Kind, trajectory_files
from prill.io.lines import get_name, resolve_folder

# here, too: other rooms read their lines from this module
from prill.io.lines import open_lines as open_lines
from prill.io.lines import read_lines as read_lines
from prill.io.outputs import Writer, check_output, content_of_line, part_path, writing
from prill.io.shards import Shard
from prill.temporary.images import in_memory
from prill.types import LabelRecord, Observation, Trajectory, Verdict

_encoder = msgspec.json.Encoder()
_log = logging.getLogger("prill.io.store")
# of a line that stands for a record of another format: why that could not be read
_UNREADABLE = "unreadable"
OnError = Literal["raise", "skip", "yield"]  # what is done with a line that is no trajectory
_T = TypeVar("_T")
_R = TypeVar("_R", Trajectory, LabelRecord)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not a trajectory.

    Args:
        id: The trajectory's own id where that could be read, else "file:line".
        place: Where the line is: "file:line".
        problem: What is wrong with it.
        raw: The line.
    """

    id: str
    place: str
    problem: str
    raw: bytes

    @property
    def message(self) -> str:
        """The place and the problem."""
        return f"{self.place}: {self.problem}"


@overload
def read_trajectories(
    path: str | os.PathLike[str], on_error: Literal["raise", "skip"] = "raise"
) -> Generator[Trajectory, None, None]: ...


@overload
def read_trajectories(
    path: str | os.PathLike[str], on_error: Literal["yield"]
) -> Generator[Trajectory | BadLine, None, None]: ...


def read_trajectories(
    path: str | os.PathLike[str], on_error: OnError = "raise"
) -> Generator[Trajectory, None, None] | Generator[Trajectory | BadLine, None, None]:
    """The trajectories of a file, read one at a time: `list(prill.read_trajectories("runs.jsonl"))`
    has them all.

    Screenshot paths are made absolute. Screenshots must lie in the file's folder or below it (of
    what comes through a pipe, in the current one); whether they exist is found out by whoever opens
    them.

    Args:
        path: A trajectory file (JSON Lines, plain or gzip), a folder of them, or `-` for standard
            input.
        on_error: What is done with a line that is no trajectory. `raise` ends the reading with an
            error that names file and line. `skip` leaves it out; how many were left out is logged
            as a warning at the end. `yield` gives a `BadLine` in its place; `prill.score` makes it
            a verdict unscored with `input`.

    Returns:
        An iterator of `Trajectory`; with `yield`, of `Trajectory` and `BadLine`.

    Raises:
        InputError: A line is broken, with `raise`; in all cases, an archive is damaged and cannot
            be read further.
        UsageError: There is no such file, a folder has no trajectories, or `on_error` is something
            else.
    """
    if on_error not in get_args(OnError):
        raise UsageError(
            f"on_error is {on_error!r}: give one of {', '.join(get_args(OnError))}",
            parameters=("on_error",),
        )
    items = (item for _, item in numbered_trajectories(path))
    return items if on_error == "yield" else _only_good(items, path, skip=on_error == "skip")


def _only_good(
    items: Iterable[Trajectory | BadLine], path: str | os.PathLike[str], *, skip: bool
) -> Generator[Trajectory, None, None]:
    first, count = "", 0
    try:
        for item in items:
            if isinstance(item, Trajectory):
                yield item
            elif not skip:
                raise InputError(item.message)
            else:
                first, count = first or item.message, count + 1
    finally:
        if count:
            lines = "1 broken line" if count == 1 else f"{count} broken lines"
            _log.warning("%s: %s left out; the first is %s", os.fspath(path), lines, first)


def numbered_trajectories(
    path: str | os.PathLike[str],
    note: Callable[[str, Iterable[str]], object] = lambda place, keys: None,
    takes: Callable[[], bool] | None = None,
) -> Iterator[tuple[str, Trajectory | BadLine]]:
    """All items of `read_trajectories(path, "yield")`, each with its place, `file:line`; `note` is
    told the paths of unknown keys, if any. Of a line that is not taken, only the id is read: it
    comes as a `BadLine` without a problem.
    """
    for file in trajectory_files([path]):
        expect_unchanged(file)
        root = resolve_folder(file)
        for line in read_lines(file):
            place = f"{get_name(file)}:{line.number}"
            if takes is not None and not takes():
                yield place, BadLine(_read_id(line.data) or place, place, "", b"")
                continue
            try:
                trajectory, extras = _decoded(line.data, root)
            except InputError as error:
                yield place, BadLine(_read_id(line.data) or place, place, str(error), line.data)
                continue
            if extras:
                note(place, extras)
            yield place, trajectory


def decode_trajectory(data: bytes, root: Path) -> Trajectory:
    """One line of a trajectory file. Unknown keys go to `metadata` under their path. Raises
    InputError with the path.
    """
    return _decoded(data, root)[0]


def _decoded(data: bytes, root: Path) -> tuple[Trajectory, dict[str, Any]]:
    """The trajectory, and its unknown keys by path."""
    try:
        record = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(line_fault(data, error, Trajectory)) from None
    if not isinstance(record, dict):
        raise InputError(f"expected a JSON object, got {type(record).__name__}")
    if isinstance(problem := record.get(_UNREADABLE), str) and "task" not in record:
        raise InputError(problem)
    extras: dict[str, Any] = {}
    take_unknown(record, Trajectory, extras)
    try:
        trajectory = msgspec.convert(record, Trajectory)
    except msgspec.ValidationError as error:
        raise InputError(line_fault(data, error, Trajectory)) from None
    if not trajectory.id:
        raise InputError("id is empty - at `$.id`")
    if extras:
        trajectory = replace(trajectory, metadata={**extras, **trajectory.metadata})
    return with_screenshots(trajectory, lambda path, at: _inside(path, root, at)), extras


def list_screenshots(trajectory: Trajectory) -> list[tuple[str, str]]:
    """The path of every screenshot, those of earlier turns included, with its place in the
    record.
    """
    screenshots: list[tuple[str, str]] = []

    def note(path: str, at: str) -> str:
        screenshots.append((path, at))
        return path

    with_screenshots(trajectory, note)
    return screenshots


def encode(record: object) -> bytes:
    """One line: the record as JSON, with the newline."""
    return _encoder.encode(record) + b"\n"


def encode_bad_line(item: BadLine) -> bytes:
    """One line of a trajectory file that stands for a broken record of another format: it is read
    as one with that problem.
    """
    return encode({"id": item.id, _UNREADABLE: item.message})


def encode_trajectory(trajectory: Trajectory, root: Path) -> bytes:
    """One line of a trajectory file in folder `root`; screenshots below it are written as relative
    paths.

    Raises InputError that names the field when a screenshot lies elsewhere, when a value is of
    another type than its record says, and for an unpaired surrogate, which no file could give back.
    """
    check_record(trajectory)
    return _encoded(trajectory, root)


def _encoded(trajectory: Trajectory, root: Path) -> bytes:
    here = with_screenshots(trajectory, lambda path, at: _relative(path, root, at))
    try:
        return encode_as(trajectory.id, _plain(here))
    except TypeError:  # metadata may hold anything
        raise InputError(
            f"trajectory {trajectory.id!r}: {unwritable(here, msgspec.to_builtins, '')}"
        ) from None


def encode_as(id: str, record: object) -> bytes:
    """As `encode`, of the record with that id. Raises InputError that names the field whose text
    holds an unpaired surrogate, as a page's script or a broken emoji may have it.
    """
    try:
        return encode(record)
    except UnicodeEncodeError as error:
        place, half = (
            _surrogate(msgspec.to_builtins(record), "$"),
            error.object[error.start],
        )
        raise InputError(
            f"{id!r} cannot be written: {half!r} is an unpaired surrogate, which JSON has not - at "
            f"`{place}`"
        ) from None


def _surrogate(value: object, at: str) -> str | None:
    """Where in a record the first text is that cannot be written."""
    if isinstance(value, str):
        return at if any("\ud800" <= letter <= "\udfff" for letter in value) else None
    inner: Iterable[tuple[object, str]] = ()
    if isinstance(value, Mapping):
        bad = next((name for name in value if _surrogate(name, at)), None)
        if bad is not None:
            return f"{at}, the key {bad!r}"
        inner = ((part, f"{at}.{name}") for name, part in value.items())
    elif isinstance(value, list | tuple):
        inner = ((part, f"{at}[{i}]") for i, part in enumerate(value))
    return next((found for part, place in inner if (found := _surrogate(part, place))), None)


def read_verdicts(path: str | os.PathLike[str]) -> Iterator[Verdict]:
    """Reads the verdicts of a file, in order.

    Args:
        path: A verdict file. An incomplete last line, left by a crash, is skipped with a warning.

    Yields:
        The verdicts.

    Raises:
        UsageError: The file cannot be read, or holds something else.
        InputError: A line is broken.
    """
    _expect(path, "verdicts")
    yield from _records(path, Verdict)


def read_labels(path: str | os.PathLike[str]) -> Iterator[LabelRecord]:
    """Reads the labels of a file, in order.

    Args:
        path: A label file. A verdict file is refused: a judge's word would pass for a person's.

    Yields:
        The labels.

    Raises:
        UsageError: The file cannot be read, or holds something else.
        InputError: A line is broken.
    """
    _expect(path, "labels")
    yield from _records(path, LabelRecord)


def _expect(path: str | os.PathLike[str], expected: Kind) -> None:
    """Raises UsageError when the first line is plainly of another kind of file: its fields alone
    would not say so clearly.
    """
    expect_unchanged(path)
    first = next(read_lines(path), None)
    content = content_of_line(first.data) if first else None
    if content not in (None, expected):
        raise UsageError(f"{path}: holds {content}, not {expected}; name another file")


def _records(path: str | os.PathLike[str], type_: type[_T]) -> Iterator[_T]:
    decoder = msgspec.json.Decoder(type_)
    count = 0
    for line in read_lines(path):
        try:
            record = decoder.decode(line.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if not line.complete:
                _log.warning("%s:%d: incomplete last line skipped", os.fspath(path), line.number)
                return
            raise InputError(
                f"{path}:{line.number}: {line_fault(line.data, error, type_)}"
            ) from None
        count += 1
        yield record
    if count == 0:
        raise UsageError(f"{path}: the file is empty")


def _read_id(data: bytes) -> str | None:
    try:
        record = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    id = record.get("id") if isinstance(record, dict) else None
    return id if isinstance(id, str) and id else None


def with_screenshots(
    trajectory: Trajectory, change: Callable[[str, str], str], at: str = "$"
) -> Trajectory:
    """The trajectory with every screenshot path, those of earlier turns included, put through
    `change(path, its place)`.
    """

    def moved(observation: Observation, where: str) -> Observation:
        if not observation.screenshot:
            return observation
        screenshot = change(observation.screenshot, f"{where}.screenshot")
        return Observation(screenshot, observation.text, observation.url, observation.caption)

    task = trajectory.task
    if not task.earlier and not any(state.screenshot for state in trajectory.observations):
        return trajectory
    steps = tuple(
        step
        if not step.observation.screenshot
        else replace(step, observation=moved(step.observation, f"{at}.steps[{i}].observation"))
        for i, step in enumerate(trajectory.steps)
    )
    if task.earlier:
        turns = (
            with_screenshots(turn, change, f"{at}.task.earlier[{i}]")
            for i, turn in enumerate(task.earlier)
        )
        task = replace(task, earlier=tuple(turns))
    final = trajectory.final and moved(trajectory.final, f"{at}.final")
    return replace(trajectory, task=task, steps=steps, final=final)


def _inside(path: str, root: Path, at: str) -> str:
    if "\0" in path:
        raise InputError(f"image path {path!r} holds a null character - at `{at}`")
    if get_name(root) != str(root):
        raise InputError(
            f"the folder {get_name(root)} has a name that is no UTF-8; rename it - at `{at}`"
        )
    absolute = os.path.join(root, path)
    if os.path.isabs(path) or os.path.commonpath((os.path.realpath(absolute), root)) != str(root):
        raise InputError(
            f"image path {path!r} leaves the folder of the file; put images beside or below it - "
            f"at `{at}`"
        )
    return absolute


def _relative(path: str, root: Path, at: str) -> str:
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    if relative.startswith(".."):
        raise InputError(f"image {path!r} is not below {root} - at `{at}`")
    return relative.replace(os.sep, "/")


def _plain(trajectory: Trajectory) -> Mapping[str, Any]:
    """Built-in types for JSON; `error` and `task.earlier` are left out when empty, as in the
    format's description.
    """
    record = cast("dict[str, Any]", msgspec.to_builtins(trajectory))
    if trajectory.error is None:
        del record["error"]
    if trajectory.task.earlier:
        record["task"]["earlier"] = [_plain(turn) for turn in trajectory.task.earlier]
    else:
        del record["task"]["earlier"]
    return record


# Writing whole files.


def write_trajectories(path: str | os.PathLike[str], trajectories: Iterable[Trajectory]) -> int:
    """Writes a trajectory file, packed when its name ends in .gz. The file appears when it is
    whole.

    Screenshots that do not lie in the file's folder or below are copied to `images/` beside it, so
    that the folder can be moved as a whole.

    Args:
        path: The file to write; one with trajectories is replaced.
        trajectories: The records, each with an id of its own; they are taken one at a time.

    Returns:
        How many trajectories there are.

    Raises:
        InputError: A record could not be read back: the message names it, the field, what was
            expected and what is there. That is so for a value of another type, a screenshot that is
            missing, and an unpaired surrogate. Nothing is written.
        UsageError: Ids come again, the file cannot be written, or it holds something else. Nothing
            is written.
    """
    check_output(path, "trajectories")
    root = resolve_folder(path)
    copies = _ImageCopies(root)

    def line(trajectory: Trajectory | BadLine) -> bytes:
        if isinstance(trajectory, BadLine):
            raise InputError(f"a broken line cannot be written: {trajectory.message}")
        check_record(trajectory)
        return _encoded(copies.placed(trajectory), root)

    with ExitStack() as on_failure:
        on_failure.callback(copies.remove)
        count = _write_lines(
            path,
            expect_several(trajectories, "trajectories"),
            line,
            lambda trajectory: trajectory.id,
        )
        on_failure.pop_all()
    return count


def write_labels(path: str | os.PathLike[str], labels: Iterable[LabelRecord]) -> int:
    """Writes a label file, packed when its name ends in .gz. The file appears when it is whole.

    Args:
        path: The file to write; one with labels is replaced.
        labels: The records. An id may come again, but not from the same annotator of one source.

    Returns:
        How many labels there are.

    Raises:
        InputError: A record could not be read back, as for `write_trajectories`. Nothing is
            written.
        UsageError: A label comes again, the file cannot be written, or it holds something else.
            Nothing is written.
    """
    check_output(path, "labels")

    def line(label: LabelRecord) -> bytes:
        check_record(label)
        return encode_as(label.id, label)

    records = expect_several(labels, "labels")
    return _write_lines(
        path, records, line, lambda label: (label.id, label.source, label.annotator)
    )


def copy_image(path: str, folder: Path) -> Path:
    """Copies an image into a folder, under a name made from its content. Raises InputError when it
    cannot be copied.
    """
    part = None
    try:
        with open_image_file(path) as file:
            copy = folder / (
                hashlib.file_digest(file, "sha256").hexdigest()[:16] + Path(path).suffix.lower()
            )
            if not copy.exists():
                folder.mkdir(parents=True, exist_ok=True)
                part = part_path(copy)
                with part.open("xb") as out:
                    file.seek(0)
                    shutil.copyfileobj(file, out)
                part.replace(copy)
    except (OSError, ValueError) as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise InputError(
            f"{path}: the image cannot be copied: {getattr(error, 'strerror', error)}"
        ) from None
    return copy


class _ImageCopies:
    """The screenshots of a file that is being written, in its folder; those from elsewhere are
    copied, each once.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / "images"
        self._before = set(self._folder.iterdir()) if self._folder.is_dir() else None
        self._copies: dict[str, Path] = {}

    def placed(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with its screenshots below the folder. Raises InputError for one that is
        missing.
        """

        def place(path: str, at: str) -> str:
            if (fault := missing_image(path)) is not None:
                raise InputError(f"trajectory {trajectory.id!r}: {at.removeprefix('$.')}: {fault}")
            return self._place(path, at)

        return with_screenshots(trajectory, place)

    def _place(self, path: str, at: str) -> str:
        """Where a screenshot is, or now is, below the folder."""
        if not in_memory(path):
            with suppress(InputError):
                _relative(path, self._root, at)
                return path
        if path not in self._copies:
            self._copies[path] = copy_image(path, self._folder)
        return str(self._copies[path])

    def remove(self) -> None:
        """Leaves the folder as it was."""
        for copy in set(self._copies.values()) - (self._before or set()):
            copy.unlink(missing_ok=True)
        if self._before is None and self._copies:
            self._folder.rmdir()


def _write_lines(
    path: str | os.PathLike[str],
    records: Iterable[_R],
    line: Callable[[_R], bytes],
    identity: Callable[[_R], Hashable],
) -> int:
    identities: set[Hashable] = set()
    repeats: dict[str, None] = {}
    with writing(path) as file, _packed(file, os.fspath(path).endswith(".gz")) as out:
        for record in records:
            data = line(record)
            if identity(record) in identities:
                repeats[record.id] = None
            identities.add(identity(record))
            out.write(data)
        if repeats:
            more = f" and {len(repeats) - 10} more" if len(repeats) > 10 else ""
            raise UsageError(
                f"{path}: not written, as ids come again: "
                f"{', '.join(map(repr, list(repeats)[:10]))}{more}"
            )
    return len(identities)


def _packed(file: Writer, packed: bool) -> AbstractContextManager[Writer]:
    # Without the time of writing: equal records give equal files.
    return gzip.GzipFile("", "wb", fileobj=file, mtime=0) if packed else nullcontext(file)


# Input files for scoring: ids once, broken lines as items of their own, a clear error when nothing
# can be read.


Item = Trajectory | BadLine


class UniqueIds:
    """The ids of trajectories that were read together, with the place of each; in a temporary
    database, not in memory.
    """

    def __init__(self) -> None:
        self._ids = scratch_database(self)
        self._ids.execute("CREATE TABLE ids (id TEXT PRIMARY KEY, place TEXT) WITHOUT ROWID")

    def checked(self, place: str, item: Item) -> Item:
        """The item; a BadLine where another one has its id already, be it broken or not."""
        try:
            self._ids.execute("INSERT INTO ids VALUES (?, ?)", (item.id, place))
        except sqlite3.IntegrityError:
            first = self._ids.execute("SELECT place FROM ids WHERE id = ?", (item.id,)).fetchone()[
                0
            ]
            problem = item.problem if isinstance(item, BadLine) else duplicate(item.id, first)
            return BadLine(place, place, problem, item.id.encode())
        return item

    def close(self) -> None:
        """Drops the temporary database."""
        self._ids.close()


class TrajectoryReader:
    """The items of some trajectory files and folders, in order; ids seen are kept in a temporary
    database, not in memory.

    `limit` looks at the first so many lines; of these, `shard` gives its share, by id, and `turn`
    every N-th line. `read` counts what was given, `unknown` the keys that no record has, as far as
    the files were read.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        limit: int | None = None,
        shard: Shard | None = None,
        turn: Shard | None = None,
    ) -> None:
        self.paths = trajectory_files(paths)
        self.limit = limit
        self.shard = shard
        self.turn = turn
        self.read = 0
        self.unknown: Counter[str] = Counter()
        self._ids = UniqueIds()

    def __iter__(self) -> Iterator[tuple[str, Item]]:
        """Each item with its place, `file:line`. Raises UsageError when no line is a trajectory,
        before any item.
        """
        self._look_for_one()
        for place, item in self._items():
            if self.shard is None or self.shard.takes(item.id):
                self.read += 1
                yield place, item

    def close(self) -> None:
        """Drops the temporary database."""
        self._ids.close()

    def _items(self) -> Iterator[tuple[str, Item]]:
        lines = 0

        def takes() -> bool:
            return self.turn is None or self.turn.takes_turn(lines)

        for path in self.paths:
            try:
                for place, item in numbered_trajectories(path, self._note, takes):
                    if self.limit is not None and lines >= self.limit:
                        return
                    checked, is_taken = self._ids.checked(place, item), takes()
                    lines += 1
                    if is_taken:
                        yield place, checked
            except InputError as error:  # a damaged archive: what came before it counts
                is_taken = takes()
                lines += 1
                if not is_taken:
                    continue
                name = get_name(path)
                yield (
                    name,
                    BadLine(
                        name, name, str(error).encode("utf-8", "backslashreplace").decode(), b""
                    ),
                )

    def _note(self, place: str, keys: Iterable[str]) -> None:
        self.unknown.update(key.rpartition(".")[2] for key in keys)

    def _look_for_one(self) -> None:
        first, broken, remaining = None, 0, self.limit
        for path in self.paths:
            try:
                for _, item in numbered_trajectories(path):
                    if remaining is not None and (remaining := remaining - 1) < 0:
                        break
                    if not isinstance(item, BadLine):
                        return
                    first, broken = first or item.message, broken + 1
            except InputError as error:
                first, broken = first or str(error), broken + 1
        if first is None:
            names = ", ".join(map(str, self.paths))
            raise UsageError(
                f"{names}: the file is empty"
                if len(self.paths) == 1
                else f"{names}: the files are empty"
            )
        with suppress(InputError):
            _expect(self.paths[0], "trajectories")
        more = f" (and {broken - 1} more broken lines)" if broken > 1 else ""
        raise UsageError(f"no trajectory could be read; {first}{more}")

"""Reads and writes trajectory, label and verdict files, one line at a time."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import count as numbers
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, overload

import msgspec

from prill.errors import InputError, UsageError
from prill.io.cache import scratch_database
from prill.io.checks import check_record, expect_several, missing_image, unwritable
from prill.io.faults import duplicate, line_fault, take_unknown
from prill.io.images import open_image_file
from prill.io.kinds import Kind, parse_object, trajectory_files
from prill.io.lines import (
    UNREADABLE,
    decode_as,
    decode_record,
    get_name,
    held_records,
    resolve_folder,
)

# re-exported for other packages
from prill.io.lines import open_lines as open_lines
from prill.io.lines import read_lines as read_lines
from prill.io.outputs import Writer, check_output, detect_line_content, part_path, writing
from prill.io.shards import Shard
from prill.temporary import in_memory
from prill.types import LabelRecord, Observation, Trajectory, Verdict

if TYPE_CHECKING:
    import sqlite3

_encoder = msgspec.json.Encoder()
_log = logging.getLogger("prill.io.store")
# the key of a line that replaces an unreadable record of another format; its value is the reason
_UNREADABLE_KEY = "unreadable"
_IDS_IN_MEMORY = 5_000
OnError = Literal["raise", "skip", "yield"]  # how invalid lines are handled
_T = TypeVar("_T")
_R = TypeVar("_R", Trajectory, LabelRecord, Verdict)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not a trajectory.

    Args:
        id: The trajectory's own id if it could be read, else "file:line".
        place: The position of the line: "file:line".
        problem: What is wrong with it.
        raw: The content of the line.
    """

    id: str
    place: str
    problem: str
    raw: bytes

    @property
    def message(self) -> str:
        """Returns the position and the problem."""
        return f"{self.place}: {self.problem}"


@overload
def iter_trajectories(
    path: str | os.PathLike[str], on_error: Literal["raise", "skip"] = "raise"
) -> Generator[Trajectory, None, None]: ...


@overload
def iter_trajectories(
    path: str | os.PathLike[str], on_error: Literal["yield"]
) -> Generator[Trajectory | BadLine, None, None]: ...


def iter_trajectories(
    path: str | os.PathLike[str], on_error: OnError = "raise"
) -> Generator[Trajectory, None, None] | Generator[Trajectory | BadLine, None, None]:
    """Reads the trajectories of a file of prill's own one at a time.

    Screenshot paths are made absolute. Screenshots must be in or below the file's folder (for a
    pipe, the current folder). Whether they exist is only checked when they are opened.

    Args:
        path: A trajectory file (JSON Lines, plain or gzip), a folder of them, or `-` for standard
            input.
        on_error: How a line that is not a trajectory is handled. `raise` stops with an error that
            contains file and line. `skip` leaves the line out; the number of skipped lines is
            logged as a warning at the end. `yield` yields a `BadLine`, which `prill.score` turns
            into a verdict unscored with `input`.

    Returns:
        An iterator of `Trajectory`; with `yield`, of `Trajectory` and `BadLine`.

    Raises:
        InputError: With `raise`, a line is invalid. With any `on_error`, an archive is damaged.
        UsageError: The file does not exist, a folder has no trajectories, or `on_error` is invalid.
    """
    if on_error not in get_args(OnError):
        raise UsageError(
            f"on_error is {on_error!r}; expected one of {', '.join(get_args(OnError))}",
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
) -> Iterator[tuple[str, Trajectory | BadLine]]:
    """Yields all items of `iter_trajectories(path, "yield")` with their position, `file:line`.

    `note` is called with the paths of unknown keys, if any.
    """
    for file in trajectory_files([path]):
        if (records := held_records(file)) is not None:
            yield from _checked(get_name(file), records)
            continue
        root = resolve_folder(file)
        for line in read_lines(file):
            place = f"{get_name(file)}:{line.number}"
            try:
                trajectory, extras = _decoded(line.data, root)
            except InputError as error:
                yield place, BadLine(_read_id(line.data) or place, place, str(error), line.data)
                continue
            if extras:
                note(place, extras)
            yield place, trajectory


def _checked(name: str, records: Iterable[object]) -> Iterator[tuple[str, Trajectory | BadLine]]:
    """Yields trajectories in memory with their position. Raises UsageError and InputError."""
    for index, item in enumerate(records):
        if isinstance(item, Trajectory):
            check_record(item)
        elif not isinstance(item, BadLine):
            raise UsageError(f"{name}[{index}]: expected a Trajectory, got {type(item).__name__}")
        yield f"{name}[{index}]", item


def decode_trajectory(data: bytes, root: Path) -> Trajectory:
    """Decodes one line of a trajectory file; unknown keys go to `metadata` under their path.

    Raises InputError that contains the invalid field's path.
    """
    return _decoded(data, root)[0]


def _decoded(data: bytes, root: Path) -> tuple[Trajectory, dict[str, Any]]:
    """Returns the trajectory, and its unknown keys by path."""
    try:
        record = decode_record(data)
    except UNREADABLE as error:
        raise InputError(line_fault(data, error, Trajectory)) from None
    if not isinstance(record, dict):
        raise InputError(f"expected a JSON object, got {type(record).__name__}")
    if isinstance(problem := record.get(_UNREADABLE_KEY), str) and "task" not in record:
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
    return with_screenshots(trajectory, _Folder(root)), extras


def list_screenshots(trajectory: Trajectory) -> list[tuple[str, str]]:
    """Returns every screenshot's path and position in the record, including earlier turns."""
    screenshots: list[tuple[str, str]] = []

    def note(path: str, at: str) -> str:
        screenshots.append((path, at))
        return path

    with_screenshots(trajectory, note)
    return screenshots


def encode(record: object) -> bytes:
    """Returns the record as one JSON line, with the newline."""
    return _encoder.encode(record) + b"\n"


def encode_bad_line(item: BadLine) -> bytes:
    """Encodes a broken record of another format as one line, which is read as a `BadLine`."""
    return encode({"id": item.id, _UNREADABLE_KEY: item.message})


def encode_trajectory(trajectory: Trajectory, root: Path) -> bytes:
    """Encodes a trajectory as one line of a file in folder `root`.

    Screenshots below `root` are written as relative paths. Raises InputError that names the field
    if a screenshot is elsewhere, if a value is of the wrong type, or if text contains an unpaired
    surrogate, which could not be read back.
    """
    check_record(trajectory)
    return _encoded(trajectory, root)


def _encoded(trajectory: Trajectory, root: Path) -> bytes:
    here = with_screenshots(trajectory, lambda path, at: _relative(path, root, at))
    try:
        return encode_as(trajectory.id, _plain(here))
    except TypeError:  # metadata may contain any object
        raise InputError(
            f"trajectory {trajectory.id!r}: {unwritable(here, msgspec.to_builtins, '')}"
        ) from None


def encode_as(id: str, record: object) -> bytes:
    """Encodes the record with the given id, as `encode` does.

    Raises InputError that names the field whose text contains an unpaired surrogate. (A page's
    script or a broken emoji can produce one.)
    """
    try:
        return encode(record)
    except UnicodeEncodeError as error:
        path_of_text, half = (
            _surrogate(msgspec.to_builtins(record), "$"),
            error.object[error.start],
        )
        raise InputError(
            f"{id!r} cannot be written: {half!r} is an unpaired surrogate, which JSON "
            f"cannot represent - at `{path_of_text}`"
        ) from None


def _surrogate(value: object, at: str) -> str | None:
    """Returns the position of the first text in a record that cannot be written, or None."""
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
    yield from read_records(path, Verdict)


def read_labels(path: str | os.PathLike[str]) -> Iterator[LabelRecord]:
    """Reads the labels of a file, in order.

    Args:
        path: A label file. A verdict file is rejected, because a judge's verdict must not count as
            a person's label.

    Yields:
        The labels.

    Raises:
        UsageError: The file cannot be read, or holds something else.
        InputError: A line is broken.
    """
    _expect(path, "labels")
    yield from read_records(path, LabelRecord)


def _expect(path: str | os.PathLike[str], expected: Kind) -> None:
    """Raises UsageError if the first line clearly belongs to another kind of file.

    An error about missing fields would be less clear.
    """
    first = None if held_records(path) else next(read_lines(path), None)
    content = detect_line_content(first.data) if first else None
    if content not in (None, expected):
        raise UsageError(f"{path}: contains {content}, not {expected}; choose another file")


def read_records(
    path: str | os.PathLike[str], type_: type[_T], empty: str = "the file is empty"
) -> Iterator[_T]:
    """Yields the records of a file, without an incomplete last line. Raises InputError for another
    broken line, and UsageError, with the text `empty`, for a file without complete records.
    """
    if (records := held_records(path)) is not None:
        for index, record in enumerate(records):
            if not isinstance(record, type_):
                raise UsageError(
                    f"{path}[{index}]: expected a {type_.__name__}, got {type(record).__name__}"
                )
            yield record
        return
    count = 0
    for line in read_lines(path):
        try:
            record = decode_as(line.data, type_)
        except UNREADABLE as error:
            if not line.complete:
                _log.warning("%s:%d: incomplete last line skipped", os.fspath(path), line.number)
                break
            raise InputError(
                f"{path}:{line.number}: {line_fault(line.data, error, type_)}"
            ) from None
        count += 1
        yield record
    if count == 0:
        raise UsageError(f"{path}: {empty}")


def _read_id(data: bytes) -> str | None:
    id = (parse_object(data) or {}).get("id")
    return id if isinstance(id, str) and id else None


def with_screenshots(
    trajectory: Trajectory, change: Callable[[str, str], str], at: str = "$"
) -> Trajectory:
    """Returns the trajectory with `change(path, position)` applied to every screenshot path.

    Screenshots of earlier turns are included.
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


class _Folder:
    """The folder that the image paths of one record must not leave.

    The folders of the images are resolved once for each record, and the images only if they are
    links.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real: dict[str, str] = {}

    def __call__(self, path: str, at: str) -> str:
        """Returns the absolute path. Raises InputError for one that leaves the folder."""
        root = self._root
        if "\0" in path:
            raise InputError(f"image path {path!r} contains a null character - at `{at}`")
        if get_name(root) != str(root):
            raise InputError(
                f"the name of the folder {get_name(root)} is not valid UTF-8; rename it - at `{at}`"
            )
        absolute = os.path.join(root, path)
        if os.path.isabs(path) or os.path.commonpath((self._resolve(absolute), root)) != str(root):
            raise InputError(
                f"image path {path!r} leaves the folder of the file; put images next to it or "
                f"in a subfolder - at `{at}`"
            )
        return absolute

    def _resolve(self, path: str) -> str:
        folder, name = os.path.split(path)
        if name in ("", os.curdir, os.pardir) or os.path.islink(path):
            return os.path.realpath(path)
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        return os.path.join(self._real[folder], name)


def _relative(path: str, root: Path, at: str) -> str:
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    if relative.startswith(".."):
        raise InputError(f"image {path!r} is not inside {root} - at `{at}`")
    return relative.replace(os.sep, "/")


def _plain(trajectory: Trajectory) -> Mapping[str, Any]:
    """Returns built-in types for JSON; empty `error` and `task.earlier` are left out, as in the
    file format.
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
    """Writes a trajectory file atomically, compressed if its name ends in .gz.

    Screenshots outside the file's folder are copied to `images/` next to the file, so that the
    folder can be moved as a whole.

    Args:
        path: The file to write. An existing trajectory file is replaced.
        trajectories: The records, each with a unique id; they are read one at a time.

    Returns:
        The number of trajectories.

    Raises:
        InputError: A record could not be read back, because of a value of the wrong type, a missing
            screenshot, or an unpaired surrogate. The message names the record, the field, and the
            expected and actual value. Nothing is written.
        UsageError: Ids are repeated, the file cannot be written, or it has other content.
            Nothing is written.
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
    """Writes a label file atomically, compressed if its name ends in .gz.

    Args:
        path: The file to write. An existing label file is replaced.
        labels: The records. An id may be repeated, but not by the same annotator and source.

    Returns:
        The number of labels.

    Raises:
        InputError: A record could not be read back, as for `write_trajectories`. Nothing is
            written.
        UsageError: A label is repeated, the file cannot be written, or it has other content.
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


def write_verdicts(verdicts: Iterable[Verdict], path: str | os.PathLike[str]) -> int:
    """Writes a verdict file atomically, compressed if its name ends in .gz.

    Args:
        verdicts: The records.
        path: The file to write. An existing verdict file is replaced.

    Returns:
        The number of verdicts.

    Raises:
        InputError: A record cannot be written. Nothing is written.
        UsageError: An item is not a verdict, the file cannot be written, or it has other content.
            Nothing is written.
    """
    check_output(path, "verdicts")

    def line(verdict: Verdict) -> bytes:
        if not isinstance(verdict, Verdict):
            raise UsageError(f"expected verdicts, got a {type(verdict).__name__}")
        return encode_as(verdict.id, verdict)

    number = numbers()  # the last verdict of an id counts, so ids may be repeated
    return _write_lines(path, verdicts, line, lambda verdict: next(number))


def copy_image(path: str, folder: Path) -> Path:
    """Copies an image into a folder, under a name derived from its content.

    Raises InputError if it cannot be copied.
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
    """Places the screenshots of a file that is being written in its folder; others are copied once
    each.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / "images"
        self._before = set(self._folder.iterdir()) if self._folder.is_dir() else None
        self._copies: dict[str, Path] = {}

    def placed(self, trajectory: Trajectory) -> Trajectory:
        """Returns the trajectory with its screenshots below the folder.

        Raises InputError if one is missing.
        """

        def place(path: str, at: str) -> str:
            if (fault := missing_image(path)) is not None:
                raise InputError(f"trajectory {trajectory.id!r}: {at.removeprefix('$.')}: {fault}")
            return self._place(path, at)

        return with_screenshots(trajectory, place)

    def _place(self, path: str, at: str) -> str:
        """Returns the path of a screenshot below the folder, after copying it if necessary."""
        if not in_memory(path):
            with suppress(InputError):
                _relative(path, self._root, at)
                return path
        if path not in self._copies:
            self._copies[path] = copy_image(path, self._folder)
        return str(self._copies[path])

    def remove(self) -> None:
        """Deletes the copies."""
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
                f"{path}: not written, because of duplicate ids: "
                f"{', '.join(map(repr, list(repeats)[:10]))}{more}"
            )
    return len(identities)


def _packed(file: Writer, packed: bool) -> AbstractContextManager[Writer]:
    # Without a timestamp, equal records give identical files.
    return gzip.GzipFile("", "wb", fileobj=file, mtime=0) if packed else nullcontext(file)


# Input files for scoring: unique ids, invalid lines as items, and a clear error if nothing can be
# read.


Item = Trajectory | BadLine


class UniqueIds:
    """The ids of trajectories that are read together, with their positions: the first 5,000 in
    memory, the others in a temporary database.
    """

    def __init__(self) -> None:
        self._places: dict[str, str] = {}
        self._ids: sqlite3.Connection | None = None

    def checked(self, place: str, item: Item) -> Item:
        """Returns the item, or a BadLine if another item already has its id."""
        if (first := self._add(item.id, place)) is not None:
            problem = item.problem if isinstance(item, BadLine) else duplicate(item.id, first)
            return BadLine(place, place, problem, item.id.encode())
        return item

    def _add(self, id: str, place: str) -> str | None:
        """Adds an id; returns the position of the item that has it already, else None."""
        if (first := self._places.get(id)) is not None:
            return first
        if self._ids is None:
            if len(self._places) < _IDS_IN_MEMORY:
                self._places[id] = place
                return None
            self._ids = scratch_database(self)
            self._ids.execute("CREATE TABLE ids (id TEXT PRIMARY KEY, place TEXT) WITHOUT ROWID")
        if self._ids.execute("INSERT OR IGNORE INTO ids VALUES (?, ?)", (id, place)).rowcount:
            return None
        return str(self._ids.execute("SELECT place FROM ids WHERE id = ?", (id,)).fetchone()[0])

    def close(self) -> None:
        """Deletes the temporary database."""
        if self._ids is not None:
            self._ids.close()


class TrajectoryReader:
    """Reads the items of trajectory files and folders, in order.

    Of the known ids, all but the first are kept in a temporary database (see `UniqueIds`). `limit`
    reads only the first lines; of these, `shard` selects by id. `read` counts the items returned so
    far, and `unknown` the unknown keys so far.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        limit: int | None = None,
        shard: Shard | None = None,
    ) -> None:
        self.paths = trajectory_files(paths)
        self.limit = limit
        self.shard = shard
        self.read = 0
        self.unknown: Counter[str] = Counter()
        self._ids = UniqueIds()

    def __iter__(self) -> Iterator[tuple[str, Item]]:
        """Yields each item with its position, `file:line`.

        Raises UsageError before the first item if no line is a trajectory.
        """
        self._look_for_one()
        for place, item in self._items():
            if self.shard is None or self.shard.takes(item.id):
                self.read += 1
                yield place, item

    def close(self) -> None:
        """Deletes the temporary database."""
        self._ids.close()

    def _items(self) -> Iterator[tuple[str, Item]]:
        lines = 0
        for path in self.paths:
            try:
                for place, item in numbered_trajectories(path, self._note):
                    if self.limit is not None and lines >= self.limit:
                        return
                    lines += 1
                    yield place, self._ids.checked(place, item)
            except InputError as error:  # a damaged archive: the items before the damage count
                lines += 1
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
        raise UsageError(
            f"no trajectory could be read; {first}{more}; if this is another tool's log, name its "
            "format"
        )

"""Serialises trajectories for a trainer's rows: inline JSON, or a reference to a file.

A row holds a trajectory as JSON text (`to_json`, with images inline or in a folder) or as a
reference to a recorded one (`reference`, `runs/a.jsonl#tea-1`). `from_value` reads both.
`single_step` builds a trajectory from a prompt and a completion.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from prill.config.registry import nearest
from prill.errors import InputError, UsageError
from prill.io.images import read_image
from prill.io.lines import UNREADABLE, Line, decode_record, read_lines, resolve_folder
from prill.io.store import (
    BadLine,
    Item,
    decode_trajectory,
    encode_as,
    encode_trajectory,
    with_screenshots,
)
from prill.temporary import image_name
from prill.types import Action, Observation, Step, Task, Trajectory

if TYPE_CHECKING:
    from PIL import Image

    Picture = str | os.PathLike[str] | bytes | Image.Image

COLUMN = "trajectory"
_MIME = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}
_DATA_URL = "data:image/"
_SHOWN = 40  # characters of a value in messages


def to_json(trajectory: Trajectory, *, root: str | os.PathLike[str] | None = None) -> str:
    """Formats a trajectory as one line of JSON, for `from_value`.

    Args:
        trajectory: The trajectory.
        root: The folder of its images, which the line names by relative paths. None: the line holds
            the images as data URLs.

    Returns:
        The line, without a line feed.

    Raises:
        InputError: An image is missing or not below `root`, or a text holds an unpaired surrogate,
            which JSON cannot carry.
    """
    if root is not None:
        return encode_trajectory(trajectory, Path(root).resolve()).decode().rstrip("\n")
    return (
        encode_as(trajectory.id, with_screenshots(trajectory, lambda path, at: _data_url(path)))
        .decode()
        .rstrip("\n")
    )


def reference(path: str | os.PathLike[str], id: str) -> str:
    """Formats a reference to a trajectory in a file, for `from_value`.

    Args:
        path: The trajectory file.
        id: The trajectory's id.
    """
    return f"{os.fspath(path)}#{id}"


def from_value(
    value: object, *, root: str | os.PathLike[str] | None = None, place: str = "row"
) -> Item:
    """Reads a trajectory from a value of a trainer's row.

    Args:
        value: A trajectory, its record, its JSON, `path#id`, or a mapping with `path` and `id`.
        root: The base folder of relative paths; no path may leave it. Images of a record are below
            it or are data URLs; those of a recorded file are in that file's folder. None: the
            current folder, without that restriction.
        place: The position of the value, for messages.

    Returns:
        The trajectory, or a BadLine with the problem.
    """
    if isinstance(value, Trajectory | BadLine):
        return value
    try:
        return _read(value, None if root is None else Path(root).resolve())
    except (InputError, UsageError) as error:
        return BadLine(place, place, str(error), b"")


def get_column(columns: Mapping[str, Any], name: str) -> Any:
    """Looks up a column of a trainer's batch.

    Raises:
        UsageError: There is no such column; the message lists the existing ones.
    """
    if name in columns:
        return columns[name]
    there = ", ".join(sorted(columns)) or "none"
    raise UsageError(
        f"the batch has no column {name!r}{nearest(name, columns)}; its columns: {there}. "
        "Give the column of the trajectories, or None to judge only the completion"
    )


def single_step(
    prompt: str | Sequence[Mapping[str, Any]],
    completion: str | Sequence[Mapping[str, Any]],
    images: Sequence[Picture] = (),
) -> Trajectory:
    """Converts a prompt and its completion into a trajectory.

    The goal is the last text of the user; the completion is the answer. Each image of the prompt
    becomes an observation; the last one is the observation at the answer.

    Args:
        prompt: A text, or chat messages. A message's content is a text, or a list of parts; the
            types `text`, `image` and `image_url` are read.
        completion: A text, or chat messages.
        images: The images, oldest first. Empty: those of the prompt.

    Raises:
        InputError: The prompt holds no text of a user, or a text holds an unpaired surrogate.
    """
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    goal = next(
        (text for turn in reversed(turns) if _role(turn) == "user" and (text := get_text(turn))),
        None,
    )
    if goal is None:
        raise InputError("the prompt contains no user text, so there is no goal to judge by")
    if isinstance(completion, str):
        answer = completion
    else:
        answer = "\n".join(
            filter(None, (get_text(turn) for turn in completion if _role(turn) == "assistant"))
        )
    shown = [_picture(image) for image in images] or [
        picture for turn in turns for picture in collect_pictures(turn)
    ]
    before = [
        Step(Observation(picture), Action("other", "look at what was shown next"))
        for picture in shown[:-1]
    ]
    last = Step(
        Observation(shown[-1] if shown else None, text=goal), Action("answer", value=answer)
    )
    states = (*(step.observation.screenshot for step in (*before, last)), goal, answer)
    return Trajectory(
        id=f"completion-{compute_digest(states)}",
        task=Task(goal=goal),
        steps=(*before, last),
        answer=answer,
    )


def as_item(make: Callable[[], Trajectory], place: str) -> Item:
    """Returns the trajectory that `make` makes, or its InputError as a BadLine of that place."""
    try:
        return make()
    except InputError as error:
        return BadLine(place, place, str(error), b"")


def compute_digest(record: object) -> str:
    """Returns a hash prefix for an id. Raises InputError for text with an unpaired surrogate, as in
    broken emoji.
    """
    try:
        return hashlib.sha256(msgspec.json.encode(record)).hexdigest()[:16]
    except (UnicodeEncodeError, RecursionError) as error:
        raise InputError(f"this cannot be serialised: {error}") from None


class IndexedTrajectories:
    """The trajectories of a file by id, read on demand.

    The file is scanned once for the offset of each trajectory. It is scanned again after it was
    appended to or rewritten. The class is thread-safe.

    Args:
        path: An uncompressed trajectory file of JSON lines.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()
        self._places: dict[str, int] = {}
        self._version = (-1, -1)
        self._reading = threading.Lock()

    def __getitem__(self, id: str) -> Trajectory:
        """Reads a trajectory. Raises InputError if the id is unknown or the trajectory is invalid,
        and UsageError for an unusable file.
        """
        try:
            line = self._line(id)
            if line is None or _id(line) != id:  # appended or moved since the last scan
                self._index()
                line = self._line(id)
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}") from None
        if line is None:
            suggestion = nearest(id, self._places)
            raise InputError(
                f"{self.path}: no trajectory has the id {id!r}{suggestion}; the file has "
                f"{len(self._places)}"
            )
        if _id(line) != id:
            raise InputError(f"{self.path}: the file changed while it was read; start again")
        try:
            return decode_trajectory(line, resolve_folder(self.path))
        except InputError as error:
            raise InputError(f"{self.path}: trajectory {id!r}: {error}") from None

    def _line(self, id: str) -> bytes | None:
        """Reads the line at the recorded offset of the trajectory."""
        place = self._places.get(id)
        if place is None:
            return None
        with self.path.open("rb") as file:
            file.seek(place)
            return file.readline()

    def _index(self) -> None:
        """Scans the file for offsets if it changed since the last scan; other threads wait."""
        with self._reading:
            if self._version != _version(self.path):
                self._note_places()

    def _note_places(self) -> None:
        version, places, offset = _version(self.path), dict[str, int](), 0
        forms: set[str] = {line.form for line in _first(self.path)}
        if not forms <= {"line", "crlf"}:
            raise UsageError(
                f"{self.path}: expected one JSON object per line; convert it with prill convert"
            )
        with self.path.open("rb") as file:
            for line in file:
                if (id := _id(line)) is not None:
                    places.setdefault(id, offset)
                offset += len(line)
        self._places, self._version = places, version


class _Head(msgspec.Struct):
    id: str


_head = msgspec.json.Decoder(_Head)


def _id(line: bytes) -> str | None:
    try:
        return _head.decode(line).id
    except UNREADABLE:
        return None


def _first(path: Path) -> list[Line]:
    """Reads the first line. Raises UsageError for a compressed file, which cannot be seeked."""
    with Path(path).open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise UsageError(
                f"{path}: compressed files have no line offsets; decompress it first (gunzip)"
            )
    for line in read_lines(path):
        return [line]
    raise UsageError(f"{path}: the file is empty")


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache(64)
def _recorded(path: Path) -> IndexedTrajectories:
    return IndexedTrajectories(path)


def _read(value: object, root: Path | None) -> Trajectory:
    if isinstance(value, bytes | str):
        # numpy strings are a subclass of str
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        if text.lstrip().startswith("{"):
            return _record(_json(text), root)
        path, mark, id = text.partition("#")
        if not mark or not path or not id:
            raise InputError(
                f"{text[:_SHOWN]!r} is neither the JSON of a trajectory nor path#id of a recorded "
                "one"
            )
        return _referred(path, id, root)
    if isinstance(value, Mapping):
        return _record(value, root)
    kind = "nothing" if value is None else f"a {type(value).__name__}"
    raise InputError(
        f"expected a trajectory, got {kind}; give its JSON (prill.refine.rewards.to_json), "
        "or path#id"
    )


def _json(text: str) -> Mapping[str, Any]:
    try:
        record = decode_record(text.encode())
    except (*UNREADABLE, UnicodeError) as error:
        raise InputError(f"not valid JSON: {error}") from None
    assert isinstance(record, dict)  # it began with a brace
    return record


def _record(record: Mapping[str, Any], root: Path | None) -> Trajectory:
    path, id = record.get("path"), record.get("id")
    if "task" not in record and isinstance(path, str) and isinstance(id, str):
        return _referred(path, id, root)
    kept: list[Observation] = []  # images in memory live as long as an observation that uses them

    def load(image: str | bytes, at: str) -> str:
        if isinstance(image, bytes):
            kept.append(Observation(image))
            return kept[-1].screenshot or ""
        if root is None:
            raise InputError(
                f"the image {image[:_SHOWN]!r} is a path; set the folder of the images - at `{at}`"
            )
        return image

    return read_record(record, root or Path.cwd(), load)


def read_record(
    record: Mapping[str, Any],
    folder: Path,
    load: Callable[[str | bytes, str], str],
    images: Mapping[str, str] = MappingProxyType({}),
) -> Trajectory:
    """Reads a trajectory from its record.

    `load` gets the path of each image, or its bytes for a data URL and for a name in `images`
    (whose values are base64), with its position, and returns the path to use. Raises InputError.
    """
    inline: dict[str, str] = {}  # names by content

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, Mapping):
            return {
                name: inner if name == "metadata" else walk(inner, name)
                for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [walk(inner) for inner in value]
        if key == "screenshot" and isinstance(value, str):
            if (url := images.get(value, value)).startswith("data:") or value in images:
                # only paths are checked as paths
                return inline.setdefault(url, f"data:{len(inline)}")
            if "://" in value:
                raise InputError(
                    "screenshots are not fetched from URLs; send them inline "
                    "(data:image/png;base64,…)"
                )
        return value

    try:
        line = msgspec.json.encode(walk(record))
    except RecursionError:
        raise InputError("the record is nested too deeply") from None
    except (TypeError, UnicodeEncodeError) as error:
        raise InputError(f"the record cannot be written as JSON: {error}") from None
    urls = {name: url for url, name in inline.items()}

    def place(path: str, at: str) -> str:
        url = urls.get(os.path.relpath(path, folder))
        return load(path if url is None else decode_image(url, at), at)

    return with_screenshots(decode_trajectory(line, folder), place)


def _referred(path: str, id: str, root: Path | None) -> Trajectory:
    try:
        absolute = Path(os.path.realpath((root or Path.cwd()) / path))
    except ValueError as error:
        raise InputError(f"{path[:_SHOWN]!r} is not a path: {error}") from None
    if root is not None and not absolute.is_relative_to(root):
        raise InputError(f"the recorded file {path!r} is outside the allowed folder")
    return _recorded(absolute)[id]


def decode_image(url: str, at: str) -> bytes:
    """Decodes a data URL, or base64 alone. Raises InputError."""
    # the standard library's decoder takes twenty times as long and holds the GIL
    from pybase64 import b64decode

    head, comma, data = url.partition(",")
    if comma and not head.endswith(";base64"):
        raise InputError(f"a data URL of an image must be base64 - at `{at}`")
    try:
        return bytes(b64decode(data if comma else url, validate=True))
    except (binascii.Error, ValueError) as error:
        raise InputError(f"the image is not base64: {error} - at `{at}`") from None


def _data_url(path: str) -> str:
    data = read_image(path)
    mime = _MIME.get(Path(image_name(data)).suffix)
    if mime is None:
        raise InputError(f"{path}: unknown image format (expected PNG, JPEG, WebP, GIF or BMP)")
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def _picture(image: Any) -> Picture:
    """Reads an image of a column; one that is not decoded is a mapping of bytes and path."""
    if not isinstance(image, Mapping):
        return image  # type: ignore[no-any-return]
    picture = image.get("bytes") or image.get("path")
    if not isinstance(picture, bytes | str):
        raise InputError("an image of the row has neither bytes nor a path")
    return picture


def _role(turn: Mapping[str, Any]) -> str:
    return str(turn.get("role", "user"))


def get_text(turn: Mapping[str, Any]) -> str:
    """Returns the text of a chat message, without its images."""
    content = turn.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Iterable) else ()
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def collect_pictures(turn: Mapping[str, Any]) -> list[Picture]:
    """Returns the images in a message's parts. A part is empty if the trainer keeps its image in a
    separate column.
    """
    content = turn.get("content")
    found: list[Picture] = []
    for part in content if isinstance(content, list | tuple) else ():
        if not isinstance(part, Mapping):
            continue
        picture: Any = part.get("image")
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, Mapping) else url
        if isinstance(url, str):
            if not url.startswith(_DATA_URL):
                raise InputError(
                    "the prompt refers to an image by a URL, which is not fetched; send it "
                    "inline, as a data URL"
                )
            found.append(decode_image(url, "image_url"))
        # a path in a prompt could name any file
        elif picture is not None and not isinstance(picture, str | os.PathLike):
            picture = picture.get("bytes") if isinstance(picture, Mapping) else picture
            # an attribute of every PIL image
            if not isinstance(picture, bytes) and not hasattr(picture, "getbands"):
                raise InputError(
                    "an image of the prompt is neither bytes nor a PIL image; send it "
                    "inline, as a data URL"
                )
            found.append(picture)
    return found

"""Reads Android in the Wild (arXiv 2307.10088): episodes that people recorded on phones.

Supported are TFRecord files of TF-Examples, one per step (gzip or plain; TensorFlow is not needed),
and JSON or JSON Lines with the same keys: a list of steps, a list of episodes of steps, or one step
per line. Values may be single, in lists of one, flat or nested.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from os import fspath
from pathlib import Path
from typing import Any

from prill.actions.phone import TAP_DISTANCE, dual_point
from prill.datasets.reading.images import ImageFolder, ImageStore, image_store, image_suffix
from prill.datasets.reading.records import decode_json, json_or_none, read_file, read_record
from prill.datasets.reading.sources import Source
from prill.datasets.reading.tfrecord import begins_tfrecord, parse_example, read_records
from prill.errors import InputError, UsageError
from prill.io.store import BadLine, open_lines, read_lines
from prill.types import Action, Observation, Point, Step, StrPath, Task, Trajectory

SETS = ("google_apps", "install", "web_shopping", "general", "single")
# results/action_type -> its name, and the kind of the action.
DUAL_POINT = 4
ACTION_TYPES = {
    3: ("TYPE", "type"),
    4: ("DUAL_POINT", "click"),
    5: ("PRESS_BACK", "back"),
    6: ("PRESS_HOME", "home"),
    7: ("PRESS_ENTER", "press"),
    10: ("STATUS_TASK_COMPLETE", "stop"),
    11: ("STATUS_TASK_IMPOSSIBLE", "stop"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AitwElement:
    """A screen element: its text or icon name, and its box (y, x, height, width) in fractions."""

    text: str
    type: str
    box: tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AitwStep:
    """One step: the screen and the person's action.

    Points are (x, y); they are None for actions that are not gestures.

    `image` is an encoded picture, or raw pixels of the shape `image_shape` (height, width,
    channels).
    """

    episode_id: str
    step_id: int
    goal: str
    action_type: int
    episode_length: int | None = None
    touch: Point | None = None
    lift: Point | None = None
    typed: str = ""
    elements: tuple[AitwElement, ...] = ()
    activity: str = ""
    device: str = ""
    image: bytes | None = None
    image_shape: tuple[int, int, int] = (0, 0, 0)


@dataclass(slots=True)
class _Episode:
    """An incomplete episode."""

    images: ImageFolder
    goal: str
    length: int | None
    device: str
    steps: dict[int, Step]
    boxes: dict[int, list[tuple[float, float, float, float]]]
    problem: str | None = None


def recognise(source: Source) -> bool:
    """Returns whether TF-Examples or rows have the data set's field names."""
    return source.has(_matches_format, "*")


def _matches_format(file: Source) -> bool:
    if begins_tfrecord(file.head[:12]):
        return b"episode_id" in file.head
    rows = file.value if isinstance(file.value, list) else [file.value]
    return (
        bool(rows)
        and isinstance(rows[0], dict)
        and {"episode_id", "results/action_type"} <= rows[0].keys()
    )


def load(source: StrPath, *, images: StrPath | None = None) -> Iterator[Trajectory | BadLine]:
    """Yields every episode of a file, or of the files of a folder.

    Steps of an episode may come in any order and between those of others, but within one file. An
    episode whose last steps are missing has `metadata["episode_length"]`; one with a gap or a
    repeated step is broken. Screenshots are written to the folder `images`; without one, to a
    temporary folder, where a trajectory's screenshots are removed when the next trajectory is
    requested. `metadata["boxes"]` has the boxes on each step's screen, as [x, y, width, height].
    `task.site` is the data set, if a path names it. Tasks have no id: episodes with the same goal
    have the same task. There are no labels.
    """
    with image_store(images) as store:
        for path in _files(Path(source)):
            site = next(
                (name for part in reversed(path.parts[-3:]) for name in SETS if name in part), None
            )
            yield from _episodes(read_steps(path), store, site)


def parse_action(step: AitwStep) -> Action:
    """Returns the step's action.

    Gestures have the text form of arXiv 2404.06474's agents, the others the data set's type name.
    """
    if step.touch and step.lift:
        return dual_point(step.touch, step.lift, swipe_beyond=TAP_DISTANCE)
    name, kind = ACTION_TYPES.get(step.action_type, (f"action type {step.action_type}", "other"))
    if kind == "type":
        return Action(
            kind, f"{name} {json.dumps(step.typed, ensure_ascii=False)}", value=step.typed
        )
    return Action(kind, name, value="Enter" if kind == "press" else None)


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    paths = [path for path in sorted(source.rglob("*")) if path.is_file() and _is_data(path)]
    if not paths:
        raise UsageError(f"{source}: this folder contains no TFRecord or JSON file")
    return paths


def _is_data(path: Path) -> bool:
    if path.name.startswith("."):
        return False
    if path.name.removesuffix(".gz").endswith((".json", ".jsonl")):
        return True
    with open_lines(path) as file:
        try:
            return begins_tfrecord(file.read(12))
        except (OSError, EOFError, zlib.error):
            return False


def _episodes(
    steps: Iterable[AitwStep | BadLine], store: ImageStore, site: str | None
) -> Iterator[Trajectory | BadLine]:
    episodes: dict[str, _Episode] = {}
    complete: set[str] = set()

    def ended(id: str) -> Iterator[Trajectory | BadLine]:
        episode = episodes.pop(id)
        yield _trajectory(id, episode, site)
        episode.images.close()

    for step in steps:
        if isinstance(step, BadLine):
            yield step
            continue
        id = step.episode_id
        if id in complete:
            yield BadLine(
                id,
                f"episode {id}",
                f"step {step.step_id} comes after all steps of the episode",
                b"",
            )
            continue
        if id not in episodes:
            episodes[id] = _Episode(
                store.new(), step.goal, step.episode_length, step.device, {}, {}
            )
        episode = episodes[id]
        if step.step_id in episode.steps:
            episode.problem = f"step {step.step_id} comes twice"
        episode.boxes[step.step_id] = [
            (x, y, width, height) for y, x, height, width in (e.box for e in step.elements)
        ]
        try:
            screenshot = _screenshot(step, episode.images)
            text = "\n".join(map(_line, step.elements)) or None
            episode.steps[step.step_id] = Step(Observation(screenshot, text), parse_action(step))
        except InputError as error:
            episode.problem = f"step {step.step_id}: {error}"
            episode.steps[step.step_id] = Step(Observation(), parse_action(step))
        if len(episode.steps) == episode.length:
            complete.add(id)
            yield from ended(id)
    for id in list(episodes):
        yield from ended(id)


def _trajectory(id: str, episode: _Episode, site: str | None) -> Trajectory | BadLine:
    count, problem = len(episode.steps), episode.problem
    gap = next((i for i in range(count) if i not in episode.steps), None)
    if gap is not None:
        problem = problem or f"step {gap} is missing or broken"
    if problem is not None:
        return BadLine(id, f"episode {id}", problem, b"")
    metadata: dict[str, Any] = {"device": episode.device} if episode.device else {}
    if episode.length is not None and episode.length != count:
        metadata["episode_length"] = episode.length
    if any(episode.boxes.values()):
        metadata["boxes"] = [episode.boxes[i] for i in range(count)]
    task = Task(goal=episode.goal, platform="android", site=site)
    return Trajectory(
        id=id,
        task=task,
        agent="human",
        steps=tuple(episode.steps[i] for i in range(count)),
        metadata=metadata,
    )


def _line(element: AitwElement) -> str:
    y, x, height, width = element.box
    text_line = (
        f"{json.dumps(element.text, ensure_ascii=False)} at ({x + width / 2:.2f}, "
        f"{y + height / 2:.2f})"
    )
    return f"{element.type} {text_line}" if element.type else text_line


def _screenshot(step: AitwStep, images: ImageFolder) -> str | None:
    """Returns the path of the written image.

    The data set's own files hold raw pixels, exports also PNG or JPEG.
    """
    if step.image is None:
        return None
    if image_suffix(step.image):
        return images.add(step.image)
    height, width, channels = step.image_shape
    if (
        channels not in (1, 3, 4)
        or min(height, width) < 1
        or len(step.image) != height * width * channels
    ):
        raise InputError(
            f"image/encoded has {len(step.image)} bytes, which are not PNG, JPEG or "
            f"{height} x {width} x {channels} pixels"
        )
    from PIL import Image

    out = BytesIO()
    Image.frombytes({1: "L", 3: "RGB", 4: "RGBA"}[channels], (width, height), step.image).save(
        out, "PNG", compress_level=1
    )
    return images.add(out.getvalue())


# The files: records of the data set's fields, parsed into steps


def read_steps(path: StrPath) -> Iterator[AitwStep | BadLine]:
    """Yields every step of one file, in order; a damaged file ends with one BadLine."""
    try:
        for place, record in _iter_records(path):
            if isinstance(record, str):
                yield BadLine(place, place, record, b"")
            else:
                yield read_record(place, partial(parse_step, record))
    except (InputError, OSError, EOFError, zlib.error) as error:
        yield BadLine(str(path), str(path), f"cannot be read further: {error}", b"")


def _iter_records(path: StrPath) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    """Yields every record with its position; a text in place of a record is an error message."""
    with open_lines(path) as file:
        head = file.read(12)
    if begins_tfrecord(head):
        return _tfrecord(path)
    if head.lstrip()[:1] in (b"{", b"["):
        return _json(path)
    raise UsageError(f"{path}: neither TFRecord nor JSON")


def _tfrecord(path: StrPath) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    number = 0
    with open_lines(path) as file:
        records = read_records(file, str(path), check_data=not isinstance(file, gzip.GzipFile))
        while True:
            try:
                data = next(records)
            except StopIteration:
                return
            except InputError as error:
                yield str(path), str(error).removeprefix(f"{path}: ")
                return
            number += 1
            try:
                yield f"{path}: record {number}", parse_example(data)
            except InputError as error:
                yield f"{path}: record {number}", str(error)


def _json(path: StrPath) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    if _has_lines(path):
        for line in read_lines(path):
            yield from _decoded(f"{path}:{line.number}", line.data)
        return
    try:
        data = read_file(path)
    except InputError as error:
        yield str(path), str(error)
    else:
        yield from _decoded(str(path), data)


def _has_lines(path: StrPath) -> bool:
    """Returns whether a file is JSON Lines: by name, or as a value is followed by another line."""
    if ".jsonl" in fspath(path):
        return True
    with open_lines(path) as file:
        first, more = file.readline(), file.readline().strip()
    return bool(more) and json_or_none(first) is not None


def _decoded(place: str, data: bytes) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    try:
        value = decode_json(data, object)
    except InputError as error:
        yield place, f"not valid JSON ({error})"
        return
    yield from _records(place, value)


def _records(place: str, value: object) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
    if isinstance(value, dict) and isinstance(value.get("steps"), list):
        value = value["steps"]
    if isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _records(f"{place}[{i}]", inner)
    elif isinstance(value, dict):
        yield place, value
    else:
        yield place, f"expected a JSON object, got {type(value).__name__}"


def parse_step(record: Mapping[str, Any]) -> AitwStep:
    """Parses a record of the data set's fields into a step. Raises InputError with the field."""
    fields = _Fields(record)
    action = fields.integer("results/action_type")
    gesture = action == DUAL_POINT
    return AitwStep(
        episode_id=fields.text("episode_id", required=True),
        step_id=fields.integer("step_id"),
        goal=fields.text("goal_info", required=True),
        action_type=action,
        episode_length=fields.integer("episode_length") if "episode_length" in record else None,
        touch=fields.point("results/yx_touch") if gesture else None,
        lift=fields.point("results/yx_lift") if gesture else None,
        typed=fields.text("results/type_action"),
        elements=fields.elements(),
        activity=fields.text("current_activity"),
        device=fields.text("device_type"),
        image=fields.image(),
        image_shape=(fields.size("height"), fields.size("width"), fields.size("channels")),
    )


class _Fields:
    """A record whose values may be wrapped in lists, and whose texts may be bytes."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record

    def text(self, name: str, *, required: bool = False) -> str:
        texts = self._texts(name)
        if required and not (texts and texts[0]):
            raise InputError(f"{name} is missing")
        return texts[0] if texts else ""

    def integer(self, name: str) -> int:
        (value,) = self._numbers(name, 1)
        if isinstance(value, float) and not value.is_integer():
            raise InputError(f"{name} is {value}, expected an integer")
        return int(value)

    def size(self, name: str) -> int:
        return self.integer(f"image/{name}") if f"image/{name}" in self._record else 0

    def point(self, name: str) -> Point:
        y, x = self._numbers(name, 2)
        return (x, y)

    def elements(self) -> tuple[AitwElement, ...]:
        boxes = self._numbers("image/ui_annotations_positions", None)
        texts, types = (
            self._texts("image/ui_annotations_text"),
            self._texts("image/ui_annotations_ui_types"),
        )
        if len(boxes) % 4 or any(
            len(names) not in (0, len(boxes) // 4) for names in (texts, types)
        ):
            raise InputError(
                f"{len(boxes)} numbers for boxes, {len(texts)} texts and {len(types)} types "
                "do not match"
            )
        return tuple(
            AitwElement(
                text=texts[i] if texts else "",
                type=types[i] if types else "",
                box=(boxes[4 * i], boxes[4 * i + 1], boxes[4 * i + 2], boxes[4 * i + 3]),
            )
            for i in range(len(boxes) // 4)
        )

    def image(self) -> bytes | None:
        values = list(_flat(self._record.get("image/encoded")))
        if not values or not values[0]:
            return None
        if isinstance(values[0], bytes):
            return values[0]
        try:
            return base64.b64decode(values[0], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise InputError("image/encoded is not base64") from None

    def _texts(self, name: str) -> list[str]:
        values = list(_flat(self._record.get(name)))
        if not all(isinstance(value, str | bytes | int) for value in values):
            raise InputError(f"{name} is not a string")
        return [
            value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            for value in values
        ]

    def _numbers(self, name: str, count: int | None) -> list[float]:
        values = list(_flat(self._record.get(name)))
        if not all(
            isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 64)
            for value in values
        ):
            raise InputError(
                f"{name} contains a value that is not a number, or an integer of more than 64 bits"
            )
        if count is not None and len(values) != count:
            raise InputError(f"{name} has {len(values)} numbers, expected {count}")
        return values


def _flat(value: object) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _flat(inner)
    elif value is not None:
        yield value

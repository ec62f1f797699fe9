"""Parses requests into trajectories, inline or by reference below the media root.

Paths are resolved through links and must end inside the root. Images are read once, here, so that
the judge receives exactly what was checked. No URL is ever fetched.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from prill.errors import InputError, UsageError
from prill.io.images import open_image, open_image_file
from prill.io.store import BadLine, decode_trajectory, read_trajectories, with_screenshots
from prill.refine.rewards import IndexedTrajectories, single_step
from prill.refine.rewards.serialization import collect_pictures
from prill.types import Observation, Trajectory

MAX_ID = 1000  # bytes of a trajectory's id, which verdicts, queues and pages contain
_NOWHERE = Path("/nonexistent")  # the root if no media root is set: no file is below it
_MARK = "inline image "


@dataclass(slots=True)
class _ImageTotals:
    """The totals of a request's images."""

    bytes: int = 0
    pixels: int = 0


@dataclass(frozen=True, slots=True)
class RequestParser:
    """Parses the trajectories of a request from its JSON.

    Raises InputError that says what is wrong, and where.
    """

    media_root: Path | None = None
    max_images: int = 200
    max_pixels: int = 16_000_000
    max_image_bytes: int = 512_000_000
    max_request_pixels: int = 4_000_000_000
    _seen: _ImageTotals = field(default_factory=_ImageTotals)

    def for_request(self) -> RequestParser:
        """Returns a parser for another request, with image counts reset."""
        return replace(self, _seen=_ImageTotals())

    def trajectory(self, record: Any, images: dict[str, str] | None = None) -> Trajectory:
        """Parses a record as in trajectories.jsonl.

        A screenshot is a data URL, a name in `images` (whose values are base64), or a path below
        the media root.
        """
        if not isinstance(record, dict):
            raise InputError(f"expected a trajectory as a JSON object, got {type(record).__name__}")
        names: dict[str, str] = {}
        root = _NOWHERE if self.media_root is None else Path(os.path.realpath(self.media_root))
        try:
            line = msgspec.json.encode(_without_inline(record, images or {}, names))
        except RecursionError:
            raise InputError("the record is nested too deeply") from None
        except UnicodeEncodeError as error:
            raise InputError(f"the text contains an unpaired surrogate: {error}") from None
        trajectory = decode_trajectory(line, root)
        check_id(trajectory.id)
        return self._with_images(
            trajectory, root, {name: content for content, name in names.items()}
        )

    def recorded(self, path: str, id: str | None = None) -> Trajectory:
        """Returns a trajectory of a file below the media root: the one with the id, or the only
        one.
        """
        root, file = self._below(path)
        check_id(id or "")
        try:
            found = _recorded(file)[id] if id is not None else _only(file, path)
        except (InputError, UsageError) as error:
            raise InputError(str(error).replace(file, path)) from None
        except OSError as error:
            raise InputError(f"path {path!r}: it cannot be read ({error.strerror})") from None
        check_id(found.id)
        return self._with_images(found, root, {})

    def of_value(self, value: Any) -> Trajectory | None:
        """Parses the value of a label or row field: a record, its JSON, `file.jsonl#id`, or a table
        of path and id.

        The result is None if the value is plainly something else, such as a reference answer.
        """
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                value = msgspec.json.decode(value)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                raise InputError(f"the label starts like JSON but is not valid: {error}") from None
        if isinstance(value, str):
            # A reference to a recording is never taken for an answer, even if it cannot be read
            # (because it is compressed or lacks an id).
            file, _, name = value.partition("#")
            return (
                self.recorded(file, name or None)
                if file.endswith((".jsonl", ".jsonl.gz"))
                else None
            )
        if not isinstance(value, dict):
            return None
        if "task" in value:
            return self.trajectory(value)
        path, id = value.get("path"), value.get("id")
        return (
            self.recorded(path, id if isinstance(id, str) else None)
            if isinstance(path, str)
            else None
        )

    def answered(self, prompt: str | Sequence[Mapping[str, Any]], response: str) -> Trajectory:
        """Makes a trajectory of one step from a prompt (a text, or a chat with images) and its
        response.
        """
        images: list[Any] = (
            []
            if isinstance(prompt, str)
            else [image for turn in prompt for image in collect_pictures(turn)]
        )
        if len(images) > self.max_images:
            raise InputError(f"more than {self.max_images} images, which is the limit")
        for index, data in enumerate(images):
            self.check(data, f"images[{index}]")
        return single_step(prompt, response, images)

    def _below(self, path: str) -> tuple[Path, str]:
        """Returns the media root, and the file that a path below it resolves to; links are followed
        first.
        """
        if self.media_root is None:
            raise InputError(
                "paths are not accepted, because the service was started without a media "
                "root; send the content inline"
            )
        root = Path(os.path.realpath(self.media_root))
        if "\0" in path or os.path.isabs(path):
            raise InputError(f"path {path!r}: expected a path inside the media root")
        try:
            file = os.path.realpath(os.path.join(root, path), strict=True)
        except (OSError, ValueError):
            file = ""
        # One message for both cases, so that clients cannot probe for files outside.
        if not file or os.path.commonpath((file, root)) != str(root) or not os.path.isfile(file):
            raise InputError(f"path {path!r}: no such file in the media root")
        return root, file

    def _with_images(
        self, trajectory: Trajectory, root: Path, inline: dict[str, str]
    ) -> Trajectory:
        count = 0
        # an image lives as long as an observation that names it; its bytes are not kept
        images: dict[str, Observation] = {}

        def load(path: str, at: str) -> str:
            nonlocal count
            count += 1
            if count > self.max_images:
                raise InputError(
                    f"more than {self.max_images} images, which is the limit - at `{at}`"
                )
            if path not in images:
                content = inline.get(os.path.basename(path))
                data = self._read(path, root, at) if content is None else _decoded(content, at)
                self.check(data, at)
                images[path] = Observation(data)
            return images[path].screenshot or ""

        return with_screenshots(trajectory, load)

    def _read(self, path: str, root: Path, at: str) -> bytes:
        _, file = self._below(os.path.relpath(path, root))
        try:
            with open_image_file(file) as opened:
                data: bytes = opened.read()
        except InputError:
            raise InputError(f"the image cannot be read - at `{at}`") from None
        return data

    def check(self, data: bytes, at: str) -> None:
        """Checks an image's size by its header alone, so that a decompression bomb is never
        unpacked.
        """
        width, height = open_image(BytesIO(data), f"at `{at}`").size
        if width * height > self.max_pixels:
            raise InputError(
                f"an image of {width}x{height} pixels; the limit is "
                f"{self.max_pixels / 1000000.0:g} megapixels - at `{at}`"
            )
        seen = self._seen
        seen.bytes, seen.pixels = seen.bytes + len(data), seen.pixels + width * height
        if seen.bytes > self.max_image_bytes:
            raise InputError(
                f"the images of the request have more than {self.max_image_bytes:,} bytes, "
                f"which is the limit - at `{at}`"
            )
        if seen.pixels > self.max_request_pixels:
            most = f"{self.max_request_pixels / 1e6:g} megapixels"
            raise InputError(
                f"the images of the request have more than {most}, which is the limit - at `{at}`"
            )


def check_id(id: str) -> None:
    """Raises InputError for an id that is too long."""
    if (size := len(id.encode("utf-8", "replace"))) > MAX_ID:
        raise InputError(f"the id has {size:,} bytes; the limit is {MAX_ID:,}")


@lru_cache(64)
def _recorded(file: str) -> IndexedTrajectories:
    return IndexedTrajectories(file)


def _only(file: str, path: str) -> Trajectory:
    items = read_trajectories(file, on_error="yield")
    found = next(items, None)
    if found is None or next(items, None) is not None:
        raise InputError(
            f"{path} contains "
            f"{'no trajectory' if found is None else 'several; give the `id` of one'}"
        )
    if isinstance(found, BadLine):
        raise InputError(found.problem)
    return found


def decoded_image(text: str, at: str) -> bytes:
    """Decodes a data URL or base64 text. Raises InputError."""
    return _decoded(_base64_of(text), at)


def _base64_of(text: str) -> str:
    return text.partition(",")[2] if text.startswith("data:") else text


def _decoded(text: str, at: str) -> bytes:
    # the standard library's decoder takes twenty times as long and holds the GIL
    from pybase64 import b64decode

    try:
        return bytes(b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise InputError(f"the image is not base64 - at `{at}`") from None


def _without_inline(value: Any, images: dict[str, str], names: dict[str, str]) -> Any:
    """Returns the record with names in place of inline images.

    There is one name for each content; they are added to `names`. Raises InputError for a URL.
    """
    if isinstance(value, list):
        return [_without_inline(part, images, names) for part in value]
    if not isinstance(value, dict):
        return value
    changed = {
        key: _without_inline(part, images, names) if key != "metadata" else part
        for key, part in value.items()
    }
    screenshot = changed.get("screenshot")
    if isinstance(screenshot, str) and screenshot:
        if screenshot in images:
            changed["screenshot"] = _named(_base64_of(images[screenshot]), names)
        elif screenshot.startswith("data:"):
            head, _, content = screenshot.partition(",")
            if not head.endswith(";base64"):
                raise InputError(
                    "a data URL of a screenshot must be base64: data:image/png;base64,…"
                )
            changed["screenshot"] = _named(content, names)
        elif "://" in screenshot:
            raise InputError(
                "screenshots are not fetched from URLs; send them inline (data:image/png;base64,…)"
            )
    return changed


def _named(content: str, names: dict[str, str]) -> str:
    return names.setdefault(content, f"{_MARK}{len(names)}")

"""Parses requests into trajectories, inline or by reference below the media root.

Paths are resolved through links and must end inside the root. Images are read once, here, so that
the judge receives exactly what was checked. No URL is ever fetched.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from prill.errors import InputError, UsageError
from prill.io.images import open_image, open_image_file
from prill.io.lines import UNREADABLE, decode_record
from prill.io.store import with_screenshots
from prill.refine.rewards import IndexedTrajectories, single_step
from prill.refine.rewards.serialization import collect_pictures, read_record
from prill.types import Observation, Trajectory

_NOWHERE = Path("/nonexistent")  # the root if no media root is set: no file is below it


@dataclass(slots=True)
class RequestParser:
    """Parses the trajectories of a request from its JSON.

    Raises InputError that says what is wrong, and where.
    """

    media_root: Path | None = None
    max_images: int = 200
    max_pixels: int = 16_000_000
    max_image_bytes: int = 512_000_000
    _image_bytes: int = 0  # so far

    def for_request(self) -> RequestParser:
        """Returns a parser for another request, whose images are counted from zero."""
        return replace(self, _image_bytes=0)

    def trajectory(self, record: Any, images: dict[str, str] | None = None) -> Trajectory:
        """Parses a record as in trajectories.jsonl.

        A screenshot is a data URL, a name in `images` (whose values are base64), or a path below
        the media root.
        """
        if not isinstance(record, dict):
            raise InputError(f"expected a trajectory as a JSON object, got {type(record).__name__}")
        root = _NOWHERE if self.media_root is None else Path(os.path.realpath(self.media_root))
        return read_record(record, root, self._loader(root), images or {})

    def recorded(self, path: str, id: str | None) -> Trajectory:
        """Returns the trajectory with the id of a file below the media root."""
        root, file = self._below(path)
        if not id:
            raise InputError(f"path {path!r}: give the `id` of a trajectory, too")
        try:
            found = _recorded(file)[id]
        except (InputError, UsageError) as error:
            raise InputError(str(error).replace(file, path)) from None
        return with_screenshots(found, self._loader(root))

    def of_value(self, value: Any) -> Trajectory | None:
        """Parses the value of a label or row field: a record, its JSON, `file.jsonl#id`, or a table
        of path and id.

        The result is None if the value is plainly something else, such as a reference answer.
        """
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                value = decode_record(value.encode())
            except UNREADABLE as error:
                raise InputError(f"the label starts like JSON but is not valid: {error}") from None
        if isinstance(value, str):
            # A reference to a recording is never taken for an answer, even if it cannot be read
            # (because it is compressed or lacks an id).
            file, _, name = value.partition("#")
            value = {"path": file, "id": name} if file.endswith((".jsonl", ".jsonl.gz")) else None
        if not isinstance(value, dict):
            return None
        if "task" in value:
            return self.trajectory(value)
        path, id = value.get("path"), value.get("id")
        if not isinstance(path, str):
            return None
        return self.recorded(path, id if isinstance(id, str) else None)

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

    def _loader(self, root: Path) -> Callable[[str | bytes, str], str]:
        """Returns a function that reads, checks and counts the images of one trajectory."""
        count = 0
        # an image lives as long as an observation that names it; its bytes are not kept
        images: dict[str | bytes, Observation] = {}

        def load(image: str | bytes, at: str) -> str:
            nonlocal count
            count += 1
            if count > self.max_images:
                raise InputError(
                    f"more than {self.max_images} images, which is the limit - at `{at}`"
                )
            key = image if isinstance(image, str) else hashlib.sha256(image).digest()
            if key not in images:
                data = self._read(image, root, at) if isinstance(image, str) else image
                self.check(data, at)
                images[key] = Observation(data)
            return images[key].screenshot or ""

        return load

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
        self._image_bytes += len(data)
        if self._image_bytes > self.max_image_bytes:
            raise InputError(
                f"the images of the request have more than {self.max_image_bytes:,} bytes, "
                f"which is the limit - at `{at}`"
            )


@lru_cache(64)
def _recorded(file: str) -> IndexedTrajectories:
    return IndexedTrajectories(file)

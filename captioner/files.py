"""Caption files (JSON Lines, keyed by image hash) and the captioner that reads them.

A file contains the captions of one captioner, or the decisions of one reviewer (`choice`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.captioner.cache import image_id
from prill.captioner.vision import marked
from prill.errors import NoEvidenceError, UsageError
from prill.io.cache import scratch_database
from prill.io.store import read_records
from prill.io.verdict_log import VerdictLog
from prill.types import Observation, StrPath, UnscoredReason

Choice = Literal["accepted", "mended", "rejected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """A line of a caption file: a picture's caption, or the reason why there is none.

    `id` is `sha256:` and the hash of the picture's file. `image` is the path of a file with that
    content, relative to the caption file. `truncated` means that the token limit cut the caption.
    `choice` is a reviewer's decision; `captioner` is then the reviewer's name, and a corrected
    caption is the reviewer's.
    """

    id: str
    captioner: str
    image: str = ""
    caption: str | None = None
    truncated: bool = False
    unscored: UnscoredReason | None = None
    reason: str = ""
    choice: Choice | None = None

    @property
    def key(self) -> str:
        """The key in the verdict log, which is the content hash."""
        return ""

    @property
    def evaluator(self) -> str:
        """The captioner, in the form that the log expects."""
        return self.captioner


class CaptionLog(VerdictLog):
    """A caption file open for writing.

    It is append-only and repaired after a crash. After closing, each picture has one line.
    """

    noun: ClassVar[str] = "caption"
    maker: ClassVar[str] = "captioner"
    record: ClassVar[type[Any]] = Caption


def read_captions(path: StrPath) -> Iterator[Caption]:
    """Reads the captions of a caption file, in order.

    If an image occurs twice, the last caption counts.

    Args:
        path: The caption file. An incomplete last line, left by a crash, is ignored.

    Raises:
        InputError: A line is broken.
        UsageError: The file holds no captions.
    """
    empty = "the file is empty; prill caption writes captions"
    captions = read_records(path, Caption, empty)
    if (first := next(captions, None)) is None:  # its only line is incomplete
        raise UsageError(f"{path}: {empty}")
    yield first
    yield from captions


def read_decisions(path: StrPath) -> dict[str, Caption]:
    """Reads a reviewer's decisions by picture id; empty if there is no file. Raises InputError."""
    if not os.path.exists(path) or not Path(path).stat().st_size:
        return {}
    newest = {caption.id: caption for caption in read_captions(path)}
    return {id: caption for id, caption in newest.items() if caption.choice is not None}


class FileCaptioner:
    """A captioner that returns captions from a file that `prill caption` wrote, without calling a
    model.

    Captions are found by image content. The file is read once, at construction, into a temporary
    database, so that memory use does not grow with the file.

    Raises:
        UsageError: The file contains no captions, or captions of several captioners.
        InputError: The file is malformed.
    """

    def __init__(self, path: Annotated[str, Meta(description="Caption file.")]) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._database = scratch_database(self)
        self._database.execute(
            "CREATE TABLE captions (id TEXT PRIMARY KEY, text TEXT, problem TEXT) WITHOUT ROWID"
        )
        names: set[str] = set()
        for caption in read_captions(path):
            names.add(caption.captioner)
            if len(names) > 1:
                raise UsageError(
                    f"{path}: contains captions of several captioners "
                    f"({', '.join(sorted(names))}); keep each in a file of its own"
                )
            self._database.execute(
                "INSERT OR REPLACE INTO captions VALUES (?, ?, ?)", _row(caption)
            )
        self.name = names.pop()

    def __reduce__(self) -> tuple[type[FileCaptioner], tuple[str]]:
        return FileCaptioner, (os.path.abspath(self.path),)

    async def __call__(self, observation: Observation) -> str:
        """Returns the caption of the screenshot.

        Raises:
            NoEvidenceError: The file has no caption of the screenshot, or there is no screenshot.
            InputError: The image cannot be read.
        """
        if observation.screenshot is None:
            raise NoEvidenceError(
                "the state has no screenshot, which is needed to find its caption"
            )
        id = await asyncio.to_thread(image_id, observation.screenshot)
        with self._lock:
            row = self._database.execute(
                "SELECT text, problem FROM captions WHERE id = ?", (id,)
            ).fetchone()
        name = Path(observation.screenshot).name
        if row is None:
            raise NoEvidenceError(
                f"{self.path} has no caption for the screenshot {name}; make one with prill caption"
            )
        if row[0] is None:
            raise NoEvidenceError(f"{self.path} has no caption for the screenshot {name}: {row[1]}")
        return str(row[0])


def _row(caption: Caption) -> tuple[str, str | None, str]:
    if caption.caption is not None and caption.caption.strip():
        return caption.id, marked(caption.caption, cut=caption.truncated), ""
    if caption.choice == "rejected":
        return caption.id, None, "it was rejected"
    return (
        caption.id,
        None,
        f"{caption.unscored}: {caption.reason}" if caption.unscored else "it is empty",
    )

"""Reads screenshots with or without descriptions: a folder of images, or a list of `{"img": path,
"cap": text}` next to them.

The captioner's training data of arXiv 2404.06474 are such a list (final.json, written by its
agent_eval/captioner/annotate_screenshots.py). Every image becomes a trajectory of one state with
its description as the caption.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from prill.datasets.reading.records import Record, decode_json, image_in, read_file, read_record
from prill.datasets.reading.sources import members
from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.types import Observation, StrPath, Task, Trajectory

GOAL = "Describe this screen"
_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})
# What the authors' script writes in place of a description: a failed call, or a page that is not in
# English.
_FAILURES = frozenset({"ERROR", "LANG-ERROR", "EXCEPTION"})


class _Pair(Record):
    img: str
    cap: str | None = None


def load(source: StrPath) -> Iterator[Trajectory | BadLine]:
    """Yields every image as a trajectory with that final state; the id is the image's path below
    its folder.

    Args:
        source: A JSON list of pairs, a folder that holds one such list at its top, or a folder of
            images.

    Raises:
        UsageError: There is neither a list nor an image, or there are several lists.
    """
    root = Path(source)
    lists = [root] if root.is_file() else members(root, "*.json")
    if len(lists) > 1:
        raise UsageError(
            f"{root}: contains {len(lists)} lists "
            f"({', '.join(path.name for path in lists)}); give one of them"
        )
    if lists:
        yield from _pairs(lists[0])
        return
    pictures = (
        Path(folder, name)
        for folder, folders, names in os.walk(root)
        for name in sorted(names)
        if Path(name).suffix.lower() in _SUFFIXES and folders.sort() is None
    )
    found = False
    for path in pictures:
        found = True
        yield _trajectory(path.relative_to(root).as_posix(), str(path.resolve()), None)
    if not found:
        raise UsageError(
            f"{root}: expected images ({', '.join(sorted(_SUFFIXES))}), or a JSON list of "
            "img and cap"
        )


def _pairs(path: Path) -> Iterator[Trajectory | BadLine]:
    try:
        rows = decode_json(read_file(path), list[msgspec.Raw])
    except InputError as error:
        raise UsageError(f"{path}: {error}") from None
    folder = path.parent / "images" if (path.parent / "images").is_dir() else path.parent
    for i, row in enumerate(rows):
        place = f"{path}[{i}]"
        yield read_record(place, lambda row=row: _pair(decode_json(bytes(row), _Pair), folder))  # type: ignore[misc]


def _pair(pair: _Pair, folder: Path) -> Trajectory:
    # the list holds paths of the machine that wrote it
    name = pair.img.replace("\\", "/").rpartition("/")[2]
    if not name:
        raise InputError(f"img {pair.img!r} is not a file name")
    if pair.cap in _FAILURES:
        raise InputError(f"{name} has no description; the list has {pair.cap}")
    return _trajectory(name, image_in(folder, name), pair.cap or None)


def _trajectory(name: str, path: str, caption: str | None) -> Trajectory:
    return Trajectory(
        id=name, task=Task(goal=GOAL, platform="other"), final=Observation(path, caption=caption)
    )

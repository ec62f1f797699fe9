"""Writes what a loader reads as a folder in prill's own formats, with the images inside."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from prill.errors import InputError, UsageError
from prill.store import encode, encode_trajectory
from prill.types import LabelRecord, Observation, Trajectory


def convert(trajectories: Iterable[Trajectory], labels: Iterable[LabelRecord], out: Path) -> tuple[int, int]:
    """Fills `out` with trajectories.jsonl, labels.jsonl and images/; gives the numbers of trajectories and labels.

    Images are copied under a name made from their content. The two files appear when both are whole. Raises UsageError when
    one is there already, InputError for an image that cannot be read.
    """
    names = ("trajectories.jsonl", "labels.jsonl")
    for name in names:
        if (out / name).exists():
            raise UsageError(f"{out / name} exists already; choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    parts = [out / f"{name}.part" for name in names]
    images = _Images(out / "images")
    converted = labelled = 0
    with parts[0].open("wb") as file:
        for converted, trajectory in enumerate(trajectories, 1):  # noqa: B007 (the count)
            file.write(encode_trajectory(images.copied(trajectory), out))
    with parts[1].open("wb") as file:
        for labelled, label in enumerate(labels, 1):  # noqa: B007 (the count)
            file.write(encode(label))
    for part, name in zip(parts, names, strict=True):
        part.replace(out / name)
    return converted, labelled


class _Images:
    """The folder of copied images; one that several steps share is copied once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies: dict[str, str] = {}

    def copied(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with its screenshots in this folder."""
        steps = tuple(replace(step, observation=self._observed(step.observation)) for step in trajectory.steps)
        final = trajectory.final and self._observed(trajectory.final)
        return replace(trajectory, steps=steps, final=final)

    def _observed(self, observation: Observation) -> Observation:
        path = observation.screenshot
        if path is None:
            return observation
        if path not in self._copies:
            self._copies[path] = self._copy(path)
        return replace(observation, screenshot=self._copies[path])

    def _copy(self, path: str) -> str:
        try:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            self._folder.mkdir(exist_ok=True)
            copy = self._folder / (digest[:16] + Path(path).suffix.lower())
            shutil.copyfile(path, copy)
        except OSError as error:
            raise InputError(f"{path}: the image cannot be copied: {error.strerror}") from None
        return str(copy)

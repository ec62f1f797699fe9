"""Android in the Wild (arXiv 2307.10088): people's episodes on phones, as trajectories. Its files: see `aitw_steps`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

from prill.actions.phone import dual_point
from prill.datasets.aitw_steps import ACTION_TYPES, AitwElement, AitwStep, read_steps
from prill.datasets.albums import Album, Albums, albums, image_suffix
from prill.datasets.tfrecord import begins_tfrecord
from prill.errors import InputError, UsageError
from prill.store import BadLine, open_lines
from prill.types import Action, Observation, Step, Task, Trajectory

SETS = ("google_apps", "install", "web_shopping", "general", "single")
# Touch and lift further apart than this fraction of the screen are a swipe: the data set's own action matching.
SWIPE_DISTANCE = 0.04


def load(source: str | PathLike[str], *, images: str | PathLike[str] | None = None) -> Iterator[Trajectory | BadLine]:
    """Every episode of a file, or of the files of a folder.

    Steps of an episode may come in any order and between those of others, but within one file. An episode that the file
    ends before its last step comes with `metadata["episode_length"]`; one with a gap or a doubled step is broken.
    Screenshots are written to the folder `images`; without one, to a temporary folder, and a trajectory's go when the next
    trajectory is asked for. `task.site` is the data set, where a path names it. Tasks have no id: episodes of one goal are
    of one task. There are no labels.
    """
    with albums(images) as store:
        for path in _files(Path(source)):
            site = next((name for part in reversed(path.parts[-3:]) for name in SETS if name in part), None)
            yield from _episodes(read_steps(path), store, site)


def action_of(step: AitwStep) -> Action:
    """The step's action; gestures have the text form of arXiv 2404.06474's agents, the others the data set's type name."""
    if step.touch and step.lift:
        return dual_point(step.touch, step.lift, swipe_beyond=SWIPE_DISTANCE)
    name, kind = ACTION_TYPES.get(step.action_type, (f"action type {step.action_type}", "other"))
    if kind == "type":
        return Action(kind, f"{name} {json.dumps(step.typed, ensure_ascii=False)}", value=step.typed)
    return Action(kind, name, value="Enter" if kind == "press" else None)


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    found = [path for path in sorted(source.rglob("*")) if path.is_file() and _is_data(path)]
    if not found:
        raise UsageError(f"{source}: no TFRecord and no JSON file in this folder")
    return found


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


@dataclass(slots=True)
class _Open:
    """An episode of which not all steps have come."""

    album: Album
    goal: str
    length: int | None
    device: str
    steps: dict[int, Step]
    problem: str | None = None


def _episodes(steps: Iterable[AitwStep | BadLine], store: Albums, site: str | None) -> Iterator[Trajectory | BadLine]:
    episodes: dict[str, _Open] = {}
    complete: set[str] = set()

    def ended(id: str) -> Iterator[Trajectory | BadLine]:
        episode = episodes.pop(id)
        yield _trajectory(id, episode, site)
        episode.album.close()

    for step in steps:
        if isinstance(step, BadLine):
            yield step
            continue
        id = step.episode_id
        if id in complete:
            yield BadLine(id, f"episode {id}", f"step {step.step_id} comes after all steps of the episode", b"")
            continue
        if id not in episodes:
            episodes[id] = _Open(store.new(), step.goal, step.episode_length, step.device, {})
        episode = episodes[id]
        if step.step_id in episode.steps:
            episode.problem = f"step {step.step_id} comes twice"
        try:
            screenshot = _screenshot(step, episode.album)
            text = "\n".join(map(_line, step.elements)) or None
            episode.steps[step.step_id] = Step(Observation(screenshot, text), action_of(step))
        except InputError as error:
            episode.problem = f"step {step.step_id}: {error}"
            episode.steps[step.step_id] = Step(Observation(), action_of(step))
        if len(episode.steps) == episode.length:
            complete.add(id)
            yield from ended(id)
    for id in list(episodes):
        yield from ended(id)


def _trajectory(id: str, episode: _Open, site: str | None) -> Trajectory | BadLine:
    count, problem = len(episode.steps), episode.problem
    gap = next((i for i in range(count) if i not in episode.steps), None)
    if gap is not None:
        problem = problem or f"step {gap} is missing or broken"
    if problem is not None:
        return BadLine(id, f"episode {id}", problem, b"")
    metadata: dict[str, Any] = {"device": episode.device} if episode.device else {}
    if episode.length is not None and episode.length != count:
        metadata["episode_length"] = episode.length
    task = Task(goal=episode.goal, platform="android", site=site)
    return Trajectory(id=id, task=task, agent="human", steps=tuple(episode.steps[i] for i in range(count)), metadata=metadata)


def _line(element: AitwElement) -> str:
    y, x, height, width = element.box
    place = f"{json.dumps(element.text, ensure_ascii=False)} at ({x + width / 2:.2f}, {y + height / 2:.2f})"
    return f"{element.type} {place}" if element.type else place


def _screenshot(step: AitwStep, album: Album) -> str | None:
    """The path of the written picture. The data set's own files hold raw pixels, exports also PNG or JPEG."""
    if step.image is None:
        return None
    if image_suffix(step.image):
        return album.add(step.image)
    height, width, channels = step.image_shape
    if channels not in (1, 3, 4) or len(step.image) != height * width * channels:
        raise InputError(
            f"image/encoded has {len(step.image)} bytes: no PNG or JPEG, nor {height} x {width} x {channels} pixels"
        )
    from PIL import Image

    out = BytesIO()
    Image.frombytes({1: "L", 3: "RGB", 4: "RGBA"}[channels], (width, height), step.image).save(out, "PNG", compress_level=1)
    return album.add(out.getvalue())

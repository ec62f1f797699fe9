"""Writes a folder in the layout of Agent-Eval-Refine (see `unified`), for tools that read only that."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from prill.datasets.unified import ACTION_FIELDS, LOG
from prill.errors import InputError, UsageError
from prill.types import LabelRecord, Observation, Step, Trajectory


def write(trajectories: Iterable[Trajectory], labels: Iterable[LabelRecord], folder: str | Path) -> int:
    """Fills a new folder and gives the number of trajectories. All must be of one platform: web, android or ios.

    Kept are goal, answer, agent, site, start URL, screenshots, page texts, URLs, captions, thoughts and the actions' texts;
    what the layout has no place for (points, earlier turns, metadata) is left out, as are labels without a decision.
    Raises UsageError when the folder is in use or the platforms differ, InputError when a screenshot cannot be copied.
    """
    out = Path(folder)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; choose another folder")
    for name in ("images", "captions", "evals"):
        (out / name).mkdir(parents=True, exist_ok=True)
    platforms: set[str] = set()
    captions: dict[str, str] = {}
    records: list[dict[str, Any]] = []
    for trajectory in trajectories:
        platforms.add(trajectory.task.platform)
        if len(platforms) > 1 or not platforms <= ACTION_FIELDS.keys():
            raise UsageError(f"one of web, android, ios for all trajectories is possible, not: {', '.join(sorted(platforms))}")
        records.append(_record(trajectory, len(records), out / "images", captions))
    places = {record["uid"]: i for i, record in enumerate(records)}
    words = {True: "Success", False: "Failure"}
    lines = [
        {
            "dataset_path": out.name,
            "task_idx": places[label.id],
            "task_uid": label.id,
            "user_uid": label.annotator or label.source,
            "annotation": words[label.success],
            "comment": label.note or "",
        }
        for label in labels
        if label.success is not None and label.id in places
    ]
    (out / "meta.json").write_bytes(msgspec.json.encode({"platform": next(iter(platforms), "other")}))
    if captions:
        (out / "captions" / "prill.json").write_bytes(msgspec.json.encode(captions))
    (out / "evals" / "prill.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    (out / LOG).write_bytes(msgspec.json.encode(records))
    return len(records)


def _record(trajectory: Trajectory, number: int, images: Path, captions: dict[str, str]) -> dict[str, Any]:
    """One entry of the log; its pictures are copied, their captions added to `captions`."""
    task = trajectory.task
    field = ACTION_FIELDS[task.platform]
    pairs: list[tuple[Observation, Step | None]] = [(step.observation, step) for step in trajectory.steps]
    if trajectory.final is not None:
        pairs.append((trajectory.final, None))
    steps: list[dict[str, Any]] = []
    for seen, step in pairs:
        image = _copied(seen, images, f"{number}_{len(steps)}")
        if image and seen.caption:
            captions[Path(image).stem] = seen.caption
        done = {field: step.action.text or step.action.kind, "thought": step.thought} if step else {}
        other = {key: value for key, value in done.items() if value}
        steps.append({"img": image, "other": other, "accessibility_tree": seen.text, "url": seen.url})
    config = {"sites": [task.site] if task.site else [], "start_url": task.start_url}
    return {
        "uid": trajectory.id,
        "intent": task.goal,
        "response": trajectory.answer or "",
        "other": {"config": config, "agent": trajectory.agent},
        "steps": steps,
    }


def _copied(observation: Observation, folder: Path, name: str) -> str | None:
    if not observation.screenshot:
        return None
    source = Path(observation.screenshot)
    try:
        shutil.copyfile(source, folder / f"{name}{source.suffix.lower()}")
    except OSError as error:
        raise InputError(f"{source}: the image cannot be copied: {error.strerror}") from None
    return f"{name}{source.suffix.lower()}"

"""The folders of Agent-Eval-Refine (arXiv 2404.06474): trajectory_log.json, images/, captions/*.json, evals/*.jsonl.

Folders of its Reflexion runs (records/*.json beside images/) are read as well, one trajectory a trial. `unified_folders`
writes such a folder.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import msgspec

from prill.actions.phone import parse_android, parse_ios
from prill.actions.webarena import parse_action, site_of, split_answer
from prill.datasets.reading.records import decoded, image_in, made, read_rows, whole_file
from prill.errors import InputError, UsageError
from prill.store import BadLine
from prill.types import Action, LabelRecord, Observation, Platform, Step, Task, Trajectory

LOG, RECORDS = "trajectory_log.json", "records"
# The platforms that the original tells apart, and the field in which it keeps the action of each.
ACTION_FIELDS = {"web": "raw_action", "android": "action", "ios": "translated_action"}
_PARSERS: dict[str, Callable[[str], Action]] = {"web": parse_action, "android": parse_android, "ios": parse_ios}
_T = TypeVar("_T")
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class _Done:
    raw_action: str | None = None
    action: str | None = None
    translated_action: str | None = None
    thought: str | None = None


@dataclass(frozen=True)
class _Step:
    img: str | None = None
    other: _Done | None = None
    accessibility_tree: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class _Config:
    # The rest of a WebArena configuration holds the reference answers: it is not read.
    task_id: int | str | None = None
    sites: tuple[str, ...] = ()
    start_url: str | None = None


@dataclass(frozen=True)
class _Other:
    config: _Config | None = None
    agent: str | None = None


@dataclass(frozen=True)
class _Record:
    uid: str | int
    intent: str
    response: str | None = None
    other: _Other | None = None
    steps: tuple[_Step, ...] = ()


@dataclass(frozen=True)
class _Trial(_Record):
    trail_idx: int | None = None
    captions: tuple[str | None, ...] | None = None


@dataclass(frozen=True)
class _Score:
    oracle_score: float | bool | None = None


@dataclass(frozen=True)
class _Judgement:
    task_uid: str | int = ""
    task_idx: int | None = None
    user_uid: str | int | None = None
    annotation: str | bool | None = None
    comment: str | None = None


@dataclass(frozen=True)
class _Meta:
    platform: str | None = None
    domain: str | None = None


@dataclass(frozen=True)
class _Folder:
    path: Path
    platform: Platform
    captions: dict[str, str | None] = field(default_factory=dict)
    captions_name: str | None = None


def load(folder: str | PathLike[str], *, captions: str | None = None) -> Iterator[Trajectory | BadLine]:
    """Every trajectory, without its judgements and scores. A last step without an action is the final state.

    `captions` names one of the files in captions/ (default: the first by name); `metadata["captions"]` says which was used.
    A picture without a caption has None. Raises UsageError when the platform is unknown: see `platform_of`.
    """
    root = Path(folder)
    if (root / LOG).is_file():
        name, texts = _captions(root, captions)
        source = _Folder(root, platform_of(root), texts, name)
        for place, data in _elements(root / LOG):
            yield _read(place, data, _Record, lambda record: _trajectory(record, source))
    elif (root / RECORDS).is_dir():
        source = _Folder(root, platform_of(root, unknown="web"))
        for path in _trials(root):
            yield _read(str(path), path, _Trial, partial(_trial, path.stem, source))
    else:
        raise UsageError(f"{root}: expected a folder with {LOG} in it, or with {RECORDS}/*.json of a Reflexion run")


def load_labels(folder: str | PathLike[str]) -> Iterator[LabelRecord | BadLine]:
    """The judgements, one for each trajectory and annotator: the last line counts. The first annotator's is the gold label.

    Void lines (no task) are passed over. The source is `oracle` where the file's or the annotator's name says so, else
    `human`. Reflexion runs have the oracle's score of each trial: success is a score of exactly 1.
    """
    root = Path(folder)
    if not (root / LOG).is_file() and (root / RECORDS).is_dir():
        for path in _trials(root):
            item = _read(str(path), path, _Score, lambda record: record.oracle_score)
            if isinstance(item, BadLine):
                yield item
            elif item is not None:
                yield LabelRecord(id=path.stem, success=float(item) == 1.0, source="oracle")
        return
    found: dict[tuple[str, str, str | None], LabelRecord] = {}
    for path in sorted((root / "evals").glob("*.jsonl")):
        for label in read_rows(path, _Judgement, partial(_labels, path.stem)):
            if isinstance(label, BadLine):
                yield label
            else:
                found[label.id, label.source, label.annotator] = label
    yield from found.values()


def platform_of(folder: Path, *, unknown: Platform | None = None) -> Platform:
    """What meta.json says under `platform` or `domain`; else what the path says; else `unknown`.

    In the path, the deepest folder counts that has a word beginning with web, android or ios: `runs/webarena_gpt4` is web,
    `website/android_runs` is android. Raises UsageError when nothing says it, or a folder's name says two.
    """
    known = [name for name in get_args(Platform) if name != "other"]
    if (folder / "meta.json").is_file():
        meta = _file(folder / "meta.json", _Meta)
        if said := meta.platform or meta.domain:
            if said not in get_args(Platform):
                raise UsageError(f"{folder / 'meta.json'}: platform {said!r} is none of {', '.join(known)}, other")
            return cast(Platform, said)
    for part in reversed(folder.resolve().parts):
        words = re.findall(r"[a-z]+", part.lower())
        named = [name for name in ACTION_FIELDS if any(word.startswith(name) for word in words)]
        if len(named) == 1:
            return cast(Platform, named[0])
        if named:
            raise UsageError(f"{folder}: {part!r} names {' and '.join(named)}; {_advice(folder)}")
    if unknown is not None:
        return unknown
    raise UsageError(f"{folder}: the path names no platform; {_advice(folder)}")


def _advice(folder: Path) -> str:
    return f'write the platform to {folder / "meta.json"}, for example {{"platform": "web"}}'


def _trajectory(record: _Record, folder: _Folder) -> Trajectory:
    uid = str(record.uid)
    if not uid:
        raise InputError("uid is empty")
    states = [(_observation(step, folder), _said(step, folder.platform), step.other) for step in record.steps]
    final = states.pop()[0] if states and states[-1][1] is None else None
    parse = _PARSERS.get(folder.platform, partial(Action, "other"))
    steps = tuple(
        Step(observation, parse(said) if said else Action("other"), (done.thought or None) if done else None)
        for observation, said, done in states
    )
    answer, ended_by = split_answer(record.response)
    extra = {"captions": folder.captions_name, "ended_by": ended_by}
    other = record.other or _Other()
    return Trajectory(
        id=uid,
        task=_task(uid, record.intent, other.config, folder.platform),
        agent=other.agent,
        steps=steps,
        final=final,
        answer=answer,
        metadata={key: value for key, value in extra.items() if value is not None},
    )


def _trial(name: str, folder: _Folder, record: _Trial) -> Trajectory:
    """A Reflexion trial under its file's name, `<task>_<trial>`. Captions are those of the last states."""
    pictures = [step.img for step in record.steps]
    texts = (record.captions or ())[-len(pictures) :]
    described = zip(pictures[len(pictures) - len(texts) :], texts, strict=True)
    captions = {Path(picture).stem: text for picture, text in described if picture}
    found = _trajectory(record, replace(folder, captions=captions))
    metadata = {**found.metadata, "trial": record.trail_idx} if record.trail_idx is not None else found.metadata
    return replace(found, id=name, metadata=metadata)


def _observation(step: _Step, folder: _Folder) -> Observation:
    if not step.img:
        return Observation(text=step.accessibility_tree, url=step.url)
    # The original cuts four characters off the name; for .jpeg and .webp that leaves a dot.
    caption = folder.captions.get(Path(step.img).stem) or folder.captions.get(step.img[:-4])
    return Observation(image_in(folder.path / "images", step.img), step.accessibility_tree, step.url, caption or None)


def _said(step: _Step, platform: Platform) -> str | None:
    """The action as logged; None for a state after which nothing was done."""
    if step.other is None:
        return None
    own = getattr(step.other, ACTION_FIELDS.get(platform, "action"))
    found = own or step.other.raw_action or step.other.action or step.other.translated_action
    return found if isinstance(found, str) else None


def _task(uid: str, goal: str, config: _Config | None, platform: Platform) -> Task:
    config = config or _Config()
    id = f"webarena.{config.task_id}" if config.task_id is not None else uid if platform == "web" else ""
    return Task(id=id, goal=goal, platform=platform, site=site_of(config.sites), start_url=config.start_url)


def _labels(file: str, row: _Judgement) -> Iterator[LabelRecord]:
    if row.task_uid == "" or row.task_idx == -1:
        return
    words: dict[str | bool | None, bool] = {"Success": True, "Failure": False, True: True, False: False}
    if row.annotation not in words:
        raise InputError(f"annotation {row.annotation!r} is neither Success nor Failure")
    source = "oracle" if "oracle" in f"{file} {row.user_uid}".lower() else "human"
    annotator = None if row.user_uid in (None, "", source) else str(row.user_uid)
    yield LabelRecord(
        id=str(row.task_uid), success=words[row.annotation], source=source, annotator=annotator, note=row.comment or None
    )


def _captions(folder: Path, name: str | None) -> tuple[str | None, dict[str, str | None]]:
    found = {path.stem: path for path in sorted((folder / "captions").glob("*.json"))}
    if name is None:
        name = next(iter(found), None)
    elif name not in found:
        raise UsageError(f"{folder / 'captions'}: no file {name}.json; there are: {', '.join(found) or 'none'}")
    return name, _file(found[name], dict[str, str | None]) if name is not None else {}


def _elements(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every record of the list with its place. Records are decoded one by one, so that a wrong one costs only itself."""
    records = _file(path, list[msgspec.Raw])
    return ((f"{path}[{i}]", bytes(record)) for i, record in enumerate(records))


def _trials(folder: Path) -> list[Path]:
    def order(path: Path) -> list[tuple[int, str]]:
        return [(int(part) if part.isdigit() else -1, part) for part in path.stem.split("_")]

    return sorted((folder / RECORDS).glob("*.json"), key=order)


def _read(place: str, data: bytes | Path, type: type[_T], make: Callable[[_T], _Made]) -> _Made | BadLine:
    return made(place, lambda: make(decoded(whole_file(data) if isinstance(data, Path) else data, type)))


def _file(path: Path, type: type[_T]) -> _T:
    """A file that everything else depends on. Raises UsageError when it cannot be read."""
    try:
        return decoded(whole_file(path), type)
    except InputError as error:
        raise UsageError(f"{path}: {error}") from None


# Writes a folder in the layout of Agent-Eval-Refine (see `unified`), for tools that read only that.


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

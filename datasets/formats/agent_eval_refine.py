"""The folders of Agent-Eval-Refine (arXiv 2404.06474): trajectory_log.json, images/, captions/*.json, evals/*.jsonl.

Folders of its Reflexion runs (records/*.json beside images/) are read as well, one trajectory a trial.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeVar, cast, get_args

import msgspec

from prill.actions.elements import with_element
from prill.actions.phone import parse_android, parse_ios
from prill.actions.webarena import parse_action, site_of, split_answer
from prill.datasets.reading.records import decode_json, image_in, read_file, read_record, read_rows
from prill.errors import InputError, UsageError
from prill.store import BadLine
from prill.types import Action, LabelRecord, Observation, Platform, Step, Task, Trajectory

LOG, RECORDS = "trajectory_log.json", "records"
# The platforms that the original tells apart, and the field in which it keeps the action of each.
ACTION_FIELDS = {"web": "raw_action", "android": "action", "ios": "translated_action"}
_PARSERS: dict[str, Callable[[str], Action]] = {"web": parse_action, "android": parse_android, "ios": parse_ios}
_T = TypeVar("_T")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _LoggedAction:
    raw_action: str | None = None
    action: str | None = None
    translated_action: str | None = None
    thought: str | None = None


@dataclass(frozen=True)
class _Step:
    img: str | None = None
    other: _LoggedAction | None = None
    accessibility_tree: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class _Config:
    # The rest of a WebArena configuration holds the reference answers: it is not read.
    task_id: int | str | None = None
    sites: tuple[str, ...] = ()
    start_url: str | None = None
    intent_template_id: int | str | None = None


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
        for place, data in _records(root / LOG):
            yield _read_one(place, data, _Record, lambda record: _trajectory(record, source))
    elif (root / RECORDS).is_dir():
        source = _Folder(root, platform_of(root, unknown="web"))
        for path in _trials(root):
            yield _read_one(str(path), path, _Trial, partial(_trial, path.stem, source))
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
            item = _read_one(str(path), path, _Score, lambda record: record.oracle_score)
            if isinstance(item, BadLine):
                yield item
            elif item is not None:
                yield LabelRecord(id=path.stem, success=float(item) == 1.0, source="oracle")
        return
    labels: dict[tuple[str, str, str | None], LabelRecord] = {}
    for path in sorted((root / "evals").glob("*.jsonl")):
        for label in read_rows(path, _Judgement, partial(_labels, path.stem)):
            if isinstance(label, BadLine):
                yield label
            else:
                labels[label.id, label.source, label.annotator] = label
    yield from labels.values()


def platform_of(folder: Path, *, unknown: Platform | None = None) -> Platform:
    """What meta.json says under `platform` or `domain`; else what the path says; else `unknown`.

    In the path, the deepest folder counts that has a word beginning with web, android or ios: `runs/webarena_gpt4` is web,
    `website/android_runs` is android. Raises UsageError when nothing says it, or a folder's name says two.
    """
    names = [name for name in get_args(Platform) if name != "other"]
    if (folder / "meta.json").is_file():
        meta = _file(folder / "meta.json", _Meta)
        if platform := meta.platform or meta.domain:
            if platform not in get_args(Platform):
                raise UsageError(f"{folder / 'meta.json'}: platform {platform!r} is none of {', '.join(names)}, other")
            return cast(Platform, platform)
    for part in reversed(folder.resolve().parts):
        words = re.findall(r"[a-z]+", part.lower())
        matches = [name for name in ACTION_FIELDS if any(word.startswith(name) for word in words)]
        if len(matches) == 1:
            return cast(Platform, matches[0])
        if matches:
            raise UsageError(f"{folder}: {part!r} names {' and '.join(matches)}; {_advice(folder)}")
    if unknown is not None:
        return unknown
    raise UsageError(f"{folder}: the path names no platform; {_advice(folder)}")


def _advice(folder: Path) -> str:
    return f'write the platform to {folder / "meta.json"}, for example {{"platform": "web"}}'


def _trajectory(record: _Record, folder: _Folder) -> Trajectory:
    uid = str(record.uid)
    if not uid:
        raise InputError("uid is empty")
    states = [(_observation(step, folder), _action_text(step, folder.platform), step.other) for step in record.steps]
    final = states.pop()[0] if states and states[-1][1] is None else None
    parse = _PARSERS.get(folder.platform, partial(Action, "other"))
    steps = tuple(
        Step(
            observation,
            with_element(parse(action), observation.text) if action else Action("other"),
            (logged.thought or None) if logged else None,
        )
        for observation, action, logged in states
    )
    answer, ended_by = split_answer(record.response)
    other = record.other or _Other()
    template = None if other.config is None else other.config.intent_template_id
    extra = {"captions": folder.captions_name, "ended_by": ended_by, "intent_template_id": template}
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
    texts = (record.captions or ())[-len(pictures) :] if pictures else ()  # [-0:] would be all of them
    described = zip(pictures[len(pictures) - len(texts) :], texts, strict=True)
    captions = {Path(picture).stem: text for picture, text in described if picture}
    trajectory = _trajectory(record, replace(folder, captions=captions))
    metadata = {**trajectory.metadata, "trial": record.trail_idx} if record.trail_idx is not None else trajectory.metadata
    return replace(trajectory, id=name, metadata=metadata)


def _observation(step: _Step, folder: _Folder) -> Observation:
    if not step.img:
        return Observation(text=step.accessibility_tree, url=step.url)
    # The original cuts four characters off the name; for .jpeg and .webp that leaves a dot.
    caption = folder.captions.get(Path(step.img).stem) or folder.captions.get(step.img[:-4])
    return Observation(image_in(folder.path / "images", step.img), step.accessibility_tree, step.url, caption or None)


def _action_text(step: _Step, platform: Platform) -> str | None:
    """The action as logged; None for a state after which nothing was done."""
    if step.other is None:
        return None
    own = getattr(step.other, ACTION_FIELDS.get(platform, "action"))
    text = own or step.other.raw_action or step.other.action or step.other.translated_action
    return text if isinstance(text, str) else None


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
    files = {path.stem: path for path in sorted((folder / "captions").glob("*.json"))}
    if name is None:
        name = next(iter(files), None)
    elif name not in files:
        raise UsageError(f"{folder / 'captions'}: no file {name}.json; there are: {', '.join(files) or 'none'}")
    return name, _file(files[name], dict[str, str | None]) if name is not None else {}


def _records(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every record of the list with its place. Records are decoded one by one, so that a wrong one costs only itself."""
    records = _file(path, list[msgspec.Raw])
    return ((f"{path}[{i}]", bytes(record)) for i, record in enumerate(records))


def _trials(folder: Path) -> list[Path]:
    def order(path: Path) -> list[tuple[int, str]]:
        return [(int(part) if part.isdecimal() else -1, part) for part in path.stem.split("_")]

    return sorted((folder / RECORDS).glob("*.json"), key=order)


def _read_one(place: str, data: bytes | Path, type: type[_T], make: Callable[[_T], _Result]) -> _Result | BadLine:
    return read_record(place, lambda: make(decode_json(read_file(data) if isinstance(data, Path) else data, type)))


def _file(path: Path, type: type[_T]) -> _T:
    """A file that everything else depends on. Raises UsageError when it cannot be read."""
    try:
        return decode_json(read_file(path), type)
    except InputError as error:
        raise UsageError(f"{path}: {error}") from None

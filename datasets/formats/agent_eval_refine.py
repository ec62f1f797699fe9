"""Reads folders of Agent-Eval-Refine (arXiv 2404.06474): trajectory_log.json, images/,
captions/*.json, evals/*.jsonl.

The fields are those that the authors' notebooks write (Berkeley-NLP/Agent-Eval-Refine,
agent_eval/domains/unify_*.ipynb and exps/*): on the web, `config` is the text of the render's
`<pre>`; on phones, `other` is the whole step of the agent's own log. Folders of its Reflexion runs
(records/*.json and images/) are read as well, one trajectory per trial.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar, cast, get_args

import msgspec
from msgspec import Meta

from prill.actions.elements import with_element
from prill.actions.phone import goal_from_question, parse_android, parse_ios, split_reply
from prill.actions.webarena import join_sites, parse_action, split_answer
from prill.datasets.reading.configs import config_values, sites_in
from prill.datasets.reading.records import (
    Record,
    decode_json,
    image_in,
    read_file,
    read_record,
    read_rows,
)
from prill.datasets.reading.sources import Source, members
from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.types import Action, LabelRecord, Observation, Platform, Step, StrPath, Task, Trajectory

LOG, RECORDS = "trajectory_log.json", "records"
# The platforms of the original, and the field in which each keeps its action.
ACTION_FIELDS = {"web": "raw_action", "android": "action", "ios": "translated_action"}
_PARSERS: dict[str, Callable[[str], Action]] = {
    "web": parse_action,
    "android": parse_android,
    "ios": parse_ios,
}
_MAX_DIGITS = 10  # of a template's number
# Only the last two states of the web set have captions (captioner/prepare_caps_sub.py); the others
# contain this text.
_NO_CAPTION = "SKIP, NOT LAST TWO"
# Annotators that are not people (unify_webarena.ipynb, unify_android_aitw_data.ipynb).
_ORACLES = ("webarena", "aitw")
# The labels of the annotation app (eval/annotate_app.py); the AitW set has true and false.
_DECISIONS: dict[str | bool | None, bool] = {
    "Success": True,
    "Failure": False,
    True: True,
    False: False,
}
_UNDECIDED: dict[str | bool | None, Literal["not_executable", "unsure"]] = {
    "Unsure": "unsure",
    "Emulator Error": "not_executable",
}
# The iOS agent's action for a reply without a readable operation (exps/ios_exp/utils.py); the
# episode ended with it.
_INVALID = "Invalid action"
_T = TypeVar("_T")
_Result = TypeVar("_Result")


class _Actor(Record):
    output: str | None = None


class _LoggedAction(Record):
    raw_action: str | None = None
    action: str | None = None
    translated_action: str | None = None
    thought: str | None = None
    idb_action: str | None = None
    next_observation: str | None = None
    actor_info: _Actor | None = None
    action_success: bool | None = None


class _Step(Record):
    img: str | None = None
    other: _LoggedAction | None = None
    accessibility_tree: str | None = None
    url: str | None = None


class _Config(Record):
    # The rest of a WebArena configuration, which holds the reference answers, is not read.
    task_id: int | str | None = None
    sites: tuple[str, ...] = ()
    start_url: str | None = None
    intent_template_id: int | str | None = None


class _Other(Record):
    config: _Config | str | None = None
    agent: str | None = None


class _Record(Record):
    uid: str | int
    intent: str
    response: str | None = None
    other: _Other | None = None
    steps: tuple[_Step, ...] = ()


class _Trial(_Record):
    trail_idx: int | None = None
    captions: tuple[str | None, ...] | None = None


class _Score(Record):
    oracle_score: float | bool | None = None


class _Judgement(Record):
    task_uid: str | int = ""
    task_idx: int | str | None = None
    user_uid: str | int | None = None
    annotation: str | bool | None = None
    comment: str | None = None


class _Meta(Record):
    platform: str | None = None
    domain: str | None = None


@dataclass(frozen=True)
class _Folder:
    path: Path
    platform: Platform
    captions: dict[str, str | None] = field(default_factory=dict)
    captions_name: str | None = None


def recognise(source: Source) -> bool:
    """Returns whether the source is a folder with a run log or trial records (`uid`, `intent`)."""
    wanted = LOG if LOG in source.names else f"{RECORDS}/*.json"
    return source.is_folder and any(_is_log(file.value) for file in source.files(wanted))


def _is_log(value: object) -> bool:
    record = value[0] if isinstance(value, list) and value else value
    return isinstance(record, dict) and {"uid", "intent"} <= record.keys()


def load(
    folder: StrPath,
    *,
    captions: Annotated[
        str | None, Meta(description="Captions to use, by their name in captions/ or by path.")
    ] = None,
) -> Iterator[Trajectory | BadLine]:
    """Yields every trajectory, without its judgements and scores.

    The final state is a last step without an action or, on iOS, the screenshot after the last
    action if it is in images/. On iOS the executed action counts: where the model wrote "swipe up",
    its authors' program swiped left or right.

    Args:
        folder: The folder with trajectory_log.json, or with records/ of a Reflexion run.
        captions: A file in captions/ by its name, or the path of another one (default: the first by
            name); `metadata["captions"]` names the file used. An image without a caption has None.

    Raises:
        UsageError: The platform is unknown (see `detect_platform`), or there is no such caption
            file.
    """
    root = Path(folder)
    if (root / LOG).is_file():
        name, texts = _captions(root, captions)
        source = _Folder(root, detect_platform(root), texts, name)
        for place, data in _records(root / LOG):
            yield _read_one(place, data, _Record, lambda record: _trajectory(record, source))
    elif (root / RECORDS).is_dir():
        source = _Folder(root, detect_platform(root, unknown="web"))
        for path in _trials(root):
            yield _read_one(str(path), path, _Trial, partial(_trial, path.stem, source))
    else:
        raise UsageError(
            f"{root}: expected a folder with {LOG}, or with {RECORDS}/*.json of a Reflexion run"
        )


def load_labels(folder: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields the judgements, one for each trajectory and annotator; the last line counts.

    The first annotator's is the gold label.

    Lines without a task are skipped. The source is `oracle` for WebArena's and AitW's own results
    and if the file's or the annotator's name says so, else `human`. Labels of Reflexion runs are
    the oracle's score of each trial: success is a score of exactly 1.
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
    for path in members(root / "evals", "*.jsonl"):
        for label in read_rows(path, _Judgement, partial(_labels, path.stem)):
            if isinstance(label, BadLine):
                yield label
            else:
                labels[label.id, label.source, label.annotator] = label
    yield from labels.values()


def detect_platform(folder: Path, *, unknown: Platform | None = None) -> Platform:
    """Detects the platform by meta.json (`platform`, `domain`), else by the path; falls back to
    `unknown`.

    In the path, the deepest folder with a word that begins with web, android or ios decides:
    `runs/webarena_gpt4` is web, `website/android_runs` is android. Raises UsageError if neither
    names a platform, or a folder's name contains two.
    """
    names = [name for name in get_args(Platform) if name != "other"]
    if (folder / "meta.json").is_file():
        meta = _file(folder / "meta.json", _Meta)
        if platform := meta.platform or meta.domain:
            if platform not in get_args(Platform):
                raise UsageError(
                    f"{folder / 'meta.json'}: platform {platform!r} is not one of "
                    f"{', '.join(names)}, other"
                )
            return cast(Platform, platform)
    for part in reversed(folder.resolve().parts):
        words = re.findall(r"[a-z]+", part.lower())
        matches = [name for name in ACTION_FIELDS if any(word.startswith(name) for word in words)]
        if len(matches) == 1:
            return cast(Platform, matches[0])
        if matches:
            raise UsageError(
                f"{folder}: {part!r} matches {' and '.join(matches)}; {_advice(folder)}"
            )
    if unknown is not None:
        return unknown
    raise UsageError(f"{folder}: the path contains no platform; {_advice(folder)}")


def _advice(folder: Path) -> str:
    return f'write the platform to {folder / "meta.json"}, for example {{"platform": "web"}}'


def _trajectory(record: _Record, folder: _Folder) -> Trajectory:
    uid = str(record.uid)
    if not uid:
        raise InputError("uid is empty")
    states = [
        (_observation(step, folder), _action(step, folder.platform), step.other)
        for step in record.steps
    ]
    final = states.pop()[0] if states and states[-1][1] is None else _after(record.steps, folder)
    steps = tuple(
        Step(
            observation,
            with_element(action, observation.text) if action else Action("other"),
            _thought(logged),
        )
        for observation, action, logged in states
    )
    answer, ended_by = split_answer(record.response)
    if steps and steps[-1].action.text == _INVALID:
        ended_by = ended_by or "the agent's reply held no readable operation"
    other = record.other or _Other()
    config = _config(other.config)
    extra = {
        "captions": folder.captions_name,
        "ended_by": ended_by,
        "intent_template_id": config.intent_template_id,
    }
    failed = any(
        step.other is not None and step.other.action_success is False for step in record.steps
    )
    return Trajectory(
        id=uid,
        task=_task(uid, goal_from_question(record.intent), config, folder.platform),
        agent=other.agent,
        steps=steps,
        final=final,
        answer=answer,
        error="the environment could not carry out the last action" if failed else None,
        metadata={key: value for key, value in extra.items() if value is not None},
    )


def _config(config: _Config | str | None) -> _Config:
    """Returns the task's configuration.

    It is an object, its JSON text, or the text that WebArena renders, one `key: value` per line.
    """
    if not isinstance(config, str):
        return config or _Config()
    try:
        return decode_json(config.encode(), _Config)
    except InputError:
        values = config_values(config)
        number, template = (values.get(key, "") for key in ("task_id", "intent_template_id"))
        return _Config(
            task_id=number if number.isdecimal() else None,
            sites=sites_in(values),
            start_url=values.get("start_url") or None,
            intent_template_id=int(template)
            if template.isdecimal() and len(template) < _MAX_DIGITS
            else None,
        )


def _trial(name: str, folder: _Folder, record: _Trial) -> Trajectory:
    """Reads a Reflexion trial, whose id is the file's name, `<task>_<trial>`.

    Only its last states have captions.
    """
    pictures = [step.img for step in record.steps]
    # [-0:] would return all of them
    texts = (record.captions or ())[-len(pictures) :] if pictures else ()
    described = zip(pictures[len(pictures) - len(texts) :], texts, strict=True)
    captions = {Path(picture).stem: text for picture, text in described if picture}
    trajectory = _trajectory(record, replace(folder, captions=captions))
    metadata = (
        {**trajectory.metadata, "trial": record.trail_idx}
        if record.trail_idx is not None
        else trajectory.metadata
    )
    return replace(trajectory, id=name, metadata=metadata)


def _observation(step: _Step, folder: _Folder) -> Observation:
    if not step.img:
        return Observation(text=step.accessibility_tree, url=step.url)
    name = _image_name(step.img)
    return Observation(
        image_in(folder.path / "images", name),
        step.accessibility_tree,
        step.url,
        _caption(name, folder),
    )


def _image_name(path: str) -> str:
    """Returns the part of a path below images/.

    Reflexion records and agents' logs hold paths on the machine that wrote them.
    """
    return path.replace("\\", "/").rpartition("images/")[2]


def _caption(name: str, folder: _Folder) -> str | None:
    # The original removes four characters from the name, which leaves a dot for .jpeg and .webp.
    caption = folder.captions.get(Path(name).stem) or folder.captions.get(name[:-4])
    return None if caption is None or caption.strip() in ("", _NO_CAPTION) else caption


def _after(steps: tuple[_Step, ...], folder: _Folder) -> Observation | None:
    """Returns the state after the last action, whose screenshot iOS logs name.

    The result is None if the screenshot is missing.
    """
    last = steps[-1].other if steps else None
    if last is None or not last.next_observation:
        return None
    name = _image_name(last.next_observation)
    path = image_in(folder.path / "images", name)
    return Observation(path, caption=_caption(name, folder)) if os.path.isfile(path) else None


def _action(step: _Step, platform: Platform) -> Action | None:
    """Returns the action of a step; None for a state without a following action."""
    logged = step.other
    if logged is None:
        return None
    own = getattr(logged, ACTION_FIELDS.get(platform, "action"))
    operation = (
        own or logged.raw_action or logged.action or logged.translated_action or logged.idb_action
    )
    if operation is None:
        return None
    if platform == "ios":
        return _ios_action(split_reply(operation)[1], logged)
    return _PARSERS.get(platform, partial(Action, "other"))(operation)


def _ios_action(operation: str, logged: _LoggedAction) -> Action:
    """Returns the executed action.

    If a tap's translation has no screen position, the position of the reply or the command is used.
    """
    action = parse_ios(operation)
    for text in (
        split_reply(logged.raw_action)[1] if logged.raw_action else None,
        logged.idb_action,
    ):
        if (
            text
            and action.kind == "click"
            and action.point is None
            and (other := parse_ios(text)).kind == "click"
        ):
            action = replace(action, point=other.point)
    return action


def _thought(logged: _LoggedAction | None) -> str | None:
    """Returns the text before the operation: CogAgent's plan and next action, or Auto-UI's plan."""
    if logged is None or logged.thought:
        return logged.thought if logged else None
    reply = (logged.actor_info.output if logged.actor_info else None) or (
        logged.raw_action if logged.translated_action else None
    )
    if not reply:
        return None
    return split_reply(reply.rpartition("Action Decision:")[0].rstrip(" ;") or reply)[0] or None


def _task(uid: str, goal: str, config: _Config, platform: Platform) -> Task:
    id = (
        f"webarena.{config.task_id}"
        if config.task_id is not None
        else uid
        if platform == "web"
        else ""
    )
    return Task(
        id=id,
        goal=goal,
        platform=platform,
        site=join_sites(config.sites),
        start_url=config.start_url,
    )


def _labels(file: str, row: _Judgement) -> Iterator[LabelRecord]:
    if row.task_uid == "" or row.task_idx in (-1, "-1"):
        return
    if row.annotation not in _DECISIONS and row.annotation not in _UNDECIDED:
        raise InputError(
            f"annotation {row.annotation!r} is not one of Success, Failure, Unsure, Emulator Error"
        )
    who = "" if row.user_uid is None else str(row.user_uid)
    source = "oracle" if who.lower() in _ORACLES or "oracle" in f"{file} {who}".lower() else "human"
    annotator = None if who == "" or source == who or who.lower() in _ORACLES else who
    yield LabelRecord(
        id=str(row.task_uid),
        success=_DECISIONS.get(row.annotation),
        source=source,
        annotator=annotator,
        note=row.comment or None,
        undecided=_UNDECIDED.get(row.annotation),
    )


def _captions(folder: Path, name: str | None) -> tuple[str | None, dict[str, str | None]]:
    files = {path.stem: path for path in members(folder / "captions", "*.json")}
    if name is not None and name not in files and os.path.isfile(name):
        files[name := Path(name).stem] = Path(name)
    if name is None:
        name = next(iter(files), None)
    elif name not in files:
        raise UsageError(
            f"{folder / 'captions'}: {name}.json not found; expected one of "
            f"{', '.join(files) or 'none'}",
            parameters=("captions",),
        )
    return name, _file(files[name], dict[str, str | None]) if name is not None else {}


def _records(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yields every record of the list with its position.

    Records are decoded one by one, so that an invalid one affects only itself.
    """
    records = _file(path, list[msgspec.Raw])
    return ((f"{path}[{i}]", bytes(record)) for i, record in enumerate(records))


def _trials(folder: Path) -> list[Path]:
    def order(path: Path) -> list[tuple[int, str]]:
        return [(int(part) if part.isdecimal() else -1, part) for part in path.stem.split("_")]

    return sorted(members(folder / RECORDS, "*.json"), key=order)


def _read_one(
    place: str, data: bytes | Path, type: type[_T], make: Callable[[_T], _Result]
) -> _Result | BadLine:
    return read_record(
        place, lambda: make(decode_json(read_file(data) if isinstance(data, Path) else data, type))
    )


def _file(path: Path, type: type[_T]) -> _T:
    """Reads a required file. Raises UsageError if it cannot be read."""
    try:
        return decode_json(read_file(path), type)
    except InputError as error:
        raise UsageError(f"{path}: {error}") from None

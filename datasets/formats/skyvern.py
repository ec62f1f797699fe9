"""Reads artifacts of Skyvern's tasks on disk:
`<organization>/<task>/<order>_<retry>_<step>/<time>_<id>_<type>.<ending>`.

A Skyvern step is a model reply with its `actions`; each action becomes a step here. The first was
chosen from `screenshot_llm` and the elements in the prompt, the others follow a
`screenshot_action`. The goal is in the first prompt. `user_goal_achieved`, the model's own claim,
is a label of source `self-report`. The results of actions are only in the database.
(Skyvern-AI/skyvern, skyvern/forge/sdk/artifact/storage/local.py, prompts/skyvern/extract-action.j2;
by its source, 1.0.56.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path

from prill.actions.tool_calls import tool_action
from prill.datasets.reading.chat import end_once
from prill.datasets.reading.records import date_in, decode_json, read_at_most, read_record
from prill.datasets.reading.sources import Source
from prill.errors import InputError, UsageError
from prill.io.store import BadLine
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory

_STEP = re.compile(r"(\d{2,9})_(\d{1,9})_stp_\w+")
_ARTIFACT = re.compile(r"(?P<time>[\dT:.-]+)_a_\w+?_(?P<type>[a-z][a-z_]+)\.(?:png|json|txt)")
_GOAL = re.compile(r"User goal:\s*```(?:text)?\n(.*?)\n?```", re.DOTALL)
_MAX_BYTES = 64 * 2**20  # of one text
_KINDS = {
    "input_text": "type",
    "paste_text": "type",
    "checkbox": "click",
    "complete": "stop",
    "terminate": "stop",
    "goto_url": "goto",
    "reload_page": "goto",
    "close_page": "close_tab",
    "download_file": "click",
}
_PICTURES = ("screenshot_llm", "screenshot_action", "screenshot_final")


@dataclass(frozen=True)
class _Option:
    label: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class _ReplyAction:
    action_type: str
    id: str | int | None = None
    reasoning: str | None = None
    text: str | None = None
    url: str | None = None
    file_url: str | None = None
    keys: tuple[str, ...] | None = None
    direction: str | None = None
    option: _Option | None = None


@dataclass(frozen=True)
class _Reply:
    actions: tuple[_ReplyAction, ...] | None = None
    user_goal_achieved: bool | None = None
    action_plan: str | None = None


@dataclass
class _Folder:
    """The artifacts of a step by type, oldest first."""

    files: dict[str, list[Path]] = field(default_factory=dict)

    def first(self, type: str) -> Path | None:
        return next(iter(self.files.get(type, ())), None)


def looks_like(path: str) -> bool:
    """Returns whether the path of a file below a folder is that of a step's artifact."""
    parts = path.split("/")
    return (
        len(parts) >= 2
        and _STEP.fullmatch(parts[-2]) is not None
        and _ARTIFACT.fullmatch(parts[-1]) is not None
    )


def recognise(source: Source) -> bool:
    """Returns whether the names of folders and files are Skyvern's."""
    return any(map(looks_like, source.names))


def load(source: str | PathLike[str]) -> Iterator[Trajectory | BadLine]:
    """Yields the task of a folder, or every task below it; ids are the folders' paths."""
    root = Path(source)
    for task in _tasks(root):
        yield read_record(str(task), partial(_trajectory, root, task))


def load_labels(source: str | PathLike[str]) -> Iterator[LabelRecord | BadLine]:
    """Yields the last reply's claim about the goal, of source `self-report`."""
    root = Path(source)
    for task in _tasks(root):
        label = read_record(str(task), partial(_label, root, task))
        if label is not None:
            yield label


def _tasks(root: Path) -> list[Path]:
    if not root.exists():
        raise UsageError(f"{root}: no such file or folder")
    steps = [
        path
        for path in (root, *root.rglob("*_*_stp_*"))
        if path.is_dir() and _STEP.fullmatch(path.name)
    ]
    if not steps:
        raise UsageError(f"{root}: expected folders of Skyvern's steps, for example 00_0_stp_123")
    return sorted({path.parent for path in steps})


def _id(root: Path, task: Path) -> str:
    return (
        task.name
        if task == root or not task.is_relative_to(root)
        else task.relative_to(root).as_posix()
    )


def _folders(task: Path) -> list[_Folder]:
    found = []
    steps = [
        (match, path)
        for path in task.iterdir()
        if path.is_dir() and (match := _STEP.fullmatch(path.name))
    ]
    for _, path in sorted(steps, key=lambda step: (int(step[0][1]), int(step[0][2]), step[1].name)):
        folder = _Folder()
        for file in sorted(path.iterdir()):
            if (
                (match := _ARTIFACT.fullmatch(file.name)) is not None
                and file.is_file()
                and not file.is_symlink()
            ):
                folder.files.setdefault(match["type"], []).append(file)
        found.append(folder)
    return found


def _replies(folder: _Folder) -> Iterator[_Reply]:
    """Yields the replies of a step in this form; other prompts have other forms."""
    for path in folder.files.get("llm_response_parsed", ()):
        try:
            reply = decode_json(_bytes(path), _Reply)
        except InputError as error:
            raise InputError(f"{path.parent.name}/{path.name}: {error}") from None
        if reply.actions is not None or reply.user_goal_achieved is not None:
            yield reply


def _trajectory(root: Path, task: Path) -> Trajectory:
    folders = _folders(task)
    prompts = (path for folder in folders for path in folder.files.get("llm_prompt", ()))
    goal = next((match[1].strip() for path in prompts if (match := _GOAL.search(_text(path)))), "")
    steps: list[Step] = []
    last: Path | None = None
    for folder in folders:
        screenshots = list(folder.files.get("screenshot_action", ()))
        last = folder.first("screenshot_llm") or last
        page = folder.first("visible_elements_tree_in_prompt")
        for reply in _replies(folder):
            plan = reply.action_plan
            for i, reply_action in enumerate(reply.actions or ()):
                thought = (
                    "\n\n".join(part for part in (plan, reply_action.reasoning) if part) or None
                )
                text = _text(page) if page and i == 0 else None
                steps.append(
                    Step(
                        Observation(str(last.resolve()) if last else None, text=text or None),
                        _action(reply_action),
                        thought,
                    )
                )
                last, plan = (screenshots.pop(0) if screenshots else last), None
        last = folder.files["screenshot_action"][-1] if screenshots else last
    finals = [path for folder in folders for path in folder.files.get("screenshot_final", ())]
    last = finals[-1] if finals else last
    first = next(
        (path for folder in folders for paths in folder.files.values() for path in paths), None
    )
    date = date_in(first.name) if first else None
    return Trajectory(
        id=_id(root, task),
        task=Task(id=task.name, goal=goal, platform="web"),
        agent="skyvern",
        steps=end_once(steps),
        final=Observation(str(last.resolve())) if last else None,
        answer=steps[-1].action.value if steps and steps[-1].action.is_final else None,
        metadata={"date": date} if date else {},
    )


def _label(root: Path, task: Path) -> LabelRecord | None:
    outcomes = [reply.user_goal_achieved for folder in _folders(task) for reply in _replies(folder)]
    known = [achieved for achieved in outcomes if achieved is not None]
    return (
        LabelRecord(id=_id(root, task), success=known[-1], source="self-report") if known else None
    )


def _action(reply_action: _ReplyAction) -> Action:
    name = reply_action.action_type.lower()
    option = reply_action.option and (reply_action.option.label or reply_action.option.value)
    value = (
        reply_action.text
        or reply_action.url
        or reply_action.file_url
        or option
        or ("+".join(reply_action.keys) if reply_action.keys else None)
        or reply_action.direction
    )
    shown = {"id": reply_action.id, "value": value}
    action = tool_action(name, {key: field for key, field in shown.items() if field is not None})
    return replace(
        action,
        kind=_KINDS.get(name, action.kind),
        value=value or None,
        target=None if reply_action.id is None else str(reply_action.id),
    )


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return read_at_most(file, _MAX_BYTES)
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror}") from None


def _text(path: Path) -> str:
    return _bytes(path).decode("utf-8", "replace")

"""Reads Online-Mind2Web results (arXiv 2504.01382): one folder per task, or one file with a row per
task.

Version 1 is `<agent>/<task_id>/result.json` (task, task_id, action_history as `element -> ACTION:
value`, thoughts, final_result_response) with `trajectory/<n>_….png` next to it. Version 2 is known
here by its fields only: `result_status`, actions as sentences (`Click at (600, 475)`), rows in one
JSON list or JSON Lines file instead of folders. The reader does not distinguish the versions: it
reads the fields that are present and skips others. Screenshot n is assumed to show the page before
action n.

Verdicts are not part of trajectories: `human_label.json`, and the judges' fields in the rows
(`judge`, `predicted_label`), are labels. Of `result_status`, only whether the run was cut off is
kept.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from prill.actions.ending import claim_in, with_claim
from prill.actions.tool_calls import detect_kind, fraction, tool_action
from prill.datasets.reading.images import image_size_or_none
from prill.datasets.reading.records import Record, decode_json, image_in, read_file, read_rows
from prill.datasets.reading.sources import Source, members
from prill.errors import InputError, UsageError
from prill.io.store import BadLine, open_lines
from prill.types import Action, LabelRecord, Observation, Step, StrPath, Task, Trajectory

_Size = tuple[float, float] | None
_Result = TypeVar("_Result")
_HUMAN_FILE = "human_label.json"
_HUMAN_SUFFIX = "_human_label"
_PICTURE = re.compile(r"(\d+)\D.*\.(?:png|jpe?g|webp)|(\d+)\.(?:png|jpe?g|webp)", re.IGNORECASE)
_CUT_OFF = re.compile(r"max_(?:turns|steps)|truncat|time_?out", re.IGNORECASE)
_ROW_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_HUMAN_GRADES = {"1": True, "0": False, "2": None}
# The action strings: `<button> Search -> CLICK`, and agents' own sentences.
_NUMBER = r"(-?\d+(?:\.\d+)?)"
_PLACE = rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)"
_VERB = re.compile(r"([A-Z][A-Z_ ]*)(?::(.*))?", re.DOTALL)
_MAX_ARROWS = 20
_SENTENCE = re.compile(r"(?P<verb>[A-Za-z_]+(?: click)?)\b(?P<rest>.*)", re.DOTALL)
_AT = re.compile(rf"(?:(?:at|on)\s*)?{_PLACE}")
_DRAG = re.compile(rf"from\s*{_PLACE}\s*to\s*{_PLACE}")
_SCROLL = re.compile(rf"delta_x={_NUMBER},\s*delta_y={_NUMBER}")
_OPTIONS = re.compile(r"Select option\(s\)\s*\[(.*)\]", re.DOTALL)


class _Judge(Record):
    score: float | None = None


class _Row(Record):
    task_id: str | int
    task: str = ""
    confirmed_task: str = ""
    website: str | None = None
    action_history: tuple[str | dict[str, object] | None, ...] | None = None
    thoughts: tuple[str | None, ...] | None = None
    final_result_response: str | None = None
    result_status: str | None = None
    judge: _Judge | None = None
    predicted_label: int | str | None = None


@dataclass(frozen=True)
class _ResultFile:
    """The location of rows: one `result.json`, or a file of many.

    `agent` is named after the folder or file.
    """

    path: Path
    agent: str
    folder: bool


def recognise(source: Source) -> bool:
    """Returns whether results have a task id, and actions or an answer."""
    return source.has(
        _matches_format, "result.json", "*.jsonl", "*.jsonl.gz", "*.json", "*.json.gz"
    )


def _matches_format(file: Source) -> bool:
    row = file.value[0] if isinstance(file.value, list) and file.value else file.value
    return (
        isinstance(row, dict)
        and "task_id" in row
        and bool({"action_history", "final_result_response"} & row.keys())
    )


def load(source: StrPath) -> Iterator[Trajectory | BadLine]:
    """Yields every run, without any verdict.

    Ids are `<agent>/<task_id>`; the agent is the folder of the tasks, or the file's name.
    """
    for file in _result_files(source):
        yield from _read(file, partial(_trajectory, file))


def load_labels(source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields people's labels of source `human`, and judges' labels of source `llm-judge`.

    A human label of 2 (not executable) is undecided.

    `human_label.json` in the source, or else next to it, has labels of several agents; those of the
    agents in the recording are used. If the file in the source names none of them, it is a broken
    record, because the labels cannot be assigned.
    """
    files = _result_files(source)
    for file in files:
        yield from _read(file, partial(_judge_labels, file))
    root = Path(source)
    agents = {file.agent for file in files}
    if (root / _HUMAN_FILE).is_file():
        yield from _human_labels(root / _HUMAN_FILE, agents, in_source=True)
    elif (root.parent / _HUMAN_FILE).is_file():
        yield from _human_labels(root.parent / _HUMAN_FILE, agents, in_source=False)


def _result_files(source: StrPath) -> list[_ResultFile]:
    root = Path(source).resolve()
    if not root.exists():
        raise UsageError(f"{source}: no such file or folder")
    if root.is_file():
        return [_result_file(root)]
    files = [_result_file(path) for path in members(root, "**/result.json")]
    files += [
        _result_file(path)
        for path in members(root, "*")
        if path.name.endswith(_ROW_SUFFIXES) and _is_rows(path)
    ]
    if not files:
        raise UsageError(
            f"{source}: expected <task_id>/result.json, or a .json or .jsonl file of results"
        )
    return files


def _result_file(path: Path) -> _ResultFile:
    if path.name == "result.json":
        return _ResultFile(path, path.parent.parent.name, folder=True)
    return _ResultFile(path, path.name.removesuffix(".gz").rpartition(".")[0], folder=False)


def _is_rows(path: Path) -> bool:
    """Returns whether a file among others holds results: answers or actions near its start."""
    if path.name in (_HUMAN_FILE, "result.json"):
        return False
    with open_lines(path) as file:
        try:
            start = file.read(1 << 20)
        except (OSError, EOFError, zlib.error):
            return True  # damaged, which is reported when it is read
    return b'"task_id"' in start and (
        b'"action_history"' in start or b'"final_result_response"' in start
    )


def _read(
    file: _ResultFile, make: Callable[[_Row], Iterator[_Result]]
) -> Iterator[_Result | BadLine]:
    """Yields the result of `make` for each row; a broken row is a BadLine with its position."""
    if file.path.name.endswith((".jsonl", ".jsonl.gz")):
        yield from read_rows(file.path, _Row, make)
        return
    try:
        content = decode_json(read_file(file.path), msgspec.Raw)
        rows = (
            decode_json(content, list[msgspec.Raw]) if bytes(content).lstrip()[:1] == b"[" else None
        )
    except InputError as error:
        yield BadLine(str(file.path), str(file.path), str(error), b"")
        return
    for i, raw in enumerate([content] if rows is None else rows):
        where = str(file.path) if rows is None else f"{file.path}[{i}]"
        try:
            yield from list(make(decode_json(raw, _Row)))
        except InputError as error:
            yield BadLine(where, where, str(error), bytes(raw))


def _id(file: _ResultFile, row: _Row) -> str:
    return f"{file.agent}/{row.task_id}"


def _trajectory(file: _ResultFile, row: _Row) -> Iterator[Trajectory]:
    goal = row.task or row.confirmed_task
    if not goal:
        raise InputError(f"{row.task_id}: no task - at `$.task`")
    history, thoughts = row.action_history or (), row.thoughts or ()
    shots = _screenshots(file.path.parent / "trajectory") if file.folder else []
    steps = []
    for i, entry in enumerate(history):
        shot = shots[i] if i < len(shots) else None
        thought = thoughts[i] if i < len(thoughts) else None
        steps.append(Step(Observation(screenshot=shot), _action(entry, shot), thought or None))
    # There are more screenshots than states: the newest is the final state, and the others cannot
    # be assigned to an action.
    final = Observation(screenshot=shots[-1]) if len(shots) > len(history) else None
    metadata: dict[str, object] = {}
    if row.result_status is not None:
        metadata["truncated"] = _CUT_OFF.search(row.result_status) is not None
    if len(shots) > len(history) + 1:
        metadata["screenshots_left_out"] = len(shots) - len(history) - 1
    yield Trajectory(
        id=_id(file, row),
        task=Task(
            id=str(row.task_id), goal=goal, platform="web", site=row.website, start_url=row.website
        ),
        agent=file.agent,
        steps=tuple(steps),
        final=final,
        answer=row.final_result_response or None,
        metadata=with_claim(metadata, _claim(history[-1]) if history else None),
    )


def _screenshots(folder: Path) -> list[str]:
    """Returns the screenshots by their number.

    A `full` one takes precedence over another of the same number.
    """
    numbered: dict[int, Path] = {}
    for path in (
        sorted(folder.iterdir(), key=lambda path: ("full" not in path.name, path.name))
        if folder.is_dir()
        else ()
    ):
        if match := _PICTURE.fullmatch(path.name):
            numbered.setdefault(int(match[1] or match[2]), path)
    return [image_in(folder, path.name) for _, path in sorted(numbered.items())]


def _action(entry: str | dict[str, object] | None, shot: str | None) -> Action:
    if isinstance(entry, dict):
        return tool_action(*_call(entry))
    text = entry or ""
    return parse_action(text, image_size_or_none(shot) if shot and "(" in text else None)


def _call(entry: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Returns the name and the arguments of an action.

    The name is an argument, or the object's only key: `{"done": {…}}`.
    """
    name = next(
        (
            name
            for key in ("action", "action_type", "name", "type")
            if isinstance(name := entry.get(key), str)
        ),
        "",
    )
    (only, inner) = next(iter(entry.items())) if len(entry) == 1 else ("", None)
    return (only, inner) if not name and isinstance(inner, dict) else (name, entry)


def _claim(entry: str | dict[str, object] | None) -> bool | None:
    if not isinstance(entry, dict):
        return None
    name, arguments = _call(entry)
    return claim_in(arguments) if tool_action(name, arguments).is_final else None


def _judge_labels(file: _ResultFile, row: _Row) -> Iterator[LabelRecord]:
    if row.judge is not None:
        score = row.judge.score
        success = {100.0: True, 0.0: False}.get(-1.0 if score is None else score)
        note = None if score is None else f"score {score:g}"
        yield LabelRecord(id=_id(file, row), success=success, source="llm-judge", note=note)
    if row.predicted_label is not None:
        success = {"1": True, "0": False}.get(str(row.predicted_label))
        yield LabelRecord(id=_id(file, row), success=success, source="llm-judge")


def _human_labels(
    path: Path, agents: set[str], *, in_source: bool
) -> Iterator[LabelRecord | BadLine]:
    try:
        rows = decode_json(read_file(path), list[dict[str, str | int | None]])
    except InputError as error:
        yield BadLine(str(path), str(path), str(error), b"")
        return
    label_agents = {
        key.removesuffix(_HUMAN_SUFFIX)
        for row in rows
        for key in row
        if key.endswith(_HUMAN_SUFFIX)
    }
    if in_source and not label_agents & agents:
        problem = (
            f"labels of {', '.join(sorted(label_agents))}, but the runs are of "
            f"{', '.join(sorted(agents))}; name folders alike"
        )
        yield BadLine(str(path), str(path), problem, b"")
        return
    for i, row in enumerate(rows):
        for agent in sorted(label_agents & agents):
            grade, place = row.get(f"{agent}{_HUMAN_SUFFIX}"), f"{path}[{i}]"
            if grade is None:
                continue
            if str(grade) not in _HUMAN_GRADES or not row.get("task_id"):
                yield BadLine(
                    place,
                    place,
                    f"label {grade!r} of task {row.get('task_id')!r}; expected 0, 1 or 2",
                    b"",
                )
                continue
            yield LabelRecord(
                id=f"{agent}/{row['task_id']}",
                success=_HUMAN_GRADES[str(grade)],
                source="human",
                undecided="not_executable" if str(grade) == "2" else None,
            )


# Action strings


def parse_action(text: str, size: _Size) -> Action:
    """Parses an action; its `text` is unchanged, and its kind is `other` if the verb is unknown.

    `size` is that of the screen in the unit of the coordinates; without it, positions stay in the
    text.
    """
    text = text.strip()
    if (action := _on_element(text)) is not None:
        return action
    if sentence := _SENTENCE.fullmatch(text):
        kind, rest = detect_kind(sentence["verb"].replace(" ", "_")), sentence["rest"].strip()
        return _READERS.get(kind, _other)(kind, text, rest, size)
    return Action("other", text)


def _on_element(text: str) -> Action | None:
    """Parses `element -> ACTION: value`.

    Of several arrows, the last one before a verb counts.
    """
    end = len(text)
    for _ in range(_MAX_ARROWS):
        end = text.rfind("->", 0, end)
        if end < 0:
            return None
        call = _VERB.fullmatch(text[end + 2 :].strip())
        if call and (kind := detect_kind(call[1].strip().replace(" ", "_"))) != "other":
            return Action(
                kind, text, target=text[:end].strip() or None, value=(call[2] or "").strip() or None
            )
    return None


def _other(kind: str, text: str, rest: str, size: _Size) -> Action:
    position = _AT.fullmatch(rest)
    return Action(
        kind,
        text,
        point=fraction(float(position[1]), float(position[2]), size) if position else None,
    )


def _goto(kind: str, text: str, rest: str, size: _Size) -> Action:
    where = rest.removeprefix("to ").strip()
    if where in ("back", "forward"):
        return Action(where, text)
    return Action(kind, text, value=where or None)


def _quoted_text(kind: str, text: str, rest: str, size: _Size) -> Action:
    value = rest.removeprefix(":").strip()
    quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return Action(kind, text, value=(value[1:-1] if quoted else value) or None)


def _select(kind: str, text: str, rest: str, size: _Size) -> Action:
    target, _, option = rest.rpartition("->")
    options = _OPTIONS.fullmatch(option.strip())
    return (
        Action(kind, text, target=target.strip(), value=options[1])
        if options
        else Action(kind, text)
    )


def _scroll(kind: str, text: str, rest: str, size: _Size) -> Action:
    delta = _SCROLL.search(rest)
    if delta is None:
        return Action(kind, text, value=rest or None)
    x, y = float(delta[1]), float(delta[2])
    direction = ("right" if x > 0 else "left") if abs(x) > abs(y) else ("down" if y > 0 else "up")
    return Action(kind, text, value=direction if x or y else None)


def _drag(kind: str, text: str, rest: str, size: _Size) -> Action:
    if points := _DRAG.fullmatch(rest):
        start, end = (fraction(float(points[i]), float(points[i + 1]), size) for i in (1, 3))
        return Action(kind, text, point=start, end_point=end)
    return Action(kind, text)


_READERS: dict[str, Callable[[str, str, str, _Size], Action]] = {
    "goto": _goto,
    "type": _quoted_text,
    "press": _quoted_text,
    "select": _select,
    "scroll": _scroll,
    "drag": _drag,
    "answer": _quoted_text,
    "stop": _quoted_text,
}

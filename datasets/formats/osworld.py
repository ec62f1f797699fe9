"""Reads OSWorld results (arXiv 2404.07972): `<domain>/<example>/traj.jsonl` with `result.txt` and
screenshots, at any depth.

A screenshot of OSWorld shows the screen after the action of its row, so it is the observation
before the next action; the first state exists only as `initial_state.png` or `step_0.png`. The
instruction is not in the results: it is read from `evaluation_examples/*/<domain>/<example>.json`
in the source or a folder above it, else from `<example>.json` or `instruction.txt` next to the
rows, else from a row's `instruction`. Rewards and infos of rows are skipped.

A folder with `trajectories.jsonl` and `labels.jsonl` (plain or gzip; id, domain, agent, goal, steps
of thought and action; oracle_reward) is read as well.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from glob import escape
from math import isfinite, nan
from pathlib import Path

from prill.actions.ending import claim_in, with_claim
from prill.actions.tool_calls import fraction, tool_action
from prill.datasets.reading.images import image_size_or_none
from prill.datasets.reading.records import (
    Record,
    date_in,
    decode_json,
    find_rows,
    image_in,
    read_file,
    read_record,
    read_rows,
)
from prill.datasets.reading.sources import Source, members
from prill.errors import InputError, UsageError
from prill.io.lines import valid_unicode
from prill.io.store import BadLine, read_lines
from prill.types import Action, LabelRecord, Observation, Step, StrPath, Task, Trajectory

# The virtual machine's screen size if neither a screenshot nor `args.json` states it: OSWorld's
# default.
SCREEN = (1920.0, 1080.0)
# the depth of results/<action space>/<observation>/<model>/<domain>/<example> below OSWorld's
# folder
_PARENTS = 6
_REWARD_WORDS = {"True": 1.0, "False": 0.0}
# OSWorld's special actions in place of code.
_WORDS = {"DONE": "stop", "FAIL": "stop", "WAIT": "wait"}
_CLAIMS = {"DONE": True, "FAIL": False}
# Functions of pyautogui, pyperclip and time, with their kinds of action.
_KINDS = {
    "click": "click",
    "leftClick": "click",
    "middleClick": "click",
    "doubleClick": "double_click",
    "tripleClick": "triple_click",
    "rightClick": "right_click",
    "write": "type",
    "typewrite": "type",
    "press": "press",
    "keyDown": "press",
    "hotkey": "press",
    "scroll": "scroll",
    "hscroll": "scroll",
    "moveTo": "hover",
    "dragTo": "drag",
    "copy": "copy",  # of pyperclip: becomes typing when it is pasted
    "sleep": "wait",
}
# Of several calls in one step, the most specific one determines the kind.
_WEIGHTS = (
    "drag", "type", "select", "double_click", "triple_click", "right_click", "click", "scroll",
    "press", "hover",
)  # fmt: skip
# Some recorders break the quoting of copied text; the text is then everything between the brackets.
_COPY_CALL = "pyperclip.copy("
_PASTE = re.compile(r"\)[ \t]*\n[ \t]*pyautogui\.hotkey\('(?:ctrl|command)', 'v'\)")


class _Turn(Record):
    action: str | dict[str, object] | None = None
    response: object = None
    screenshot_file: str | None = None
    instruction: str | None = None
    step_num: int | None = None
    action_timestamp: object = None
    Error: str | None = None


class _Example(Record):
    instruction: str


class _Args(Record):
    model: str | None = None
    screen_width: float | None = None
    screen_height: float | None = None


class _RowStep(Record):
    thought: str | None = None
    action: str | None = None


class _Row(Record):
    id: str
    domain: str
    goal: str
    steps: tuple[_RowStep, ...]
    agent: str | None = None


class _Labels(Record):
    id: str
    oracle_reward: float | None = None


def recognise(source: Source) -> bool:
    """Returns whether the source is a folder with OSWorld's step rows, or run rows with domain and
    goal.
    """
    if not source.is_folder:
        return False
    steps = any({"step_num", "action"} <= file.keys for file in source.files("traj.jsonl"))
    runs = source.files("trajectories.jsonl", "trajectories.jsonl.gz")
    return steps or any({"id", "domain", "goal", "steps"} <= file.keys for file in runs)


def load(source: StrPath) -> Iterator[Trajectory | BadLine]:
    """Yields every run, without its outcome.

    Ids are the folders below the source, at least `<domain>/<example>`.
    """
    root = Path(source)
    folders = _folders(root)
    if not folders:
        yield from read_rows(find_rows(root, "trajectories"), _Row, _from_row)
    for folder in folders:
        yield read_record(str(folder / "traj.jsonl"), partial(_trajectory, root, folder))


def load_labels(source: StrPath) -> Iterator[LabelRecord | BadLine]:
    """Yields one label of source `oracle` per run.

    Success is a result of exactly 1, and the note keeps a fraction.

    A run without `result.txt` was not graded and has no label; in the row format, it is undecided.
    """
    root = Path(source)
    folders = _folders(root)
    if not folders:
        yield from read_rows(
            find_rows(root, "labels"), _Labels, lambda row: [_label(row.id, row.oracle_reward)]
        )
    for folder in folders:
        result = folder / "result.txt"
        if result.is_file():
            yield read_record(str(result), partial(_result_label, root, folder, result))


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder")
    return sorted(path.parent for path in members(root, "**/traj.jsonl"))


def _id(root: Path, folder: Path) -> str:
    parts = folder.resolve().parts
    return "/".join(parts[-max(2, len(parts) - len(root.resolve().parts)) :])


def _result_label(root: Path, folder: Path, result: Path) -> LabelRecord:
    text = read_file(result).decode(errors="replace").strip()
    try:
        reward = _REWARD_WORDS[text] if text in _REWARD_WORDS else float(text)
    except ValueError:
        reward = nan
    if not isfinite(reward):
        raise InputError(f"{text[:40]!r} is not a number")
    return _label(_id(root, folder), reward)


def _label(id: str, reward: float | None) -> LabelRecord:
    note = None if reward in (None, 0.0, 1.0) else f"reward {reward:g}"
    return LabelRecord(
        id=id, success=None if reward is None else reward == 1.0, source="oracle", note=note
    )


def _from_row(row: _Row) -> Iterator[Trajectory]:
    steps = [
        Step(Observation(), parse_pyautogui(step.action or "", SCREEN), step.thought)
        for step in row.steps
    ]
    task = Task(id=row.id.rpartition("/")[2], goal=row.goal, platform="desktop", site=row.domain)
    claimed = _claim(row.steps[-1].action) if row.steps else None
    yield Trajectory(
        id=row.id, task=task, agent=row.agent, steps=tuple(steps), metadata=with_claim({}, claimed)
    )


def _trajectory(root: Path, folder: Path) -> Trajectory:
    rows, errors = _rows(folder / "traj.jsonl")
    args = _args(folder.parent.parent / "args.json")
    shots = _screenshots(folder, rows)
    size = _size(shots, args)
    steps, thought = [], None
    for row, shot in zip(rows, shots, strict=False):
        response = _response(row.response)
        steps.append(
            Step(
                Observation(screenshot=shot),
                _action(row.action, size),
                None if response == thought else response,
            )
        )
        thought = response
    final = Observation(screenshot=shots[-1]) if shots[-1] else None
    return Trajectory(
        id=_id(root, folder),
        task=Task(
            id=folder.name,
            goal=_goal(root, folder, rows),
            platform="desktop",
            site=folder.resolve().parent.name,
        ),
        agent=args.model,
        steps=tuple(steps),
        final=final,
        metadata=with_claim({"date": _date(rows)}, _claim(rows[-1].action) if rows else None),
        error="; ".join(errors) or None,
    )


def _rows(path: Path) -> tuple[list[_Turn], list[str]]:
    """Returns the actions, and recorded errors between them (a time limit, a broken machine)."""
    rows, errors = [], []
    for line in read_lines(path):
        try:
            row = decode_json(line.data, _Turn)
        except InputError as error:
            raise InputError(f"line {line.number}: {error}") from None
        if row.Error is not None:
            errors.append(row.Error)
        else:
            rows.append(row)
    return rows, errors


def _date(rows: list[_Turn]) -> str | None:
    """Returns the time of the first action: its own, or the one in its screenshot's name."""
    return date_in(f"{rows[0].action_timestamp} {rows[0].screenshot_file}") if rows else None


def _screenshots(folder: Path, rows: list[_Turn]) -> list[str | None]:
    """Returns the screenshots before each action and the final one.

    Results that were copied without screenshots have none.
    """
    starts = (
        path.name
        for name in ("initial_state.png", "step_0.png", "step_0_*.png")
        for path in folder.glob(name)
    )
    start = next(starts, None)
    first = image_in(folder, start) if start else None
    has_pictures = any(folder.glob("*.png"))
    return [
        first,
        *(
            image_in(folder, row.screenshot_file) if has_pictures and row.screenshot_file else None
            for row in rows
        ),
    ]


def _size(shots: list[str | None], args: _Args) -> tuple[float, float]:
    for shot in shots:
        if shot is not None and (size := image_size_or_none(shot)):
            return size
    return (
        (args.screen_width, args.screen_height)
        if args.screen_width and args.screen_height
        else SCREEN
    )


def _action(entry: str | dict[str, object] | None, size: tuple[float, float]) -> Action:
    """Parses an action: code, an OSWorld special action, or an object.

    An object is of its first action space, or has the code as `command` or `code`.
    """
    if entry is None:
        return Action("other")
    if isinstance(entry, str):
        return parse_pyautogui(entry, size)
    for key in ("command", "code"):
        if isinstance(code := entry.get(key), str):
            return parse_pyautogui(code, size)
    kind, arguments = entry.get("action_type"), entry.get("parameters", entry)
    if isinstance(kind, str) and isinstance(arguments, dict):
        if kind in _WORDS:
            return parse_pyautogui(kind, size)
        return tool_action(
            kind, {key: value for key, value in arguments.items() if key != "action_type"}, size
        )
    return Action("other", json.dumps(entry, ensure_ascii=False))


def _claim(entry: str | dict[str, object] | None) -> bool | None:
    """Returns the agent's claim in the last action: DONE, FAIL (infeasible) or a flag in a call."""
    if isinstance(entry, dict):
        word, arguments = entry.get("action_type"), entry.get("parameters", entry)
        if (
            isinstance(arguments, dict)
            and _action(entry, SCREEN).is_final
            and (claimed := claim_in(arguments)) is not None
        ):
            return claimed
        entry = word if isinstance(word, str) else None
    return _CLAIMS.get((entry or "").strip().partition("\n")[0].strip())


def _response(response: object) -> str | None:
    if isinstance(response, str) or response is None:
        return response or None
    return json.dumps(response, ensure_ascii=False)


def _args(path: Path) -> _Args:
    try:
        return decode_json(read_file(path), _Args) if path.is_file() else _Args()
    except InputError:  # optional, not part of the record
        return _Args()


def _goal(root: Path, folder: Path, rows: list[_Turn]) -> str:
    parent = folder.resolve()
    tops = [root.resolve(), *parent.parents[: _PARENTS + 1]]
    name = f"evaluation_examples/*/{escape(parent.parent.name)}/{escape(parent.name)}.json"
    paths = [path for top in tops for path in top.glob(name)]
    for path in (*paths, parent / f"{parent.name}.json"):
        if not path.is_file():
            continue
        try:
            return decode_json(read_file(path), _Example).instruction
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    if (parent / "instruction.txt").is_file():
        return read_file(parent / "instruction.txt").decode(errors="replace").strip()
    if text := next((row.instruction for row in rows if row.instruction), None):
        return text
    raise InputError("no instruction; put OSWorld's folder evaluation_examples next to the results")


# Actions written as pyautogui code


def parse_pyautogui(code: str, size: tuple[float, float]) -> Action:
    """Parses one action from code or a special action; its kind is `other` if no call is known.

    `text` is unchanged.

    `size` is the screen's width and height in the unit of the coordinates. Several calls become one
    action: its position is where it starts, its value is all typed text, else the keys of the first
    press.
    """
    text = code.strip()
    if word := _WORDS.get(text.partition("\n")[0].strip()):
        return Action(word, text)
    actions = list(_merged_actions(text, size))
    if not actions:
        return Action("other", text)
    kind = next(
        (kind for kind in _WEIGHTS if any(action.kind == kind for action in actions)),
        actions[0].kind,
    )
    main_action = next(action for action in actions if action.kind == kind)
    values = [action.value for action in actions if action.kind == kind and action.value]
    return Action(
        kind,
        text,
        point=next((action.point for action in actions if action.point), None),
        end_point=main_action.end_point,
        value="".join(values) if kind == "type" else next(iter(values), None),
    )


def _merged_actions(text: str, size: tuple[float, float]) -> Iterator[Action]:
    """Yields the actions of the code; a move and a drag become one, as do a copy and a paste."""
    last: Action | None = None
    for action in _actions(text, size):
        if last is not None and last.kind == "hover" and action.kind == "drag":
            last = replace(action, point=last.point)
            continue
        if (
            last is not None
            and last.kind == "copy"
            and action.kind == "press"
            and action.value in ("ctrl+v", "command+v")
        ):
            last = replace(last, kind="type")
            continue
        if last is not None and last.kind != "copy":
            yield last
        last = action
    if last is not None and last.kind != "copy":
        yield last


def _actions(text: str, size: tuple[float, float]) -> Iterator[Action]:
    if (tree := _tree(text)) is not None:
        yield from _calls(tree, size)
        return
    *blocks, rest = _PASTE.split(text)
    for block in blocks:
        before, marker, copied = block.partition(_COPY_CALL)
        yield from _by_line(before, size)
        yield (
            Action("type", value=copied.strip().strip("'\""))
            if marker
            else Action("press", value="ctrl+v")
        )
    yield from _by_line(rest, size)


def _by_line(text: str, size: tuple[float, float]) -> Iterator[Action]:
    """Yields the actions of those lines that are code."""
    for line in text.splitlines():
        if (tree := _tree(line.strip())) is not None:
            yield from _calls(tree, size)


def _calls(tree: ast.Module, size: tuple[float, float]) -> Iterator[Action]:
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            action = _call_action(node.value, size)
            if action is not None:
                yield action


def _tree(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            # hide warnings on invalid escapes in an agent's code
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _call_action(call: ast.Call, size: tuple[float, float]) -> Action | None:
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return None
    if call.func.value.id not in ("pyautogui", "pyperclip", "time"):
        return None
    name = call.func.attr
    if name not in _KINDS:
        return None
    args = [_plain(arg) for arg in call.args]
    named = {keyword.arg: _plain(keyword.value) for keyword in call.keywords}
    kind = _KINDS[name]
    if name in ("copy", "write", "typewrite", "press", "keyDown", "hotkey"):
        value = _text(name, args, named)
        return Action(kind, value=None if value is None else valid_unicode(value))
    if name == "sleep":
        return Action(kind)
    first = 1 if kind == "scroll" else 0  # a scroll's distance precedes its position
    x, y = (
        named.get(key, args[i] if i < len(args) else None)
        for i, key in ((first, "x"), (first + 1, "y"))
    )
    point = fraction(x, y, size)
    if kind == "drag":
        return Action(kind, end_point=point)
    if kind == "scroll":
        return Action(
            kind,
            point=point,
            value=_direction(name, named.get("clicks", args[0] if args else None)),
        )
    if kind == "click":
        kind = {2: "double_click", 3: "triple_click"}.get(
            _count(named.get("clicks", args[2] if len(args) > 2 else 1)), kind
        )
        kind = "right_click" if named.get("button") == "right" else kind
    return Action(kind, point=point)


def _text(name: str, args: list[object], named: dict[str | None, object]) -> str | None:
    if name == "hotkey":
        keys = args[0] if len(args) == 1 and isinstance(args[0], list) else args
        return "+".join(map(str, keys)) or None
    value = (
        args[0]
        if args
        else next((named[key] for key in ("message", "text", "keys", "key") if key in named), None)
    )
    if isinstance(value, list):
        return ("" if name in ("write", "typewrite") else ", ").join(map(str, value))
    return None if value is None else str(value)


def _direction(name: str, distance: object) -> str | None:
    if not isinstance(distance, int | float) or distance == 0:
        return None
    return (("left", "right") if name == "hscroll" else ("down", "up"))[distance > 0]


def _count(clicks: object) -> int:
    return clicks if isinstance(clicks, int) else 1


def _plain(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None

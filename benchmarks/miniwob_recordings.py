"""Reads episodes of MiniWoB++ as the package's own `core/record.js` writes them: a goal, and for
each event of a person or a script the page's elements before it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from prill.types import Action, Observation, Step, Task, Trajectory

# The latest actions, and the characters of the last page, that a judge is shown.
ACTIONS, CHANGED, BEFORE = 12, 80, 40
# Rows of a list, which are named by a person.
_ROWS = ("media", "email-thread")
_CONTAINERS = ("wrap", "area", "main", "form")
_CAPTURING = 1  # the event's phase in which the page has not handled it yet

Node = dict[str, Any]


def read_recordings(path: Path) -> Iterator[tuple[Trajectory, float | None]]:
    """Yields each episode of a `.jsonl.gz` file, and its raw reward if the file has it.

    An action is a click on an element by its name, a box that was checked or unchecked, a text that
    was typed, or a key. The final observation says what changed since the first page.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            goal = record["utterance"]
            actions = list(_actions(record["states"]))[-ACTIONS:]
            yield (
                Trajectory(
                    id=record["id"],
                    task=Task(
                        goal=goal if isinstance(goal, str) else goal["utterance"],
                        platform="web",
                        site=record["taskName"],
                    ),
                    steps=tuple(
                        Step(
                            Observation(),
                            Action("type" if action.startswith("type") else "click", action),
                        )
                        for action in actions
                    ),
                    final=Observation(text=_change(record["states"])),
                ),
                record.get("rawReward"),
            )


def _actions(states: list[Node]) -> Iterator[str]:
    """Yields what was done, equal actions in a row once."""
    for action, same in groupby(_events(states)):
        count = len(list(same))
        yield action if count == 1 else f"{action} x{count}"


def _events(states: list[Node]) -> Iterator[str]:
    typed = ""
    for place, state in enumerate(states):
        event = state["action"] or {}
        if event.get("timing") != _CAPTURING:
            continue
        kind, done = event["type"], None
        if kind == "keypress":
            code = event.get("charCode") or 0
            typed += chr(code) if code >= ord(" ") else ""
            done = "press enter" if code == ord("\r") else None
        elif kind == "keydown" and event.get("keyCode") in (8, 46):  # Backspace and Delete
            if not typed:
                yield "press delete"
            typed = typed[:-1]
        elif kind == "click" or (kind == "mousedown" and not _clicked(states[place + 1 :])):
            path = _target(state["dom"]) or _at(state["dom"], event["x"], event["y"])
            if _is_label_of_box(path[-1]):
                continue  # the browser then clicks the box itself
            if typed:
                yield f"type {typed!r}"
            typed, done = "", _click(path)
        if done and typed:
            yield f"type {typed!r}"
            typed = ""
        if done:
            yield done
    if typed:
        yield f"type {typed!r}"


def _is_label_of_box(node: Node) -> bool:
    children = node.get("children", ())
    return node["tag"] == "LABEL" and any(c["tag"] == "INPUT_checkbox" for c in children)


def _clicked(following: list[Node]) -> bool:
    """Whether a click follows a press of the button, which ends some episodes."""
    return any((state["action"] or {}).get("type") == "click" for state in following[:8])


def _target(node: Node, path: tuple[Node, ...] = ()) -> tuple[Node, ...] | None:
    """Returns the element that got the event, with all around it."""
    path = (*path, node)
    if node.get("recordingTarget"):
        return path
    found = (_target(child, path) for child in node.get("children", ()))
    return next(filter(None, found), None)


def _at(node: Node, x: float, y: float, path: tuple[Node, ...] = ()) -> tuple[Node, ...]:
    path = (*path, node)
    for child in reversed(node.get("children", ())):
        if (
            child["left"] <= x <= child["left"] + child["width"]
            and child["top"] <= y <= child["top"] + child["height"]
        ):
            return _at(child, x, y, path)
    return path


def _click(path: tuple[Node, ...]) -> str | None:
    """Describes a click by what its element says, and whose row it is in."""
    node = path[-1]
    if node["tag"] == "INPUT_checkbox":
        # The browser has toggled the box before the event is recorded.
        return f"{'check' if node.get('value') else 'uncheck'} {' '.join(_texts(path[-2]))}"
    if node["tag"] == "BODY" or node.get("id") in _CONTAINERS:
        return None
    own = _name(node)
    if len(path) > 1 and not _text(node) and own in ("", "icon"):
        own = _name(path[-2]) or own
    row = next((part for part in path if part.get("classes") in _ROWS), None)
    owner = ""
    if row is not None:
        if row is node:
            own = ""
        texts = list(_texts(row))
        who = [text for text in texts if text.startswith("@")] or texts[:1]
        owner = f" of {who[0]}" if who and who[0] != own else ""
    own = own or " ".join(_texts(node))[:30] or node["tag"].lower()
    return f"click {own[:40]}{owner}"


def _change(states: list[Node]) -> str:
    first, last = (_lines(states[place]["dom"]) for place in (0, -1))
    known = set(first)
    new = "; ".join(line for line in last if line not in known and line != "[ ]")[:CHANGED]
    kept = "; ".join(line for line in last if line in known and line.startswith("[x"))[:BEFORE]
    return f"Changed: {new or 'nothing'}{f'. Before: {kept}' if kept else ''}"


def _lines(page: Node) -> list[str]:
    """Returns what is on a page, a line for each element; boxes with the text after them."""
    lines: list[str] = []
    for node in _walk(page):
        text = _text(node)
        if node["tag"] in ("INPUT_checkbox", "INPUT_radio"):
            lines.append("[x]" if node.get("value") else "[ ]")
        elif node["tag"].startswith("INPUT") or node["tag"] == "TEXTAREA":
            lines.append(f"{_name(node)}={str(node.get('value') or '').strip()[:60]!r}")
        elif text and lines and lines[-1] in ("[x]", "[ ]"):
            lines[-1] += f" {text}"
        elif text:
            lines.append(text[:40])
    return lines


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("children", ()):
        yield from _walk(child)


def _texts(node: Node) -> Iterator[str]:
    return filter(None, map(_text, _walk(node)))


def _text(node: Node) -> str:
    return (node.get("text") or "").strip()


def _name(node: Node) -> str:
    word = node.get("id") or node.get("classes") or ""
    return _text(node) or word.replace("-", " ").replace("secondary action", "").strip()

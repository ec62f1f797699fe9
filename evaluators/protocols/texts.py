"""The texts of a protocol's prompts: a function for each placeholder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from prill.actions.phone import DEVICE_NAMES
from prill.evaluators.evidence import (
    action_history,
    action_text,
    address,
    are_withheld,
    request,
    state_text,
    without_claims,
)
from prill.evaluators.frames import Frame, frame_block
from prill.evaluators.protocols.presets import Protocol
from prill.models.prompts import clean, quoted, shorten
from prill.types import Trajectory

_URL_CHARS = 150  # of a step's address in the Universal Verifier's history
_DEVICES = {**DEVICE_NAMES, "web": "web sites", "desktop": "a desktop computer"}
_CUT = "…[text truncated]…"


@dataclass(slots=True)
class Scene:
    """The evidence of one run, and the results of the stages so far.

    Args:
        protocol: The protocol.
        trajectory: The run.
        frames: A frame for each state that has a picture, or a caption in its place.
        texts: The text of each state. None: it has none.
        results: The results of stages by name; a list for stages with a call per frame.
        remark: A note about frames without room in the last request.
    """

    protocol: Protocol
    trajectory: Trajectory
    frames: list[Frame]
    texts: Sequence[str | None]
    results: dict[str, Any] = field(default_factory=dict)
    remark: str = ""

    def cut(self, text: str, room: int) -> str:
        """Returns the text, cut where the protocol cuts it."""
        if self.protocol.cut == "middle" or len(text) <= room:
            return shorten(text, room)
        return text[: max(0, room - len(_CUT))] + _CUT


_Subject = Mapping[str, Any]
Slot = Callable[[Scene, Sequence[Frame], int, _Subject], str]


def _goal(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    return request(scene.trajectory)


def _actions(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    """Returns the actions alone: messages to the user lose their text."""
    return quoted("actions", action_history(without_claims(scene.trajectory), room))


def _said_actions(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    return quoted("actions", action_history(scene.trajectory, room, paper=True))


def _steps(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    """Returns the parts of every step that the protocol shows."""
    run, blocks = scene.trajectory, []
    for number, step in enumerate(run.steps, 1):
        lines = [f"Step {number}"]
        if "url" in scene.protocol.steps and (url := address(step.observation)):
            lines.append(f"URL: {url[:_URL_CHARS]}")
        if "thought" in scene.protocol.steps:
            lines.append(f"Thought: {' '.join((step.thought or '(none)').split())}")
        if "action" in scene.protocol.steps:
            text = action_text(step.action, run.task.platform, step.observation.text or "")
            lines.append(f"Action: {' '.join(text.split())}")
        blocks.append("\n".join(lines))
    text = "\n\n".join(blocks) or "(no actions)"
    if run.error:
        text += f"\n\nThe run ended with an error: {' '.join(run.error.split())}"
    return quoted("steps", scene.cut(clean(text), room))


def _answer(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    if are_withheld(scene.trajectory):
        return ""
    return quoted("answer", scene.cut(scene.trajectory.answer or "(none)", room))


def _tree(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    """Returns the text of the last state that has one."""
    i = max(i for i, text in enumerate(scene.texts) if text)
    return quoted(
        "state", scene.cut(state_text(scene.texts[i] or "", scene.trajectory.observations[i]), room)
    )


def _frames(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    """Returns the titles of the frames shown, with their text if a captioner read them."""
    return frame_block(frames, [""] * len(frames), scene.trajectory, room)[0] or "(no frame)"


def _described(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    """Returns the frames shown with the descriptions that their grades came with."""
    grades = zip(scene.frames, scene.results["grades"], strict=True)
    descriptions_by_state = {frame.states: grade.description for frame, grade in grades}
    descriptions = [descriptions_by_state[frame.states] for frame in frames]
    return frame_block(frames, descriptions, scene.trajectory, room)[0] or "(no frame)"


def _count(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    return str(len(frames))


def _device(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    return _DEVICES.get(scene.trajectory.task.platform, "a computer or phone")


def _points(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    return quoted("key-points", scene.cut(scene.results["points"], room))


def _description(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    return quoted("state", scene.cut(scene.results["description"], room))


def _before(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    return _state(scene, subject["before"], "before", room)


def _after(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    return _state(scene, subject["after"], "after", room)


def _state(scene: Scene, i: int, name: str, room: int) -> str:
    text = state_text(scene.texts[i] or "", scene.trajectory.observations[i])
    return quoted(name, scene.cut(text, room // 2))


def _action(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    """Returns the actions between two states; one, unless a state has no text."""
    run = scene.trajectory
    texts = [
        action_text(step.action, run.task.platform, step.observation.text or "")
        for step in run.steps[subject["before"] : subject["after"]]
    ]
    return quoted("actions", scene.cut("\n".join(" ".join(text.split()) for text in texts), room))


def _changes(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    changes = scene.results["changes"] or ["(no change was recorded)"]
    share = max(60, room // len(changes))
    lines = (
        f"{i}. {shorten(' '.join(change.split()), share)}" for i, change in enumerate(changes, 1)
    )
    return quoted("changes", "\n".join(lines))


# The Universal Verifier's


def _rubric(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    """Returns the criteria by number; only those of the subject, if it has any."""
    items, lines = scene.results["rubric"].items, []
    for number in subject.get("numbers") or range(1, len(items) + 1):
        item = items[number - 1]
        condition = f" Only if: {item.condition}." if item.condition else ""
        text = f"{number}. {item.criterion} ({item.max_points} points): {item.description}"
        lines.append(" ".join(f"{text}{condition}".split()))
    return quoted("rubric", scene.cut("\n".join(lines), room))


def _evidence(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
    """Returns what the selected frames show for each criterion, in the order of the frames."""
    lines = []
    selected = sorted(scene.results["selected"])
    for i, found in zip(selected, scene.results["evidence"], strict=True):
        state = scene.frames[i].states[-1]
        lines += [
            f"State {state}, criterion {note.criterion}: {' '.join(note.note.split())}"
            for note in found.notes
        ]
    return quoted("evidence", scene.cut("\n".join(lines) or "(none)", room))


def _json(name: str, quotation: str) -> Slot:
    def slot(scene: Scene, frames: Sequence[Frame], room: int, subject: _Subject) -> str:
        text = msgspec.json.encode(scene.results[name]).decode() if name in scene.results else "{}"
        return quoted(quotation, scene.cut(text, room))

    return slot


SLOTS: Mapping[str, Slot] = {
    "goal": _goal,
    "actions": _actions,
    "said_actions": _said_actions,
    "steps": _steps,
    "answer": _answer,
    "tree": _tree,
    "frames": _frames,
    "described": _described,
    "count": _count,
    "device": _device,
    "points": _points,
    "description": _description,
    "before": _before,
    "after": _after,
    "action": _action,
    "changes": _changes,
    "rubric": _rubric,
    "evidence": _evidence,
    "first": _json("first", "first-points"),
    "notes": _json("notes", "reality-notes"),
    "scores": _json("scores", "points"),
    "effects": _json("effects", "side-effects"),
}

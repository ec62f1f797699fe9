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
_DEVICE = "a computer or phone"
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


@dataclass(frozen=True, slots=True)
class Filling:
    """What a prompt is filled with: the evidence, the frames shown, the maximum number of
    characters of a text, and the subject, such as two states or some criteria.
    """

    scene: Scene
    frames: Sequence[Frame]
    room: int
    subject: Mapping[str, Any]

    def quoted(self, name: str, text: str, room: int | None = None) -> str:
        """Quotes a text, cut where the protocol cuts it."""
        return quoted(name, self.scene.cut(text, self.room if room is None else room))

    def history(self, run: Trajectory, *, paper: bool = False) -> str:
        """Returns the actions of a run."""
        return quoted("actions", action_history(run, self.room, paper=paper))

    def state(self, i: int, name: str, room: int) -> str:
        """Returns the text of a state by its index."""
        text = state_text(self.scene.texts[i] or "", self.scene.trajectory.observations[i])
        return self.quoted(name, text, room)

    def shown(self, descriptions: Sequence[str]) -> str:
        """Returns the titles of the frames shown, with their texts."""
        block, _ = frame_block(self.frames, descriptions, self.scene.trajectory, self.room)
        return block or "(no frame)"

    def result(self, result: str, name: str) -> str:
        """Returns the result of a stage as JSON."""
        results = self.scene.results
        text = msgspec.json.encode(results[result]).decode() if result in results else "{}"
        return self.quoted(name, text)


def _answer(filling: Filling) -> str:
    run = filling.scene.trajectory
    return "" if are_withheld(run) else filling.quoted("answer", run.answer or "(none)")


def _tree(filling: Filling) -> str:
    """Returns the text of the last state that has one."""
    last = max(i for i, text in enumerate(filling.scene.texts) if text)
    return filling.state(last, "state", filling.room)


def _steps(filling: Filling) -> str:
    """Returns the parts of every step that the protocol shows."""
    run, blocks = filling.scene.trajectory, []
    for number, step in enumerate(run.steps, 1):
        lines = [f"Step {number}"]
        if "url" in filling.scene.protocol.steps and (url := address(step.observation)):
            lines.append(f"URL: {url[:_URL_CHARS]}")
        if "thought" in filling.scene.protocol.steps:
            lines.append(f"Thought: {' '.join((step.thought or '(none)').split())}")
        if "action" in filling.scene.protocol.steps:
            text = action_text(step.action, run.task.platform, step.observation.text or "")
            lines.append(f"Action: {' '.join(text.split())}")
        blocks.append("\n".join(lines))
    text = "\n\n".join(blocks) or "(no actions)"
    if run.error:
        text += f"\n\nThe run ended with an error: {' '.join(run.error.split())}"
    return filling.quoted("steps", clean(text))


def _described(filling: Filling) -> str:
    """Returns the frames shown with the descriptions that their grades came with."""
    grades = zip(filling.scene.frames, filling.scene.results["grades"], strict=True)
    descriptions_by_state = {frame.states: grade.description for frame, grade in grades}
    descriptions = [descriptions_by_state[frame.states] for frame in filling.frames]
    return filling.shown(descriptions)


def _action(filling: Filling) -> str:
    """Returns the actions between two states; one, unless a state has no text."""
    run = filling.scene.trajectory
    texts = [
        action_text(step.action, run.task.platform, step.observation.text or "")
        for step in run.steps[filling.subject["before"] : filling.subject["after"]]
    ]
    return filling.quoted("actions", "\n".join(" ".join(text.split()) for text in texts))


def _changes(filling: Filling) -> str:
    changes = filling.scene.results["changes"] or ["(no change was recorded)"]
    share = max(60, filling.room // len(changes))
    lines = (
        f"{i}. {shorten(' '.join(change.split()), share)}" for i, change in enumerate(changes, 1)
    )
    return quoted("changes", "\n".join(lines))


def _rubric(filling: Filling) -> str:
    """Returns the criteria by number; only those of the subject, if it has any."""
    items, lines = filling.scene.results["rubric"].items, []
    for number in filling.subject.get("numbers") or range(1, len(items) + 1):
        item = items[number - 1]
        condition = f" Only if: {item.condition}." if item.condition else ""
        text = f"{number}. {item.criterion} ({item.max_points} points): {item.description}"
        lines.append(" ".join(f"{text}{condition}".split()))
    return filling.quoted("rubric", "\n".join(lines))


def _evidence(filling: Filling) -> str:
    """Returns what the selected frames show for each criterion, in the order of the frames."""
    lines = []
    selected = sorted(filling.scene.results["selected"])
    for i, found in zip(selected, filling.scene.results["evidence"], strict=True):
        state = filling.scene.frames[i].states[-1]
        lines += [
            f"State {state}, criterion {note.criterion}: {' '.join(note.note.split())}"
            for note in found.notes
        ]
    return filling.quoted("evidence", "\n".join(lines) or "(none)")


SLOTS: Mapping[str, Callable[[Filling], str]] = {
    "goal": lambda filling: request(filling.scene.trajectory),
    # messages to the user lose their text
    "actions": lambda filling: filling.history(without_claims(filling.scene.trajectory)),
    "said_actions": lambda filling: filling.history(filling.scene.trajectory, paper=True),
    "steps": _steps,
    "answer": _answer,
    "tree": _tree,
    # titles of the frames, with their text if a captioner read them
    "frames": lambda filling: filling.shown([""] * len(filling.frames)),
    "described": _described,
    "count": lambda filling: str(len(filling.frames)),
    "device": lambda filling: _DEVICES.get(filling.scene.trajectory.task.platform, _DEVICE),
    "points": lambda filling: filling.quoted("key-points", filling.scene.results["points"]),
    "description": lambda filling: filling.quoted("state", filling.scene.results["description"]),
    "before": lambda filling: filling.state(filling.subject["before"], "before", filling.room // 2),
    "after": lambda filling: filling.state(filling.subject["after"], "after", filling.room // 2),
    "action": _action,
    "changes": _changes,
    "rubric": _rubric,
    "evidence": _evidence,
    "first": lambda filling: filling.result("first", "first-points"),
    "notes": lambda filling: filling.result("notes", "reality-notes"),
    "scores": lambda filling: filling.result("scores", "points"),
    "effects": lambda filling: filling.result("effects", "side-effects"),
}

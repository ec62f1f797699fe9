"""The texts of a judge's prompts: a function for each placeholder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from prill.actions.phone import DEVICE_NAMES
from prill.evaluators.criteria import Rubric
from prill.evaluators.evidence import (
    Frame,
    action_history,
    action_text,
    address,
    are_withheld,
    asked_for,
    claims,
    frame_block,
    image_lines,
    request,
    run_ending,
    state_text,
    text_block,
    thought_lines,
    without_claims,
    without_copies,
)
from prill.evaluators.page import Page, Stage
from prill.evaluators.questions import Question
from prill.evaluators.references import reference_block
from prill.models.prompts import NONCE, clean, quoted, shorten
from prill.types import Trajectory

_URL_CHARS = 150  # of a step's address, as in the Universal Verifier's history
_STATE_CHARS = 300  # the least for a state, if there are many
_DEVICES = {**DEVICE_NAMES, "web": "web sites", "desktop": "a desktop computer"}
_DEVICE = "a computer or phone"
_CUT = "…[text truncated]…"
_NOT_RECORDED = "(This state was not recorded.)"
_TERMINATED = "Terminated"


@dataclass(slots=True)
class Scene:
    """The evidence of one run, and the results of the stages so far.

    Args:
        page: The judge's page.
        how: The values of its keys.
        run: The run.
        frames: The frames: one for each state that has a picture or a text, as the page reads it.
        texts: The text of each state. None: it has none.
        questions: The questions that the judge asks.
        references: The known answers, by run or task.
        results: The results of stages by name; a list for stages with several calls.
        shown: The frames of the last request about the run.
        remark: A note about frames without room in that request.
    """

    page: Page
    how: Mapping[str, Any]
    run: Trajectory
    frames: list[Frame]
    texts: Sequence[str | None]
    questions: Sequence[Question] = ()
    references: Mapping[str, str] | None = None
    results: dict[str, Any] = field(default_factory=dict)
    shown: list[Frame] = field(default_factory=list)
    remark: str = ""

    def cut(self, text: str, room: int) -> str:
        """Returns the text, cut where the page cuts it."""
        if self.page.cut == "middle" or len(text) <= room:
            return shorten(text, room)
        return text[: max(0, room - len(_CUT))] + _CUT

    @property
    def shows_answer(self) -> bool:
        """Whether the agent's answer is shown."""
        if (choice := self.how.get("answer")) is not None:
            return bool(choice)
        on = self.page.answer_on
        return on == "all" or (on == "web") == (self.run.task.platform == "web")

    @property
    def told(self) -> Trajectory:
        """The run as the judge is told it: without messages to the user, if the answer is hidden
        by the page or by the user.
        """
        return without_claims(self.run) if self.how.get("answer") is False else self.run

    @property
    def rubric(self) -> Rubric:
        """The criteria of the goal."""
        found = self.results["criteria"]
        assert isinstance(found, Rubric)
        return found


@dataclass(frozen=True, slots=True)
class Filling:
    """What a prompt is filled with: the evidence, the frames shown, the maximum number of
    characters of a text, and the subject, such as a step or some criteria.
    """

    scene: Scene
    stage: Stage
    frames: Sequence[Frame]
    room: int
    subject: Mapping[str, Any]

    def quoted(self, name: str, text: str, room: int | None = None) -> str:
        """Quotes a text, cut where the page cuts it."""
        return quoted(name, self.scene.cut(text, self.room if room is None else room))

    def bare(self, text: str) -> str:
        """Returns a text without words of the goal, if the page hides it."""
        return without_copies(text, self.scene.run.task.goal) if self.scene.page.hide_goal else text

    def state(self, i: int, name: str, room: int) -> str:
        """Returns the text of a state by its number."""
        text = self.scene.texts[i]
        if self.scene.page.plain:
            return shorten(clean(text or _NOT_RECORDED), room)
        observation = self.scene.run.observations[i]
        shown = _NOT_RECORDED if text is None else state_text(text, observation)
        return self.quoted(name, self.bare(shown), room)

    def result(self, result: str, name: str) -> str:
        """Returns the result of a stage as JSON."""
        results = self.scene.results
        text = msgspec.json.encode(results[result]).decode() if result in results else "{}"
        return self.quoted(name, text)


def _goal(filling: Filling) -> str:
    run = filling.scene.run
    if filling.scene.page.plain:
        return clean(run.task.goal)
    if filling.stage.per == "goal":
        return asked_for(run.task)
    known = filling.stage is filling.scene.page.stages[-1]
    return request(run) + (reference_block(run, filling.scene.references) if known else "")


def _actions(filling: Filling) -> str:
    scene, before = filling.scene, filling.subject.get("state")
    if scene.page.plain:
        return action_history(scene.told, filling.room, paper=True)
    run = scene.told
    if before == 0:
        return "No action so far."
    if before is not None:
        run = Trajectory(id=run.id, task=run.task, steps=run.steps[:before])
    lines = filling.bare(action_history(run, filling.room))
    own = not (scene.page.parser or scene.page.hide_goal)  # not published, nor trained
    if before is None and own and (end := run_ending(run)):
        lines += f"\nend: {filling.bare(end)}"
    return quoted("actions", lines)


def _claims(filling: Filling) -> str:
    scene, room = filling.scene, filling.room // 4
    run, thoughts = scene.run, bool(scene.how.get("thoughts"))
    if not scene.page.plain:
        return claims(run, room, answer=scene.shows_answer, thoughts=thoughts)
    lines = []
    if scene.shows_answer:
        answer = shorten(clean(run.answer or ""), room).strip() or "N/A"
        lines.append(f"The agent's answer to the user: {answer}")
    if thoughts:
        lines.append(f"The agent's thoughts:\n{thought_lines(run, room)}")
    return "\n\n".join(lines)


def _answer(filling: Filling) -> str:
    run = filling.scene.run
    return "" if are_withheld(run) else filling.quoted("answer", run.answer or "(none)")


def _tree(filling: Filling) -> str:
    """Returns the text of the last state that has one."""
    last = max(i for i, text in enumerate(filling.scene.texts) if text)
    return filling.state(last, "state", filling.room)


def _state(filling: Filling) -> str:
    """Returns the state that a call is about, or the last ones."""
    scene, i = filling.scene, filling.subject.get("state")
    if i is not None:
        return filling.state(i, "state", filling.room)
    described = scene.results.get("description")
    if scene.page.plain:
        text = described or (filling.frames[-1].text if filling.frames else "")
        return shorten(clean(text), filling.room)
    if scene.page.hide_goal:
        last = filling.frames[-1]
        text = state_text(last.text, scene.run.observations[last.states[-1]])
        return quoted("state", filling.bare(shorten(text, filling.room)))
    return text_block(filling.frames, scene.run, filling.room)


def _states(filling: Filling) -> str:
    """Returns the texts of all states, or of the first and the last if there are too many."""
    shown, run = list(filling.frames), filling.scene.run
    # the last states are the most informative; the first shows where the run started
    most = max(2, filling.room // _STATE_CHARS)
    if len(shown) > most:
        shown = [shown[0], *shown[len(shown) - most + 1 :]]
    share = max(1, filling.room // max(1, len(shown)))
    blocks = []
    for frame in shown:
        i = frame.states[-1]
        text = shorten(state_text(frame.text, run.observations[i]), share)
        blocks.append(f"State {i}:\n{quoted(f'state-{i}', text)}")
    return "\n\n".join(blocks)


def _steps(filling: Filling) -> str:
    """Returns the parts of every step that the page shows."""
    run, parts, blocks = filling.scene.run, filling.scene.page.steps, []
    for number, step in enumerate(run.steps, 1):
        lines = [f"Step {number}"]
        if "url" in parts and (url := address(step.observation)):
            lines.append(f"URL: {url[:_URL_CHARS]}")
        if "thought" in parts:
            lines.append(f"Thought: {' '.join((step.thought or '(none)').split())}")
        if "action" in parts:
            text = action_text(step.action, run.task.platform, step.observation.text or "")
            lines.append(f"Action: {' '.join(text.split())}")
        blocks.append("\n".join(lines))
    text = "\n\n".join(blocks) or "(no actions)"
    if run.error:
        text += f"\n\nThe run ended with an error: {' '.join(run.error.split())}"
    return filling.quoted("steps", clean(text))


def _frames(filling: Filling) -> str:
    """Returns the titles of the frames shown, with their texts and, of rated ones, what was
    described.
    """
    scene = filling.scene
    if scene.page.evidence == "key":
        return image_lines(filling.frames, scene.frames, scene.run)
    grades = scene.results.get("grades") if filling.stage.per == "run" else None
    words = {
        frame.states: grade.description
        for frame, grade in zip(scene.frames, grades or (), strict=bool(grades))
    }
    descriptions = [words.get(frame.states, "") for frame in filling.frames]
    return frame_block(filling.frames, descriptions, scene.run, filling.room) or "(no frame)"


def _before(filling: Filling) -> str:
    return filling.state(filling.subject["before"], "before", filling.room // 2)


def _after(filling: Filling) -> str:
    i = filling.subject["after"]
    if i >= len(filling.scene.texts):
        return _TERMINATED
    return filling.state(i, "after", filling.room // 2)


def _action(filling: Filling) -> str:
    """Returns the action that a call is about."""
    scene, room = filling.scene, filling.room // 2
    step, platform = scene.run.steps[filling.subject["before"]], scene.run.task.platform
    page = step.observation.text or ""
    if scene.page.plain:
        text = action_text(step.action, platform, page, paper=True)
        return shorten(clean(text or _NOT_RECORDED), room)
    return quoted("action", shorten(action_text(step.action, platform, page), room))


def _moves(filling: Filling) -> str:
    """Returns the actions between two states; one, unless a state has no text."""
    run = filling.scene.run
    texts = [
        action_text(step.action, run.task.platform, step.observation.text or "")
        for step in run.steps[filling.subject["before"] : filling.subject["after"]]
    ]
    return filling.quoted("actions", "\n".join(" ".join(text.split()) for text in texts))


def _points(filling: Filling) -> str:
    return filling.quoted("key-points", filling.scene.results["points"])


def _changes(filling: Filling) -> str:
    changes = filling.scene.results["changes"] or ["(no change was recorded)"]
    share = max(60, filling.room // len(changes))
    lines = (
        f"{i}. {shorten(' '.join(change.split()), share)}" for i, change in enumerate(changes, 1)
    )
    return quoted("changes", "\n".join(lines))


def _criteria(filling: Filling) -> str:
    lines = (
        f"{i}. {' '.join(criterion.text.split())}"
        for i, criterion in enumerate(filling.scene.rubric.criteria, 1)
    )
    return quoted("criteria", "\n".join(lines))


def _item(filling: Filling) -> str:
    """Returns the criterion that a call is about."""
    criterion = filling.scene.rubric.criteria[filling.subject["criterion"]]
    return quoted("item", " ".join(criterion.text.split()))


def _rubric(filling: Filling) -> str:
    """Returns the criteria with points by number; only those of the subject, if it has any."""
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


def _questions(filling: Filling) -> str:
    asked = enumerate(filling.scene.questions, 1)
    return quoted("questions", "\n".join(f"q{i}. {clean(one.text)}" for i, one in asked))


# `{{ images }}` is the place of the images; without it, they come after all text, so that servers
# can reuse the cached prefix. `{{ quotes }}` is the sentence about quotations.
SLOTS: Mapping[str, Callable[[Filling], str]] = {
    "goal": _goal,
    "actions": _actions,
    # with the texts of messages to the user, as recorded
    "said_actions": lambda filling: quoted(
        "actions", action_history(filling.scene.run, filling.room, paper=True)
    ),
    "claims": _claims,
    "answer": _answer,
    "steps": _steps,
    "tree": _tree,
    "state": _state,
    "states": _states,
    "frame": _frames,
    "frames": _frames,
    "count": lambda filling: str(len(filling.frames)),
    "device": lambda filling: _DEVICES.get(filling.scene.run.task.platform, _DEVICE),
    "before": _before,
    "after": _after,
    "action": _action,
    "moves": _moves,
    "points": _points,
    "description": lambda filling: filling.quoted("state", filling.scene.results["description"]),
    "changes": _changes,
    "criteria": _criteria,
    "item": _item,
    "rubric": _rubric,
    "evidence": _evidence,
    "first": lambda filling: filling.result("first", "first-points"),
    "notes": lambda filling: filling.result("notes", "reality-notes"),
    "scores": lambda filling: filling.result("scores", "points"),
    "effects": lambda filling: filling.result("effects", "side-effects"),
    "questions": _questions,
    "code": lambda filling: NONCE,
}
# Placeholders that show the results of the stages of these names.
RESULTS: Mapping[str, str] = {
    **{name: name for name in ("points", "description", "changes", "criteria", "rubric")},
    **{name: name for name in ("evidence", "scores", "effects")},
    "item": "criteria",
}
# Placeholders that need a subject, and the kinds of stages that have it.
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "before": ("step", "transition"),
    "after": ("step", "transition"),
    "action": ("step",),
    "moves": ("transition",),
    "item": ("criterion",),
}

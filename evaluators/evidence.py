"""What a judge is shown of a trajectory, as text: numbered actions, states, the answer, each fenced as a quotation."""

from __future__ import annotations

import re
from dataclasses import replace
from math import dist

from prill.actions.phone import SWIPE_DISTANCE
from prill.models.prompts import clean, quoted, shorten
from prill.types import Action, Observation, Platform, Trajectory

_CLICK = re.compile(r"click \[(\w+)\] where \[\1\] is (?:\[\1\] )?(.+)", re.DOTALL)
_TYPE = re.compile(r"type \[(\w+)\] \[(.*)\] where \[\1\] is (?:\[\1\] )?(.+)", re.DOTALL)
_DUAL_POINT = re.compile(r"DualPoint\D*" + r"\D+".join([r"(\d+(?:\.\d+)?|\.\d+)"] * 4))
# Kinds of actions that speak to the user, and how such an action begins where a converter did not know its kind.
_SPEECH = frozenset({"answer", "message", "stop"})
_SPEECH_CALL = re.compile(
    r"^[ \t]*(send_msg_to_user|report_infeasible|stop|answer|finish|finished|done|terminate|complete)\s*[\[({:]", re.I | re.M
)
_WITHHELD = "prill.claims_withheld"  # a key of metadata, which no judge is shown
_ACTION_CHARS, _LEAST_ACTION_CHARS = 500, 60


def action_text(action: Action, platform: Platform) -> str:
    """One action as the judge reads it, by the rules of arXiv 2404.06474.

    Element numbers go: `click [7] where [7] is link 'Cart'` reads `click at [link 'Cart']` (WebArena's form; prill's agents
    use it on phones too). Android: a DualPoint reads `tap` or `swipe on screen`. iOS: a tap on nothing that is named reads
    `tap`. All else stays as recorded.
    """
    text = action.text or " ".join(part for part in (action.kind, action.target, action.value) if part)
    if click := _CLICK.fullmatch(text):
        return f"click at [{click[2]}]"
    if entry := _TYPE.fullmatch(text):
        return f"type [{entry[2]}] at [{entry[3]}]"
    if platform == "android" and (points := _DUAL_POINT.search(text)):
        x1, y1, x2, y2 = map(float, points.groups())
        # The hair's breadth: 0.55 - 0.50 is a little more than 0.05 in binary.
        return "swipe on screen" if dist((x1, y1), (x2, y2)) > SWIPE_DISTANCE + 1e-9 else "tap"
    if platform == "ios" and action.target is None and "tap" in text.lower():
        return "tap"
    return text


def action_history(trajectory: Trajectory, max_chars: int = 24_000) -> str:
    """All actions as numbered lines, `1: …`; long ones are shortened so that together they take about `max_chars`."""
    platform = trajectory.task.platform
    texts = [_flat(action_text(step.action, platform)) for step in trajectory.steps]
    share = min(_ACTION_CHARS, max(_LEAST_ACTION_CHARS, max_chars // max(1, len(texts))))
    lines = [f"{i}: {shorten(text, share)}" for i, text in enumerate(texts, 1)]
    return "\n".join(lines) or "(no actions)"


def claims(trajectory: Trajectory, max_chars: int, *, answer: bool, thoughts: bool) -> str:
    """What the agent says of its own work, as quotations; empty when neither part is wanted, or the words were taken away."""
    blocks: list[str] = []
    if _WITHHELD in trajectory.metadata:  # "no answer" would be untrue of an agent whose answer is not shown
        return ""
    if answer:
        blocks.append(quoted("answer", shorten(trajectory.answer or "(none)", max_chars)))
    if thoughts:
        share = max(_LEAST_ACTION_CHARS, max_chars // max(1, len(trajectory.steps)))
        numbered = ((i, step.thought) for i, step in enumerate(trajectory.steps, 1) if step.thought)
        lines = [f"{i}: {shorten(_flat(thought), share)}" for i, thought in numbered]
        blocks.append(quoted("thoughts", "\n".join(lines) or "(none)"))
    return "\n\n".join(blocks)


def without_claims(trajectory: Trajectory) -> Trajectory:
    """The trajectory without what the agent says: no thoughts, no answer, and its messages to the user without their words."""
    steps = tuple(replace(step, thought=None, action=_silent(step.action)) for step in trajectory.steps)
    return replace(trajectory, steps=steps, answer=None, metadata={**trajectory.metadata, _WITHHELD: True})


def _silent(action: Action) -> Action:
    if action.kind in _SPEECH:
        return replace(action, text=action.kind, target=None, value=None)
    # Some agents write several calls in one action; what was typed is evidence, whatever it looks like.
    text = action.text.strip()
    call = _SPEECH_CALL.search(text) if action.kind == "other" else _SPEECH_CALL.match(text)
    if call is None:
        return action
    return replace(action, text=text[: call.start()].strip() or action.kind, target=None, value=None)


def last_frames(trajectory: Trajectory, count: int) -> list[tuple[str, Observation]]:
    """The last `count` states that have a screenshot, oldest first, each with words that say when it was taken."""
    actions = len(trajectory.steps)
    states = [
        ("after the last action" if i == actions else f"before action {i + 1} of {actions}", observation)
        for i, observation in enumerate(trajectory.observations)
        if observation.screenshot
    ]
    return states[-count:]


def _flat(text: str) -> str:
    return " ".join(clean(text).split())

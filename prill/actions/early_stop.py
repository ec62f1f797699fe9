"""Early stopping of stuck episodes, by the rules of WebArena's agents (arXiv 2307.13854)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prill.actions.targets import read_target
from prill.types import Action, Step

_ALWAYS_EQUAL = ("new_tab", "back", "forward", "close_tab", "other")
_BY_VALUE = ("scroll", "press", "goto", "focus_tab", "stop", "answer")


def same_action(one: Action, other: Action, *, compare_text: bool = False) -> bool:
    """Whether a loop detector takes two actions for the same: by element or place, never by
    wording.

    What was typed is not compared, as in the original, unless `compare_text` (filling a field three
    times in different ways then is no loop), or where nobody says into which field. Elements are
    the same by number, role and name, whatever their state; for typing, by number and role, since
    many fields are named by what they hold. (The original goes by the number alone, which on phones
    is a place.)
    """
    if one.kind != other.kind:
        return False
    if one.kind in _ALWAYS_EQUAL:
        return True
    if one.kind in _BY_VALUE:
        return one.value == other.value
    nowhere = one.target is None and one.point is None
    if (compare_text or nowhere or one.kind not in ("type", "select")) and one.value != other.value:
        return False
    places = [(_element(action), action.point, action.end_point) for action in (one, other)]
    return places[0] == places[1]


def _element(action: Action) -> object:
    target = None if action.target is None else read_target(action.target)
    if target is None or target.number is None:
        return action.target
    return target.number, target.role, None if action.kind == "type" else target.name


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """Says after each step why the episode should end, or None.

    `unreadable`: so many actions in a row that could not be parsed (kind `other`); `repeats`: so
    many equal actions in a row or, for typing, so many times in all. Both 3 in the original, which
    knows no gestures: swiping, touching a point and waiting count only while they change nothing,
    for lists are long.
    """

    unreadable: int = 3
    repeats: int = 3
    compare_text: bool = False

    def __call__(self, steps: Sequence[Step]) -> str | None:
        """The reason, in a few words."""
        actions = [step.action for step in steps]
        if not actions:
            return None
        if len(actions) >= self.unreadable and all(
            action.kind == "other" for action in actions[-self.unreadable :]
        ):
            return f"{self.unreadable} actions in a row could not be read"
        last = actions[-1]
        recent = actions[-self.repeats :]
        if last.kind == "other":
            return None
        is_repeat = len(recent) == self.repeats and all(
            self._same(action, last) for action in recent
        )
        if is_repeat and not (_is_gesture(last) and _changed(steps[-self.repeats :])):
            return f"the same action {self.repeats} times in a row"
        if (
            last.kind == "type"
            and sum(self._same(action, last) for action in actions) >= self.repeats
        ):
            return f"typed into the same field {self.repeats} times"
        return None

    def _same(self, one: Action, other: Action) -> bool:
        return same_action(one, other, compare_text=self.compare_text)


def _is_gesture(action: Action) -> bool:
    return action.kind in ("swipe", "drag", "wait") or (
        action.point is not None and action.kind != "type"
    )


def _changed(steps: Sequence[Step]) -> bool:
    return len({step.observation.text or step.observation.screenshot for step in steps}) > 1

"""Early stopping of stuck episodes, by the rules of WebArena's agents (arXiv 2307.13854)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prill.actions.elements import read_target
from prill.types import Action, Step

_ALWAYS_EQUAL = ("new_tab", "back", "forward", "close_tab", "other")
_BY_VALUE = ("scroll", "press", "goto", "focus_tab", "stop", "answer")


def same_action(one: Action, other: Action, *, compare_text: bool = False) -> bool:
    """Returns whether a loop detector should treat two actions as the same.

    Actions are compared by element or point, not by wording. As in the original, typed text is
    ignored, unless `compare_text` is set or the action names no field. (With `compare_text`, typing
    three different texts into one field is not a loop.) Elements are compared by number, role and
    name, and their states are ignored. For typing, the name is ignored too, since many fields are
    named after their content. (The original compares the number alone, which on phones only gives a
    position.)
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
    """Decides after each step whether the episode should end, and why.

    The episode ends after `unreadable` consecutive actions that could not be parsed (kind `other`),
    or after `repeats` consecutive equal actions. For typing, all equal actions of the episode
    count, not only consecutive ones. Both limits are 3 in the original. The original has no
    gestures; here, swipes, taps on a point and waits only count while the observation does not
    change, because scrolling a long list is not a loop.
    """

    unreadable: int = 3
    repeats: int = 3
    compare_text: bool = False

    def __call__(self, steps: Sequence[Step]) -> str | None:
        """Returns the reason to stop as a short text, or None."""
        actions = [step.action for step in steps]
        if not actions:
            return None
        if len(actions) >= self.unreadable and all(
            action.kind == "other" for action in actions[-self.unreadable :]
        ):
            return f"{self.unreadable} actions in a row could not be parsed"
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

"""Helpers for BrowserGym formats: action strings, steps, outcomes, task ids."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prill.actions.elements import with_element
from prill.io.lines import valid_unicode
from prill.types import Action, LabelRecord, Observation, Step

# Verb -> kind and the names of its arguments. Scroll distances stay in the text, because they are
# pixels of an unknown screen.
_VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    "click": ("click", ("target",)),
    "dblclick": ("double_click", ("target",)),
    "hover": ("hover", ("target",)),
    "focus": ("focus", ("target",)),
    "clear": ("clear", ("target",)),
    "fill": ("type", ("target", "value")),
    "select_option": ("select", ("target", "value")),
    "press": ("press", ("target", "value")),
    "keyboard_press": ("press", ("value",)),
    "keyboard_type": ("type", ("value",)),
    "upload_file": ("upload", ("target", "value")),
    "drag_and_drop": ("drag", ("target", "value")),
    "scroll": ("scroll", ()),
    "goto": ("goto", ("value",)),
    "go_back": ("back", ()),
    "go_forward": ("forward", ()),
    "new_tab": ("new_tab", ()),
    "tab_close": ("close_tab", ()),
    "tab_focus": ("focus_tab", ("value",)),
    "noop": ("wait", ()),
    "send_msg_to_user": ("answer", ("value",)),
    "report_infeasible": ("stop", ("value",)),
}
_NAMES = {"bid": "target", "from_bid": "target"}
# Some agents wrote HTML comments after their call.
_COMMENT = re.compile(r"\s*<!--.*\Z", re.DOTALL)
_VARIANT = re.compile(r"\.(improved|resized)(?=\.|$)")


def parse_action(text: str) -> Action:
    """Parses a call such as `fill('147', 'tea')`; its `text` is unchanged.

    The kind is `other` for anything else.
    """
    call = _call(_COMMENT.sub("", text.strip()))
    if call is None or not isinstance(call.func, ast.Name) or call.func.id not in _VERBS:
        return Action("other", text)
    kind, names = _VERBS[call.func.id]
    values = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        name = _NAMES.get(keyword.arg or "", "value")
        if name in names:
            values.setdefault(name, keyword.value)
    return Action(
        kind, text, target=_literal(values.get("target")), value=_literal(values.get("value"))
    )


def _call(text: str) -> ast.Call | None:
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.Call) else None


def _literal(node: ast.expr | None) -> str | None:
    if node is None:
        return None
    if isinstance(node, ast.Constant):
        return valid_unicode(str(node.value))
    if isinstance(node, ast.List | ast.Tuple):
        return ", ".join(text for text in map(_literal, node.elts) if text is not None)
    return ast.unparse(node)


@dataclass(frozen=True, slots=True)
class BrowserGymTurn:
    """A recorded step: the observation and the action, which is None at the end of the run."""

    observation: Observation
    action: str | None
    thought: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The contents of summary_info.json; only labels may use the outcome."""

    cum_reward: float | None = None
    terminated: bool | None = None
    truncated: bool | None = None
    err_msg: str | None = None

    @property
    def failure(self) -> str | None:
        """Returns the error that ended the run early; None if it ended normally."""
        return None if self.terminated or self.truncated else self.err_msg or None


def build_steps(
    turns: Sequence[BrowserGymTurn],
) -> tuple[tuple[Step, ...], Observation | None, str | None]:
    """Returns the steps, the final state if the last turn has no action, and the agent's last
    message.

    A message ends the episode only if nothing follows it; earlier ones are of kind `message`. An
    element that an action names by its bid is looked up in the text of the state.
    """
    final = turns[-1].observation if turns and not turns[-1].action else None
    acted = turns[:-1] if final is not None else turns
    steps = [
        Step(
            turn.observation,
            with_element(parse_action(turn.action or ""), turn.observation.text),
            turn.thought or None,
        )
        for turn in acted
    ]
    answers = [step.action.value for step in steps if step.action.is_final]
    steps[:-1] = [
        replace(step, action=replace(step.action, kind="message")) if step.action.is_final else step
        for step in steps[:-1]
    ]
    return tuple(steps), final, answers[-1] if answers else None


def oracle_label(id: str, summary: Summary) -> LabelRecord | None:
    """Returns the environment's verdict: success is a reward of 0.5 or more; the note keeps
    fractions.

    None without a reward.

    A run that ended with an error and without any reward is undecided, because its outcome is
    unknown.
    """
    reward = summary.cum_reward
    if reward is None:
        return None
    if summary.failure and reward <= 0:
        return LabelRecord(id=id, success=None, source="oracle", note="an error ended the run")
    note = None if reward in (0.0, 1.0) else f"reward {reward:g}"
    return LabelRecord(id=id, success=reward >= 0.5, source="oracle", note=note)


def plain_task_id(name: str) -> str:
    """Returns a task's id without `.improved` and `.resized`, which mark variants of it."""
    return _VARIANT.sub("", name)

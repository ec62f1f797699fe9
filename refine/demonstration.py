"""The policy to train: a policy by name, or the default training example of a step, which has goal,
history and state in, and the action out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from msgspec import Meta

from prill.config.registry import Option, list_options, read_options
from prill.errors import NoEvidenceError, UnparsableError, UsageError
from prill.models.budget import UncalledModel
from prill.models.prompts import NONCE, clean, load_prompt, quoted, shorten
from prill.models.registry import asks_a_model
from prill.policies.registry import POLICIES, PolicyConfig, make_policy
from prill.protocols import Demonstrator, Image, Message
from prill.types import Action, Platform, Point, Trajectory

DEVICES: dict[Platform, str] = {
    "web": "a web browser",
    "android": "an Android phone",
    "ios": "an iPhone",
    "desktop": "a computer",
    "other": "a device",
}
_ACTION_CHARS = 300
PLAIN = "plain"


class Teacher(Protocol):
    """A converter from recorded steps to training examples; every `Demonstrator` is one."""

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Converts a recorded step, as `prill.protocols.Demonstrator.demonstrate` does."""
        ...


@dataclass(frozen=True, kw_only=True)
class PlainTeacher:
    """prill's own prompt (`refine/prompts/step.md`), for a model that is not a policy yet.

    The reply is one line: `click [12] link 'Cart'`, `type "tea" into [7] textbox`,
    `swipe from (500, 800) to (500, 200)`. Points are thousandths of the screen, from the top left.
    """

    images: Annotated[bool, Meta(description="Show the screenshot of the state.")] = True
    text: Annotated[bool, Meta(description="Show the text of the state.")] = True
    history: Annotated[int, Meta(ge=0, description="Number of previous actions shown.")] = 8
    max_chars: Annotated[
        int, Meta(ge=1, description="Maximum number of characters of the state's text.")
    ] = 8000

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash that changes when the prompt changes."""
        return load_prompt("prill.refine", "step").hash

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Returns the prompt for a recorded step, and the reply."""
        state = trajectory.steps[index].observation
        text = state.text or state.caption if self.text else None
        screenshot = state.screenshot if self.images else None
        if not text and screenshot is None:
            raise NoEvidenceError("the parts of the state that are shown were not recorded")
        before = [action_line(step.action) for step in trajectory.steps[:index]]
        shown = before[len(before) - self.history :] if self.history < len(before) else before
        lines = [f"{len(before) - len(shown) + i}. {line}" for i, line in enumerate(shown, 1)]
        turns = load_prompt("prill.refine", "step").fill(
            {
                "device": DEVICES[trajectory.task.platform],
                "code": NONCE,
                "goal": clean(trajectory.task.goal),
                "history": quoted("done", "\n".join(lines)) if lines else "nothing",
                "state": quoted("state", shorten(text, self.max_chars))
                if text
                else "The state is the screenshot.",
            }
        )
        answer = action_line(trajectory.steps[index].action)
        if not answer or answer == "other":
            raise UnparsableError("the action was recorded without text")
        picture = () if screenshot is None else (Image(screenshot),)
        return (
            Message("system", (turns["system"],)),
            Message("user", (*picture, turns["user"])),
        ), answer


def action_line(action: Action) -> str:
    """Formats an action as one line: its kind, the text or option, and the target element. An
    action of an unknown kind is its recorded text.
    """
    if action.kind == "other":
        return " ".join(clean(action.text).split())
    parts = [action.kind]
    if action.value is not None:
        parts.append(json.dumps(action.value, ensure_ascii=False))
    if action.target:
        parts += ["into"] * (action.kind == "type") + [
            shorten(" ".join(clean(action.target).split()), _ACTION_CHARS)
        ]
    elif action.point is not None:
        parts += (
            ["at", _format_point(action.point)]
            if action.end_point is None
            else ["from", _format_point(action.point)]
        )
    if action.end_point is not None:
        parts += ["to", _format_point(action.end_point)]
    if len(parts) == 1 and action.text and not action.is_final:
        return " ".join(clean(action.text).split())
    return " ".join(parts)


def _format_point(point: Point) -> str:
    return f"({round(point[0] * 1000)}, {round(point[1] * 1000)})"


class TeacherConfig(PolicyConfig):
    """The policy to train: a policy by name, or `plain`, a plain prompt of goal, history and state.

    It determines the prompt and the response format of a training row: `TeacherConfig("react",
    reasoning=False)`, `TeacherConfig("plain", images=False)`.
    """

    __slots__ = ()

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the policy that a table names, or of the plain prompt.

        There are no model options, because no model is called.
        """
        if table.get("name") == PLAIN:
            return list_options(PlainTeacher)
        model = "model" if asks_a_model(POLICIES.maker(str(table.get("name")))) else None
        return {
            name: option for name, option in super().options_for(table).items() if name != model
        }


TeacherLike = TeacherConfig | PolicyConfig | str | Mapping[str, Any] | Teacher


def make_teacher(policy: TeacherLike) -> Teacher | None:
    """Makes the policy to train; None for the plain prompt without options.

    No model is called: a policy that requires one gets a stub that raises.

    Args:
        policy: A name, a table, a configuration, or a policy, which is returned unchanged.

    Raises:
        UsageError: The policy cannot turn recorded steps into training examples.
    """
    read = TeacherConfig.read(
        policy.table() if isinstance(policy, PolicyConfig) else policy, "policy"
    )
    if not isinstance(read, TeacherConfig):
        return _teacher(read, type(read).__name__)
    name, settings = read.name, dict(read.options)
    if name == PLAIN:
        return (
            PlainTeacher(**read_options(PlainTeacher, settings, "the plain prompt"))
            if settings
            else None
        )
    model = list_options(POLICIES.maker(name)).get("model")
    silent = (
        {"model": UncalledModel()}
        if model is not None and model.required and "model" not in settings
        else {}
    )
    return _teacher(make_policy(name, **{**silent, **settings}), name)


def _teacher(policy: Any, name: str) -> Teacher:
    if isinstance(policy, Demonstrator):
        return policy
    able = [name for name in POLICIES.entries if hasattr(POLICIES.maker(name), "demonstrate")]
    raise UsageError(
        f"policy {name} cannot make training rows: it has no demonstrate(trajectory, "
        f"index); policies with this method: {', '.join(able)}",
        parameters=("policy",),
    )


def described(policy: TeacherLike) -> dict[str, Any]:
    """Returns a teacher's name and options, for the record."""
    read = TeacherConfig.read(policy, "policy")
    table = (
        read.table()
        if isinstance(read, PolicyConfig)
        else {"name": f"{type(read).__module__}:{type(read).__qualname__}"}
    )
    return {"name": table.pop("name"), "options": table}

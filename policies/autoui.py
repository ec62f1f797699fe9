"""The Auto-UI policy (arXiv 2309.11436). Auto-UI writes points as (y, x), prill as (x, y)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from prill.actions.phone import AUTO_UI_SWIPES, TAP_DISTANCE, dual_point
from prill.errors import NoEvidenceError
from prill.models.options import MaxTokensOption
from prill.models.prompts import load_prompt
from prill.policies.cogagent import FIXED
from prill.protocols import Image, LanguageModel, Message
from prill.types import Action, Observation, Platform, Point, Step, Task

# Takes the prompt and the path of the screenshot; returns the model's text.
Generate = Callable[[str, str], Awaitable[str]]
# Number of previous actions in the prompt (arXiv 2309.11436).
HISTORY = 8
_MARK = "Action Decision: "
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")
_VALUE = re.compile(r'"[a-z_]+"\s*:\s*"(.*)"', re.DOTALL)
_FIXED = {
    "PRESS_BACK": FIXED["press back"],
    "PRESS_HOME": FIXED["press home"],
    "PRESS_ENTER": FIXED["press enter"],
    "STATUS_TASK_COMPLETE": FIXED["task complete"],
    "STATUS_TASK_IMPOSSIBLE": FIXED["task impossible"],
}
_NAMES = {"back": "PRESS_BACK", "home": "PRESS_HOME", "press": "PRESS_ENTER", "type": "TYPE"}


class AutoUI:
    """A policy that requests one action from the goal, the screenshot and the last eight actions.

    A reply that cannot be parsed becomes an action of kind `other`.

    Args:
        model: A model that takes images, or a function of prompt and screenshot path that returns
            the model's text: the original is not a chat model.
    """

    def __init__(
        self, model: LanguageModel | Generate, *, max_tokens: MaxTokensOption = 512
    ) -> None:
        self.model = model
        self.max_tokens = max_tokens
        self._goal = ""
        self._done: list[str] = []

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompt."""
        return load_prompt("prill.policies", "auto_ui").hash

    def reset(self, task: Task) -> None:
        """Starts a new episode."""
        self._goal = task.goal
        self._done = []

    async def act(self, observation: Observation) -> Step:
        """Returns the next step."""
        if observation.screenshot is None:
            raise NoEvidenceError("autoui needs screenshots, but this state has none")
        template = load_prompt("prill.policies", "auto_ui")
        prompt = template.fill(
            {"previous": "".join(f"{text} " for text in self._done[-HISTORY:]), "goal": self._goal}
        )["user"]
        if callable(self.model):
            reply = await self.model(prompt, observation.screenshot)
        else:
            question = Message("user", (Image(observation.screenshot), prompt))
            reply = (
                await self.model.complete(
                    (question,), max_tokens=self.max_tokens, prompt=template.hash
                )
            ).text
        action = read_auto_ui(reply)
        self._done.append(auto_ui_text(action))
        return Step(observation, action, reply.rpartition(_MARK)[0].strip() or None)


def auto_ui_text(action: Action) -> str:
    """Writes an action in Auto-UI's format.

    Points are "[y, x]" with four decimals, and -1.0 for actions that are not gestures.

    A swipe without points becomes one of the four canonical swipes. An action that the format
    cannot express becomes a gesture without a position.
    """
    touch, lift = action.point, action.end_point or action.point
    if action.kind == "swipe" and touch is None:
        touch, lift = AUTO_UI_SWIPES.get(action.value or "", (None, None))
    name = _NAMES.get(action.kind, "DUAL_POINT")
    if action.kind in ("stop", "answer"):
        name = (
            "STATUS_TASK_IMPOSSIBLE" if "TaskImpossible" in action.text else "STATUS_TASK_COMPLETE"
        )
    if name != "DUAL_POINT":
        touch = lift = None
    typed = (action.value or "") if name == "TYPE" else ""
    return (
        f'"action_type": "{name}", "touch_point": "{_place(touch)}", "lift_point": '
        f'"{_place(lift)}", "typed_text": "{typed}"'
    )


def read_auto_ui(text: str) -> Action:
    """Parses the action in a reply: the last "Action Decision: ", or the whole reply, in six parts.

    The parts are separated by ", ".
    """
    decision = text.rpartition(_MARK)[2].strip()
    parts = decision.split(", ", 5)  # typed text may contain commas
    if len(parts) != 6:
        return Action("other", text.strip())
    name, typed = _VALUE.search(parts[0]), _VALUE.search(parts[5])
    if name is None:
        return Action("other", text.strip())
    if (fixed := _FIXED.get(name[1])) is not None:
        return fixed
    if name[1] == "TYPE" and typed is not None:
        return Action("type", f"Action Type: Type, Typed Text: '{typed[1]}'", value=typed[1])
    numbers = [_NUMBERS.search(part) for part in parts[1:5]]
    if name[1] != "DUAL_POINT" or None in numbers:
        return Action("other", text.strip())
    y1, x1, y2, x2 = (float(number[0]) for number in numbers if number)
    if not all(0.0 <= c <= 1.0 for c in (y1, x1, y2, x2)):
        return Action("other", text.strip())
    return dual_point((x1, y1), (x2, y2), swipe_beyond=TAP_DISTANCE)


def _place(point: Point | None) -> str:
    return "[-1.0, -1.0]" if point is None else f"[{point[1]:.4f}, {point[0]:.4f}]"

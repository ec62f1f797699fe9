"""CogAgent as a policy: the 18B model (arXiv 2312.08914) and the 9B model of December 2024.

The prompts are those that the models were trained on. Any model that takes images can be used, but
only CogAgent answers in the format that is parsed here: a line "Grounded Operation: …", in words
for the 18B model, as a call for the 9B model (`CLICK(box=[[87,440,163,484]], element_info='OK')`).
The 18B translation follows the rules of arXiv 2404.06474's code, in the same order, even where they
lose information: on iOS, text that contains the word "tap" is not typed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from math import dist
from typing import Annotated, Literal

from msgspec import Meta

from prill.actions.elements import read_target
from prill.actions.keys import key_names
from prill.actions.phone import (
    IPHONE_POINTS,
    SWIPES,
    TAP_DISTANCE,
    dual_point,
    split_reply,
    thousandths,
)
from prill.errors import NoEvidenceError, UnparsableError, UsageError
from prill.models.options import MAX_TOKENS, SamplingSeed
from prill.models.prompts import load_prompt
from prill.models.replies import excerpt
from prill.policies.screen.calls import single_quoted
from prill.protocols import Image, LanguageModel, Message
from prill.types import Action, Observation, Platform, Point, Step, Task, Trajectory

Generation = Literal["18b", "9b"]
# 9B: the value in the authors' client (THUDM/CogAgent, app/client.py), whose server includes
# question and picture in the count.
_MAX_TOKENS: dict[Generation, int] = {"18b": 1024, "9b": 4096}
SwipeUp = Literal["left-or-right", "right"]
_QUOTED = re.compile(r'"(.*?)"', re.DOTALL)
# Android's buttons and final actions by CogAgent's wording, in the log format of arXiv 2404.06474.
FIXED = {
    "press home": Action("home", "Action Type: GoHome"),
    "press back": Action("back", "Action Type: GoBack"),
    "press enter": Action("press", "Action Type: Enter", value="Enter"),
    "task complete": Action("stop", "Action Type: TaskComplete"),
    "task impossible": Action("stop", "Action Type: TaskImpossible"),
}
_IDLE = Action("wait", "Action Type: Idle")
# A call of the 9B model. Strings may contain brackets and unescaped quotation marks.
_CALL = re.compile(r"([A-Z_]+)\s*\((.*?)\)[ \t.]*(?=\n|<<|\Z)", re.DOTALL)
_TEXT = re.compile(r"""(\w+)\s*=\s*(['"])(.*?)\2(?=\s*(?:,\s*\w+\s*=|\Z))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t"}
_ADDRESS = re.compile(r"https?://\S+|(?:[\w-]+\.)+[a-z]{2,}(?:/\S*)?")
# The finger moves opposite to the scroll direction.
_FINGER = {"LEFT": "right", "RIGHT": "left", "UP": "down", "DOWN": "up"}
_BUTTONS = {"home": "home", "back": "back"}
_NEAR = 0.0015  # maximum rounding error of a point in thousandths, along the diagonal


class CogAgent:
    """A policy that decides from the screenshot only.

    The 18B model receives a request for grounded steps and no history; the 9B model receives its
    previous operations. The random choices of `swipe_up` are determined by the task and the seed.

    Args:
        model: A model that takes images.

    Raises:
        UsageError: The generation is not known.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        generation: Annotated[
            Generation,
            Meta(description="Model generation, which sets the prompt and reply format."),
        ] = "9b",
        swipe_up: Annotated[
            SwipeUp | None,
            Meta(description="18b only: meaning of a swipe up on iOS; see read_cogagent_18b."),
        ] = None,
        seed: SamplingSeed = 0,
        max_tokens: Annotated[int | None, MAX_TOKENS] = None,
    ) -> None:
        if generation not in ("18b", "9b"):
            raise UsageError(f"unknown generation {generation!r}; expected 18b or 9b")
        self.model = model
        self.generation = generation
        self.swipe_up = swipe_up
        self.seed = seed
        self.max_tokens = max_tokens or _MAX_TOKENS[generation]
        self._task = Task(goal="")
        self._done: list[tuple[str, str]] = []
        self._draw = random.Random(seed)

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompt."""
        return load_prompt("prill.policies", f"cogagent_{self.generation}").hash

    def reset(self, task: Task) -> None:
        """Starts a new episode."""
        self._task = task
        self._done = []
        self._draw = random.Random(f"{self.seed} {task.id} {task.goal}")

    async def act(self, observation: Observation) -> Step:
        """Returns the next step."""
        question = self._question(self._task, observation, self._done)
        reply = await self.model.complete(
            (question,), max_tokens=self.max_tokens, prompt=self.fingerprint(self._task.platform)
        )
        thought, _ = split_reply(reply.text)
        if self.generation == "18b":
            action = read_cogagent_18b(
                reply.text, self._task.platform, swipe_up=self.swipe_up, draw=self._draw
            )
        else:
            action = read_cogagent_9b(reply.text)
            self._done.append(_line(action.text, thought))
        return Step(observation, action, thought or None)

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Returns the prompt that `act` would send at a step, and the reply for the recorded
        action.

        The reply includes the recorded thought.
        """
        step, platform = trajectory.steps[index], trajectory.task.platform
        done: list[tuple[str, str]] = []
        if self.generation == "9b":
            done = [
                _line(write_9b(before.action) or before.action.text, before.thought)
                for before in trajectory.steps[:index]
            ]
            operation = write_9b(step.action)
        else:
            operation = write_18b(step.action, platform)
        question = self._question(trajectory.task, step.observation, done)
        if operation is None:
            what = excerpt(step.action.text or step.action.kind)
            raise UnparsableError(
                f"{what} cannot be expressed in the action language of CogAgent's "
                f"{self.generation} model"
            )
        return (
            (question,),
            f"{step.thought}\nGrounded Operation: {operation}"
            if step.thought
            else f"Grounded Operation: {operation}",
        )

    def _question(
        self, task: Task, observation: Observation, done: Sequence[tuple[str, str]]
    ) -> Message:
        if observation.screenshot is None:
            raise NoEvidenceError("cogagent needs screenshots, but this state has none")
        values = {"goal": task.goal}
        if self.generation == "9b":
            lines = (
                f"\n{number}. {operation}\t{sentence}"
                for number, (operation, sentence) in enumerate(done)
            )
            values |= {
                "history": "".join(lines),
                "platform": "Mobile" if task.platform in ("android", "ios") else "WIN",
            }
        prompt = load_prompt("prill.policies", f"cogagent_{self.generation}")
        # The 9B model's question ends with a line break (THUDM/CogAgent, README.md and
        # app/client.py).
        text = prompt.fill(values)["user"] + ("\n" if self.generation == "9b" else "")
        return Message("user", (Image(observation.screenshot), text))


def read_cogagent_18b(
    reply: str,
    platform: Platform,
    *,
    swipe_up: SwipeUp | None = None,
    draw: random.Random | None = None,
) -> Action:
    """Parses the action in a reply of CogAgent-18B, by the rules for iOS or Android.

    An unreadable reply ends the episode on iOS, and is a `wait` on Android, as in the original.
    `swipe_up` is the meaning of a swipe up on iOS: "left-or-right" chooses one at random (the
    paper's code), "right" follows the paper's text, and None keeps the swipe up.
    """
    _, operation = split_reply(reply)
    if platform != "ios":
        return _android(operation)
    try:
        return _ios(operation, swipe_up, draw or random.Random())
    except ValueError:
        return Action("stop", "task complete")


def _ios(operation: str, swipe_up: SwipeUp | None, draw: random.Random) -> Action:
    text = operation.lower()
    for way in ("up", "right", "left", "down"):
        if f"swipe {way}" in text:
            if way == "up" and swipe_up is not None:
                way = "right" if swipe_up == "right" else draw.choice(("left", "right"))
            return Action("swipe", f"swipe {way}", value=way)
    if "press home" in text or "press back" in text:  # an iPhone has no back button
        return Action("home", "press home")
    if "task complete" in text:
        return Action("stop", "task complete")
    if "tap" in text:
        x, y = thousandths(operation)
        return Action(
            "click", f"tap {x * IPHONE_POINTS[0]:g} {y * IPHONE_POINTS[1]:g}", point=(x, y)
        )
    if "type" in text and (typed := _QUOTED.search(operation)):
        return Action("type", f'type "{typed[1]}"', value=typed[1])
    raise ValueError("no such operation")


def _android(operation: str) -> Action:
    text = operation.lower().rstrip(" .")
    verb = (text.split() or [""])[0]
    if verb == "tap":
        try:
            point = thousandths(operation)
        except ValueError:
            return _IDLE
        return dual_point(point, point, swipe_beyond=TAP_DISTANCE)
    if verb == "type":
        quoted = _QUOTED.search(operation)
        typed = quoted[1] if quoted else operation[len("type") :].strip(" :'")
        return Action("type", f"Action Type: Type, Typed Text: '{typed}'", value=typed)
    for way, (touch, lift) in SWIPES.items():
        if text.startswith(f"swipe {way}"):
            return dual_point(touch, lift, swipe_beyond=TAP_DISTANCE)
    for phrase, action in FIXED.items():
        if text.startswith(phrase):
            return action
    return _IDLE


def read_cogagent_9b(reply: str) -> Action:
    """Parses the action in a reply of CogAgent-9B; its position is the centre of a box in
    thousandths.

    The action has kind `other`, with the operation or the reply as text, if it cannot be parsed or
    no environment supports it: double and right clicks, the model's clipboard, starting a program
    by name.
    """
    call = _CALL.search(split_reply(reply)[1])
    if call is None:
        return Action("other", reply.strip())
    operation, name = call[0], call[1]
    texts = {
        match[1]: _ESCAPE.sub(lambda c: _ESCAPED.get(c[1], c[1]), match[3])
        for match in _TEXT.finditer(call[2])
    }
    point = _place(call[2])
    if name in ("CLICK", "HOVER"):
        return (
            Action("other", operation)
            if point is None
            else Action(name.lower(), operation, point=point)
        )
    if name == "TYPE" and "text" in texts:
        return Action("type", operation, point=point, value=texts["text"])
    if name.startswith("SCROLL_"):
        return _scrolled(name.removeprefix("SCROLL_"), operation, point)
    if name in ("KEY_PRESS", "GESTURE"):
        return _pressed(texts.get("key") or texts.get("gesture") or "", operation)
    if name == "LAUNCH" and _ADDRESS.fullmatch(
        address := texts.get("url") or texts.get("app") or ""
    ):
        return Action(
            "goto", operation, value=address if "://" in address else f"https://{address}"
        )
    return Action("stop", operation) if name == "END" else Action("other", operation)


def _place(arguments: str) -> Point | None:
    try:
        return thousandths(arguments)
    except ValueError:
        return None


def _scrolled(way: str, operation: str, point: Point | None) -> Action:
    if way in ("UP", "DOWN"):
        return Action("scroll", operation, point=point, value=way.lower())
    return (
        Action("swipe", operation, value=_FINGER[way])
        if way in _FINGER
        else Action("other", operation)
    )


def _pressed(keys: str, operation: str) -> Action:
    if (button := _BUTTONS.get(keys.lower())) is not None:
        return Action(button, operation)
    return (
        Action("press", operation, value=key_names(re.sub(r"(?<=\w)-(?=.)", "+", keys)))
        if keys
        else Action("other", operation)
    )


def write_18b(action: Action, platform: Platform) -> str | None:
    """Writes an action as an operation that `read_cogagent_18b` parses back, or returns None.

    It returns None if the grammar cannot express the action.

    A swipe has only a direction; its start point is lost.
    """
    operation = _operation_18b(action)
    if operation is None:
        return None
    read = read_cogagent_18b(f"Grounded Operation: {operation}", platform)
    if action.kind == "swipe" or action.is_final:
        return (
            operation if read.kind == action.kind or (read.is_final and action.is_final) else None
        )
    return operation if _is_like(read, action) else None


def _operation_18b(action: Action) -> str | None:
    if action.is_final:
        return "task impossible" if "impossible" in action.text.lower() else "task complete"
    if action.kind == "click" and action.point is not None:
        return f"tap [[{_thousandths(action.point)}]]"
    if action.kind == "type" and action.value is not None:
        return f'type "{action.value}"'
    if action.kind == "swipe":
        way = _direction(action)
        return f"swipe {way}" if way in SWIPES else None
    return {"home": "press home", "back": "press back", "press": "press enter"}.get(action.kind)


def _direction(action: Action) -> str | None:
    """Returns the finger's direction: by name, or along the axis of the longer movement."""
    if action.point is None or action.end_point is None:
        return action.value
    x, y = (lift - touch for touch, lift in zip(action.point, action.end_point, strict=True))
    if abs(x) > abs(y):
        return "right" if x > 0 else "left"
    return "down" if y > 0 else "up"


def write_9b(action: Action) -> str | None:
    """Writes an action as a call that `read_cogagent_9b` parses back, or returns None.

    A recorded call is kept.
    """
    for call in (action.text, _call_9b(action)):
        if call and _is_like(read_cogagent_9b(f"Grounded Operation: {call}"), action):
            return call
    return None


def _call_9b(action: Action) -> str | None:
    spot = (
        []
        if action.point is None
        else [f"box=[[{_thousandths(action.point)},{_thousandths(action.point)}]]"]
    )
    if action.target is not None and (label := read_target(action.target).label) is not None:
        spot.append(f"element_info={single_quoted(label[1][1:-1])}")
    value = action.value or ""
    if action.is_final:
        return "END()"
    if action.kind in ("click", "hover") and action.point is not None:
        return f"{action.kind.upper()}({', '.join(spot)})"
    if action.kind == "type":
        return f"TYPE({', '.join([*spot[:1], f'text={single_quoted(value)}', *spot[1:]])})"
    if action.kind == "scroll":
        return f"SCROLL_{value.upper()}({', '.join(spot[:1])})"
    if action.kind == "swipe":
        return f"SCROLL_{next((way for way, finger in _FINGER.items() if finger == _direction(action)), '')}()"  # noqa: E501
    if action.kind in ("press", *_BUTTONS):
        return f"KEY_PRESS(key={single_quoted(value or action.kind)})"
    return f"LAUNCH(url={single_quoted(value)})" if action.kind == "goto" else None


def _thousandths(point: Point) -> str:
    return ",".join(f"{min(999, round(1000 * c)):03d}" for c in point)


def _is_like(read: Action, meant: Action) -> bool:
    """Returns whether two actions have the same effect, with positions equal up to rounding."""
    if read.is_final or meant.is_final:
        return read.is_final and meant.is_final
    if read.kind == "scroll" and meant.kind == "swipe":  # to scroll down, the finger goes up
        return _FINGER[(read.value or "").upper()] == _direction(meant)
    if read.kind == "other" or read.kind != meant.kind:
        return False
    if read.kind == "swipe":
        return _direction(read) == _direction(meant)
    if read.kind in ("click", "hover") and (
        read.point is None or meant.point is None or dist(read.point, meant.point) > _NEAR
    ):
        return False
    return (read.value or "") == (meant.value or "")


def _line(operation: str, thought: str | None) -> tuple[str, str]:
    """Returns a step for the 9B model's history: its operation in a line, and its sentence."""
    return " ".join(operation.split()), " ".join((thought or "").rpartition("Action:")[2].split())

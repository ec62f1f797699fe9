"""CogAgent as a policy: the 18B model (arXiv 2312.08914), the agent of arXiv 2404.06474, and the 9B model of December 2024.

Both were trained on one form of question, so these prompts are theirs. Any model with images can be asked, but only these
answer in the form that is read here: a line "Grounded Operation: …", in words for the 18B model, as a call for the 9B model
(`CLICK(box=[[87,440,163,484]], element_info='OK')`). The 18B translations are those of arXiv 2404.06474's code, rule by rule
and in its order, also where that loses something: on iOS, text that holds the word "tap" is not typed.
"""

from __future__ import annotations

import random
import re
from typing import Annotated, Literal

from msgspec import Meta

from prill.actions.keys import key_names
from prill.actions.phone import IPHONE_POINTS, SWIPES, TAP_DISTANCE, dual_point
from prill.errors import NoEvidence, UsageError
from prill.models.prompts import load_prompt
from prill.models.replies import excerpt
from prill.protocols import Image, LanguageModel, Message
from prill.types import Action, Observation, Platform, Point, Step, Task

Generation = Literal["18b", "9b"]
SwipeUp = Literal["left-or-right", "right"]
_OPERATION = re.compile(r"grounded operation\s*:", re.IGNORECASE)
_PLACE = re.compile(r"\[\[\s*(\d+)\s*,\s*(\d+)(?:\s*,\s*(\d+)\s*,\s*(\d+))?\s*\]\]")
_QUOTED = re.compile(r'"(.*?)"', re.DOTALL)
# Android's buttons and endings by CogAgent's words, in the log form of arXiv 2404.06474.
FIXED = {
    "press home": Action("home", "Action Type: GoHome"),
    "press back": Action("back", "Action Type: GoBack"),
    "press enter": Action("press", "Action Type: Enter", value="Enter"),
    "task complete": Action("stop", "Action Type: TaskComplete"),
    "task impossible": Action("stop", "Action Type: TaskImpossible"),
}
# A call of the 9B model. Strings may hold brackets and, since nothing forces the model to escape them, quotation marks.
_CALL = re.compile(r"([A-Z_]+)\s*\((.*?)\)[ \t.]*(?=\n|<<|\Z)", re.DOTALL)
_TEXT = re.compile(r"""(\w+)\s*=\s*(['"])(.*?)\2(?=\s*(?:,\s*\w+\s*=|\Z))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t"}
_ADDRESS = re.compile(r"https?://\S+|(?:[\w-]+\.)+[a-z]{2,}(?:/\S*)?")
# The content goes one way and the finger the other.
_FINGER = {"LEFT": "right", "RIGHT": "left", "UP": "down", "DOWN": "up"}
_BUTTONS = {"home": "home", "back": "back"}


class CogAgent:
    """Decides from the screenshot alone.

    The 18B model is asked for the steps with grounding and sees no history; the 9B model is told its earlier operations. With
    the same task and seed the draws of `swipe_up` are the same.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        generation: Annotated[Generation, Meta(description="which model's form of question and answer")] = "9b",
        swipe_up: Annotated[
            SwipeUp | None, Meta(description="18b: what a swipe up means on iOS; see read_cogagent_18b")
        ] = None,
        seed: Annotated[int, Meta(description="draws left or right for such a swipe")] = 0,
        max_tokens: Annotated[int, Meta(ge=1, description="tokens of one reply")] = 1024,
    ) -> None:
        if generation not in ("18b", "9b"):
            raise UsageError(f"unknown generation {generation!r}; choose 18b or 9b")
        self.model = model
        self.generation = generation
        self.swipe_up = swipe_up
        self.seed = seed
        self.max_tokens = max_tokens
        self._task = Task(goal="")
        self._done: list[tuple[str, str]] = []
        self._draw = random.Random(seed)

    def fingerprint(self, platform: Platform) -> str:
        """Differs when the prompt does."""
        return load_prompt("prill.policies", f"cogagent_{self.generation}").hash

    def reset(self, task: Task) -> None:
        """Begin a new episode."""
        self._task = task
        self._done = []
        self._draw = random.Random(f"{self.seed} {task.id} {task.goal}")

    async def act(self, observation: Observation) -> Step:
        """The next step. Raises NoEvidence without a screenshot, and whatever `Unscored` error the model raises."""
        if observation.screenshot is None:
            raise NoEvidence("cogagent looks at screenshots, and this state has none")
        prompt = load_prompt("prill.policies", f"cogagent_{self.generation}")
        values = {"goal": self._task.goal}
        if self.generation == "9b":
            lines = (f"\n{number}. {operation}\t{sentence}" for number, (operation, sentence) in enumerate(self._done))
            values |= {"history": "".join(lines), "platform": _machine(self._task.platform)}
        question = Message("user", (Image(observation.screenshot), prompt.fill(values)["user"]))
        reply = await self.model.complete((question,), max_tokens=self.max_tokens, prompt=prompt.hash)
        thought = _before_operation(reply.text)
        if self.generation == "18b":
            action = read_cogagent_18b(reply.text, self._task.platform, swipe_up=self.swipe_up, draw=self._draw)
        else:
            action = read_cogagent_9b(reply.text)
            self._done.append((" ".join(action.text.split()), _sentence(thought)))
        return Step(observation, action, thought or None)


def operation_of(reply: str) -> str:
    """What follows the last "Grounded Operation:" of a reply; the whole reply when it has none."""
    return _OPERATION.split(reply)[-1].strip()


def thousandths(text: str) -> Point:
    """The point of `[[x,y]]`, or the middle of the box `[[x1,y1,x2,y2]]`, in thousandths of the screen. Raises ValueError."""
    place = _PLACE.search(text)
    if place is None:
        raise ValueError(f"no [[x,y]] in {excerpt(text)}")
    numbers = [int(group) for group in place.groups() if group is not None]
    x, y = numbers if len(numbers) == 2 else ((numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2)
    if max(x, y) > 1000:
        raise ValueError(f"{excerpt(place[0])} is outside the screen")
    return x / 1000, y / 1000


def read_cogagent_18b(
    reply: str, platform: Platform, *, swipe_up: SwipeUp | None = None, draw: random.Random | None = None
) -> Action:
    """The action of a reply of CogAgent-18B, by the rules for iOS, or else for Android.

    What cannot be read ends the episode on iOS, and is a `wait` on Android, as in the original. `swipe_up` is what a swipe up
    means on iOS: "left-or-right" draws one of them (the paper's code), "right" is the paper's text, None leaves it.
    """
    operation = operation_of(reply)
    if platform != "ios":
        return _android(operation)
    try:
        return _ios(operation, swipe_up, draw or random.Random())
    except ValueError:
        return Action("stop", "task complete")


def _ios(operation: str, swipe_up: SwipeUp | None, draw: random.Random) -> Action:
    words = operation.lower()
    for way in ("up", "right", "left", "down"):
        if f"swipe {way}" in words:
            if way == "up" and swipe_up is not None:
                way = "right" if swipe_up == "right" else draw.choice(("left", "right"))
            return Action("swipe", f"swipe {way}", value=way)
    if "press home" in words or "press back" in words:  # an iPhone has no back button
        return Action("home", "press home")
    if "task complete" in words:
        return Action("stop", "task complete")
    if "tap" in words:
        x, y = thousandths(operation)
        return Action("click", f"tap {x * IPHONE_POINTS[0]:g} {y * IPHONE_POINTS[1]:g}", point=(x, y))
    if "type" in words and (typed := _QUOTED.search(operation)):
        return Action("type", f'type "{typed[1]}"', value=typed[1])
    raise ValueError("no such operation")


def _android(operation: str) -> Action:
    words = operation.lower().rstrip(" .")
    verb = (words.split() or [""])[0]
    if verb == "tap":
        try:
            point = thousandths(operation)
        except ValueError:
            return _idle()
        return dual_point(point, point, swipe_beyond=TAP_DISTANCE)
    if verb == "type":
        quoted = _QUOTED.search(operation)
        typed = quoted[1] if quoted else operation[len("type") :].strip(" :'")
        return Action("type", f"Action Type: Type, Typed Text: '{typed}'", value=typed)
    for way, (touch, lift) in SWIPES.items():
        if words.startswith(f"swipe {way}"):
            return dual_point(touch, lift, swipe_beyond=TAP_DISTANCE)
    for phrase, action in FIXED.items():
        if words.startswith(phrase):
            return action
    return _idle()


def _idle() -> Action:
    return Action("wait", "Action Type: Idle")


def read_cogagent_9b(reply: str) -> Action:
    """The action of a reply of CogAgent-9B; boxes are thousandths, and their middle is the place.

    Kind `other`, with the operation or the reply as text, for what cannot be read and for what no environment here does:
    double and right clicks, the model's clipboard, starting a program by name.
    """
    call = _CALL.search(operation_of(reply))
    if call is None:
        return Action("other", reply.strip())
    operation, name = call[0], call[1]
    texts = {match[1]: _ESCAPE.sub(lambda c: _ESCAPED.get(c[1], c[1]), match[3]) for match in _TEXT.finditer(call[2])}
    point = _place(call[2])
    if name in ("CLICK", "HOVER"):
        return Action("other", operation) if point is None else Action(name.lower(), operation, point=point)
    if name == "TYPE" and "text" in texts:
        return Action("type", operation, point=point, value=texts["text"])
    if name.startswith("SCROLL_"):
        return _scrolled(name.removeprefix("SCROLL_"), operation, point)
    if name in ("KEY_PRESS", "GESTURE"):
        return _pressed(texts.get("key") or texts.get("gesture") or "", operation)
    if name == "LAUNCH" and _ADDRESS.fullmatch(address := texts.get("url") or texts.get("app") or ""):
        return Action("goto", operation, value=address if "://" in address else f"https://{address}")
    return Action("stop", operation) if name == "END" else Action("other", operation)


def _place(arguments: str) -> Point | None:
    try:
        return thousandths(arguments)
    except ValueError:
        return None


def _scrolled(way: str, operation: str, point: Point | None) -> Action:
    if way in ("UP", "DOWN"):
        return Action("scroll", operation, point=point, value=way.lower())
    return Action("swipe", operation, value=_FINGER[way]) if way in _FINGER else Action("other", operation)


def _pressed(keys: str, operation: str) -> Action:
    if (button := _BUTTONS.get(keys.lower())) is not None:
        return Action(button, operation)
    return (
        Action("press", operation, value=key_names(re.sub(r"(?<=\w)-(?=.)", "+", keys))) if keys else Action("other", operation)
    )


def _machine(platform: Platform) -> str:
    """The 9B model's word for it: Mobile, WIN or Mac."""
    return "Mobile" if platform in ("android", "ios") else "WIN"


def _before_operation(reply: str) -> str:
    operation = operation_of(reply)
    before = reply.strip().removesuffix(operation) if operation != reply.strip() else reply
    return before.strip().removesuffix(":").removesuffix("Grounded Operation").strip()


def _sentence(thought: str) -> str:
    return " ".join(thought.rpartition("Action:")[2].split())

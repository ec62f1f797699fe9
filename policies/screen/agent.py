"""The policy `screen`: native computer use on browsers, phones and MiniWoB++."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Literal, Protocol

from msgspec import Meta

from prill.actions.phone import DEVICE_NAMES
from prill.actions.webarena import environment_notes
from prill.errors import NoEvidenceError, UnparsableError, UsageError
from prill.io.images import image_size
from prill.models.options import MaxTokensOption
from prill.models.prompts import clean, load_prompt, quoted, shorten
from prill.models.request import scaled_size
from prill.policies.screen.frames import (
    QWEN25,
    THOUSANDTHS,
    UI_TARS,
    CoordinateFrame,
    Size,
    UnreadableReplyError,
)
from prill.policies.screen.qwen import QwenCalls
from prill.policies.screen.ui_tars import UITarsCalls
from prill.policies.screen.vendors import AnthropicCalls, OpenAICalls
from prill.protocols import Image, LanguageModel, Message
from prill.types import Action, Observation, Platform, Point, Step, Task, Trajectory

GrammarName = Literal["qwen3-vl", "qwen2.5-vl", "ui-tars-1.5", "ui-tars-1.0", "openai", "anthropic"]
# The size to which the client downscales larger pictures, unless the model sets another one.
_MAX_PIXELS = 1_500_000
_MAX_TEXT = 2_000  # characters of an unreadable reply in the next prompt
_MAX_DONE = 30  # earlier steps described as text


class Grammar(Protocol):
    """Protocol of the call grammars of model families."""

    @property
    def frame(self) -> CoordinateFrame:
        """The model's coordinate frame."""
        ...

    def read(self, reply: str, size: Size, cursor: Point | None) -> tuple[str, list[Action]]:
        """Returns the thought and the actions of a reply.

        `size` is the size of the picture sent, `cursor` the position of the last action.

        Raises UnreadableReplyError.
        """
        ...

    def write(self, action: Action, platform: Platform, size: Size) -> str | None:
        """Writes an action as a call that `read` parses back; returns None if it cannot."""
        ...


_GRAMMARS: dict[GrammarName, tuple[str, Grammar]] = {
    "qwen3-vl": ("screen_qwen", QwenCalls(THOUSANDTHS)),
    "qwen2.5-vl": ("screen_qwen", QwenCalls(QWEN25)),
    "ui-tars-1.5": ("screen_ui_tars", UITarsCalls(UI_TARS)),
    "ui-tars-1.0": ("screen_ui_tars", UITarsCalls(THOUSANDTHS)),
    "openai": ("screen_openai", OpenAICalls()),
    "anthropic": ("screen_anthropic", AnthropicCalls()),
}
# prompts of models with different calls on phones
_PHONE_PROMPTS = ("screen_qwen", "screen_ui_tars")
# share of a side: half a thousandth for most grammars, a pixel of a small screen for the others
_NEAR = 0.004
_DEVICES = {**DEVICE_NAMES, "desktop": "a computer"}


class Screen:
    """A policy that uses the tool calls of a computer-use model.

    An unreadable reply becomes an action `other`, and the next prompt contains the reason.

    Several calls in one reply are executed one after another before the next request. The last
    `history` screenshots are shown, each with the call that followed it; earlier steps are
    described as text.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        grammar: Annotated[
            GrammarName, Meta(description="Family of tool calls that the model was trained on.")
        ] = "qwen3-vl",
        history: Annotated[int, Meta(ge=1, le=20, description="Number of screenshots shown.")] = 3,
        max_tokens: MaxTokensOption = 1024,
    ) -> None:
        if grammar not in _GRAMMARS:
            raise UsageError(
                f"unknown grammar {grammar!r}; expected one of {', '.join(_GRAMMARS)}",
                parameters=("grammar",),
            )
        self.model = model
        self.grammar: GrammarName = grammar
        self.history = history
        self.max_tokens = max_tokens
        self._prompt, self._calls = _GRAMMARS[grammar]
        self._task = Task(goal="")
        self._past: list[Step] = []
        self._queue: list[Action] = []

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompt."""
        return load_prompt("prill.policies", self._name(platform)).hash

    def reset(self, task: Task) -> None:
        """Starts a new episode."""
        self._task, self._past, self._queue = task, [], []

    async def act(self, observation: Observation) -> Step:
        """Returns the next step. Raises NoEvidenceError without a screenshot, and UnscoredError."""
        thought = ""
        if not self._queue:
            messages = self._messages(self._task, self._past, observation)
            fingerprint = self.fingerprint(self._task.platform)
            reply = await self.model.complete(
                messages, max_tokens=self.max_tokens, prompt=fingerprint
            )
            try:
                thought, self._queue = self._calls.read(
                    reply.text, self._size(observation), _cursor(self._past)
                )
            except UnreadableReplyError:
                self._queue = [Action("other", shorten(reply.text.strip(), _MAX_TEXT))]
        step = Step(observation, self._queue.pop(0), thought or None)
        self._past.append(step)
        return step

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Returns the prompt that `act` would send at a step, and the reply for the recorded
        action.

        The reply includes the recorded thought.
        """
        step = trajectory.steps[index]
        messages = self._messages(trajectory.task, trajectory.steps[:index], step.observation)
        if self._written(step, trajectory.task.platform) is None:
            what = shorten(step.action.text or step.action.kind, 120)
            raise UnparsableError(f"{what!r} is not a tool call of {self.grammar}")
        return messages, self._reply(step, trajectory.task.platform)

    def _messages(
        self, task: Task, past: Sequence[Step], observation: Observation
    ) -> tuple[Message, ...]:
        first = max(0, len(past) + 1 - self.history)
        size = self._size(observation)
        width, height = self._calls.frame.extent(size)
        done = [
            f"Step {n}: {self._line(step, task.platform)}" for n, step in enumerate(past[:first], 1)
        ][-_MAX_DONE:]
        values = {
            "goal": clean(task.goal),
            "done": "\n".join(done) or "nothing yet",
            "device": _DEVICES.get(task.platform, "a web browser"),
        }
        prompt = load_prompt("prill.policies", self._name(task.platform))
        turns = prompt.fill(
            {
                key: value
                for key, value in {**values, "width": str(width), "height": str(height)}.items()
                if key in prompt.slots
            }
        )
        messages = [Message("system", (turns["system"],))] if "system" in turns else []
        parts: tuple[str, ...] = (turns["user"],)
        for step in past[first:]:
            messages.append(Message("user", (*parts, *_shown(step.observation))))
            messages.append(Message("assistant", (self._reply(step, task.platform),)))
            parts = (problem,) if (problem := self._problem(step)) else ()
        messages.append(Message("user", (*parts, *_shown(observation))))
        return tuple(messages)

    def _name(self, platform: Platform) -> str:
        return (
            f"{self._prompt}_phone"
            if platform in ("android", "ios") and self._prompt in _PHONE_PROMPTS
            else self._prompt
        )

    def _size(self, observation: Observation) -> Size:
        """Returns width and height of the picture sent to the model, in pixels."""
        return _sent_size(_screenshot(observation), getattr(self.model, "max_pixels", _MAX_PIXELS))

    def _written(self, step: Step, platform: Platform) -> str | None:
        """Returns the step's call if it parses back to the step's action, else None."""
        size = self._size(step.observation)
        call = self._calls.write(step.action, platform, size)
        if call is None:
            return None
        cursor = step.action.point if step.action.kind == "drag" else None
        try:
            _, (read, *more) = self._calls.read(call, size, cursor)
        except UnreadableReplyError:
            return None
        return call if not more and _is_like(read, step.action) else None

    def _reply(self, step: Step, platform: Platform) -> str:
        call = self._written(step, platform) or step.action.text or step.action.kind
        if not step.thought:
            return call
        return (
            f"Thought: {step.thought}\n{call}"
            if self._prompt == "screen_ui_tars"
            else f"{step.thought}\n{call}"
        )

    def _problem(self, step: Step) -> str | None:
        """Returns the reason why the reply of a step could not be executed, or None."""
        if step.action.kind != "other":
            return None
        try:
            self._calls.read(step.action.text, self._size(step.observation), None)
        except UnreadableReplyError as error:
            return f"That reply could not be carried out: {error}. Reply with one call."
        return "That call could not be carried out. Reply with another one."

    def _line(self, step: Step, platform: Platform) -> str:
        text = " ".join(
            (
                step.thought
                or self._written(step, platform)
                or step.action.text
                or step.action.kind
            ).split()
        )
        return shorten(text, 200)


@cache
def _sent_size(path: str, max_pixels: int) -> Size:
    return scaled_size(image_size(path), max_pixels)


def _screenshot(observation: Observation) -> str:
    if observation.screenshot is None:
        raise NoEvidenceError("screen models need screenshots, but this state has none")
    return observation.screenshot


def _shown(observation: Observation) -> tuple[str | Image, ...]:
    """Returns the screenshot, after what a browser said about the last action."""
    notes = environment_notes(observation.text)
    said = (f"The browser said:\n{quoted('browser', chr(10).join(notes))}",) if notes else ()
    return (*said, Image(_screenshot(observation)))


def _cursor(past: Sequence[Step]) -> Point | None:
    """Returns the position of the last action."""
    points = (step.action.end_point or step.action.point for step in reversed(past))
    return next((point for point in points if point is not None), None)


def _is_like(read: Action, meant: Action) -> bool:
    """Returns whether two actions have the same effect, with positions equal up to rounding."""
    if read.is_final and meant.is_final:
        return True
    drags = {"drag", "swipe"}
    if read.kind != meant.kind and not {read.kind, meant.kind} <= drags:
        return False
    # The grammars require a position for some kinds; it has no effect if the record has none.
    placed = meant.kind not in ("scroll", "type", "press", "wait", "back", "home", "forward")
    is_near = not placed or (
        _are_near(read.point, meant.point) and _are_near(read.end_point, meant.end_point)
    )
    return is_near and (meant.kind == "wait" or (read.value or "") == (meant.value or ""))


def _are_near(a: Point | None, b: Point | None) -> bool:
    if a is None or b is None:
        return a is b
    return max(abs(a[0] - b[0]), abs(a[1] - b[1])) < _NEAR

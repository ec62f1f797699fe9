"""Converts chat messages with tool calls (OpenAI's form and similar ones) to steps.

The first text of a user is the goal. A tool call is an action; its result is the next observation.
Later user texts (many environments act as the user) are observations too. A reply without a call is
kind `message`, or `answer` when it ends the conversation. Of several images in one observation, the
last one is kept. System messages are dropped. If a format requests it, calls that only observe
(`screenshot`, `zoom`) are not steps: their results are the observation before the next action. A
zoom shows a part of the screen, so its image is used only if the observation has no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prill.actions.elements import with_element
from prill.actions.ending import claim_in, with_claim
from prill.actions.tool_calls import parsed, tool_action
from prill.datasets.reading.images import RecordImages, image_size_or_none
from prill.datasets.reading.records import Record
from prill.errors import InputError
from prill.types import Action, Observation, Step, Task, Trajectory


class ImageUrl(Record):
    """The URL of an image part: a data URL or a network address."""

    url: str


class ContentPart(Record):
    """A part of a message; for types other than text and image, only the type is used."""

    type: str = "text"
    text: str | None = None
    image_url: ImageUrl | str | None = None


class Function(Record):
    """The called function. Arguments are a JSON object, mostly as text."""

    name: str
    arguments: dict[str, object] | str | None = None


class ToolCall(Record):
    """A call in either of two forms: with `function`, or with `name` and `arguments` of its own."""

    id: str | None = None
    function: Function | None = None
    name: str | None = None
    arguments: dict[str, object] | str | None = None


class ChatMessage(Record):
    """One message."""

    role: str
    content: str | tuple[ContentPart, ...] | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    url: str | None = None  # of the page that a result shows


@dataclass(frozen=True)
class Conversation:
    """A parsed conversation.

    `final` is None if there is no observation after the last action. `claimed` is the agent's own
    claim of success, None if the final call has none.
    """

    goal: str
    steps: tuple[Step, ...]
    final: Observation | None
    answer: str | None
    claimed: bool | None = None

    def trajectory(
        self,
        id: str,
        task: Task,
        *,
        agent: str | None,
        metadata: Mapping[str, object],
        error: str | None = None,
    ) -> Trajectory:
        """Returns the run; the claim is added to its metadata, and what is None is left out."""
        return Trajectory(
            id=id,
            task=task,
            agent=agent,
            steps=self.steps,
            final=self.final,
            answer=self.answer,
            metadata=with_claim(metadata, self.claimed),
            error=error,
        )


@dataclass
class _Moment:
    texts: list[str] = field(default_factory=list)
    screenshot: str | None = None
    url: str | None = None

    def observation(self) -> Observation:
        return Observation(
            screenshot=self.screenshot, text="\n".join(self.texts) or None, url=self.url
        )


@dataclass(frozen=True)
class _Done:
    """The action of one call, or of a reply without any."""

    call: str | None
    action: Action
    thought: str | None
    claimed: bool | None = None


class TokenUsage(Record):
    """The tokens of a call, by the names of any API."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def count_tokens(usages: Iterable[TokenUsage | None]) -> dict[str, object]:
    """Returns the sums of the known counts, for a run's metadata."""
    known = [usage for usage in usages if usage is not None]
    sides = {
        "prompt_tokens": [(one.input_tokens, one.prompt_tokens) for one in known],
        "completion_tokens": [(one.output_tokens, one.completion_tokens) for one in known],
    }
    counts = {
        name: [second if first is None else first for first, second in pairs]
        for name, pairs in sides.items()
    }
    return {
        name: sum(number or 0 for number in numbers)
        for name, numbers in counts.items()
        if any(number is not None for number in numbers)
    }


def end_once(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Returns the steps; a final action that others follow becomes a message."""
    return tuple(
        replace(step, action=replace(step.action, kind="message"))
        if step.action.is_final and i < len(steps) - 1
        else step
        for i, step in enumerate(steps)
    )


Screen = tuple[float, float] | None
ReadCall = Callable[[str, Mapping[str, object] | str, Screen], Action]
LOOKS = frozenset({"screenshot", "zoom"})  # kinds of calls that change nothing


def conversation(
    messages: Iterable[ChatMessage],
    images: RecordImages,
    size: Screen = None,
    goal: str | None = None,
    read: ReadCall = tool_action,
    *,
    looks: frozenset[str] = frozenset(),
    measured: bool = False,
) -> Conversation:
    """Parses a conversation into the goal, the steps and the answer.

    Args:
        messages: The conversation, in order.
        images: The folder for its images.
        size: The screen's size, as in `tool_action`.
        goal: The goal if there is no user text.
        read: The function that parses calls, in order, in place of `tool_action`.
        looks: The kinds of calls that are not steps, such as `LOOKS`.
        measured: Whether coordinates are pixels of the last image of the whole screen, if `size` is
            None.

    Raises:
        InputError: There is no goal, an image is broken, or a call is.
    """
    first_text: str | None = None
    actions: list[_Done] = []
    moments = [_Moment()]
    called: dict[str, int] = {}
    looked: dict[str, str] = {}  # calls that only observe, by kind
    thoughts: list[str] = []  # of those, for the next action
    screen = size
    ends_in_text = False  # whether the last message is a reply without a call
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        if message.role == "assistant":
            ends_in_text = not message.tool_calls and bool(
                _plain_text(message.content) or message.refusal
            )
            for done in _parse_actions(message, screen, read):
                if done.call is not None:
                    called[done.call] = len(actions) + (done.action.kind not in looks)
                if done.action.kind in looks:
                    thoughts += [done.thought] if done.thought else []
                    if done.call is not None:
                        looked[done.call] = done.action.kind
                    continue
                thoughts += [done.thought] if done.thought else []
                actions.append(replace(done, thought="\n\n".join(thoughts) or None))
                moments.append(_Moment())
                thoughts = []
            continue
        ends_in_text = False
        text, pictures = _content(message.content, images)
        moment = moments[called.get(message.tool_call_id or "", len(actions))]
        if message.role == "user" and first_text is None and text:
            first_text = text
        elif text:
            moment.texts.append(text)
        moment.url = message.url or moment.url
        if not pictures:
            continue
        if looked.get(message.tool_call_id or "") == "zoom":
            moment.screenshot = moment.screenshot or pictures[-1]
            continue
        moment.screenshot = pictures[-1]
        screen = (
            (image_size_or_none(pictures[-1]) or screen) if measured and size is None else screen
        )
    goal_text = first_text or goal
    if goal_text is None or (goal_text == "" and goal is None):
        raise InputError("no user text, so there is no goal")
    return _conversation(goal_text, actions, moments, ends_in_text)


def _conversation(
    goal: str, actions: list[_Done], moments: list[_Moment], ends_in_text: bool
) -> Conversation:
    last = len(actions) - 1
    steps = []
    for i, (done, moment) in enumerate(zip(actions, moments, strict=False)):
        action = done.action
        if i == last and ends_in_text:
            action = replace(action, kind="answer")
        elif i < last and action.is_final:  # an action that others follow is not final
            action = replace(action, kind="message")
        observation = moment.observation()
        steps.append(Step(observation, with_element(action, observation.text), done.thought))
    final = moments[-1].observation() if actions else None
    answer = steps[-1].action.value if steps and steps[-1].action.is_final else None
    last_state = final if final is not None and (final.text or final.screenshot) else None
    # Without any action, the initial observation is the last known state.
    if not actions and moments[0].screenshot:
        last_state = moments[0].observation()
    claimed = actions[-1].claimed if steps and steps[-1].action.is_final else None
    return Conversation(goal, tuple(steps), last_state, answer, claimed)


def _parse_actions(message: ChatMessage, size: Screen, read: ReadCall) -> Iterable[_Done]:
    text = _plain_text(message.content) or message.refusal or ""
    if not message.tool_calls:
        if text:
            yield _Done(
                None, Action("message", text, value=text), message.reasoning_content or None
            )
        return
    thought: str | None = (
        "\n\n".join(part for part in (message.reasoning_content, text) if part) or None
    )
    for call in message.tool_calls:
        name = call.function.name if call.function else call.name
        arguments = call.function.arguments if call.function else call.arguments
        if name is None:
            raise InputError("a tool call has no function name")
        yield _Done(
            call.id,
            read(name, arguments or {}, size),
            thought,
            claim_in(parsed(arguments or {}) or {}),
        )
        thought = None  # only once, before the first call


def _content(
    content: str | tuple[ContentPart, ...] | None, images: RecordImages
) -> tuple[str, list[str]]:
    pictures = []
    texts = [_plain_text(content)]
    for part in content if isinstance(content, tuple) else ():
        if part.image_url is None:
            continue
        url = part.image_url if isinstance(part.image_url, str) else part.image_url.url
        path = images.file(url)
        if path is None:
            texts.append(f"[picture at {url}]")
        else:
            pictures.append(path)
    return "\n".join(text for text in texts if text), pictures


def _plain_text(content: str | tuple[ContentPart, ...] | None) -> str:
    if isinstance(content, str):
        return content.strip()
    return "\n".join(part.text for part in content or () if part.text).strip()

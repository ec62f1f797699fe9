"""The chain-of-thought agent of WebArena (arXiv 2307.13854), for web and phones.

It sees the page's text and its own last action, but no history. Differences from the original: the
prompts are prill's own, page text is quoted between random delimiters, the objective stands before
the page (so that servers reuse the prefix), and phones have their own actions
(`read_phone_action`). If an environment's text has no element numbers (MiniWoB++), `numbered` adds
them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from prill.actions.elements import element_id, read_target
from prill.actions.phone import DEVICE_NAMES
from prill.actions.webarena import (
    UnreadableActionError,
    describe,
    element_line,
    read_action,
    write_action,
)
from prill.errors import NoEvidenceError, UnparsableError
from prill.models.options import MaxTokensOption, ReasoningOption
from prill.models.prompts import (
    EXAMPLE_CODE,
    NONCE,
    clean,
    content_hash,
    estimate_tokens,
    load_prompt,
    quoted,
)
from prill.models.replies import excerpt
from prill.policies.miniwob_text import LINE
from prill.protocols import LanguageModel, Message
from prill.types import Action, Observation, Platform, Step, Task, Trajectory

_HAS_NUMBERS = re.compile(r"^\s*\[\d+\] ", re.MULTILINE)
# The original uses the first span, even if it is part of the reasoning.
_SPAN = re.compile(r"```(.*?)```", re.DOTALL)
_PHRASE = re.compile(r"\s*in summary,? the next action i will perform is:?\s*\Z", re.IGNORECASE)
_SWIPE = re.compile(r"swipe\s*\[?\s*(up|down|left|right)\s*\]?")
_BUTTONS = {
    "back": Action("back", "back"),
    "go_back": Action("back", "back"),
    "home": Action("home", "home"),
    "go_home": Action("home", "home"),
    "enter": Action("press", "enter", value="Enter"),
    "press [enter]": Action("press", "enter", value="Enter"),
    "wait": Action("wait", "wait"),
}
_EXPECTED = (
    "tap [id], type [id] [text], swipe [up|down|left|right], back, home, enter, wait, stop [answer]"
)
# Device names for the prompt for phones, which is used on every platform except the web.
_DEVICES = {**DEVICE_NAMES, "other": "a phone", "desktop": "a computer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactSpec:
    """Options of the ReAct prompt. A token is estimated as four characters.

    `attempts` is the original's max_retry (1); the prompt of a further attempt contains the reason
    why the last one failed. Without `hint`, the turn after an unreadable reply says "none", as in
    the paper's retries.
    """

    reasoning: ReasoningOption = True
    may_give_up: Annotated[
        bool,
        Meta(description="Tell the agent to stop with N/A if the objective cannot be reached."),
    ] = True
    sites: Annotated[
        str, Meta(description="Names of the sites that the agent may visit. Empty: none are named.")
    ] = ""
    typing: Annotated[
        Literal["replace", "append"], "what the environment's `type` does with a field's content"
    ] = "replace"
    observation_tokens: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum length of the page's text in tokens, cut at the end of a "
            "line (WebArena: 1920).",
        ),
    ] = 1920
    attempts: Annotated[
        int, Meta(ge=1, description="Number of calls per turn while no action can be parsed.")
    ] = 1
    hint: Annotated[
        bool, Meta(description="After an unparsable reply, describe the error in the next turn.")
    ] = True
    max_tokens: MaxTokensOption = 384


class React:
    """A policy that requests one action at a time from a model, based on the page's text.

    A reply that cannot be parsed becomes an action of kind `other` with the raw text;
    `prill.actions.early_stop` ends the episode after three of these. A reply that is cut at twice
    `max_tokens` ends the episode with an error.

    Args:
        model: The model.
        spec: The options.
        lessons: Reflexion lessons from earlier attempts, shown as MEMORY. The attribute may be
            changed between episodes.
    """

    def __init__(
        self, model: LanguageModel, spec: ReactSpec = ReactSpec(), *, lessons: Sequence[str] = ()
    ) -> None:
        self.model = model
        self.spec = spec
        self.lessons = list(lessons)
        self._task = Task(goal="")
        self._done = self._advice = ""

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompts and the lessons."""
        return content_hash(prompt_hash(self.spec, platform), *self.lessons)

    def reset(self, task: Task) -> None:
        """Starts a new episode and keeps the lessons."""
        self._task = task
        self._done = self._advice = ""

    async def act(self, observation: Observation) -> Step:
        """Returns the next step."""
        if observation.text is None:
            raise NoEvidenceError("react reads the text of the page, but this state has none")
        page = numbered(observation.text)
        messages = self._messages(self._task, observation, page, self._done, self._advice)
        prompt = prompt_hash(self.spec, self._task.platform)
        step = Step(observation, Action("other"))
        for _ in range(max(1, self.spec.attempts)):
            reply = await self.model.complete(
                messages, max_tokens=self.spec.max_tokens, prompt=prompt
            )
            thought, written = split_reply(reply.text)
            try:
                action = self._read(written, page, self._task.platform)
            except UnreadableActionError as problem:
                action = Action("other", reply.text.strip() if written is None else written)
                advice = self._advised(problem)
                self._done, self._advice = "", advice if self.spec.hint else "none"
                messages = (
                    *messages,
                    Message("assistant", (reply.text,)),
                    Message("user", (advice,)),
                )
                step = Step(observation, action, thought)
                continue
            self._done, self._advice = action.text, ""
            return Step(observation, action, thought)
        return step

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Returns the prompt that `act` would send at a step, and the reply for the recorded
        action.

        The reply includes the recorded thought.
        """
        step, task = trajectory.steps[index], trajectory.task
        if step.observation.text is None:
            raise NoEvidenceError("react reads the text of the page, but this state has none")
        page = numbered(step.observation.text)
        done, advice = (
            self._result_after(trajectory.steps[index - 1], task.platform) if index else ("", "")
        )
        messages = self._messages(task, step.observation, page, done, advice)
        number = page.number(step.action)
        if (
            number is not None
            and element_line(number, cut(page.text, self.spec.observation_tokens)) is None
        ):
            raise UnparsableError(
                f"{excerpt(step.action.text or step.action.kind)} uses an element that is "
                "not shown to the agent"
            )
        written = (write_action if task.platform == "web" else write_phone_action)(
            step.action, number
        )
        thought = (
            f"{_unticked(step.thought or '')} {_examples().wording['phrase']} ".lstrip()
            if self.spec.reasoning
            else ""
        )
        reply = f"{thought}```{written}```"
        try:
            read = self._read(split_reply(reply)[1], page, task.platform)
        except UnreadableActionError:
            read = Action("other")
        if (
            written is None
            or (read.is_final, read.value or "") != (step.action.is_final, step.action.value or "")
            or (read.kind != step.action.kind and not read.is_final)
        ):
            raise UnparsableError(
                f"{excerpt(step.action.text or step.action.kind)} cannot be expressed in "
                "the action language of react"
            )
        return messages, reply

    def _messages(
        self, task: Task, observation: Observation, page: NumberedText, done: str, advice: str
    ) -> tuple[Message, ...]:
        url = observation.url or "(unknown)"
        turn = ReactTurn(observation=page.text, goal=task.goal, done=done, advice=advice, url=url)
        return build_messages(self.spec, task.platform, turn, self.lessons)

    def _result_after(self, step: Step, platform: Platform) -> tuple[str, str]:
        """Returns the next turn's text about a recorded step: the action, or advice instead."""
        if step.action.kind != "other":
            return step.action.text, ""
        # A reply without back-ticks was recorded as a whole, without a separate thought.
        written = None if step.thought is None and self.spec.reasoning else step.action.text
        try:
            return self._read(written, numbered(step.observation.text or ""), platform).text, ""
        except UnreadableActionError as problem:
            return "", self._advised(problem) if self.spec.hint else "none"

    def _advised(self, problem: UnreadableActionError) -> str:
        parts = "your reasoning, the summarising phrase, and " if self.spec.reasoning else ""
        return (
            f"Nothing was done: {problem}. Reply with {parts}one action between triple back-ticks."
        )

    def _read(self, written: str | None, page: NumberedText, platform: Platform) -> Action:
        """Parses the action, with its element's line as target. Raises UnreadableActionError."""
        if written is None:
            raise UnreadableActionError("the reply has no action between triple back-ticks")
        on_web = platform == "web"
        action = read_action(written) if on_web else read_phone_action(written)
        if on_web or action.target is not None:
            action = replace(action, text=describe(action, page.text))
        return replace(action, target=page.target(action.target))


def split_reply(reply: str) -> tuple[str | None, str | None]:
    """Splits a reply into the reasoning and the text between the first triple back-ticks.

    The closing phrase of the reasoning is removed. A missing part is None.

    The thinking of a reasoning model, up to `</think>`, is ignored, because it may contain
    discarded actions.
    """
    reply = reply.rpartition("</think>")[2]
    span = _SPAN.search(reply)
    if span is None:
        return None, None
    return _PHRASE.sub("", reply[: span.start()]).strip() or None, span[1].strip()


def read_phone_action(text: str) -> Action:
    """Parses the action that an agent wrote; `target` is `[number]`.

    Unlike in a browser, `type` presses Enter only for `[1]` at its end. The direction of `swipe` is
    the finger's: up shows content further down. Raises UnreadableActionError for any other text.
    """
    text = text.strip()
    if (button := _BUTTONS.get(text.lower())) is not None:
        return button
    if swipe := _SWIPE.fullmatch(text.lower()):
        return Action("swipe", f"swipe [{swipe[1]}]", value=swipe[1])
    verb = re.match(r"tap|click|type|stop", text)
    if verb is None:
        raise UnreadableActionError(
            f"{excerpt(text)} is not an action; the actions are {_EXPECTED}"
        )
    if verb[0] == "tap":
        return read_action("click" + text.removeprefix("tap"))
    if verb[0] == "type" and not text.endswith(("[0]", "[1]")):
        text += " [0]"
    return read_action(text)


def write_phone_action(action: Action, number: str | None = None) -> str | None:
    """Writes an action so that `read_phone_action` parses it back; returns None if it cannot."""
    if action.kind == "click" and number is not None:
        return f"tap [{number}]"
    if action.kind == "type":
        return (write_action(action, number) or "").removesuffix(" [0]") or None
    if action.kind == "swipe" and action.value:
        return f"swipe [{action.value}]"
    if action.is_final:
        return write_action(action)
    return next(
        (
            name
            for name, button in _BUTTONS.items()
            if (button.kind, button.value) == (action.kind, action.value)
        ),
        None,
    )


@dataclass(frozen=True, slots=True)
class NumberedText:
    """A text with numbered elements, and the environment's names of those prill numbered."""

    text: str
    named: dict[str, str]

    def target(self, written: str | None) -> str | None:
        """Returns the element's line or the environment's name for `[12]`; unchanged if there is no
        such element.
        """
        number = read_target(written).number if written else None
        if number is None:
            return written
        line = element_line(number, self.text)
        return written if line is None else self.named.get(number, f"[{number}] {line}")

    def number(self, action: Action) -> str | None:
        """Returns the number of a recorded action's element.

        The element is found by its name, its number, or words in only one line.
        """
        target = action.target or ""
        if name := next((number for number, name in self.named.items() if name == target), None):
            return name
        meant = read_target(target)
        if meant.number is not None or meant.label is None:
            return meant.number or element_id(action.text)
        lines = [read_target(line) for line in self.text.splitlines()]
        numbers = [line.number for line in lines if line.label == meant.label]
        return numbers[0] if len(numbers) == 1 else element_id(action.text)


def numbered(text: str) -> NumberedText:
    """Returns the text with a number before each line that describes an element.

    A text with numbered lines is unchanged.
    """
    if _HAS_NUMBERS.search(text):
        return NumberedText(text, {})
    lines: list[str] = []
    named: dict[str, str] = {}
    for line in text.splitlines():
        if element := LINE.fullmatch(line):
            number = str(len(named) + 1)
            named[number] = line[element.end("indent") : element.start("state")]
            line = f"{element['indent']}[{number}] {line.strip()}"
        lines.append(line)
    return NumberedText("\n".join(lines), named)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactTurn:
    """One turn of the prompt, or of a worked example.

    `done` describes the last action; `advice` replaces it if that action could not be parsed.
    """

    observation: str
    goal: str
    done: str = ""
    advice: str = ""
    url: str = ""
    lesson: str = ""
    thought: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class _Examples:
    wording: dict[str, str]
    web: tuple[ReactTurn, ...]
    phone: tuple[ReactTurn, ...]


def build_messages(
    spec: ReactSpec, platform: Platform, turn: ReactTurn, lessons: Sequence[str]
) -> tuple[Message, ...]:
    """Returns the whole request: system text, examples as earlier turns, the current turn."""
    source = _examples()
    wording, examples = source.wording, source.web if platform == "web" else source.phone
    kind = "" if spec.reasoning else "_direct"
    values = {
        "memory_note": wording["memory_note"] if lessons else "",
        "impossible": wording["impossible"] if spec.may_give_up else "",
        "method": wording[f"method{kind}"],
        "form": wording[f"form{kind}"].replace(
            "{action}", "click [104]" if platform == "web" else "tap [4]"
        ),
    }
    if platform == "web":
        values["typing"] = wording[spec.typing]
        values["sites"] = f"\nSites that you may go to: {spec.sites}\n" if spec.sites else ""
    else:
        values["device"] = _DEVICES[platform]
    messages: list[Message] = []
    for example in examples:
        learned = [example.lesson] if lessons and example.lesson else []
        filled = [
            replace(message, parts=(str(message.parts[0]).replace(NONCE, EXAMPLE_CODE),))
            for message in _filled(spec, platform, example, learned, values)
        ]
        thought = f"{example.thought} {wording['phrase']} " if spec.reasoning else ""
        messages += [
            *filled[0 if not messages else 1 :],
            Message("assistant", (f"{thought}```{example.action}```",)),
        ]
    return (*messages, _filled(spec, platform, turn, lessons, values)[1])


def prompt_hash(spec: ReactSpec, platform: Platform) -> str:
    """Returns the hash of the request without the current turn."""
    settings = repr(
        (spec.reasoning, spec.may_give_up, spec.sites, spec.observation_tokens, spec.typing)
    )
    return content_hash(load_prompt("prill.policies", _prompt(platform)).text, _source(), settings)


def _filled(
    spec: ReactSpec,
    platform: Platform,
    turn: ReactTurn,
    lessons: Sequence[str],
    values: dict[str, str],
) -> list[Message]:
    state = {
        "code": NONCE,
        "observation": _unticked(quoted("page", cut(turn.observation, spec.observation_tokens))),
        "goal": turn.goal,
        "memory": f"MEMORY:\n{_unticked(quoted('memory', chr(10).join(lessons)))}\n"
        if lessons
        else "",
        "previous": clean(turn.advice)
        or (_unticked(quoted("previous", turn.done)) if turn.done else "None"),
    }
    if platform == "web":
        # Without spaces, a URL cannot contain a readable sentence.
        state["url"] = _unticked("%20".join(clean(turn.url).split())[:500])
    filled = load_prompt("prill.policies", _prompt(platform)).fill({**values, **state})
    return [Message("system", (filled["system"],)), Message("user", (filled["user"],))]


def _unticked(text: str) -> str:
    """Removes triple back-ticks, so that text copied from a page into the reasoning is not parsed
    as the action.
    """
    return text.replace("```", "'''")


def cut(text: str, tokens: int) -> str:
    """Truncates a text to the whole lines that fit into a number of tokens of four characters.

    At least the start of the first line is kept.
    """
    if estimate_tokens(text) <= tokens:
        return text
    head = text[: 4 * tokens]
    lines = head.rpartition("\n")[0]
    return lines or head


def _prompt(platform: Platform) -> str:
    return "react_web" if platform == "web" else "react_phone"


@cache
def _source() -> str:
    return (
        resources.files("prill.policies")
        .joinpath("react_examples.toml")
        .read_text(encoding="utf-8")
    )


@cache
def _examples() -> _Examples:
    return msgspec.convert(tomllib.loads(_source()), _Examples)

"""The chain-of-thought actor of WebArena (arXiv 2307.13854; the actor of arXiv 2404.06474's retries), for web and phones.

It sees the page's text and its own last action, and no history. Differences: the prompts are our own, page text stands in
quotations that no page can forge, and phones have verbs of their own.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import msgspec

from prill.actions.targets import read_target
from prill.actions.webarena import UnreadableAction, describe, element_line, read_action
from prill.errors import NoEvidence
from prill.models.prompts import NONCE, clean, content_hash, estimate_tokens, load_prompt, quoted
from prill.models.replies import excerpt
from prill.policies.miniwob_text import LINE
from prill.protocols import LanguageModel, Message
from prill.types import Action, Observation, Platform, Step, Task

# Gives elements numbers that a language agent can name, where an environment's text has none (MiniWoB++).


_HAS_NUMBERS = re.compile(r"^\s*\[\d+\] ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NumberedText:
    """A text whose elements have numbers, and what the environment calls the elements that were numbered here."""

    text: str
    named: dict[str, str]

    def target(self, written: str | None) -> str | None:
        """The element's line, or what the environment calls it, for `[12]`; what was written when there is no such element."""
        number = read_target(written).number if written else None
        if number is None:
            return written
        line = element_line(number, self.text)
        return written if line is None else self.named.get(number, f"[{number}] {line}")


def numbered(text: str) -> NumberedText:
    """The text as it is where its lines have numbers, else with a number before each line that describes an element."""
    if _HAS_NUMBERS.search(text):
        return NumberedText(text, {})
    lines: list[str] = []
    named: dict[str, str] = {}
    for line in text.splitlines():
        if found := LINE.fullmatch(line):
            number = str(len(named) + 1)
            named[number] = line[found.end("indent") : found.start("state")]
            line = f"{found['indent']}[{number}] {line.strip()}"
        lines.append(line)
    return NumberedText("\n".join(lines), named)


# What language agents write to act on a phone: WebArena's form, `verb [argument]`, with the verbs of a touch screen.


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
_EXPECTED = "tap [id], type [id] [text], swipe [up|down|left|right], back, home, enter, wait, stop [answer]"


def read_phone_action(text: str) -> Action:
    """The action that an agent wrote; `target` is `[number]`.

    Unlike in a browser, `type` presses Enter only for `[1]` at its end. `swipe` says where the finger goes: up shows what is
    further down. Raises UnreadableAction for everything else.
    """
    text = text.strip()
    if (button := _BUTTONS.get(text.lower())) is not None:
        return button
    if swipe := _SWIPE.fullmatch(text.lower()):
        return Action("swipe", f"swipe [{swipe[1]}]", value=swipe[1])
    verb = re.match(r"tap|click|type|stop", text)
    if verb is None:
        raise UnreadableAction(f"{excerpt(text)} is no action; the actions are {_EXPECTED}")
    if verb[0] == "tap":
        return read_action("click" + text.removeprefix("tap"))
    if verb[0] == "type" and not text.endswith(("[0]", "[1]")):
        text += " [0]"
    return read_action(text)


# What `react` sends to its model: the prompt of the platform, two worked examples, and the state of this turn.


_DEVICES = {"android": "an Android phone", "ios": "an iPhone", "other": "a phone", "desktop": "a computer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What the agent is shown before one action; the parts of a worked example besides.

    `done` describes the last action; `advice` takes its place where there was none that could be read.
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
    web: tuple[Turn, ...]
    phone: tuple[Turn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How the actor is asked.

    `reasoning`: it is to think before it acts, else the action alone. `may_give_up`: it is told to stop with N/A when the
    objective cannot be reached. `sites`: addresses it may go to, in words; empty: none are named. `observation_tokens`: more
    of the page is cut off, at the end of a line; a token is taken as four characters.
    """

    reasoning: bool = True
    may_give_up: bool = True
    sites: str = ""
    observation_tokens: int = 1920

    def messages(self, platform: Platform, turn: Turn, lessons: Sequence[str]) -> tuple[Message, ...]:
        """The whole request: system text, the examples as turns already taken, and the present turn."""
        examples = _examples()
        words, shown = examples.wording, examples.web if platform == "web" else examples.phone
        kind = "" if self.reasoning else "_direct"
        values = {
            "code": NONCE,
            "memory_note": words["memory_note"] if lessons else "",
            "impossible": words["impossible"] if self.may_give_up else "",
            "method": words[f"method{kind}"],
            "form": words[f"form{kind}"].replace("{action}", "click [104]" if platform == "web" else "tap [4]"),
        }
        if platform == "web":
            values["sites"] = f"\nSites that you may go to: {self.sites}\n" if self.sites else ""
        else:
            values["device"] = _DEVICES[platform]
        sent: list[Message] = []
        for example in shown:
            filled = self._filled(platform, example, [example.lesson] if lessons and example.lesson else [], values)
            said = f"{example.thought} {words['phrase']} " if self.reasoning else ""
            sent += [*filled[0 if not sent else 1 :], Message("assistant", (f"{said}```{example.action}```",))]
        return (*sent, self._filled(platform, turn, lessons, values)[1])

    def hash(self, platform: Platform) -> str:
        """Follows everything that is sent besides the turn itself."""
        return content_hash(load_prompt("prill.policies", _prompt(platform)).text, _source(), repr(self))

    def _filled(self, platform: Platform, turn: Turn, lessons: Sequence[str], values: dict[str, str]) -> list[Message]:
        state = {
            "observation": _unticked(quoted("page", cut(turn.observation, self.observation_tokens))),
            "goal": turn.goal,
            "memory": f"MEMORY:\n{clean(chr(10).join(lessons))}\n" if lessons else "",
            "previous": clean(turn.advice) or (_unticked(quoted("previous", turn.done)) if turn.done else "None"),
        }
        if platform == "web":
            # Without blanks, an address cannot read like a sentence.
            state["url"] = _unticked("%20".join(clean(turn.url).split())[:500])
        filled = load_prompt("prill.policies", _prompt(platform)).fill({**values, **state})
        return [Message("system", (filled["system"],)), Message("user", (filled["user"],))]


def _unticked(text: str) -> str:
    """The text without triple back-ticks: what is copied from a page into the reasoning is then not taken for the action."""
    return text.replace("```", "'''")


def cut(text: str, tokens: int) -> str:
    """As many whole lines from the beginning as fit into so many tokens of four characters; at least the start of the first."""
    if estimate_tokens(text) <= tokens:
        return text
    head = text[: 4 * tokens]
    whole = head.rpartition("\n")[0]
    return whole or head


def _prompt(platform: Platform) -> str:
    return "react_web" if platform == "web" else "react_phone"


@cache
def _source() -> str:
    return resources.files("prill.policies").joinpath("react_examples.toml").read_text(encoding="utf-8")


@cache
def _examples() -> _Examples:
    return msgspec.convert(tomllib.loads(_source()), _Examples)


# The original takes the first span, also when it stands in the reasoning.
_SPAN = re.compile(r"```(.*?)```", re.DOTALL)
_PHRASE = re.compile(r"\s*in summary,? the next action i will perform is:?\s*\Z", re.IGNORECASE)


class React:
    """Asks a model for one action at a time, from the page's text.

    lessons    what was learned from earlier attempts: shown as MEMORY. The list may be changed between episodes
    variant    how the actor is asked
    attempts   how often a turn is asked when no action can be read (the original's max_retry: 1); a further attempt is told
               why the last one failed
    hint       after an unreadable reply, the next turn's PREVIOUS ACTION says what was wrong; False: it says "none", as in
               the paper's retries
    max_tokens of one reply (the paper: 384); a model that is cut at twice as many ends the episode with an error

    What cannot be read becomes an action of kind `other` with the raw text; `prill.early_stop` ends the episode after three.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        lessons: Iterable[str] = (),
        variant: Variant | None = None,
        attempts: int = 1,
        hint: bool = True,
        max_tokens: int = 384,
    ) -> None:
        self.model = model
        self.lessons = list(lessons)
        self.variant = variant or Variant()
        self.attempts = attempts
        self.hint = hint
        self.max_tokens = max_tokens
        self._task = Task(goal="")
        self._done = self._advice = ""

    def reset(self, task: Task) -> None:
        """Begin a new episode; the lessons stay."""
        self._task = task
        self._done = self._advice = ""

    async def act(self, observation: Observation) -> Step:
        """The next step. Raises NoEvidence without a text, and whatever `Unscored` error the model raises."""
        if observation.text is None:
            raise NoEvidence("react reads the text of the page, and this state has none")
        platform = self._task.platform
        page = numbered(observation.text)
        turn = Turn(
            observation=page.text,
            goal=self._task.goal,
            done=self._done,
            advice=self._advice,
            url=observation.url or "(unknown)",
        )
        messages = self.variant.messages(platform, turn, self.lessons)
        prompt = self.variant.hash(platform)
        step = Step(observation, Action("other"))
        for _ in range(max(1, self.attempts)):
            reply = await self.model.complete(messages, max_tokens=self.max_tokens, prompt=prompt)
            thought, said = split_reply(reply.text)
            try:
                action = self._read(said, page)
            except UnreadableAction as problem:
                action = Action("other", reply.text.strip() if said is None else said)
                advice = f"Nothing was done: {problem}. {self._wanted}"
                self._done, self._advice = "", advice if self.hint else "none"
                messages = (*messages, Message("assistant", (reply.text,)), Message("user", (advice,)))
                step = Step(observation, action, thought)
                continue
            self._done, self._advice = action.text, ""
            return Step(observation, action, thought)
        return step

    @property
    def _wanted(self) -> str:
        words = "your reasoning, the summarising phrase, and " if self.variant.reasoning else ""
        return f"Reply with {words}one action between triple back-ticks."

    def _read(self, said: str | None, page: NumberedText) -> Action:
        """The action with its element's line as target, described as logs do. Raises UnreadableAction."""
        if said is None:
            raise UnreadableAction("the reply has no action between triple back-ticks")
        on_web = self._task.platform == "web"
        action = read_action(said) if on_web else read_phone_action(said)
        if on_web or action.target is not None:
            action = replace(action, text=describe(action, page.text))
        return replace(action, target=page.target(action.target))


def split_reply(reply: str) -> tuple[str | None, str | None]:
    """The reasoning without its closing phrase, and what the first pair of triple back-ticks holds; None: there is none.

    What a reasoning model thinks to itself, up to `</think>`, is left out: it tries actions out there.
    """
    reply = reply.rpartition("</think>")[2]
    span = _SPAN.search(reply)
    if span is None:
        return None, None
    return _PHRASE.sub("", reply[: span.start()]).strip() or None, span[1].strip()

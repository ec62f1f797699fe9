"""What `react` sends to its model: the prompt of the platform, two worked examples, and the state of this turn."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec

from prill.models.wire import estimate_tokens
from prill.prompts import NONCE, content_hash, load_prompt
from prill.protocols import Message
from prill.quotation import clean, quoted
from prill.types import Platform

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
        return content_hash(load_prompt("prill.agents", _prompt(platform)).text, _source(), repr(self))

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
        filled = load_prompt("prill.agents", _prompt(platform)).fill({**values, **state})
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
    return resources.files("prill.agents").joinpath("react_examples.toml").read_text(encoding="utf-8")


@cache
def _examples() -> _Examples:
    return msgspec.convert(tomllib.loads(_source()), _Examples)

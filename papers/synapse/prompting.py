"""Builds the chat that shows exemplars as earlier turns (trajectory as exemplar), and selects its
prompt type for a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import msgspec

from prill.errors import ContextTooLongError
from prill.models.prompts import Prompt, clean, estimate_tokens, load_prompt, quoted
from prill.papers.replies import read_toml
from prill.papers.synapse.memory import Exemplar, ExemplarTurn, MemoryEntry
from prill.protocols import Message

OBSERVED = "Observation:\n"  # prefix of observations in prompts, and of abstracted pages in notes
PromptType = Literal["obs_act", "state_act", "multi_obs_act", "multi_state_act"]
_TOKENS_A_MESSAGE, _TOKENS_OF_REPLY = 4, 3  # the chat format of gpt-3.5-turbo-0301


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTable:
    """The paper's table of MiniWoB++ tasks; see tasks.toml."""

    exemplars: tuple[str, ...]
    unseen: tuple[str, ...]
    abstracted: tuple[str, ...]
    never_raw: tuple[str, ...]
    one_raw_exemplar: tuple[str, ...]
    borrows: Mapping[str, str] = field(default_factory=dict)
    turns: Mapping[str, int] = field(default_factory=dict)

    @property
    def all(self) -> tuple[str, ...]:
        """Returns the paper's 64 tasks."""
        return tuple(sorted((*self.exemplars, *self.unseen)))


@cache
def task_table() -> TaskTable:
    """Returns the table that comes with prill."""
    return msgspec.convert(read_toml("prill.papers.synapse", "tasks.toml"), TaskTable)


def system_prompt() -> Prompt:
    """Returns the system prompt: the agent's role, and its calls."""
    return load_prompt("prill.papers.synapse", "system")


def prompt_type(entry: MemoryEntry, abstracted: bool) -> PromptType:
    """Returns the prompt type: several turns, and abstracted pages, if the exemplars have them."""
    if entry.has_turns:
        return "multi_obs_act" if abstracted else "multi_state_act"
    return "obs_act" if abstracted and entry.has_words else "state_act"


def shown(entry: MemoryEntry, kind: PromptType, task_name: str) -> tuple[Exemplar, ...]:
    """Returns the exemplars for a prompt of this type. Raises ContextTooLongError."""
    if kind in ("obs_act", "multi_obs_act"):
        return tuple(
            e for e in entry.exemplars if all(step.observation is not None for step in e.steps)
        )
    table = task_table()
    if task_name in table.never_raw:
        raise ContextTooLongError(
            f"{task_name} needs an abstraction of its pages, because they are too long"
        )
    found = tuple(e for e in entry.exemplars if all(step.state is not None for step in e.steps))
    return (
        found[:1] if kind == "multi_state_act" and entry.name in table.one_raw_exemplar else found
    )


def build_messages(
    kind: PromptType,
    exemplars: Sequence[Exemplar],
    acting: str,
    task: str,
    trajectory: Sequence[ExemplarTurn],
    page: str,
) -> tuple[Message, ...]:
    """Returns the system prompt, the exemplars, the turns so far, and the current page."""
    several, in_words = kind.startswith("multi"), kind.endswith("obs_act")
    messages = [Message("system", (system_prompt().fill({})["user"],))]
    if acting and kind == "state_act":
        messages.append(_user_message(clean(acting)))
    for exemplar in exemplars:
        if several:
            messages.append(_user_message(_heading(exemplar.task)))
        for step in exemplar.steps:
            messages += _turn((step.observation if in_words else step.state) or "", step.action)
    if several:
        messages.append(_user_message(_heading(task)))
        for step in trajectory:
            messages += _turn(step.observation or "", step.action)
    messages.append(_asked(page))
    return tuple(messages)


def count_tokens(messages: Sequence[Message]) -> int:
    """Estimates the tokens of the messages, including the overhead of the chat format."""
    texts = (part for message in messages for part in message.parts if isinstance(part, str))
    return sum(map(estimate_tokens, texts)) + _TOKENS_A_MESSAGE * len(messages) + _TOKENS_OF_REPLY


def expect_room(
    messages: Sequence[Message], window: int | None, what: str, advice: str = ""
) -> None:
    """Raises ContextTooLongError if a request is longer than the model's window."""
    if window is not None and (tokens := count_tokens(messages)) > window:
        raise ContextTooLongError(
            f"{what} has about {tokens} tokens, but the model's context window only "
            f"{window}{advice}"
        )


def until(reply: str, *stops: str) -> str:
    """Returns the reply up to the first stop string."""
    reply = reply.rpartition("</think>")[2]
    ends = [at for stop in stops if (at := reply.find(stop)) >= 0]
    return reply[: min(ends)] if ends else reply


def _heading(task: str) -> str:
    return f"Task: {clean(task)}\nTrajectory:"


def _turn(page: str, action: str) -> list[Message]:
    return [_asked(page), Message("assistant", (f"```\n{clean(action)}\n```",))]


def _asked(page: str) -> Message:
    return _user_message(f"{OBSERVED}{quoted('page', page)}\nAction:")


def _user_message(text: str) -> Message:
    return Message("user", (text,))

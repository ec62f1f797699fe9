"""The calls that a model writes in a block of Python; sandbox.py runs the block, and agent.py
carries the calls out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

# What each method takes; see prompts/system.md for what they do.
METHODS: Mapping[str, str] = {
    "type": "characters",
    "click_xpath": "xpath",
    "press": "key",
    "click_option": "xpath",
    "movemouse": "xpath",
}
_FENCE = re.compile(r"```[ \t]*(?:[A-Za-z0-9_+-]*[ \t]*\r?\n)?(.*?)```", re.DOTALL)
_RECORDED = re.compile(r"agent\.(\w+)\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the agent: `agent.press("enter")`."""

    method: str
    argument: str

    def __str__(self) -> str:
        plain = self.argument.isprintable() and not {'"', "\\"} & set(self.argument)
        quoted = f'"{self.argument}"' if plain else repr(self.argument)
        return f"agent.{self.method}({quoted})"


def recorded_call(text: str) -> Call | None:
    """The call that was recorded as this text; None where it is not one call with a literal
    text.
    """
    match = _RECORDED.fullmatch(text)
    if match is None or match[1] not in METHODS:
        return None
    try:
        argument = ast.literal_eval(match[2])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return Call(match[1], argument) if isinstance(argument, str) else None


def first_block(reply: str) -> str:
    """The first fenced block of a reply, without the word for its language; empty where there is
    none.
    """
    match = _FENCE.search(reply.rpartition("</think>")[2])
    return match[1].strip("\r\n") if match else ""

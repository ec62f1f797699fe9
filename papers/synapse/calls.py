"""Parses the calls in a model's Python block. sandbox.py runs the block, and agent.py carries out
the calls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from prill.papers.replies import (
    UnreadableReplyError,
    json_values,
    one_answer,
    plain_line,
    tool_calls,
    visible_text,
)

# The argument of each method; prompts/system.md describes the methods.
METHODS: Mapping[str, str] = {
    "type": "characters",
    "click_xpath": "xpath",
    "press": "key",
    "click_option": "xpath",
    "movemouse": "xpath",
}
_FENCE = re.compile(r"```[ \t]*(?:[A-Za-z0-9_+-]*[ \t]*\r?\n)?(.*?)```", re.DOTALL)
_BULLET = re.compile(r"^\s*[-*•+]\s", re.MULTILINE)
_CALLING = re.compile(r"\bagent\.\w+\(")
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
    """Parses a recorded call. Returns None if the text is not one call with a literal string."""
    match = _RECORDED.fullmatch(text)
    if match is None or match[1] not in METHODS:
        return None
    try:
        argument = ast.literal_eval(match[2])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return Call(match[1], argument) if isinstance(argument, str) else None


def read_block(reply: str) -> str:
    """Returns the block of calls in a reply: a fenced block, one tool call per line, or unfenced
    lines of calls.

    A fenced block without calls counts only if there is no other. Raises UnreadableReplyError if
    there is no block, or for two different ones.
    """
    text = visible_text(reply)
    blocks = [
        block for block in map(str.strip, (found[1] for found in _FENCE.finditer(text))) if block
    ]
    calling = [block for block in blocks if _CALLING.search(block) and not _tool_block(block)]
    if (
        block := one_answer(calling) or (blocks[0] if blocks and not _tool_block(text) else "")
    ) != "":
        return _without_prompt(block)
    if (written := _tool_block(text)) or (written := "" if "```" in text else _bare_lines(text)):
        return written
    raise UnreadableReplyError(
        "the reply has no block of calls: write them between triple back-ticks"
    )


def _without_prompt(block: str) -> str:
    """Returns a block without interpreter prompts."""
    return re.sub(r"^>>> ?", "", block, flags=re.MULTILINE)


def _tool_block(text: str) -> str:
    """Returns the calls of a JSON or XML reply, one per line, or the code in it. Empty if there are
    none.
    """
    lines = list[str]()
    for call in tool_calls(text):
        name = call.name.rpartition(".")[2]
        if name in METHODS and len(values := call.values()) == 1:
            lines.append(str(Call(name, values[0])))
        elif _CALLING.match(call.name):
            lines.append(call.name)
        elif isinstance(
            code := call.get("code", "python", "source", "script"), str
        ) and _CALLING.search(code):
            lines.append(code)
    codes = (
        str(value["code"])
        for value in json_values(text)
        if isinstance(value, dict) and "code" in value
    )
    return "\n".join(lines) or next((code for code in codes if _CALLING.search(code)), "")


def _bare_lines(text: str) -> str:
    """Returns the lines that are calls in a reply without a fence, without list marks."""
    lines = [plain_line(line).strip() for line in text.splitlines()]
    calls = [line for line in lines if _CALLING.match(line)]
    whole = "\n".join(line for line in text.splitlines() if line.strip())
    for block in ([] if _BULLET.search(whole) else [whole]) + ["\n".join(calls)]:
        try:
            ast.parse(block)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return block if calls else ""
    return ""


def first_block(reply: str) -> str:
    """Returns the content of the first fenced block of a reply, without the language name. Empty if
    there is none.
    """
    match = _FENCE.search(reply.rpartition("</think>")[2])
    return match[1].strip("\r\n") if match else ""

"""How a phone's shell reads a command line: quotes, backslashes, variables and the signs that end a command.

Enough to notice text that was not quoted: `input text a;b` types `a` and then looks for a program called `b`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Joint = Literal["", "&&", "||", "|"]
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"


class Unreadable(ValueError):
    """The shell's complaint about the line."""


@dataclass(slots=True)
class Command:
    """The words of one command, and how it hangs together with the one before."""

    words: list[str] = field(default_factory=list)
    joint: Joint = ""


def commands(line: str) -> list[Command]:
    """The commands of a line. Redirections are dropped with their file; unset variables are empty. Raises Unreadable."""
    found, drop, at = [Command()], False, 0
    word: str | None = None

    def finish() -> None:
        nonlocal word, drop
        if word is not None and not drop:
            found[-1].words.append(word)
        if word is not None:
            drop = False
        word = None

    while at < len(line):
        sign = line[at]
        at += 1
        if sign in " \t":
            finish()
        elif sign == "'":
            end = line.find("'", at)
            if end < 0:
                raise Unreadable("no closing quote")
            word, at = (word or "") + line[at:end], end + 1
        elif sign == '"':
            inside, at = _double_quoted(line, at)
            word = (word or "") + inside
        elif sign == "\\":
            word, at = (word or "") + line[at : at + 1], at + 1
        elif sign == "$":
            at, word = _after_name(line, at), word or ""
        elif sign in "()`":
            raise Unreadable(f"syntax error: unexpected '{sign}'")
        elif sign in "<>":
            if word is not None and word.isdecimal():
                word = None
            finish()
            at += line[at : at + 1] in (">", "&")
            drop = True
        elif sign in ";\n&|":
            finish()
            twice = sign in "&|" and line[at : at + 1] == sign
            at += twice
            joints: dict[str, Joint] = {"&&": "&&", "||": "||", "|": "|"}
            found.append(Command(joint=joints.get(sign * (2 if twice else 1), "")))
        else:
            word = (word or "") + sign
    finish()
    return [command for command in found if command.words]


def _double_quoted(line: str, at: int) -> tuple[str, int]:
    text = ""
    while at < len(line) and line[at] != '"':
        if line[at] == "\\" and line[at + 1 : at + 2] in tuple('"\\$`'):
            text, at = text + line[at + 1], at + 2
        elif line[at] == "$":
            at = _after_name(line, at + 1)
        else:
            text, at = text + line[at], at + 1
    if at >= len(line):
        raise Unreadable("no closing quote")
    return text, at + 1


def _after_name(line: str, at: int) -> int:
    while at < len(line) and line[at] in _NAME:
        at += 1
    return at

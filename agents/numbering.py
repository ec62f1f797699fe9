"""Gives elements numbers that a language agent can name, where an environment's text has none (MiniWoB++)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prill.actions.targets import read_target
from prill.actions.webarena import element_line
from prill.agents.page_text import LINE

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

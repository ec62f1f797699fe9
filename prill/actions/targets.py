"""Parses an action's `target`, such as `[12] link 'Cart' focused: True`: number, role, name."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(
    r"""\s*(?:\[(?P<number>[A-Za-z]*\d+)\]\s*)?(?P<role>[^\s'"\[\]]+)\s+(?P<name>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""",
    re.DOTALL,
)
_NUMBER = re.compile(r"\s*(?:\[([A-Za-z]*\d+)\]|(\d+)\s*\Z)")


@dataclass(frozen=True, slots=True)
class Target:
    """The parsed name of an element; any part may be None.

    `name` keeps its quotation marks. States such as `focused: True` are left out. BrowserGym's
    numbers have a letter prefix for elements in frames: `a12`.
    """

    number: str | None = None
    role: str | None = None
    name: str | None = None

    @property
    def label(self) -> tuple[str, str] | None:
        """Returns role and name, or None if either is missing or the name is empty."""
        return (
            None
            if self.role is None or self.name is None or len(self.name) <= 2
            else (self.role, self.name)
        )


def read_target(text: str) -> Target:
    """Parses a target, or one line of an observation.

    From a line in another format, it returns the parts that it recognises.
    """
    if line := _LINE.match(text):
        return Target(line["number"], line["role"], line["name"])
    number = _NUMBER.match(text)
    return Target(number[1] or number[2] if number else None)

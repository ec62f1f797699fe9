"""Text that others wrote, for terminals and XML."""

from __future__ import annotations

import re

# Control characters, line separators, bidirectional formatting characters, and what XML forbids.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str, *, several_lines: bool = False) -> str:
    """Returns what others wrote on one line, without characters that a terminal would interpret or
    XML forbids. `several_lines`: its line breaks and tabs stay.
    """
    breaks, instead = (r"\r\n?", "\n") if several_lines else (r"\s*[\r\n\t]\s*", " ")
    return CONTROL.sub("?", re.sub(breaks, instead, text))

"""What a shell command leaves behind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """Its standard output, standard error and exit code."""

    out: bytes = b""
    err: bytes = b""
    code: int = 0


NOTHING = Answer()


def said(text: str) -> Answer:
    """It worked and printed this."""
    return Answer(text.encode())


def failed(text: str, code: int = 255) -> Answer:
    """It failed with this on standard error. 255 is what Android's service commands give after an exception."""
    return Answer(b"", text.encode(), code)

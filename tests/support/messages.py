"""What a model was asked, for scripts of models and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prill.protocols import Image, Message


def text(messages: Sequence[Message]) -> str:
    """All text, a part a line."""
    return "\n".join(
        part for message in messages for part in message.parts if isinstance(part, str)
    )


def images(messages: Sequence[Message]) -> list[str]:
    """The names of the pictures' files, without their endings."""
    return [
        Path(part.path).stem
        for message in messages
        for part in message.parts
        if isinstance(part, Image)
    ]

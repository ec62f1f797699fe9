"""Helpers that read the messages sent to a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prill.protocols import Image, Message


def text(messages: Sequence[Message]) -> str:
    """Returns all text, one part per line."""
    return "\n".join(
        part for message in messages for part in message.parts if isinstance(part, str)
    )


def images(messages: Sequence[Message]) -> list[str]:
    """Returns the names of the image files, without their extensions."""
    return [
        Path(part.path).stem
        for message in messages
        for part in message.parts
        if isinstance(part, Image)
    ]

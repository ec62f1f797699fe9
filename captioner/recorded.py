"""The caption that the file brings along."""

from __future__ import annotations

from prill.errors import NoEvidence
from prill.types import Observation


class GivenCaption:
    """Captions made elsewhere, by another captioner or by hand, and recorded with the state."""

    name = "given"

    async def __call__(self, observation: Observation) -> str:
        """The recorded caption; raises NoEvidence when there is none."""
        if not observation.caption or not observation.caption.strip():
            raise NoEvidence("the state has no caption; use --captioner text or ocr")
        return observation.caption.strip()


# The accessibility tree or page text in place of a description. It changes what is measured: verdicts name it.


class TextState:
    """The recorded text of the state, with its address on top."""

    name = "text"

    async def __call__(self, observation: Observation) -> str:
        """Address and text; raises NoEvidence when no text was recorded."""
        if not observation.text or not observation.text.strip():
            raise NoEvidence("the state has no text; use --captioner ocr for its screenshot")
        # Not strip(): the indentation of the first line is part of a tree.
        text = observation.text.strip("\r\n").rstrip()
        return f"{observation.url}\n{text}" if observation.url else text

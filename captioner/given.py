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

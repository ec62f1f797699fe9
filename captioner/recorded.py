"""Captioners that return what the observation already holds: its caption or its text."""

from __future__ import annotations

from prill.errors import NoEvidenceError
from prill.types import Observation


class GivenCaption:
    """A captioner that returns the caption recorded with the state."""

    name = "given"

    async def __call__(self, observation: Observation) -> str:
        """Returns the recorded caption.

        Raises: NoEvidenceError: No caption was recorded.
        """
        if (caption := self.recorded(observation)) is None:
            raise NoEvidenceError(
                "the state has no caption; read its text or its screenshot instead (captioner "
                "text, ocr)"
            )
        return caption

    def recorded(self, observation: Observation) -> str | None:
        """Returns the recorded caption, or None."""
        return (observation.caption or "").strip() or None


class TextState:
    """A captioner that returns the state's URL and recorded text (accessibility tree or page text).

    The text replaces a description and so changes what is measured; verdicts record this captioner.
    """

    name = "text"

    async def __call__(self, observation: Observation) -> str:
        """Address and text.

        Raises:
            NoEvidenceError: No text was recorded.
        """
        if (text := self.recorded(observation)) is None:
            raise NoEvidenceError(
                "the state has no text; read its screenshot instead (captioner ocr)"
            )
        return text

    def recorded(self, observation: Observation) -> str | None:
        """Returns the URL and the text, or None."""
        if not observation.text or not observation.text.strip():
            return None
        # strip() would remove the indentation of the first line, which is part of a tree.
        text = observation.text.strip("\r\n").rstrip()
        return f"{observation.url}\n{text}" if observation.url else text

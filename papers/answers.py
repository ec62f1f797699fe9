"""What a model answers an agent: a reply that was cut counts as far as it goes, and one without an
answer is a failed call.
"""

from __future__ import annotations

from collections.abc import Sequence

from prill.errors import TruncatedError, UnparsableError
from prill.protocols import LanguageModel, Message


async def said_by(
    model: LanguageModel, messages: Sequence[Message], *, max_tokens: int, prompt: str
) -> str:
    """What the model answers; where it was cut, as far as it goes: small models go on after an
    answer that is whole.

    Raises the model's errors: TruncatedError only where nothing was said, UnparsableError for an
    empty reply. Thoughts alone say nothing.
    """
    try:
        text = (await model.complete(messages, max_tokens=max_tokens, prompt=prompt)).text
    except TruncatedError as cut:
        if not _answers(cut.text):
            raise
        return cut.text
    if not _answers(text):
        raise UnparsableError(
            "the reply holds only the model's thoughts" if text.strip() else "the reply is empty"
        )
    return text


def _answers(text: str) -> bool:
    """Whether a reply goes on after the model's thoughts."""
    rest = text.rpartition("</think>")[2].strip()
    return bool(rest) and not rest.startswith("<think>")

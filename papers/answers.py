"""What a model answers an agent: a reply that was cut counts as far as it goes, and one without an
answer is a failed call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from prill.errors import TruncatedError, UnparsableError
from prill.models.calls import get_limits
from prill.models.prompts import load_prompt
from prill.protocols import LanguageModel, Message

_TRAINED = re.compile(r"local/|(?:vllm|embedded)/.*\+")


def is_trained(model: LanguageModel) -> bool:
    """Whether a model was trained on what it is asked: one of a folder (`local:DIR`), or one with
    an adapter.

    Others, behind an endpoint or in this process, are chat models, which have to be told how to
    answer.
    """
    return _TRAINED.match(model.name) is not None


def fill_prompt(package: str, name: str, values: Mapping[str, str]) -> tuple[Message, Message]:
    """The request that a prompt of the package is with these values."""
    turns = load_prompt(package, name).fill(values)
    return Message("system", (turns["system"],)), Message("user", (turns["user"],))


async def token_window(model: LanguageModel, wanted: int | None) -> int | None:
    """The tokens that a request may have: as many as wanted, else the model's window; None: that is
    not known.
    """
    return (await get_limits(model)).window if wanted is None else wanted


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

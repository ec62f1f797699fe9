"""Requests to a paper's model and the handling of its replies. A truncated reply counts up to its
end; an empty reply is a failed call.
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
    """Returns whether a model was trained for the agent's prompts: a `local:DIR` model or one with
    an adapter.

    Other models are chat models. Their prompts have to explain the reply format.
    """
    return _TRAINED.match(model.name) is not None


def fill_prompt(package: str, name: str, values: Mapping[str, str]) -> tuple[Message, Message]:
    """Returns the request made from a prompt of the package and these values."""
    turns = load_prompt(package, name).fill(values)
    return Message("system", (turns["system"],)), Message("user", (turns["user"],))


async def token_window(model: LanguageModel, wanted: int | None) -> int | None:
    """Returns the maximum tokens of a request: `wanted`, else the model's context window. None if
    neither is known.
    """
    return (await get_limits(model)).window if wanted is None else wanted


async def said_by(
    model: LanguageModel, messages: Sequence[Message], *, max_tokens: int, prompt: str
) -> str:
    """Returns the text of the model's reply. A truncated reply is returned up to its end, because
    small models often continue after a complete answer.

    Raises the model's errors. Raises TruncatedError only for a truncated reply without text, and
    UnparsableError for an empty reply. A reply that holds only reasoning counts as empty.
    """
    try:
        text = (await model.complete(messages, max_tokens=max_tokens, prompt=prompt)).text
    except TruncatedError as cut:
        if not _answers(cut.text):
            raise
        return cut.text
    if not _answers(text):
        raise UnparsableError(
            "the reply contains only reasoning" if text.strip() else "the reply is empty"
        )
    return text


def _answers(text: str) -> bool:
    """Returns whether a reply has text besides the model's reasoning."""
    rest = text.rpartition("</think>")[2].strip()
    return bool(rest) and not rest.startswith("<think>")

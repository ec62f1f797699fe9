"""Abstracts a page to a short text, written by the model from examples or computed by model-written
code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from prill.errors import ContextTooLongError
from prill.models.prompts import clean, quoted
from prill.papers.answers import said_by
from prill.papers.synapse.calls import first_block
from prill.papers.synapse.memory import MemoryEntry
from prill.papers.synapse.prompting import count_tokens, until
from prill.papers.synapse.sandbox import CodeFailedError, run_code
from prill.protocols import LanguageModel, Message

_PLACE = re.compile("<task>|<state>")
_STOPS = ("Action:", "Output:", "State:")
_T = TypeVar("_T")


async def abstract(
    model: LanguageModel,
    entry: MemoryEntry,
    turn: int,
    task: str,
    state: str,
    *,
    max_tokens: int,
    window: int | None,
    prompt: str = "",
) -> tuple[str, str]:
    """Returns the page in short form, and the reason if code produced no result.

    The memory's examples for this turn are used, or those of its last turn. If the code fails or
    has no result, the model writes the short form itself, from the task's instruction and the
    available examples. Raises ContextTooLongError before a call that does not fit.
    """

    async def ask(text: str) -> str:
        messages = (Message("user", (text,)),)
        if window is not None and (tokens := count_tokens(messages)) > window:
            raise ContextTooLongError(
                f"the page to abstract has about {tokens} tokens, but the model's context "
                f"window only {window}"
            )
        return await said_by(model, messages, max_tokens=max_tokens, prompt=prompt)

    way, problem = entry.abstraction, ""
    pairs = [
        (step.state, step.observation)
        for exemplar in entry.exemplars
        for step in [_at(exemplar.steps, turn)]
        if step
    ]
    if code_prompt := _at(way.code, turn):
        places = {"<task>": clean(task), "<state>": quoted("page", state)}
        # one pass, because a task may contain placeholder text
        written = _PLACE.sub(lambda place: places[place[0]], code_prompt)
        code = first_block(await ask(written))  # chat models write `Action:` before it, too
        try:
            if not code:
                raise CodeFailedError("the reply has no block of code")
            return await run_code(code, {"state": state, "task": task}), ""
        except CodeFailedError as failure:
            problem = str(failure)
    lines = [_at(way.instructions, turn) or ""]
    for seen, words in pairs:
        if seen is not None and words is not None:
            lines.append(f"State:\n{quoted('page', seen)}\nObservation:\n{clean(words)}\n")
    lines.append(f"State:\n{quoted('page', state)}\nObservation:")
    stops = ("Action:",) if problem else _STOPS
    return until(await ask("\n".join(line for line in lines if line)), *stops).strip(), problem


def _at(values: Sequence[_T], turn: int) -> _T | None:
    """Returns the value of that turn, or the last one. None if there are no values."""
    return values[min(turn, len(values) - 1)] if values else None

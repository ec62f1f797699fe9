"""A page in few words: written by the model from examples, or computed by code that the model
writes.
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
    """The page in few words, and why code gave none where that was so.

    What the memory has for this turn is used; beyond its last turn, that of the last one. Where
    code is asked for and it cannot be run, or gives nothing, the model is asked for the words
    themselves, with the instruction of the task and what examples there are. Raises
    ContextTooLongError before a call that does not fit.
    """

    async def ask(text: str) -> str:
        messages = (Message("user", (text,)),)
        if window is not None and (tokens := count_tokens(messages)) > window:
            raise ContextTooLongError(
                f"the page to put into few words has about {tokens} tokens; the model takes "
                f"{window}"
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
        # once: a task may have such words, too
        written = _PLACE.sub(lambda place: places[place[0]], code_prompt)
        code = first_block(until(await ask(written), *_STOPS))
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
    """The value of that turn, or the last one; None where there is none."""
    return values[min(turn, len(values) - 1)] if values else None

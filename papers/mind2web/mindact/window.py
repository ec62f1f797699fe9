"""Fits earlier steps into a request: each part is truncated to a length, and the earliest parts are
dropped first.

Rules of Self-MAP: each part is truncated separately (512 tokens), and the current step is never cut
to make room for earlier ones. Earlier steps fill the remaining room (2,048 tokens in all), counted
from the end. They are cut by tokens or by whole steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from prill.errors import MissingExtraError, UsageError
from prill.papers.mind2web.mindact.forms import Passage
from prill.protocols import LanguageModel, Message

_PIECE = re.compile(r"\w{1,4}|[^\w\s]")
_HUMAN, _ASSISTANT = "### Human:\n", "### Assistant:\n"
_FILE = "tokenizer.json"
Span = tuple[int, int]
Tokens = Callable[[str], Sequence[Span]]  # the start and end of each token, in order
_T = TypeVar("_T")


def rough_tokens(text: str) -> Sequence[Span]:
    """Estimates the tokens: each punctuation mark, and each four letters of a word."""
    return [match.span() for match in _PIECE.finditer(text)]


def tokens_for(name: str | None, model: LanguageModel) -> Tokens:
    """Returns the tokenizer of a folder, else the model's, else an estimate. Raises UsageError."""
    folder = getattr(model, "path", None)  # a model in this process has a path
    if name is None and isinstance(folder, Path) and (folder / _FILE).is_file():
        name = str(folder)
    return rough_tokens if name is None else _tokenizer(name)


@cache
def _tokenizer(name: str) -> Tokens:
    """Loads a tokenizer without transformers, whose import takes seconds."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("tokenizers", "local") from None
    file = Path(name) / _FILE
    try:
        tokenizer = Tokenizer.from_buffer(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"tokenizer: {file} cannot be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def spans(text: str) -> Sequence[Span]:
        found = tokenizer.encode(text, add_special_tokens=False).offsets
        return [(start, end) for start, end in found if end > start]

    return spans


def first(tokens: Tokens, text: str, count: int) -> str:
    """Returns the first `count` tokens of the text."""
    spans = tokens(text)
    if len(spans) <= count:
        return text
    return text[: spans[count - 1][1]] if count > 0 else ""


def last(tokens: Tokens, text: str, count: int) -> str:
    """Returns the last `count` tokens of the text."""
    spans = tokens(text)
    if len(spans) <= count:
        return text
    return text[spans[-count][0] :] if count > 0 else ""


@dataclass(frozen=True, slots=True)
class Window:
    """Assembles a request of at most `total` tokens, of at most `part` tokens a part."""

    tokens: Tokens
    part: int | None
    total: int

    def trained(
        self, system: str, history: Sequence[Passage], current: Passage
    ) -> tuple[Message, ...]:
        """Returns the request for trained models: the system prompt, and all steps in one text."""
        system, now = self._cut("", system, ""), self._written(current)
        room = self.total - self._count(system) - self._count(now)
        before = last(self.tokens, "".join(map(self._written, history)), room)
        return Message("system", (system,)), Message("user", (before + now,))

    def chat(
        self, system: str, examples: Sequence[Passage], history: Sequence[Passage], current: Passage
    ) -> tuple[Message, ...]:
        """Returns the request for chat models, one turn for each whole step."""
        turns = [self._turns(passage) for passage in history]
        now = self._turns(current)
        *sizes, size = (
            sum(self._count(str(part)) for message in turn for part in message.parts)
            for turn in (*turns, now)
        )
        room = self.total - self._count(system) - size
        shown = [message for passage in examples for message in self._turns(passage)]
        shown += [message for turn in self._latest(turns, sizes, room) for message in turn]
        return Message("system", (system,)), *shown, *now

    def _written(self, passage: Passage) -> str:
        text = self._asked(passage, _HUMAN, f"\n{_ASSISTANT}")
        return text if passage.answer is None else text + self._cut("", passage.answer, "\n\n")

    def _turns(self, passage: Passage) -> list[Message]:
        question = Message("user", (self._asked(passage),))
        if passage.answer is None:
            return [question]
        return [question, Message("assistant", (passage.answer,))]

    def _asked(self, passage: Passage, before: str = "", after: str = "") -> str:
        """Returns page and question. The first and last line of the page are marks."""
        head, _, body = passage.page.partition("\n")
        body, _, tail = body.rpartition("\n")
        page = self._cut(f"{before}{head}\n", body, f"\n{tail}\n")
        return page + self._cut("", passage.question, after)

    def _cut(self, before: str, text: str, after: str) -> str:
        """Truncates a part to its limit and keeps the text around it."""
        if self.part is not None:
            text = first(
                self.tokens, text, max(0, self.part - self._count(before) - self._count(after))
            )
        return f"{before}{text}{after}"

    def _count(self, text: str) -> int:
        return len(self.tokens(text))

    def _latest(self, steps: Sequence[_T], sizes: Sequence[int], room: int) -> Sequence[_T]:
        """Returns the latest steps that fit together."""
        start = len(steps)
        while start and (room := room - sizes[start - 1]) >= 0:
            start -= 1
        return steps[start:]

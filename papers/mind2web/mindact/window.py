"""How much of earlier steps a request has room for: each part is cut to a length, and what came
first goes first.

Parts are cut one by one (512 tokens), the current step is never cut for earlier ones, and of these
stays what the whole leaves room for (2,048 tokens), counted from the end: Self-MAP's rules. Token
by token, or by whole steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from prill.errors import MissingExtraError, UsageError
from prill.papers.mind2web.mindact.forms import Passage
from prill.protocols import LanguageModel, Message

_PIECE = re.compile(r"\w{1,4}|[^\w\s]")
_HUMAN, _ASSISTANT = "### Human:\n", "### Assistant:\n"
_FILES = ("tokenizer.json", "tokenizer_config.json")
Span = tuple[int, int]
Tokens = Callable[[str], Sequence[Span]]  # the beginning and the end of each token, in order
_T = TypeVar("_T")


def rough_tokens(text: str) -> Sequence[Span]:
    """Without a tokenizer: each sign is a token, and so are four letters of a word. Markup has
    hardly more of them.
    """
    return [match.span() for match in _PIECE.finditer(text)]


def tokens_for(name: str | None, model: LanguageModel) -> Tokens:
    """By the tokenizer of that name, else that of the model's folder where it has one, else about.

    Raises UsageError for a name that has no tokenizer, MissingExtraError without transformers.
    """
    folder = getattr(model, "path", None)  # a model in this process has one
    if (
        name is None
        and isinstance(folder, Path)
        and any((folder / one).is_file() for one in _FILES)
    ):
        name = str(folder)
    return rough_tokens if name is None else _tokenizer(name)


@cache
def _tokenizer(name: str) -> Tokens:
    if (file := Path(name) / _FILES[0]).is_file():
        return _from_file(file)
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtraError("transformers", "local") from None
    from prill.models.local.weights import error_cause, library_errors

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except library_errors() as error:
        raise UsageError(f"tokenizer: {name} cannot be loaded: {error_cause(error)}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise UsageError(
            f"tokenizer: {name} cannot tell where its tokens are; give one that has a {_FILES[0]}"
        )

    def encode(text: str) -> Sequence[Span]:
        found = tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        return _not_empty(found["offset_mapping"])

    return encode


def _from_file(file: Path) -> Tokens:
    """Without transformers, which takes seconds to import."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("tokenizers", "local") from None
    try:
        tokenizer = Tokenizer.from_buffer(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"tokenizer: {file} cannot be read: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: _not_empty(tokenizer.encode(text, add_special_tokens=False).offsets)


def _not_empty(spans: Sequence[Span]) -> Sequence[Span]:
    """The tokens that stand for something."""
    return [(start, end) for start, end in spans if end > start]


def first(tokens: Tokens, text: str, count: int) -> str:
    """The text up to its token of that number."""
    spans = tokens(text)
    if len(spans) <= count:
        return text
    return text[: spans[count - 1][1]] if count > 0 else ""


def last(tokens: Tokens, text: str, count: int) -> str:
    """The text from where so many tokens are left."""
    spans = tokens(text)
    if len(spans) <= count:
        return text
    return text[spans[-count][0] :] if count > 0 else ""


class Window:
    """Puts a request together within its limits."""

    def __init__(
        self, tokens: Tokens, part: int | None, total: int, truncate: Literal["token", "snippet"]
    ) -> None:
        self.tokens, self._part, self._total, self._truncate = tokens, part, total, truncate

    def trained(
        self, system: str, history: Sequence[Passage], current: Passage
    ) -> tuple[Message, ...]:
        """The form of models that were trained on it: what the agent is, and one text with all
        steps.
        """
        system, now = self._cut("", system, ""), self._written(current)
        room = self._total - self._count(system) - self._count(now)
        steps = [self._written(passage) for passage in history]
        if self._truncate == "snippet":
            before = "".join(self._latest(steps, [self._count(step) for step in steps], room))
        else:
            before = last(self.tokens, "".join(steps), room)
        return Message("system", (system,)), Message("user", (before + now,))

    def chat(
        self, system: str, examples: Sequence[Passage], history: Sequence[Passage], current: Passage
    ) -> tuple[Message, ...]:
        """The form of chat models: each step is a turn of its own. Steps stay whole, so that
        quotations do; examples are not counted.
        """
        turns = [self._turns(passage) for passage in history]
        now = self._turns(current)
        sizes = [
            sum(self._count(str(part)) for message in turn for part in message.parts)
            for turn in turns
        ]
        room = (
            self._total
            - self._count(system)
            - sum(self._count(str(part)) for m in now for part in m.parts)
        )
        shown = [message for passage in examples for message in self._turns(passage)]
        shown += [message for turn in self._latest(turns, sizes, room) for message in turn]
        return Message("system", (system,)), *shown, *now

    def _written(self, passage: Passage) -> str:
        head, _, body = passage.page.partition("\n")
        body, _, tail = body.rpartition("\n")
        text = self._cut(f"{_HUMAN}{head}\n", body, f"\n{tail}\n") + self._cut(
            "", passage.question, f"\n{_ASSISTANT}"
        )
        return text if passage.answer is None else text + self._cut("", passage.answer, "\n\n")

    def _turns(self, passage: Passage) -> list[Message]:
        head, _, body = passage.page.partition("\n")
        body, _, tail = body.rpartition("\n")
        text = self._cut(f"{head}\n", body, f"\n{tail}\n") + self._cut("", passage.question, "")
        asked = Message("user", (text,))
        return (
            [asked] if passage.answer is None else [asked, Message("assistant", (passage.answer,))]
        )

    def _cut(self, before: str, text: str, after: str) -> str:
        """A part within its limit; what frames it stays."""
        if self._part is not None:
            text = first(
                self.tokens, text, max(0, self._part - self._count(before) - self._count(after))
            )
        return f"{before}{text}{after}"

    def _count(self, text: str) -> int:
        return len(self.tokens(text))

    def _latest(self, steps: Sequence[_T], sizes: Sequence[int], room: int) -> Sequence[_T]:
        """The last steps that have room together."""
        kept = len(steps)
        while kept and (room := room - sizes[kept - 1]) >= 0:
            kept -= 1
        return steps[kept:]

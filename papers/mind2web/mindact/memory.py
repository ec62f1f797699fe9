"""The memory of a conversation: a snippet for each recorded step of its earlier turns, the
selection of snippets for a step, and the texts that another model writes once: reasons for earlier
actions (memory refinement), and standalone instructions (the baseline CAR).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from prill.datasets.reading.records import UNREADABLE
from prill.errors import NoEvidenceError, UnparsableError, UsageError
from prill.io.lines import read_lines
from prill.models.prompts import clean, content_hash, quoted
from prill.papers.embedders import Embedder, Fitted
from prill.papers.mind2web.mindact.forms import PACKAGE, Wording, operation_lines, to_operation
from prill.papers.mind2web.pages.state import PageState, read_state
from prill.papers.replies import complete_text, fill_prompt
from prill.protocols import LanguageModel
from prill.types import Action, Task

History = Literal["none", "all", "fixed", "turns", "matched"]
Order = Literal["relevance", "relevance_reversed", "time"]
FIXED_TURNS = 3  # the baseline "+ Fixed" (Self-MAP, section on baselines)


@dataclass(frozen=True, slots=True)
class Snippet:
    """One recorded step of an earlier turn. `key` is the same in every memory that holds it."""

    key: str
    turn: int
    step: int
    instruction: str
    past: tuple[str, ...]
    action: Action
    observed: str | None

    @property
    def positives(self) -> tuple[str, ...]:
        """Returns the right candidates, in the order of the record. Empty if the page lost them."""
        return tuple((self.action.target or "").split())

    def state(self) -> PageState:
        """Returns the page state. Raises NoEvidenceError if it was not kept."""
        if self.observed is None:
            raise NoEvidenceError(
                f"turn {self.turn + 1} of the conversation has no page at step {self.step + 1}: "
                "give earlier turns with their "
                "pages (prill.papers.mind2web.pages.state.rejoined)"
            )
        return build_state(self.observed)


def build_state(text: str | None) -> PageState:
    """Parses the state in an observation's text. Raises NoEvidenceError."""
    try:
        return read_state(text or "")
    except ValueError as error:
        raise NoEvidenceError(f"this agent acts on recorded pages (Mind2Web): {error}") from None


def build_memory(task: Task) -> tuple[Snippet, ...]:
    """Returns the snippets of all earlier turns, the oldest first."""
    snippets = []
    for turn, run in enumerate(task.earlier):
        uids, past = run.metadata.get("uids") or (), tuple(step.action.text for step in run.steps)
        for i, step in enumerate(run.steps):
            key = f"{run.id}_{uids[i] if i < len(uids) else i}"
            snippets.append(
                Snippet(key, turn, i, run.task.goal, past[:i], step.action, step.observation.text)
            )
    return tuple(snippets)


@dataclass(frozen=True, slots=True)
class Recall:
    """Selects and orders the snippets to show. `page_text` adds the words of a page."""

    history: History
    most: int
    order: Order
    embedder: Embedder
    page_text: Callable[[PageState], str] | None = None

    async def __call__(
        self, memory: Sequence[Snippet], task: Task, state: PageState
    ) -> Sequence[Snippet]:
        """Returns the snippets for the next step of the task."""
        by_turn = self.history == "turns"
        if self.history == "none":
            return ()
        if self.history == "fixed":
            return [snippet for snippet in memory if snippet.turn < FIXED_TURNS]
        if self.history == "all" or (not by_turn and len(memory) <= self.most):
            return memory
        # the steps of a turn, or all steps of equal text
        groups: dict[tuple[int, str], list[int]] = {}
        for i, snippet in enumerate(memory):
            past = [snippet.action.text]
            text = self._describe(snippet.instruction, past, None if by_turn else snippet.state)
            groups.setdefault((snippet.turn, text) if by_turn else (0, text), []).append(i)
        if by_turn and len(groups) <= self.most:
            return memory
        query = task.goal if by_turn else self._describe(task.goal, state.past, lambda: state)
        likeness = await self._likeness(query, list(dict.fromkeys(text for _, text in groups)))
        nearest = sorted(groups, key=lambda key: -likeness[key[1]])[: self.most]
        if self.order == "relevance_reversed":
            nearest.reverse()
        found = [i for key in nearest for i in groups[key]]
        return [memory[i] for i in (sorted(found) if self.order == "time" else found)]

    def _describe(
        self, instruction: str, actions: Sequence[str], state: Callable[[], PageState] | None
    ) -> str:
        """Returns what is compared of a step; of a turn (without a state), its instruction."""
        if state is None:
            return instruction
        text = f"Task: {instruction}\nActions: {'; '.join(actions)}"
        return text if self.page_text is None else f"{text}\n{self.page_text(state())}"

    async def _likeness(self, query: str, texts: list[str]) -> dict[str, float]:
        """Returns the cosine of each text with the query."""
        if isinstance(self.embedder, Fitted):
            self.embedder.fit([query, *texts])
        target, *others = await self.embedder.embed([query, *texts])
        return {
            text: round(float(one @ target), 6) for text, one in zip(texts, others, strict=True)
        }


_MAX_TOKENS = 100  # Self-MAP's code: gpt-3.5-turbo-1106 at temperature 0
_PUT = Wording("choice", prompted=True)


class _Line(msgspec.Struct):
    key: str
    text: str
    model: str = ""


class Sentences:
    """Cached sentences by key. With a path they are kept in a file and reused by the next run."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._cached: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._ends = b""
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        for line in read_lines(path):
            self._ends = b"" if line.complete else b"\n"
            try:
                entry = msgspec.json.decode(line.data, type=_Line)
            except UNREADABLE as error:
                if not line.complete:  # incomplete line of an interrupted run
                    break
                raise UsageError(
                    f'{path}, line {line.number}: {error}; each line is {{"key": …, "text": …}}'
                ) from None
            self._cached[entry.key] = entry.text

    async def get(self, key: str, ask: Callable[[], Awaitable[tuple[str, str]]]) -> str:
        """Returns the sentence for a key. If it is new, `ask` returns it and who wrote it."""
        if key not in self._cached:
            async with self._locks.setdefault(key, asyncio.Lock()):
                if key not in self._cached:
                    self._keep(_Line(key, *await ask()))
            self._locks.pop(key, None)
        return self._cached[key]

    def _keep(self, line: _Line) -> None:
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("ab") as file:
                    file.write(self._ends + msgspec.json.encode(line) + b"\n")
            except OSError as error:
                raise UsageError(f"{self.path}: {error.strerror}") from None
            self._ends = b""
        self._cached[line.key] = line.text


@cache
def _opened(path: Path) -> Sentences:
    return Sentences(path)


def sentences_in(path: Path | None) -> Sentences:
    """Returns the cache of a file, shared by all episodes of this process. Raises UsageError."""
    return Sentences(None) if path is None else _opened(path.resolve())


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes sentences that are not known yet, by the model if there is one."""

    known: Sentences
    model: LanguageModel | None
    prompt: str

    async def write(self, key: str, name: str, values: dict[str, str]) -> str:
        """Returns the sentence for a key. Raises NoEvidenceError if no model can write it."""
        model, what = self.model, "rationale" if name == "rationale" else "instruction"

        async def ask() -> tuple[str, str]:
            if model is None:
                raise NoEvidenceError(
                    f"{self.known.path} has no {what} for {key}; name a model to write it"
                )
            messages = fill_prompt(PACKAGE, name, values)
            reply = await complete_text(model, messages, max_tokens=_MAX_TOKENS, prompt=self.prompt)
            if not (sentence := " ".join(clean(reply.rpartition("</think>")[2]).split())):
                raise UnparsableError(f"{model.name} did not write the {what}")
            return sentence, model.name

        return await self.known.get(key, ask)


async def rationale(snippet: Snippet, positive: str, page: str, writer: Writer) -> str:
    """Returns why a recorded action was right. `page` is the page cut around its element."""
    answer = "\n".join(operation_lines(*to_operation(snippet.action)))
    values = {
        "page": quoted("page", page),
        "question": _PUT.question(snippet.instruction, snippet.past, None),
        "answer": quoted("answer", answer),
    }
    return await writer.write(f"{snippet.key}_{positive}", "rationale", values)


async def rewritten(task: Task, writer: Writer) -> str:
    """Returns the instruction of a turn, rewritten to be standalone unless it is the first."""
    if not task.earlier:
        return task.goal
    earlier = "\n".join(f"{i}. {run.task.goal}" for i, run in enumerate(task.earlier, 1))
    values = {"earlier": quoted("requests", earlier), "request": quoted("request", task.goal)}
    key = task.id or content_hash(task.goal, *(run.task.goal for run in task.earlier))
    return await writer.write(key, "rewrite", values)

"""The memory of a conversation: a snippet for each recorded step of its earlier turns, and the
selection of snippets for a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import NoEvidenceError
from prill.papers.embedders import Embedder, Fitted
from prill.papers.mind2web.pages.state import PageState, read_state
from prill.types import Action, Task

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float32]]

History = Literal["none", "all", "fixed", "turns", "matched"]
Order = Literal["relevance", "relevance_reversed", "time"]
FIXED_TURNS = 3  # the baseline "+ Fixed" (Self-MAP, section on baselines)
_MAX_KNOWN = 20_000  # vectors, of at most 1,536 numbers: 120 MB


@dataclass(frozen=True, slots=True)
class Snippet:
    """One recorded step of an earlier turn. `turn` and `step` count from 0; `past` are the actions
    before it in its turn.

    `key` is the same in every memory that holds the step.
    """

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
                f"turn {self.turn + 1} of the conversation has no page at step "
                f"{self.step + 1}; give earlier turns with their pages "
                "(prill.papers.mind2web.pages.conversations.rejoined)"
            )
        return build_state(self.observed)


def build_state(text: str | None) -> PageState:
    """Parses the state in an observation's text. Raises NoEvidenceError if the text is not a
    state.
    """
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
    """Selects and orders the snippets to show. `embedder` measures the similarity of texts;
    `page_text` adds the words of a page to the comparison; `known` caches vectors.
    """

    history: History
    most: int
    order: Order
    embedder: Embedder
    page_text: Callable[[PageState], str] | None = None
    known: dict[str, Vector] = field(default_factory=dict)

    async def __call__(
        self, memory: Sequence[Snippet], task: Task, state: PageState
    ) -> Sequence[Snippet]:
        """Returns the snippets for the next step of the task."""
        if self.history == "none":
            return ()
        if self.history == "fixed":
            return [snippet for snippet in memory if snippet.turn < FIXED_TURNS]
        if self.history == "turns":
            return await self._turns(memory, task)
        if self.history == "all" or len(memory) <= self.most:
            return memory
        return await self._matched(memory, task, state)

    async def _matched(
        self, memory: Sequence[Snippet], task: Task, state: PageState
    ) -> Sequence[Snippet]:
        """Returns all snippets of the nearest groups. Snippets with the same text form one
        group.
        """
        groups: dict[str, list[int]] = {}
        for i, snippet in enumerate(memory):
            words = self._words(
                snippet.instruction,
                [snippet.action.text],
                snippet.state if self.page_text else None,
            )
            groups.setdefault(words, []).append(i)
        query = self._words(task.goal, state.past, lambda: state)
        nearest = (await self._nearest(query, list(groups)))[: self.most]
        return self._ordered(memory, [groups[words] for words in nearest])

    async def _turns(self, memory: Sequence[Snippet], task: Task) -> Sequence[Snippet]:
        """Returns all steps of the turns with the nearest instructions."""
        turns: dict[int, list[int]] = {}
        for i, snippet in enumerate(memory):
            turns.setdefault(snippet.turn, []).append(i)
        if len(turns) <= self.most:
            return memory
        said: dict[str, list[int]] = {}
        for turn, places in turns.items():
            said.setdefault(memory[places[0]].instruction, []).append(turn)
        nearest = [
            turn for words in await self._nearest(task.goal, list(said)) for turn in said[words]
        ]
        return self._ordered(memory, [turns[turn] for turn in nearest[: self.most]])

    def _words(
        self, instruction: str, actions: Sequence[str], state: Callable[[], PageState] | None
    ) -> str:
        words = f"Task: {instruction}\nActions: {'; '.join(actions)}"
        return (
            words
            if self.page_text is None or state is None
            else f"{words}\n{self.page_text(state())}"
        )

    async def _nearest(self, query: str, texts: list[str]) -> list[str]:
        """Returns the texts by similarity, the most similar first. Ties keep their order."""
        if isinstance(self.embedder, Fitted):
            self.embedder.fit([query, *texts])
            asked, *others = await self.embedder.embed([query, *texts])
        else:
            asked, *others = await self._embedded([query, *texts])
        likeness = [round(float(one @ asked), 6) for one in others]
        return [texts[i] for i in sorted(range(len(texts)), key=lambda i: -likeness[i])]

    async def _embedded(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Returns the vectors. Each text is embedded once, because the same snippets recur at every
        step and in every training draw.
        """
        if new := [text for text in dict.fromkeys(texts) if text not in self.known]:
            if len(self.known) + len(new) > _MAX_KNOWN:
                self.known.clear()
                new = list(dict.fromkeys(texts))
            self.known.update(zip(new, await self.embedder.embed(new), strict=True))
        return [self.known[text] for text in texts]

    def _ordered(
        self, memory: Sequence[Snippet], groups: Sequence[Sequence[int]]
    ) -> Sequence[Snippet]:
        if self.order == "time":
            groups = [sorted(i for group in groups for i in group)]
        elif self.order == "relevance_reversed":
            groups = groups[::-1]
        return [memory[i] for group in groups for i in group]

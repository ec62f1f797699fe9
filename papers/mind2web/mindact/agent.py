"""The agents MindAct (Mind2Web, arXiv 2306.06070) and Self-MAP (ACL 2024). They choose a candidate
of a recorded page and the operation on it.

The model chooses among groups of candidates, and the chosen one joins the next group. Earlier turns
of the conversation are shown before the page, always as recorded. One class implements both agents:
Self-MAP is MindAct with its paper's four options on. Differences from the papers' code: shuffling
is seeded, an element without an id is found by its text, and a letter outside the choices
eliminates only its own group.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import hashlib
import logging
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from random import Random
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from prill.errors import UnparsableError, UsageError
from prill.models.options import MAX_TOKENS
from prill.models.prompts import clean, content_hash, load_prompt
from prill.papers.embedders import EmbedderName, EmbedderUrl, make_embedder, own_embedder
from prill.papers.mind2web.mindact.forms import (
    PACKAGE,
    Form,
    Passage,
    Picked,
    Wording,
    examples,
    prompt_texts,
    to_operation,
    wording,
)
from prill.papers.mind2web.mindact.memory import (
    History,
    Order,
    Recall,
    Snippet,
    Writer,
    build_memory,
    build_state,
    rationale,
    rewritten,
    sentences_in,
)
from prill.papers.mind2web.mindact.window import Window, tokens_for
from prill.papers.mind2web.pages.state import Marking, PageState
from prill.papers.mind2web.pages.tree import (
    Brackets,
    CandidateChoice,
    CandidateView,
    Ids,
    RecordedPage,
    read_page,
)
from prill.papers.replies import (
    PaperAgent,
    RepairOption,
    ReplyCounts,
    UnreadableReplyError,
    is_trained,
)
from prill.protocols import LanguageModel, Message
from prill.types import Action, Observation, Platform, Step, Task, Trajectory

log = logging.getLogger("prill.papers")
_PART_TOKENS = 512  # of a page or question, for a trained model (Self-MAP's code)
_TRAINED_TOKENS, _PROMPTED_TOKENS = 50, 256  # of an answer; chat models write a reason first
_MAX_VIEWS = 32  # cached: those of a conversation
_T = TypeVar("_T")
FormOption = Annotated[
    Form, Meta(description="The model answers with a letter, or writes the element.")
]
HistoryOption = Annotated[
    History,
    Meta(
        description="Earlier steps shown: none, all, those of the first 3 turns, of the "
        "most similar turns, or the matched ones."
    ),
]
SimplificationOption = Annotated[
    bool,
    Meta(description="Cut earlier pages around a few candidates instead of showing them in full."),
]
RationaleModel = Annotated[
    LanguageModel | None,
    Meta(description="Model that writes why an earlier answer was correct (memory refinement)."),
]
RewriteModel = Annotated[
    LanguageModel | None,
    Meta(
        description="Model that rewrites an instruction so that it stands alone; earlier turns "
        "are then not shown (CAR)."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MindActSpec:
    """Options of the agent. Numbers are those of Self-MAP's code."""

    form: FormOption = "choice"
    history: HistoryOption = "all"
    snippets: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum number of turns, or groups of similar steps, that are matched.",
        ),
    ] = 3
    history_order: Annotated[
        Order, Meta(description="Order of the matches: nearest first, nearest last, or by time.")
    ] = "relevance"
    match_pages: Annotated[bool, Meta(description="Use pages when steps are matched.")] = False
    embedder: EmbedderName = "tfidf"
    embedder_url: EmbedderUrl = None
    simplification: SimplificationOption = False
    refinement: Annotated[
        bool | None,
        Meta(
            description="Add a rationale to earlier answers (default: if there is a source of "
            "them)."
        ),
    ] = None
    rationales: Annotated[
        Path | None, Meta(description="JSON Lines file that stores the rationales.")
    ] = None
    rewrites: Annotated[
        Path | None, Meta(description="JSON Lines file that stores the rewritten instructions.")
    ] = None
    prompted: Annotated[
        bool | None,
        Meta(description="Prompt the model as a chat model (default: except local: and adapters)."),
    ] = None
    numbers: Annotated[
        bool, Meta(description="Number the elements, instead of identifying them by their text.")
    ] = True
    group: Annotated[int, Meta(ge=2, le=25, description="Number of candidates shown together.")] = 5
    pool: Annotated[int, Meta(ge=1, description="Number of best candidates that take part.")] = 50
    previous: Annotated[
        int, Meta(ge=0, description="Number of earlier actions of the turn that are shown.")
    ] = 5
    total_tokens: Annotated[
        int,
        Meta(
            ge=32,
            description="Maximum number of tokens in total, which limits the earlier steps shown.",
        ),
    ] = 2048
    tokenizer: Annotated[
        str | None,
        Meta(description="Folder of a tokenizer (default: the model's, else an estimate)."),
    ] = None
    max_tokens: Annotated[int | None, MAX_TOKENS] = None
    repair: RepairOption = False
    neg_ratio: Annotated[
        float,
        Meta(ge=0, le=1, description="Training: share of samples without the correct element."),
    ] = 0.2
    seed: Annotated[int, Meta(description="Seed of the shuffling.")] = 123


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfMAPSpec(MindActSpec):
    """The paper's best variant: written elements, and matching earlier steps on short pages."""

    form: FormOption = "generation"
    history: HistoryOption = "matched"
    simplification: SimplificationOption = True


class MindAct(PaperAgent):
    """Plays recorded pages, with earlier turns in `task.earlier`, one action a step.

    If no candidate was chosen, the action's kind is `none`.

    Args:
        model: The model that answers.
        spec: The options.

    Raises:
        UsageError: `refinement` is set without a `rationale_model` or a file of rationales.
    """

    def __init__(
        self,
        model: LanguageModel,
        spec: MindActSpec = MindActSpec(),
        *,
        rationale_model: RationaleModel = None,
        rewrite_model: RewriteModel = None,
    ) -> None:
        self.model, self.spec = model, spec
        self.rationale_model, self.rewrite_model = rationale_model, rewrite_model
        explains = rationale_model is not None or spec.rationales is not None
        if spec.refinement and not explains:
            raise UsageError(
                "refinement needs rationales; give a rationale_model, or a file of rationales"
            )
        self._refines = explains and spec.refinement is not False
        self._rewrites = rewrite_model is not None or spec.rewrites is not None
        self._prompt = content_hash(*prompt_texts())
        self._rationales = Writer(sentences_in(spec.rationales), rationale_model, self._prompt)
        self._rewritten = Writer(sentences_in(spec.rewrites), rewrite_model, self._prompt)
        self._set_form(not is_trained(model) if spec.prompted is None else spec.prompted)
        if spec.prompted is not None and spec.prompted is is_trained(model):
            _warn(model.name, spec.prompted)
        self._ids: Ids = "short" if spec.numbers else "none"
        self._recall = Recall(
            "none" if self._rewrites else spec.history,
            spec.snippets,
            spec.history_order,
            own_embedder(make_embedder(spec.embedder, base_url=spec.embedder_url)),
            self._describe if spec.match_pages else None,
        )
        self.reset(Task(goal=""))

    def _set_form(self, prompted: bool) -> None:
        """Sets the prompt form for steps."""
        self._prompted = prompted
        self._wording = Wording(self.spec.form, prompted, self.spec.numbers)
        self._brackets: Brackets = "angle" if prompted else "round"

    def usual_settings(self, environment: str) -> dict[str, Any]:
        """Returns the prompt form of steps."""
        return {"form": self.spec.form, "prompted": self._prompted}

    @property
    def marking(self) -> Marking:
        """Returns the paper's scoring scheme for this answer form."""
        return Marking("multi-choice" if self.spec.form == "choice" else "generation")

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompts and the prompt form."""
        return content_hash(self._prompt, "prompted") if self._prompted else self._prompt

    def reset(self, task: Task) -> None:
        """Begins a new episode. Its random draws depend on the task, the step and the seed."""
        self._task, self._step, self._replies = task, 0, ReplyCounts()

    async def act(self, observation: Observation) -> Step:
        """Returns the next step.

        Raises:
            NoEvidenceError: The state is not a recorded page.
            InputError: The page is invalid.
            UnscoredError: The model gives no usable answer.
        """
        state = build_state(observation.text)
        page, index = read_page(state.page), self._step
        self._step += 1
        pool = list(dict.fromkeys(state.candidates[: self.spec.pool]))
        if len(pool) < 2:  # nothing to choose from, so no model is called
            return Step(observation, Action("none", ""))
        task = await self._standalone_task(self._task)
        history = await self._history(task, state, index)
        usual = _PROMPTED_TOKENS if self._prompted else _TRAINED_TOKENS
        self._random(task, index).shuffle(pool)
        picked: Picked | None = None
        notes: list[str] = []
        while len(pool) > 1:
            group, pool = pool[: self.spec.group], pool[self.spec.group :]
            view = self._cut(page, group)
            if not view.choices:
                continue
            messages = self._messages(
                history, self._passage(view.text, task.goal, state, view.choices)
            )
            read = partial(self._wording.read, choices=view.choices)
            try:
                answer, found = await self._answer(
                    messages, read, max_tokens=self.spec.max_tokens or usual, prompt=self._prompt
                )
            except UnreadableReplyError as problem:  # eliminates its group only
                answer, found = f"(unreadable: {problem})", None
            notes.append(
                f"{' '.join(choice.id for choice in view.choices)}: "
                f"{' '.join(clean(answer).split())}"
            )
            if found is not None:
                picked = found
                pool.append(found.id)
        # If the last group has no winner, no earlier winner counts: the rule of MindAct's
        # evaluation.
        action = picked.action() if picked is not None and pool else Action("none", "")
        return Step(observation, action, "\n".join(notes) or None)

    def demonstrate(
        self, trajectory: Trajectory, index: int, *, draw: int = 0
    ) -> tuple[Sequence[Message], str]:
        """Formats a recorded step as a question about one group of candidates, with its answer.

        Args:
            trajectory: The recorded turn.
            index: The step, from 0.
            draw: Another draw has other candidates.

        Returns:
            The messages and the right answer. The group holds the right element and others. It
            holds only others in a fraction `neg_ratio` of the draws, and if the page lost the right
            element.
        """
        if self._prompted and self.spec.prompted is None:
            return self._training_agent.demonstrate(trajectory, index, draw=draw)
        step, spec = trajectory.steps[index], self.spec
        state = build_state(step.observation.text)
        page = read_page(state.page)
        taught = f"draw {draw}"
        random = self._random(trajectory.task, index, taught)
        positives, others = _split_candidates(page, state, (step.action.target or "").split())
        without = random.random() < spec.neg_ratio
        chosen = None if without or not positives else random.choice(positives)
        view = self._cut(page, _draw_group(random, chosen, others, spec.group))
        if not view.choices:
            raise UnparsableError(f"step {index + 1}: none of its candidates is on the page")
        answer = self._wording.answer(view.choices, chosen, *to_operation(step.action))

        async def messages() -> Sequence[Message]:
            task = await self._standalone_task(trajectory.task)
            history = await self._history(task, state, index, taught)
            return self._messages(history, self._passage(view.text, task.goal, state, view.choices))

        return _run_in_thread(messages()), answer

    async def _standalone_task(self, task: Task) -> Task:
        """Returns the task with a standalone instruction if that replaces the earlier turns."""
        if not self._rewrites:
            return task
        return replace(task, goal=await rewritten(task, self._rewritten))

    async def _history(
        self, task: Task, state: PageState, index: int, taught: str = ""
    ) -> Sequence[Passage]:
        """Returns the earlier steps to show at this one. `taught` is the draw in training."""
        passages = []
        for snippet in await self._recall(build_memory(task), task, state):
            random = self._random(task, index, taught, snippet.key)
            passages.append(await self._remembered(snippet, random, bool(taught)))
        return passages

    async def _remembered(self, snippet: Snippet, random: Random, taught: bool) -> Passage:
        """Returns an earlier step: its page cut around candidates, and the recorded answer."""
        spec, state = self.spec, snippet.state()
        page = read_page(state.page)
        positives, others = _split_candidates(page, state, snippet.positives)
        chosen = random.choice(positives) if positives else None
        # Training draws candidates of any rank, because Self-MAP's code sets no cut there.
        top = None if taught or not spec.simplification else spec.pool
        best = frozenset(state.candidates[:top])
        drawn = _draw_group(random, chosen, [one for one in others if one in best], spec.group)
        if spec.simplification:
            view = self._cut(page, drawn)
        else:  # the page is cut around all candidates, but only a few of them get letters
            around = (*([] if chosen is None else [chosen]), *others)
            view = _view(state.page, around, self._brackets, self._ids)
        choices = [choice for choice in view.choices if choice.id in drawn]
        why = None
        if self._refines:
            why = wording()["nothing_fits"]
            if positives:
                shown = page.view(positives[:1], brackets="angle").text
                why = await rationale(snippet, positives[0], shown, self._rationales)
        answer = self._wording.answer(choices, chosen, *to_operation(snippet.action), rationale=why)
        return self._wording.passage(view.text, snippet.instruction, None, choices, answer)

    def _passage(
        self, text: str, goal: str, state: PageState, choices: Sequence[CandidateChoice]
    ) -> Passage:
        past = state.past[-self.spec.previous :] if self.spec.previous else None
        return self._wording.passage(text, goal, past, choices)

    def _messages(self, history: Sequence[Passage], current: Passage) -> Sequence[Message]:
        name = "prompted" if self._prompted else "system"
        system = load_prompt(PACKAGE, name).fill({})["user"]
        if not self._prompted:
            return self._window.trained(system, history, current)
        return self._window.chat(
            system, [self._wording.example(one) for one in examples()], history, current
        )

    @cached_property
    def _training_agent(self) -> MindAct:
        """Returns the agent that makes training examples, in the form for trained models."""
        other = copy.copy(self)
        other.spec = replace(self.spec, prompted=False)
        other.__dict__.pop("_window", None)
        other._set_form(False)
        return other

    @cached_property
    def _window(self) -> Window:
        spec = self.spec
        part = None if self._prompted else _PART_TOKENS
        return Window(tokens_for(spec.tokenizer, self.model), part, spec.total_tokens)

    def _describe(self, state: PageState) -> str:
        """Returns the words of a page that are compared when pages count in matching."""
        return read_page(state.page).view(state.candidates[: self.spec.group]).text

    def _cut(self, page: RecordedPage, around: Sequence[str]) -> CandidateView:
        return page.view(around, brackets=self._brackets, ids=self._ids)

    def _random(self, task: Task, index: int, *more: str) -> Random:
        """Returns the random generator of one step, independent of concurrent episodes."""
        key = "\0".join([str(self.spec.seed), task.id, str(index), *more])
        return Random(hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest())


class SelfMAP(MindAct):
    """MindAct with the memory of Self-MAP: the same options with other defaults.

    Args:
        model: The model that answers.
        spec: The options.
    """

    def __init__(
        self,
        model: LanguageModel,
        spec: SelfMAPSpec = SelfMAPSpec(),
        *,
        rationale_model: RationaleModel = None,
        rewrite_model: RewriteModel = None,
    ) -> None:
        super().__init__(model, spec, rationale_model=rationale_model, rewrite_model=rewrite_model)


@cache
def _warn(model: str, prompted: bool) -> None:
    """Warns, once for each model, that the prompt form does not suit the model."""
    examples = "a model of a folder or with an adapter is asked with examples (prompted), not as "
    trained = "a chat model is asked in the trained form (prompted=false), which never says how to "
    log.warning(
        "%s: %s",
        model,
        f"{examples}it was trained" if prompted else f"{trained}answer: its prose is unreadable",
    )


@lru_cache(_MAX_VIEWS)
def _view(page: str, around: tuple[str, ...], brackets: Brackets, ids: Ids) -> CandidateView:
    return read_page(page).view(around, brackets=brackets, ids=ids)


def _split_candidates(
    page: RecordedPage, state: PageState, positives: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Returns the right candidates that the page has, and all others by rank."""
    right = [one for one in positives if one in page]
    return right, [one for one in state.candidates if one not in positives]


def _draw_group(random: Random, chosen: str | None, others: Sequence[str], count: int) -> list[str]:
    """Draws a group of candidates: the right one, if any, and others."""
    right = [] if chosen is None else [chosen]
    return [*right, *random.sample(others, min(len(others), count - len(right)))]


def _run_in_thread(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Runs a coroutine in a thread, inside or outside an event loop."""
    with ThreadPoolExecutor(1) as worker:
        return worker.submit(contextvars.copy_context().run, asyncio.run, coroutine).result()

"""Synapse on recorded pages (Mind2Web; arXiv 2306.07863): predicts the next action from the
trajectories of similar tasks.

The page is cut around its best candidates. Earlier steps of the task are shown as recorded, after
the trajectories of similar training tasks. The paper's code differs in two ways. It shows the right
element at any rank, which an agent cannot know; like the paper, this agent does not ask about a
step whose target is not among the best. It also looks up in the raw page what cleaning removed from
`cleaned_html`; here that stays missing.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from prill.errors import InputError, NoEvidenceError, UnparsableError, UsageError
from prill.io.store import iter_trajectories
from prill.models.options import MaxTokensOption
from prill.models.prompts import Prompt, clean, content_hash, load_prompt, quoted
from prill.papers.embedders import Embedder, EmbedderName, EmbedderUrl, make_embedder
from prill.papers.mind2web.environment import STEP_MATCH
from prill.papers.mind2web.pages.state import (
    Marking,
    Match,
    PageState,
    describe_step,
    format_action,
    read_state,
)
from prill.papers.mind2web.pages.tree import RecordedPage
from prill.papers.replies import (
    ContextOption,
    PaperAgent,
    RepairOption,
    ReplyCounts,
    UnreadableReplyError,
    asserted_text,
    is_trained,
    one_answer,
    plain_line,
    read_text,
    read_toml,
    token_window,
    tool_calls,
    visible_text,
)
from prill.papers.synapse.agent import MAX_SHOWN
from prill.papers.synapse.memory import EXEMPLARS, Exemplar, ExemplarMemory, ExemplarTurn
from prill.papers.synapse.prompting import count_tokens, until
from prill.protocols import LanguageModel, Message
from prill.types import Action, Observation, Platform, Step, Task, Trajectory

_STOPS = ("Task:", "obs:")  # as in the paper
_OPERATION = re.compile(
    r"\b(CLICK|SELECT|TYPE)\s*\[(?:id\s*=\s*)?(\d+)\](?: ?\[([^\]]+)\])?", re.IGNORECASE
)
_TICKED = re.compile(r"(`+)(?:\w+\n)?(.*?)\1", re.DOTALL)
_K_CURRENT = 5  # best candidates around which the page is cut
_K_PREVIOUS = 3  # candidates around which earlier pages are cut
_FIXED = 0  # the seed that draws the exemplars shared by all tasks
_PAST_SHOWN = 5  # actions that are listed if trajectories are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSpec:
    """Options for the text before the page and for the page size. The numbers are the paper's."""

    mode: Annotated[
        Literal["full", "no_memory", "no_trajectory"],
        Meta(description="Exemplars: trajectories of similar tasks, fixed ones, or single steps."),
    ] = "full"
    memory: Annotated[
        Path | None,
        Meta(description="Recorded training turns (JSON Lines), or a folder of exemplars."),
    ] = None
    embedder: EmbedderName = "tfidf"
    embedder_url: EmbedderUrl = None
    exemplars: Annotated[int, Meta(ge=0), MAX_SHOWN] = 3
    context: ContextOption = None
    step_match: Annotated[Literal["parsed", "exact_text"] | None, STEP_MATCH] = None
    max_tokens: MaxTokensOption = 100
    repair: RepairOption = False


class RecordedSynapse(PaperAgent):
    """An agent that predicts the next action on recorded pages.

    The action's kind is `none` if the reply has no action, or, without a call, if there are no
    candidates or the request is too long.
    """

    def __init__(
        self,
        model: LanguageModel,
        spec: RecordedSpec = RecordedSpec(),
        *,
        opened: ExemplarMemory | None = None,
    ) -> None:
        self.model, self.spec, self._opened = model, spec, opened
        if self._shows and spec.memory is None and opened is None:
            raise UsageError(
                "synapse-mind2web needs training tasks; give a file of recorded turns as memory",
                parameters=("memory",),
            )
        self.reset(Task(goal=""))

    @property
    def _shows(self) -> bool:
        """Whether trajectories are shown."""
        return bool(self.spec.exemplars and self.spec.mode != "no_trajectory")

    @property
    def marking(self) -> Marking:
        """Returns the paper's scoring scheme."""
        match: Match = "parsed" if is_trained(self.model) else "exact_text"
        return Marking("synapse", _K_CURRENT, match)

    def usual_settings(self, environment: str) -> dict[str, Any]:
        """Returns the paper's scoring settings for this model."""
        return {"step_match": self.marking.step_match}

    @property
    def memory(self) -> ExemplarMemory:
        """Returns the trajectories that may be shown. The memory is loaded at first use."""
        if self._opened is None:
            spec = self.spec
            self._opened = _memory(spec.memory, spec.embedder, spec.embedder_url)
        return self._opened

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompts and the memory."""
        shipped = read_text("prill.papers.synapse", "recorded.toml")
        return content_hash(_system().hash, shipped, self.memory.hash if self._shows else "")

    def reset(self, task: Task) -> None:
        """Begins a new episode."""
        self._task = task
        self._seen: list[PageState] = []
        self._nearest: list[Exemplar] | None = None
        self._replies = ReplyCounts()

    async def act(self, observation: Observation) -> Step:
        """Returns the next step. Raises NoEvidenceError, InputError and the model's errors."""
        try:
            state = read_state(observation.text or "")
        except ValueError as problem:
            raise NoEvidenceError(f"synapse-mind2web: {problem}") from None
        self._seen.append(state)
        if not state.candidates:
            return Step(observation, Action("none"))
        current = self._current(self._task.goal, state, self._seen[:-1])
        messages = await self._request(current)
        if messages is None:
            too_long = "The page and the earlier steps are too long for the model."
            return Step(observation, Action("none"), too_long)
        try:
            reply, action = await self._answer(
                messages, parse_action, max_tokens=self.spec.max_tokens, prompt=_system().hash
            )
        except UnreadableReplyError as problem:
            return Step(observation, Action("none"), f"The reply could not be read: {problem}.")
        return Step(observation, action, until(reply, *_STOPS).strip() or None)

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Returns the request at a recorded step, and the recorded action."""
        states = [read_state(step.observation.text or "") for step in trajectory.steps[: index + 1]]
        described = [describe_step(step) for step in trajectory.steps[: index + 1]]
        if not described[index].within(_K_CURRENT):
            raise UnparsableError(
                f"step {index} of {trajectory.id}: its target is not among the best {_K_CURRENT}"
            )
        past = tuple(step.action.text for step in trajectory.steps[:index])
        targets = tuple(one.target for one in described[:index])
        now = PageState(states[index].page, states[index].candidates, past, targets)
        messages = self._current(trajectory.task.goal, now, states[:index])
        return [_system_message(), *messages], f"Action: `{described[index].text}`"

    def _current(self, goal: str, state: PageState, seen: Sequence[PageState]) -> list[Message]:
        """Returns the task, the earlier recorded steps, and the current page."""
        page = _cut(state, "", _K_CURRENT)
        if self.spec.mode == "no_trajectory":
            return [_step_question(page, goal, state.past[-_PAST_SHOWN:])]
        targets = state.targets or ("",) * len(state.past)
        turns = [
            (_cut(one, target, _K_PREVIOUS), _told(repr, target))
            for one, repr, target in zip(seen, state.past, targets, strict=False)
        ]
        return _messages(goal, turns, page)

    async def _request(self, current: Sequence[Message]) -> list[Message] | None:
        """Returns the request with exemplars up to the first that does not fit. None: none fits."""
        window = await token_window(self.model, self.spec.context)
        room = None if window is None else window - self.spec.max_tokens
        chosen: list[list[Message]] = []
        messages = [_system_message(), *current]
        if room is not None and count_tokens(messages) > room:
            return None
        for block in await self._blocks():
            more = [*chosen, block]
            larger = [_system_message(), *chain.from_iterable(more), *current]
            if room is not None and count_tokens(larger) > room:
                break
            chosen, messages = more, larger
        return messages

    async def _blocks(self) -> list[list[Message]]:
        if self.spec.mode == "no_trajectory":
            return [
                [_step_question(one.page, one.task, one.previous), _assistant(f"`{one.action}`")]
                for one in _examples()
            ]
        if self._nearest is None:
            self._nearest = await self._chosen()
        return [
            _messages(one.task, [(turn.observation or "", turn.action) for turn in one.steps])
            for one in self._nearest
        ]

    async def _chosen(self) -> list[Exemplar]:
        if not self.spec.exemplars:
            return []
        known = [exemplar for exemplar in self.memory.exemplars if exemplar.name != self._task.id]
        if self.spec.mode == "no_memory":
            return random.Random(_FIXED).sample(known, min(self.spec.exemplars, len(known)))
        first = self._seen[0]
        key = make_key(self._task, {"domain": first.domain, "subdomain": first.subdomain})
        nearest = await self.memory.nearest(key, self.spec.exemplars + 1)
        return [exemplar for _, exemplar in nearest if exemplar.name != self._task.id][
            : self.spec.exemplars
        ]


def parse_action(reply: str) -> Action:
    """Parses the action in back-ticks, else anywhere, or in a tool call."""
    text = visible_text(until(reply, *_STOPS))
    asserted = asserted_text(text)
    lines = [line for line in map(plain_line, text.splitlines()) if _OPERATION.fullmatch(line)]
    for spans in ([inside for _, inside in _TICKED.findall(asserted)], lines, [asserted]):
        found = [
            (one[1].upper(), one[2], one[3] or "")
            for span in spans
            for one in _OPERATION.finditer(span)
        ]
        if (answer := one_answer(found, lambda one: _write(*one))) is not None:
            operation, id, value = answer
            return Action(operation.lower(), _write(*answer), target=id, value=value or None)
    for call in tool_calls(text):
        values = call.values()
        if call.name in ("click", "select", "type") and values and values[0].isdecimal():
            value = values[1] if len(values) > 1 and call.name != "click" else ""
            return Action(
                call.name,
                _write(call.name.upper(), values[0], value),
                target=values[0],
                value=value or None,
            )
        if _OPERATION.search(call.name):
            return parse_action(call.name)
    raise UnreadableReplyError("the reply has no action, such as `CLICK [12]`")


def _write(operation: str, id: str, value: str) -> str:
    """Formats the action as the paper does. A click's superfluous value is kept."""
    return f"{operation} [{id}]" + (f" [{value}]" if value else "")


def make_exemplar(trajectory: Trajectory) -> Exemplar:
    """Converts a recorded turn to an exemplar, its pages cut. Raises InputError."""
    steps = []
    for i, step in enumerate(trajectory.steps):
        try:
            state, described = read_state(step.observation.text or ""), describe_step(step)
        except ValueError as problem:
            raise InputError(f"turn {trajectory.id!r}, step {i}: {problem}") from None
        target = described.target
        text = (
            f"Action: `{described.text}` ({clean(step.action.text)})"
            if target
            else f"Action: ({clean(step.action.text)})"
        )
        steps.append(ExemplarTurn(text, observation=_cut(state, target, _K_PREVIOUS)))
    return Exemplar(
        trajectory.id,
        make_key(trajectory.task, trajectory.metadata),
        trajectory.task.goal,
        tuple(steps),
        provenance="recorded",
    )


def build_memory(trajectories: Iterable[Trajectory], embedder: Embedder) -> ExemplarMemory:
    """Builds the memory from recorded training turns. Raises InputError."""
    return ExemplarMemory(
        [make_exemplar(trajectory) for trajectory in trajectories], embedder=embedder
    )


def make_key(task: Task, metadata: dict[str, object] | None = None) -> str:
    """Returns the key for comparing tasks: site, domain, subdomain and goal."""
    known = metadata or {}
    return (
        f"Website: {task.site or ''}\nDomain: {known.get('domain') or ''}\nSubdomain: "
        f"{known.get('subdomain') or ''}\n"
        f"Task: {task.goal}"
    )


@cache
def _memory(path: Path | None, embedder: str, url: str | None) -> ExemplarMemory:
    """Returns the memory, shared by all episodes of a run."""
    assert path is not None
    maker = make_embedder(embedder, base_url=url)
    if (path / EXEMPLARS).is_file():
        return ExemplarMemory.load(path, maker)
    return build_memory(iter_trajectories(path), maker)


def _cut(state: PageState, target: str, k: int) -> str:
    """Returns the page cut around the target, if known, and the best other candidates."""
    best = [id for id in state.candidates or state.withheld if id != target]
    ids = [target, *best[: k - 1]] if target else best[:k]
    return RecordedPage(state.page).view(ids, brackets="angle", ids="original").text


def _told(repr: str, target: str) -> str:
    """Formats a recorded action (`[role]  label -> TYPE: value`) as an answer."""
    operation, _, value = repr.rpartition(" -> ")[2].partition(": ")
    if not target:
        return f"Action: ({clean(repr)})"
    return f"Action: `{format_action(operation if operation in ('TYPE', 'SELECT') else 'CLICK', target, value)}` ({clean(repr)})"  # noqa: E501


def _messages(
    goal: str, turns: Sequence[tuple[str, str]], page: str | None = None
) -> list[Message]:
    """Formats a trajectory as a chat, the current page last."""
    pages = [page for page, _ in turns] + ([] if page is None else [page])
    messages = []
    for i, seen in enumerate(pages):
        head = f"Task: {clean(goal)}\nTrajectory:\n" if i == 0 else ""
        messages.append(Message("user", (f"{head}Observation:\n{quoted('page', seen)}",)))
        if i < len(turns):
            messages.append(_assistant(turns[i][1]))
    return messages


def _step_question(page: str, goal: str, past: Sequence[str]) -> Message:
    actions = "\n".join(clean(one) for one in past) or "None"
    text = (
        f"Observation:\n{quoted('page', page)}\nTask: {clean(goal)}\nPrevious "
        f"actions:\n{actions}\nNext action:"
    )
    return Message("user", (text,))


def _assistant(text: str) -> Message:
    return Message("assistant", (text,))


def _system() -> Prompt:
    return load_prompt("prill.papers.synapse", "recorded")


def _system_message() -> Message:
    return Message("system", (_system().fill({})["user"],))


class _Example(msgspec.Struct, frozen=True):
    page: str
    task: str
    previous: tuple[str, ...]
    action: str


@cache
def _examples() -> tuple[_Example, ...]:
    table = read_toml("prill.papers.synapse", "recorded.toml")
    return msgspec.convert(table["examples"], tuple[_Example, ...])

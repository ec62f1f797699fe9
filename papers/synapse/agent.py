"""The Synapse agent (arXiv 2306.07863): solves a task by analogy with recorded solutions of similar
tasks, several actions per turn.

The method is the paper's; the prompts and exemplars are our own. Differences: generated code and
XPaths never run in this process. A block runs completely before its first call is carried out. An
exemplar with fewer turns than the episode repeats its last one. Page text is quoted between marks.
The agent reads pages as HTML: `text="html"` of the MiniWoB++ environment.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

from msgspec import Meta

from prill.actions.keys import key_names
from prill.errors import NoEvidenceError, UsageError
from prill.models.options import MaxTokensOption
from prill.models.prompts import clean, content_hash, quoted
from prill.papers.embedders import EmbedderName, EmbedderUrl, make_embedder
from prill.papers.page_text import REF, PageText, is_html
from prill.papers.replies import (
    ContextOption,
    PaperAgent,
    RepairOption,
    ReplyCounts,
    UnreadableReplyError,
    complete_text,
    token_window,
)
from prill.papers.synapse.memory import ExemplarMemory, ExemplarTurn, MemoryEntry, key_text
from prill.papers.synapse.prompting import (
    OBSERVED,
    PromptType,
    build_messages,
    expect_room,
    prompt_type,
    shown,
    system_prompt,
    task_table,
    until,
)
from prill.papers.synapse.sandbox import (
    Call,
    CodeFailedError,
    NoSandboxError,
    Page,
    find,
    first_block,
    get_text,
    read_block,
    run_block,
    run_code,
)
from prill.protocols import LanguageModel, Message
from prill.types import Action, Observation, Platform, Step, Task

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

_PLACE = re.compile("<task>|<state>")
_STOPS = ("Action:", "Output:", "State:")
_T = TypeVar("_T")


async def abstract(
    ask: Callable[[str], Awaitable[str]], entry: MemoryEntry, turn: int, task: str, state: str
) -> tuple[str, str]:
    """Returns the page in short form by code, else in the model's words, and why code failed."""
    way, problem = entry.abstraction, ""
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
    for step in (_at(exemplar.steps, turn) for exemplar in entry.exemplars):
        if step is not None and step.state is not None and step.observation is not None:
            words = clean(step.observation)
            lines.append(f"State:\n{quoted('page', step.state)}\nObservation:\n{words}\n")
    lines.append(f"State:\n{quoted('page', state)}\nObservation:")
    stops = ("Action:",) if problem else _STOPS
    return until(await ask("\n".join(line for line in lines if line)), *stops).strip(), problem


def _at(values: Sequence[_T], turn: int) -> _T | None:
    """Returns the value of that turn, or the last one. None if there are no values."""
    return values[min(turn, len(values) - 1)] if values else None


KEYS = (
    "enter", "space", "arrowleft", "arrowright", "arrowup", "arrowdown", "backspace", "command+a",
    "command+c", "command+v",
)  # fmt: skip
_MAX_EMPTY = 3  # turns in a row without a call: a further turn would send the same request
_MAX_SHOWN = 60  # characters of an element's text in the record


MAX_SHOWN = Meta(
    description="Maximum number of exemplars shown, nearest first (synapse's default: all of the "
    "task)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SynapseSpec:
    """Options for the source and the format of exemplars."""

    memory: Annotated[
        Path | None, Meta(description="Folder with exemplars (default: the built-in ones).")
    ] = None
    embedder: EmbedderName = "tfidf"
    embedder_url: EmbedderUrl = None
    retrieval: Annotated[
        bool, Meta(description="Retrieve exemplars by similarity, instead of by the task's name.")
    ] = True
    exemplars: Annotated[int | None, Meta(ge=1), MAX_SHOWN] = None
    abstraction: Annotated[
        Literal["auto", "listed", "none"],
        Meta(
            description="Abstract pages into few words: if the exemplars do, on the paper's 20 "
            "tasks, or never."
        ),
    ] = "auto"
    max_turns: Annotated[
        int | None,
        Meta(
            ge=1, description="Maximum number of turns of the model (default: the paper's number)."
        ),
    ] = None
    context: ContextOption = None
    max_tokens: MaxTokensOption = 1024
    repair: RepairOption = False


class Synapse(PaperAgent):
    """An agent that shows a model solutions of similar tasks and carries out the calls it writes.

    One reply may hold several calls. They are carried out one after another, each on the current
    page. A request that is too long ends the episode with an error before the call.
    """

    package: ClassVar[str] = "prill.papers.synapse"
    page_text: ClassVar[PageText] = "html"

    def __init__(
        self,
        model: LanguageModel,
        spec: SynapseSpec = SynapseSpec(),
        *,
        opened: ExemplarMemory | None = None,
    ) -> None:
        self.model = model
        self.spec = spec
        self.memory = opened or ExemplarMemory.load(
            spec.memory, make_embedder(spec.embedder, base_url=spec.embedder_url)
        )
        self.reset(Task(goal=""))

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompts and the memory."""
        return content_hash(system_prompt().hash, self.memory.hash)

    def reset(self, task: Task) -> None:
        """Begins a new episode."""
        self._task = task
        self._entry: MemoryEntry | None = None
        self._kind: PromptType = "state_act"
        self._trajectory: list[ExemplarTurn] = []
        self._calls: deque[Call] = deque()
        self._ready: deque[Action] = deque()
        self._notes: list[str] = []
        self._words: str | None = None
        self._empty = 0
        self._replies = ReplyCounts()

    @property
    def turns(self) -> tuple[ExemplarTurn, ...]:
        """The turns of this episode so far: the observation shown to the model, and its block."""
        return tuple(self._trajectory)

    async def act(self, observation: Observation) -> Step:
        """Returns the next step.

        Raises:
            NoEvidenceError: The state has no page in HTML, or there are no exemplars.
            ContextTooLongError: The request does not fit the model's window.
            UnscoredError: The model gives no usable answer.
            UsageError: This machine cannot run model-written code.
        """
        if not observation.text or not is_html(observation.text):
            raise NoEvidenceError(
                "synapse reads pages as HTML, but this state has none; for MiniWoB++ set "
                "text = 'html'"
            )
        page = Page(observation.text)
        if self._entry is None:
            await self._begin(observation.text)
        most = self.spec.max_turns or task_table().turns.get(self._task.site or "", 1)
        while not self._ready:
            if self._calls:
                await self._prepare(self._calls.popleft(), page)
            elif len(self._trajectory) >= most or self._empty >= _MAX_EMPTY:
                return Step(observation, Action("stop", "stop"), self._thought())
            else:
                await self._ask(observation.text)
        return Step(observation, self._ready.popleft(), self._thought())

    async def _begin(self, state: str) -> None:
        """Chooses the exemplars and the prompt type."""
        own, spec = self._task.site or "", self.spec
        key = key_text(self._task.goal, state)
        if spec.retrieval:
            name = await self.memory.vote(key)
        else:
            name = task_table().borrows.get(own, own)
        entry = None if name is None else self.memory.entry(name)
        if entry is None:
            of = "" if name is None else f" of {name!r}"
            raise NoEvidenceError(
                f"the memory holds no exemplar{of}; add some (papers/synapse/README.md), or choose "
                "another folder"
            )
        on = (
            entry.abstracts
            if spec.abstraction == "auto"
            else spec.abstraction == "listed" and own in task_table().abstracted
        )
        self._kind = prompt_type(entry, on)
        self._abstracts = on and entry.abstracts
        chosen = shown(entry, self._kind, own)
        if spec.exemplars is not None:
            distances = dict(
                zip(map(id, self.memory.exemplars), await self.memory.distances(key), strict=True)
            )
            near = sorted(chosen, key=lambda exemplar: distances[id(exemplar)])[: spec.exemplars]
            chosen = tuple(sorted(near, key=chosen.index))
        self._shown = chosen
        self._entry = entry

    async def _ask(self, state: str) -> None:
        """Runs one turn of the model: the page, abstracted if configured, and its block."""
        assert self._entry is not None
        window = await token_window(self.model, self.spec.context)
        prompt = system_prompt().hash
        page = state
        if self._abstracts:

            async def ask(text: str) -> str:
                question = (Message("user", (text,)),)
                expect_room(question, window, "the page to abstract")
                most = self.spec.max_tokens
                return await complete_text(self.model, question, max_tokens=most, prompt=prompt)

            turn = len(self._trajectory)
            page, problem = await abstract(ask, self._entry, turn, self._task.goal, state)
            if problem:
                self._notes.append(f"The code for the page failed: {problem}.")
            self._words = page
        acting = self._entry.abstraction.acting
        messages = build_messages(
            self._kind, self._shown, acting, self._task.goal, self._trajectory, page
        )
        count = len(self._shown)
        advice = "; the option `exemplars` shows fewer" if count > 1 else ""
        expect_room(messages, window, f"the request (exemplars: {count})", advice)
        self._empty += 1
        try:
            _, block = await self._answer(
                messages, _read, max_tokens=self.spec.max_tokens, prompt=prompt
            )
        except UnreadableReplyError as problem:
            self._trajectory.append(ExemplarTurn("", observation=page))
            self._notes.append(f"The reply had no block of calls that could be read: {problem}.")
            return
        self._trajectory.append(ExemplarTurn(block, observation=page))
        try:
            done = await run_block(block)
        except NoSandboxError as problem:
            raise UsageError(f"synapse runs code that the model writes, but {problem}") from None
        except CodeFailedError as problem:
            self._notes.append(f"The block was left out: {problem}.")
            return
        self._calls.extend(done.calls)
        if done.problem:
            self._notes.append(
                f"The block failed, and what it had not called was left out: {done.problem}."
            )

    async def _prepare(self, call: Call, page: Page) -> None:
        """Queues the actions of a call on the current page, or notes that it finds nothing."""
        try:
            actions = await to_actions(call, page)
        except (CodeFailedError, LookupError) as problem:
            self._notes.append(f"{call} failed: {problem.args[0]}.")
            return
        self._empty = 0
        self._ready.extend(actions)

    def _thought(self) -> str | None:
        """Returns the notes on this step, the abstracted page last, so that it can be separated."""
        notes = [*self._notes, *([] if self._words is None else [f"{OBSERVED}{self._words}"])]
        self._notes, self._words = [], None
        return "\n".join(notes) or None


def _read(reply: str) -> str:
    """Returns the block of a reply, up to an observation that the model invents."""
    return read_block(until(reply, OBSERVED.strip()))


async def to_actions(call: Call, page: Page) -> list[Action]:
    """Returns the environment's actions for a call. Raises CodeFailedError and LookupError."""
    if call.method == "type":
        return [Action("type", str(call), value=call.argument)]
    if call.method == "press":
        if call.argument not in KEYS:
            raise LookupError(f"unknown key {call.argument!r}")
        return [
            Action("press", str(call), value=key_names(call.argument.replace("command", "control")))
        ]
    found = await find(page, call.argument)
    if call.method == "click_option":
        found = [element for element in found if element.tag == "option"]
    if not found:
        raise LookupError("it finds nothing on the page")
    actions = []
    for i, element in enumerate(found, 1):
        one = call if len(found) == 1 else replace(call, argument=f"({call.argument})[{i}]")
        actions.append(_pointed(one, element))
    return actions


def _pointed(call: Call, element: Element) -> Action:
    target = describe_target(element) or call.argument
    if call.method == "movemouse":
        return Action("hover", str(call), target=target)
    owner = next(element.iterancestors("select"), None) if element.tag == "option" else None
    if owner is not None:
        path = describe_target(owner) or f"({call.argument})/ancestor::select"
        return Action("select", str(call), target=path, value=get_text(element))
    return Action("click", str(call), target=target)


def describe_target(element: Element) -> str | None:
    """Returns the element's number in the environment. None if elements have no numbers."""
    number = element.get(REF)
    if number is None:
        return None
    text = " ".join(get_text(element).split())[:_MAX_SHOWN]
    return f'<{element.tag} {REF}="{number}">{text}'

"""The SteP agent: stacked policies for web actions (arXiv 2310.03720). The policy on top of the
stack acts, calls another policy, or returns.

Calls and returns happen inside one `act`. They cost model calls but no actions: the environment and
the judges see only actions. The step's thought lists them, one per line, and
`StepAgent.events` records them with their requests. Differences from the paper's code: a stop is
recognized by its verb, not by a substring; unknown verbs are refused and counted; depth and calls
are limited; page text is quoted and inserted once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from prill.actions.webarena import UnreadableActionError, describe
from prill.config.registry import nearest
from prill.errors import NoEvidenceError, TruncatedError, UsageError
from prill.models.options import AttemptOption, MaxTokensOption, ReasoningOption, SamplingSeed
from prill.models.prompts import (
    EXAMPLE_CODE,
    NONCE,
    clean,
    content_hash,
    estimate_tokens,
    load_prompt,
    quoted,
)
from prill.models.replies import excerpt
from prill.papers.page_text import PageText, is_html
from prill.papers.replies import (
    PaperAgent,
    RepairOption,
    ReplyCounts,
    ask_readable,
    fill_prompt,
    read_toml,
)
from prill.papers.step.grammar import PolicyCall, read_call, read_environment_action, read_reply
from prill.papers.step.library import (
    AUTO,
    STOP,
    Library,
    Template,
    WorkedExample,
    library_for,
    load_library,
    shipped_libraries,
)
from prill.papers.step.page import ShownPage, one_line, show
from prill.protocols import LanguageModel, Message, SampledModel
from prill.types import Action, Observation, Platform, Step, Task, Usage

_ORIGIN = re.compile(r"\{\{ *origin *\}\}")
_PACKAGE, _PROMPT = "prill.papers.step", "step"
# Policies on the stack, model calls for one action, and invalid replies in a row that end a policy.
MAX_DEPTH, MAX_CALLS, MAX_INVALID = 8, 25, 3


@dataclass(frozen=True, slots=True)
class ReplyTurn:
    """The input of a policy before one action: its page, its own history, and earlier lessons."""

    objective: str
    observation: str
    url: str = ""
    previous: Sequence[str] = ()
    lessons: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ChatPolicy:
    """Builds requests for the policies of a library, with or without a reason before actions."""

    library: Library
    reasoning: bool = True

    def messages(
        self, template: Template, turn: ReplyTurn, *, called: bool
    ) -> tuple[Message, Message]:
        """Returns the request. Each placeholder is filled once, so page text is unchanged."""
        texts = _wording()
        memory = quoted("memory", "\n".join(turn.lessons)) if turn.lessons else ""
        ask = texts["ask" if self.reasoning else "ask_direct"]
        values = self._fixed(template, turn.url, called=called) | {
            "objective": clean(turn.objective),
            "observation": quoted("page", turn.observation),
            # Without spaces, an address cannot imitate a sentence.
            "url": "%20".join(clean(turn.url).split())[:500],
            "previous": _previous(turn.previous),
            "memory": f"MEMORY:\n{memory}\n" if memory else "",
            "memory_note": texts["memory_note"] if memory else "",
            "remind": f"{template.front.remind}\n{ask}".strip(),
        }
        return fill_prompt(_PACKAGE, _PROMPT, values)

    def tokens(self, template: Template) -> int:
        """Estimates the tokens of a policy's prompt without the page."""
        return sum(
            estimate_tokens(str(message.parts[0]))
            for message in self.messages(template, ReplyTurn("", ""), called=False)
        )

    def hash(self, template: Template) -> str:
        """Returns a hash of everything that is sent except the turn itself."""
        return content_hash(prompt_text(), self.library.hash, repr((template, self.reasoning)))

    def _fixed(self, template: Template, url: str, *, called: bool) -> dict[str, str]:
        front, around, texts = template.front, self.library.surroundings, _wording()
        others = [self.library.templates[name] for name in front.calls]
        listed = "".join(f"`{one.usage}`: {one.front.purpose}.\n" for one in others)
        examples = map(self._example, range(1, len(template.examples) + 1), template.examples)
        return {
            "code": NONCE,
            "purpose": front.purpose,
            "called": texts["called"] if called else "",
            "about": around.about.strip(),
            "verbs": "\n".join(around.verbs[verb] for verb in front.verbs if verb in around.verbs),
            "stop": texts["stop_called" if called else "stop"],
            "calls": texts["calls"] + listed if others else "",
            "form": texts["form" if self.reasoning else "form_direct"],
            "rules": _ORIGIN.sub(lambda _: _origin(url), template.rules) or texts["rules"],
            "examples": "".join(examples),
        }

    def _example(self, number: int, example: WorkedExample) -> str:
        reason = f"REASON: {example.reason}\n" if self.reasoning else ""
        text = (
            f"\nEXAMPLE {number}. Input:\nOBJECTIVE: {example.objective}\nCODE: {NONCE}\n"
            f"OBSERVATION:\n{quoted('page', example.observation)}\n"
            f"URL: {example.url}\nPREVIOUS ACTIONS:\n{_previous(example.previous)}\n"
            f"Response:\n{reason}ACTION: {example.action}\n"
        )
        return text.replace(NONCE, EXAMPLE_CODE)


def _previous(lines: Sequence[str]) -> str:
    return quoted("previous", "\n".join(lines)) if lines else "None"


def prompt_text() -> str:
    """Returns the text around the rules of every policy, in all its variants."""
    return load_prompt(_PACKAGE, _PROMPT).text + repr(_wording())


def _wording() -> dict[str, str]:
    return read_toml(_PACKAGE, "wording.toml")


def _origin(url: str) -> str:
    """Returns the origin of the open page, because the rules name no host."""
    parts = urlsplit(url) if url.startswith(("http://", "https://")) else None
    return (
        f"{parts.scheme}://{parts.netloc}"
        if parts and re.fullmatch(r"[\w.:\[\]-]+", parts.netloc)
        else "the site"
    )


NO_ANSWER = "N/A"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """Options of the agent. The temperature is the paper's; the limits are ours."""

    library: Annotated[
        str, Meta(description="Prompt library: auto (by the task), a built-in name, or a folder.")
    ] = AUTO
    root: Annotated[
        str, Meta(description="Policy at the bottom of the stack. auto: by the site.")
    ] = AUTO
    flat: Annotated[
        bool, Meta(description="Baseline: one policy with the rules of all policies.")
    ] = False
    flat_tokens: Annotated[
        int | None,
        Meta(
            ge=1, description="Maximum number of tokens of the flat prompt (the paper: 4000, 8000)."
        ),
    ] = None
    examples: Annotated[
        int | None,
        Meta(
            ge=0,
            description="Maximum number of worked examples (default: all, on the sites they "
            "are from).",
        ),
    ] = None
    reasoning: ReasoningOption = True
    temperature: Annotated[
        float, Meta(ge=0, le=2, description="Sampling temperature, if the model supports it.")
    ] = 0.3
    seed: SamplingSeed = 0
    attempt: AttemptOption = 0
    max_steps: Annotated[
        int | None,
        Meta(
            ge=0, description="Maximum number of actions; 0 for no limit (default: the library's)."
        ),
    ] = None
    max_tokens: MaxTokensOption = 512
    repair: RepairOption = False


@dataclass(frozen=True, slots=True)
class Event:
    """One answer of a policy. `frames` are the policies on the stack, with the answering policy
    last; `index` is the index of the step.

    `act`: an action for the environment. `call`: a call of another policy. `return`: the policy
    ended and returned `response` to its caller. `invalid`: the answer was not an action; `response`
    says why.
    """

    kind: Literal["act", "call", "return", "invalid"]
    index: int
    frames: tuple[str, ...]
    action: str
    reason: str = ""
    response: str = ""
    usage: Usage = field(default_factory=Usage)
    messages: tuple[Message, ...] = ()

    def __str__(self) -> str:
        action, reason = (
            " ".join(text.split()).replace(" | ", " / ") for text in (self.action, self.reason)
        )
        return f"{self.kind} {' > '.join(self.frames)}: {action} | {reason or self.response}"


@dataclass
class StackFrame:
    """A policy on the stack: its objective, and its own history of actions and their responses."""

    template: Template
    objective: str
    history: list[tuple[str, str]] = field(default_factory=list)
    invalid: int = 0

    @property
    def name(self) -> str:
        """The verb that calls the policy."""
        return self.template.front.name

    def lines(self) -> list[str]:
        """Returns its history as shown to the model: `RESPONSE = CALL`."""
        return [
            one_line(f"{response} = {action}" if response else action)
            for action, response in self.history
        ]

    def answer(self, response: str) -> None:
        """Records the response to the last action."""
        self.history[-1] = (self.history[-1][0], response)


@dataclass(slots=True)
class _Answer:
    """A reply as far as it could be parsed: its call, and the environment's action if it is one."""

    written: str
    reason: str = ""
    call: PolicyCall | None = None
    action: Action | None = None


class StepAgent(PaperAgent):
    """An agent that asks the policy on top of a stack for the next action, or for a call.

    `events` lists the answers of this episode. `limit_exceeded` is whether the episode ended
    because it reached `max_steps`. An answer that is not an action is reported to the policy that
    gave it. After `MAX_INVALID` of these in a row the policy ends with N/A.

    Args:
        model: The model.
        spec: The options.
        lessons: Lessons of earlier attempts, shown only to the root policy.

    Raises:
        UsageError: `flat_tokens` is set without `flat`.
    """

    package: ClassVar[str] = _PACKAGE
    page_text: ClassVar[PageText] = "html"

    def __init__(
        self, model: LanguageModel, spec: StepSpec = StepSpec(), *, lessons: Sequence[str] = ()
    ) -> None:
        self.model = model
        self.spec = spec
        self.lessons = list(lessons)
        self.events: list[Event] = []
        self.limit_exceeded = False
        self._task = Task(goal="")
        self._stack: list[StackFrame] = []
        self._taken = 0
        self._asked: LanguageModel = model
        self._chat_policy: ChatPolicy  # made by `reset`, for the task's library
        self._replies = ReplyCounts()
        if spec.library != AUTO:
            load_library(spec.library)  # reports errors in the library before any episode is played
        if spec.flat_tokens is not None and not spec.flat:
            raise UsageError("flat_tokens: only with flat", parameters=("flat_tokens",))

    def fingerprint(self, platform: Platform) -> str:
        """Returns a hash of the prompts, the libraries, the settings and the lessons."""
        names = shipped_libraries() if self.spec.library == AUTO else (self.spec.library,)
        spec = replace(self.spec, library=AUTO, seed=0, attempt=0)
        return content_hash(
            prompt_text(), *(load_library(name).hash for name in names), repr(spec), *self.lessons
        )

    def reset(self, task: Task) -> None:
        """Begins a new episode with an empty stack. The lessons stay.

        Raises:
            UsageError: The library does not have the root policy.
        """
        spec, self._task = self.spec, task
        library = library_for(spec.library, task)
        fitting = None if task.id.startswith(library.surroundings.examples_of) else 0
        most = fitting if spec.examples is None else spec.examples
        self._chat_policy = ChatPolicy(
            library if most is None else library.with_examples(most), spec.reasoning
        )
        self._replies = ReplyCounts()
        self._stack, self._taken, self.events = [StackFrame(self._root(), task.goal)], 0, []
        self._asked = self.model
        if isinstance(self.model, SampledModel) and spec.temperature > 0:
            self._asked = self.model.sampled(spec.temperature, 1000 * spec.seed + spec.attempt)

    async def act(self, observation: Observation) -> Step:
        """Returns the next step."""
        if observation.text is None:
            raise NoEvidenceError("step reads the text of the page, but this state has none")
        if not self._stack:
            self.reset(self._task)
        library = self._chat_policy.library
        around = library.surroundings
        if around.html and not is_html(observation.text):
            raise NoEvidenceError(
                f"library {library.name} needs pages as HTML; for MiniWoB++ set text = 'html'"
            )
        limit = around.max_steps if self.spec.max_steps is None else self.spec.max_steps
        self.limit_exceeded = bool(limit) and self._taken >= limit
        if self.limit_exceeded:
            return self._stop_step(
                observation, self._taken, f"the limit of {limit} actions is reached"
            )
        index, self._taken = self._taken, self._taken + 1
        shown = show(observation.text, around.max_rows)
        for _ in range(MAX_CALLS):
            action = await self._turn(shown, observation.url or "")
            if action is not None:
                return Step(observation, action, self._thought())
        return self._stop_step(
            observation, index, f"no action after {MAX_CALLS} calls of the model"
        )

    async def _turn(self, shown: ShownPage, url: str) -> Action | None:
        """Requests one answer from the policy on top. None if it is no action."""
        frame, bottom = self._stack[-1], len(self._stack) == 1
        lessons = self.lessons if bottom else ()
        turn = ReplyTurn(frame.objective, shown.text, url, frame.lines(), lessons)
        messages = self._chat_policy.messages(frame.template, turn, called=not bottom)
        event = Event("act", self._taken - 1, self._frames(), "", messages=messages)
        answer, event, problem = await self._request_answer(frame, event)
        call, action = answer.call, answer.action
        if call is None:
            return self._refuse(event, problem)
        if action is None:
            return self._push(call, event)
        if call.verb == STOP and not bottom:
            self._pop(event, call.arguments[0] if call.arguments else "")
            return None
        frame.history.append((str(call), ""))
        frame.invalid = 0
        self.events.append(event)
        action = replace(action, text=describe(action, shown.page.text))
        return replace(action, target=shown.page.target(action.target))

    async def _request_answer(self, frame: StackFrame, event: Event) -> tuple[_Answer, Event, str]:
        """Returns a policy's answer, its event, and what is wrong with it. `repair` asks twice."""
        hashed, answer, problem = self._chat_policy.hash(frame.template), _Answer(""), ""
        too_long = False

        async def ask(messages: Sequence[Message]) -> str:
            nonlocal event, too_long
            event = replace(event, messages=tuple(messages))
            try:
                reply = await self._asked.complete(
                    messages, max_tokens=self.spec.max_tokens, prompt=hashed
                )
            except TruncatedError as cut:
                # only reasoning: the call failed without an answer
                if not cut.text.strip():
                    raise
                too_long = True
                return cut.text
            event, too_long = replace(event, usage=event.usage + reply.usage), False
            return reply.text

        def read(text: str) -> None:
            nonlocal answer
            answer = _Answer(excerpt(text))
            # A truncated reply without an action; small models often fail to finish a reply.
            if too_long:
                advice = ": keep REASON short" if self.spec.reasoning else ""
                raise UnreadableActionError(f"the reply was too long{advice}")
            self._read(text, frame, answer)

        try:
            await ask_readable(ask, event.messages, read, self._replies, repair=self.spec.repair)
        except UnreadableActionError as error:
            problem = str(error)
        return answer, replace(event, action=answer.written, reason=answer.reason), problem

    def _read(self, reply: str, frame: StackFrame, answer: _Answer) -> None:
        """Parses a reply: its call, and its action if the environment has that verb."""
        library = self._chat_policy.library
        reason, written = read_reply(reply)
        answer.written, answer.reason = excerpt(written or reply), reason or ""
        if written is None:
            raise UnreadableActionError("the reply has no line ACTION:")
        call = read_call(written)
        answer.written = str(call)
        if call.verb not in library.templates or self.spec.flat:
            if call.verb != STOP and call.verb not in library.surroundings.verbs:
                front = frame.template.front
                known = nearest(call.verb, [STOP, *front.verbs, *front.calls])
                raise UnreadableActionError(f"{call.verb} is not available{known}")
            answer.action = read_environment_action(call, enter=library.surroundings.enter)
        answer.call = call

    def _push(self, call: PolicyCall, event: Event) -> Action | None:
        if len(self._stack) >= MAX_DEPTH:
            return self._refuse(
                event, f"{len(self._stack)} policies are at work already: act yourself, or stop"
            )
        frame = self._stack[-1]
        frame.history.append((str(call), ""))
        frame.invalid = 0
        self.events.append(replace(event, kind="call"))
        template = self._chat_policy.library.templates[call.verb]
        self._stack.append(StackFrame(template, one_line(str(call))))
        return None

    def _pop(self, event: Event, value: str) -> None:
        self.events.append(replace(event, kind="return", response=value))
        self._stack.pop()
        self._stack[-1].answer(value)

    def _refuse(self, event: Event, problem: str) -> Action | None:
        """Reports an invalid answer to the policy, and ends the policy after too many in a row."""
        frame = self._stack[-1]
        frame.history.append((event.action, f"(not done: {problem})"))
        frame.invalid += 1
        self.events.append(replace(event, kind="invalid", response=problem))
        if frame.invalid < MAX_INVALID:
            return None
        if len(self._stack) == 1:
            return _end()
        self._pop(replace(event, action=_end().text, messages=(), usage=Usage()), NO_ANSWER)
        return None

    def _stop_step(self, observation: Observation, index: int, why: str) -> Step:
        self.events.append(Event("act", index, self._frames(), _end().text, why))
        return Step(observation, _end(), self._thought())

    def _thought(self) -> str:
        """Returns the stack events since the last action."""
        index = self.events[-1].index
        return "\n".join(str(event) for event in self.events if event.index == index)

    def _frames(self) -> tuple[str, ...]:
        return tuple(frame.name for frame in self._stack)

    def _root(self) -> Template:
        policy, spec = self._chat_policy, self.spec
        library, most = policy.library, spec.flat_tokens
        if spec.flat:
            return library.flat(lambda one: most is None or policy.tokens(one) <= most)
        name = library.get_root(self._task.site) if spec.root == AUTO else spec.root
        if name not in library.templates:
            known = ", ".join(library.templates)
            raise UsageError(
                f"root: library {library.name} has no policy "
                f"{name!r}{nearest(name, library.templates)}; it has: {known}",
                parameters=("root",),
            )
        return library.templates[name]


def _end() -> Action:
    return Action("stop", f"stop [{NO_ANSWER}]", value=NO_ANSWER)

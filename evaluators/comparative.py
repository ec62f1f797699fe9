"""Comparative judging: the best of several attempts at a task, by one question over all of them.

First, each action of each attempt is described from the states before and after it, as facts. Then
one question shows the facts, the first and the last state and the answer of every attempt, and asks
which attempt carried out the goal best. Models prefer some positions in a list, so the attempts are
shuffled by a seed, and their numbers say nothing about the file.

Protocol: behaviour best-of-N of Agent S3 (arXiv 2510.02250). Differences: prompts are worded by
prill; actions are named with their element or position instead of being marked in the picture; the
attempts may be equal, and an unreadable choice is unscored instead of a failure.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.config.values import Config
from prill.errors import InputError, NoEvidenceError, UnparsableError, UnscoredError
from prill.evaluators.evidence import action_text, asked_for, fewer, list_goals, state_text
from prill.evaluators.frames import captions, images_read, planned_captions
from prill.io.images import file_hash
from prill.io.verdict_log import VerdictLog
from prill.models.calls import ROOM, Room, ask, filled, gather_calls, planned
from prill.models.ledger import metered
from prill.models.options import MaxTokensOption
from prill.models.prompts import content_hash, load_prompt, quoted, shorten
from prill.models.replies import ReplyFormat, excerpt, read_objects
from prill.protocols import Bounded, Captioner, Image, LanguageModel, Message
from prill.scoring.items import verdict_key
from prill.types import EvaluatorInfo, Observation, Trajectory, UnscoredReason, Usage

_Key = tuple[str, str | None, str | None]
_Facts = Mapping[_Key, Sequence[str]]
Choice = Literal["attempt", "equal", "none", "only"]
EQUAL, NONE = "equal", "none"
_FACTS, _COMPARED = "transition_facts", "compared_attempts"
_NOT_RECORDED = "(This state was not recorded.)"
_UNCHANGED = "Nothing on the screen changed."
_SAME_TEXT = "The text of the screen did not change."
_NOT_DESCRIBED = "(not described)"
_ENDED = "The agent ended the attempt."
_MAX_FACTS, _FACT_CHARS = 8, 300  # of one action
_TYPICAL_FACTS = ("x" * 80,) * 3  # in plans
_MIN_LINE_CHARS = 60
_BULLET = re.compile(r"^[ \t]*(?:[-*•–]|\d{1,2}[.)])[ \t]+(\S.*)$", re.MULTILINE)
# Chat models write "Best: Attempt 2" for 2.
_CALLED = ("attempt-", "candidate-", "run-", "trajectory-", "number-", "#")


@dataclass(frozen=True, kw_only=True)
class ComparisonSpec(Config):
    """Settings of comparative judging."""

    seed: Annotated[
        int, Meta(description="Seed of the order in which the attempts at a task are shown.")
    ] = 0
    transitions: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum number of actions per attempt that are described: the first "
            "and the latest.",
        ),
    ] = 30
    max_tokens: MaxTokensOption = 1024
    max_chars: Annotated[
        int, Meta(ge=1, description="Maximum number of characters for all attempts together.")
    ] = 2 * ROOM


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedAttempts:
    """A line of a comparison file: the attempts at one task, and which is the best.

    Args:
        id: The task's name.
        attempts: The ids of the attempts, in the order in which they were shown.
        choice: `attempt`: one is the best. `equal`: no attempt is better than another. `none`: no
            attempt did any part of the goal. `only`: there is one attempt, and no call was made.
            None: unscored.
        best: The ids of the best attempts, in the order shown; all of them if they are equal.
        unscored: Why there is no choice.
        reason: The judge's reasoning, or the problem.
        facts: The facts about each action of each attempt, in the order shown; empty if unscored.
        usage: The calls and their cost.
        seconds: The time taken.
        judge: The judge.
        key: A digest of the judge and its input.
    """

    id: str
    attempts: tuple[str, ...]
    choice: Choice | None = None
    best: tuple[str, ...] = ()
    unscored: UnscoredReason | None = None
    reason: str = ""
    facts: tuple[tuple[str, ...], ...] = ()
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    judge: EvaluatorInfo
    key: str = ""

    @property
    def evaluator(self) -> EvaluatorInfo:
        """The judge, in the form that the log expects."""
        return self.judge


class ComparisonLog(VerdictLog):
    """A comparison file open for writing; after closing, each task has one line."""

    noun: ClassVar[str] = "comparison"
    record: ClassVar[type[Any]] = ComparedAttempts


@dataclass(frozen=True, slots=True)
class FactsFormat:
    """A reply that is a list of facts: an object, or the lines of a list."""

    tagged: bool = False

    def json_schema(self) -> dict[str, Any]:
        """Returns the schema for structured output, bounded: some small models never end a list."""
        fact = {"type": "string", "maxLength": _FACT_CHARS}
        return {
            "type": "object",
            "properties": {"facts": {"type": "array", "items": fact, "maxItems": _MAX_FACTS}},
            "required": ["facts"],
            "additionalProperties": False,
        }

    def instructions(self, *, as_json: bool) -> str:
        """Returns the instruction that tells the model how to answer; always JSON."""
        return (
            "Reply with one JSON object and nothing else: "
            f'{{"facts": ["<a fact>", …]}}, with at most {_MAX_FACTS} facts of one sentence'
        )

    def parse(self, text: str) -> dict[str, str]:
        """Returns the last list of facts as JSON under `facts`. Raises UnparsableError if there is
        none.
        """
        facts: list[str] = []
        as_json = text.lstrip().startswith(("{", "["))
        for _, record in read_objects(text, from_the_start=as_json):
            listed = record.get("facts")
            if isinstance(listed, list):
                facts = [fact for fact in listed if isinstance(fact, str)]
        if not facts and not as_json:
            facts = _BULLET.findall(text)
        facts = [shorten(plain, _FACT_CHARS) for fact in facts if (plain := " ".join(fact.split()))]
        if not facts:
            raise UnparsableError(f"no facts in the reply: {excerpt(text)}")
        stored = json.dumps(facts[:_MAX_FACTS], ensure_ascii=False)
        return {"facts": stored.encode("utf-8", "replace").decode()}


@dataclass(frozen=True, slots=True)
class ChoiceFormat:
    """A reply of reasoning and the number of an attempt, from 1 to `count`, `equal` or `none`."""

    count: int
    tagged: bool = False

    @property
    def _form(self) -> ReplyFormat:
        return ReplyFormat("thoughts", "best", (*map(str, range(1, self.count + 1)), EQUAL, NONE))

    def json_schema(self) -> dict[str, Any]:
        """Returns the schema for structured output."""
        return self._form.json_schema()

    def instructions(self, *, as_json: bool) -> str:
        """Returns the instruction that tells the model how to answer."""
        return self._form.instructions(as_json=as_json)

    def parse(self, text: str) -> dict[str, str]:
        """Returns `thoughts` and `best`; "attempt 2" counts as 2. Raises UnparsableError if the
        last choice is missing, or was not offered.
        """
        form = self._form
        called = {f"{word}{n}": str(n) for word in _CALLED for n in range(1, self.count + 1)}
        found = replace(form, choices=(*form.choices, *called)).parse(text)
        return {**found, "best": called.get(found["best"], found["best"])}


@dataclass(frozen=True, slots=True)
class _Transition:
    """One action of an attempt, with what identifies the states around it."""

    action: str
    before: str | None  # the hash of the picture, or the text; None: not recorded
    after: str | None
    states: tuple[Observation | None, Observation | None]

    @property
    def key(self) -> _Key:
        return self.action, self.before, self.after


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt as it is shown: its transitions (None: not described), and the last state."""

    run: Trajectory
    texts: tuple[str | None, ...]
    transitions: tuple[_Transition | None, ...]


@dataclass(frozen=True, eq=False)
class ComparativeJudge:
    """A judge that picks the best of several attempts at a task.

    Any failed call leaves the whole task unscored: attempts without facts could not be compared
    fairly.

    Args:
        model: The model that judges.
        captioner: Describes states. None: the model sees screenshots.
        spec: The settings.
    """

    model: LanguageModel
    captioner: Captioner | None = None
    spec: ComparisonSpec = field(default=ComparisonSpec(), kw_only=True)

    name: ClassVar[str] = "comparison"
    version: ClassVar[str] = "1"

    @cached_property
    def info(self) -> EvaluatorInfo:
        """The judge's identity, which changes whenever its choices could."""
        forms = (FactsFormat(), ChoiceFormat(2))
        prompt = content_hash(
            *(load_prompt("prill.evaluators", name).text for name in (_FACTS, _COMPARED)),
            *(form.instructions(as_json=as_json) for form in forms for as_json in (True, False)),
        )
        params = {part.name: getattr(self.spec, part.name) for part in fields(self.spec)}
        captioner = None if self.captioner is None else self.captioner.name
        return EvaluatorInfo(
            self.name, self.version, self.model.name, prompt, {"captioner": captioner, **params}
        )

    @property
    def concurrency(self) -> int:
        """The model's maximum number of concurrent requests, or 16 if it has none."""
        return self.model.concurrency if isinstance(self.model, Bounded) else 16

    def key(self, attempts: Sequence[Trajectory]) -> str:
        """Returns a SHA-256 key of the judge and the attempts, in any order."""
        keys = sorted(
            verdict_key(self.info, run, images_read(run.observations, self.captioner))
            for run in attempts
        )
        return f"sha256:{hashlib.sha256(' '.join(keys).encode()).hexdigest()}"

    def ordered(self, task: str, attempts: Sequence[Trajectory]) -> list[Trajectory]:
        """Returns the attempts in the order in which they are shown.

        It depends on the seed, the task's name and the ids, not on the order of the file.
        """
        order = sorted(attempts, key=lambda run: run.id)
        random.Random(f"{self.spec.seed}/{task}").shuffle(order)
        return order

    def estimate(self, attempts: Sequence[Trajectory]) -> Usage:
        """Returns the usage of the calls for one task, without making any; an upper bound."""
        if len(attempts) < 2:
            return Usage()
        shown = [self._attempt(run, self._planned_texts(run)) for run in attempts]
        room, most = Room(self.spec.max_chars), self.spec.max_tokens
        calls = [
            self._facts_messages(shown[0].run, transition, room)
            for transition in _distinct(shown)
            if _needs_call(transition)
        ]
        facts = dict.fromkeys((one.key for one in _distinct(shown)), _TYPICAL_FACTS)
        calls.append(self._comparison_messages(shown, facts, room))
        return sum((planned(messages, most) for messages in calls), start=Usage())

    async def __call__(self, task: str, attempts: Sequence[Trajectory]) -> ComparedAttempts:
        """Returns which of the attempts at a task, given in any order, is the best; unscored, with
        a reason, if that cannot be determined. Raises EndpointError if the model cannot be used at
        all.
        """
        order = self.ordered(task, attempts)
        result = ComparedAttempts(
            id=task,
            attempts=tuple(run.id for run in order),
            judge=self.info,
            key=await asyncio.to_thread(self.key, attempts),
        )
        if len(order) == 1:
            return replace(result, choice="only", best=result.attempts, reason="the only attempt")
        start = time.perf_counter()
        with metered() as meter:
            try:
                result = await self._compare(result, order)
            except UnscoredError as failure:
                result = replace(result, unscored=failure.code, reason=str(failure))
        seconds = round(max(0.0, time.perf_counter() - start - meter.queued), 4)
        return replace(result, usage=meter.usage, seconds=seconds)

    async def _compare(
        self, result: ComparedAttempts, order: Sequence[Trajectory]
    ) -> ComparedAttempts:
        if len({list_goals(run.task) for run in order}) > 1:
            raise InputError("the attempts have different goals, so they cannot be compared")
        shown = [
            await asyncio.to_thread(self._attempt, run, await self._texts(run)) for run in order
        ]
        if blind := [one.run.id for one in shown if one.run.steps and not self._ends(one)]:
            raise NoEvidenceError(f"attempt {blind[0]!r} has no state that can be read")
        distinct = _distinct(shown)
        described = await gather_calls([self._describe(order[0], one) for one in distinct])
        facts = {one.key: texts for one, texts in zip(distinct, described, strict=True)}
        form = ChoiceFormat(len(shown))
        reply = await ask(
            self.model,
            lambda room: self._comparison_messages(shown, facts, room),
            form,
            load_prompt("prill.evaluators", _COMPARED),
            self.spec.max_tokens,
            self.spec.max_chars,
        )
        word = reply.fields["best"]
        choice: Choice = "equal" if word == EQUAL else "none" if word == NONE else "attempt"
        best = {"equal": result.attempts, "none": ()}.get(choice)
        return replace(
            result,
            choice=choice,
            best=(result.attempts[int(word) - 1],) if best is None else best,
            reason=reply.fields["thoughts"],
            facts=tuple(tuple(_lines(one, facts, _FACT_CHARS * _MAX_FACTS)) for one in shown),
        )

    async def _texts(self, run: Trajectory) -> tuple[str | None, ...]:
        """Returns the captions of an attempt's states; none if the model sees pictures."""
        if self.captioner is None or not run.observations:
            return (None,) * len(run.observations)
        try:
            return tuple(await captions(run.observations, self.captioner))
        except NoEvidenceError:
            return (None,) * len(run.observations)

    def _planned_texts(self, run: Trajectory) -> tuple[str | None, ...]:
        if self.captioner is None:
            return (None,) * len(run.observations)
        return tuple(planned_captions(run.observations, self.captioner))

    def _attempt(self, run: Trajectory, texts: tuple[str | None, ...]) -> _Attempt:
        """Returns an attempt with its transitions. Raises InputError for an unreadable image."""
        states, count = run.observations, len(run.steps)
        names = [self._identity(state, text) for state, text in zip(states, texts, strict=True)]
        chosen = set(fewer(range(count), self.spec.transitions))
        transitions: list[_Transition | None] = []
        for i, step in enumerate(run.steps):
            if i not in chosen or step.action.is_final:
                transitions.append(None)
                continue
            there = i + 1 < len(states)
            transitions.append(
                _Transition(
                    action_text(step.action, run.task.platform, step.observation.text or ""),
                    names[i],
                    names[i + 1] if there else None,
                    (states[i], states[i + 1] if there else None),
                )
            )
        return _Attempt(run, texts, tuple(transitions))

    def _identity(self, state: Observation, text: str | None) -> str | None:
        if self.captioner is not None:
            return state_text(text, state) if text else None
        return file_hash(state.screenshot) if state.screenshot else None

    async def _describe(self, run: Trajectory, transition: _Transition) -> tuple[str, ...]:
        """Returns the facts about a transition. Raises UnscoredError."""
        if not _needs_call(transition):
            unchanged = _UNCHANGED if self.captioner is None else _SAME_TEXT
            return (unchanged if transition.before else _NOT_RECORDED,)
        reply = await ask(
            self.model,
            lambda room: self._facts_messages(run, transition, room),
            FactsFormat(),
            load_prompt("prill.evaluators", _FACTS),
            self.spec.max_tokens,
            self.spec.max_chars,
        )
        return tuple(json.loads(reply.fields["facts"]))

    def _facts_messages(
        self, run: Trajectory, transition: _Transition, room: Room
    ) -> tuple[Message, ...]:
        share = room.chars // 2
        images: list[Image] = []

        def block(name: str, state: Observation | None, text: str | None) -> str:
            title = f"The screen {name} the action:"
            if self.captioner is not None or state is None or not state.screenshot:
                shown = _NOT_RECORDED if self.captioner is None else text or _NOT_RECORDED
                return f"{title}\n{quoted(name, shorten(shown, share))}"
            if (
                room.images == 1 and name == "before"
            ):  # the state after the action is more informative
                return f"{title} (left out)"
            images.append(Image(state.screenshot))
            return f"{title} image {len(images)}"

        return filled(
            load_prompt("prill.evaluators", _FACTS),
            images,
            goal=asked_for(run.task),
            before=block("before", transition.states[0], transition.before),
            action=quoted("action", shorten(transition.action, share)),
            after=block("after", transition.states[1], transition.after),
        )

    def _ends(self, attempt: _Attempt) -> list[int]:
        """Returns the first and the last state of an attempt that can be read."""
        readable = [
            i
            for i, (state, text) in enumerate(
                zip(attempt.run.observations, attempt.texts, strict=True)
            )
            if text or (self.captioner is None and state.screenshot)
        ]
        return sorted({*readable[:1], *readable[-1:]})

    def _comparison_messages(
        self,
        shown: Sequence[_Attempt],
        facts: _Facts,
        room: Room,
    ) -> tuple[Message, ...]:
        """Returns the one question; every attempt gets the same room and the same kinds of images.

        Without room for two images of each attempt, only the last states are shown; without room
        for these, none.
        """
        share = room.chars // len(shown)
        most = 2 if room.images is None else min(2, room.images // len(shown))
        images: list[Image] = []
        blocks = []
        for number, one in enumerate(shown, 1):
            name = f"attempt-{number}"
            lines = list(_lines(one, facts, share // (2 * max(1, len(one.run.steps)))))
            parts = [f"Attempt {number}:", quoted(name, "\n".join(lines) or "(no actions)")]
            states, ends = one.run.observations, self._ends(one)
            if self.captioner is not None:
                last = state_text(one.texts[ends[-1]] or "", states[ends[-1]]) if ends else ""
                text = quoted(f"{name}-last", shorten(last or _NOT_RECORDED, share // 4))
                parts.append(f"Its last screen:\n{text}")
            else:
                for i in ends[max(0, len(ends) - most) :]:
                    images.append(Image(states[i].screenshot or ""))
                    when = "last" if i == ends[-1] else "first"
                    parts.append(f"Image {len(images)}: its {when} screen")
            answer = shorten(one.run.answer or "(none)", share // 4)
            parts.append(f"Its answer, a claim:\n{quoted(f'{name}-answer', answer)}")
            blocks.append("\n".join(parts))
        return filled(
            load_prompt("prill.evaluators", _COMPARED),
            images,
            goal=asked_for(shown[0].run.task),
            attempts="\n\n".join(blocks),
        )


def _distinct(shown: Sequence[_Attempt]) -> list[_Transition]:
    """Returns the distinct transitions of all attempts: equal ones get equal facts."""
    every = (one for attempt in shown for one in attempt.transitions if one is not None)
    return list({one.key: one for one in every}.values())


def _needs_call(transition: _Transition) -> bool:
    return transition.before != transition.after


def _lines(attempt: _Attempt, facts: _Facts, most: int) -> list[str]:
    """Returns a line for each action of an attempt, with the facts about it."""
    lines = []
    for i, (step, one) in enumerate(zip(attempt.run.steps, attempt.transitions, strict=True), 1):
        if one is not None:
            description = "; ".join(facts[one.key])
        else:
            description = _ENDED if step.action.is_final else _NOT_DESCRIBED
        # the answer is quoted separately, as a claim
        action = "" if step.action.is_final else one.action if one else step.action.text
        text = f"{' '.join(action.split())}: {description}" if action else description
        lines.append(f"{i}: {shorten(text, max(_MIN_LINE_CHARS, most))}")
    return lines

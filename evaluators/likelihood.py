"""The likelihood judge: how likely the request is, given what the agent did.

A language model reads the actions and the last state, and the judge reads the log-probabilities
that it gives to the request's tokens. The model is never asked for a verdict, and learns from
successful runs alone (`prill train judge --judge likelihood`), which makes even a small model
sensitive to a wrong date or a name left out. The idea is that of hindsight relabelling and
instruction back-translation (arXiv 2308.06259), used here to score: a run that did something else
makes the request surprising.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, fsum
from typing import Annotated, ClassVar

from msgspec import Meta

from prill.config.values import Config
from prill.errors import NoEvidenceError, UnparsableError
from prill.evaluators.evidence import action_history, endings, state_text, without_claims
from prill.evaluators.frames import captions, images_read, planned_captions
from prill.evaluators.judgement import Judgement, ModelJudge
from prill.evaluators.outcome import compute_rewards
from prill.models.calls import ROOM, ask, filled, planned
from prill.models.prompts import quoted, shorten
from prill.models.replies import GivenReply
from prill.protocols import Captioner, Form, Message, Token
from prill.types import Observation, Trajectory, Usage

# The score is the geometric mean of so many probabilities, the lowest: one wrong word of a long
# request counts as much as one of a short request.
_LOWEST = 3
# Between most successes and most failures on one fold of benchmarks/trained_judge.py; `calibrate`
# chooses one for other data.
_THRESHOLD = 0.05
# So many consecutive words of the request, or half of it if that is more, are removed from what the
# model reads: an agent that typed the request would otherwise make it likely.
_COPIED = 6
_WORD = re.compile(r"\w+")
_REMOVED = "(repeats the request)"
_SHOWN = 60  # characters of the request around its least likely token, in the reason


@dataclass(frozen=True, kw_only=True)
class LikelihoodSpec(Config):
    """Settings of `likelihood`."""

    max_chars: Annotated[
        int,
        Meta(ge=1, description="Maximum number of characters for the state, and for actions."),
    ] = ROOM
    threshold: Annotated[
        float,
        Meta(gt=0, lt=1, description="A run is a success from this score on."),
    ] = _THRESHOLD


@dataclass(frozen=True, eq=False)
class LikelihoodJudge(ModelJudge):
    """A judge that scores how likely the request is, given the actions and the last state.

    The score is the geometric mean of the request's three lowest token probabilities. It is not a
    probability of success before `prill calibrate`. The model must run in this process (`embedded`,
    `local:`). The agent's answer and thoughts are not shown, since they can repeat the request;
    requests whose only result is an answer cannot be judged in this way. Passages that repeat the
    request are removed, too (`without_copies`), but not paraphrases of it.

    Args:
        model: The model that reads the run.
        spec: The settings.
    """

    captioner: Annotated[Captioner, Meta(description="Captioner that describes the last state.")]
    spec: LikelihoodSpec = field(default=LikelihoodSpec(), kw_only=True)

    name: ClassVar[str] = "likelihood"
    prompt_names: ClassVar[tuple[str, ...]] = ("likelihood",)
    main_prompts: ClassVar[tuple[str, ...]] = prompt_names
    forms: ClassVar[tuple[Form, ...]] = ()

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the last state's image, if captions come from images."""
        return images_read(_last(trajectory), self.captioner)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the usage of the call, without making captions."""
        last = _last(trajectory)
        texts = planned_captions(last, self.captioner)
        if not any(texts):
            return Usage()
        goal = trajectory.task.goal
        return planned(self._messages(trajectory, texts[0] or "", ROOM), len(goal))

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        last = _last(trajectory)
        text = (await captions(last, self.captioner))[0] if last else None
        if not text:
            raise NoEvidenceError("the last state cannot be read, so the outcome is not visible")
        goal = trajectory.task.goal
        if not goal.strip():
            raise NoEvidenceError("the request is empty")
        reply = await ask(
            self.model,
            lambda room: self._messages(trajectory, text, room.chars),
            GivenReply(goal),
            self.prompts["likelihood"],
            len(goal.encode()) + 1,  # a token has at least one byte
            self.spec.max_chars,
        )
        if not reply.tokens:
            raise UnparsableError("the model returned no log-probabilities")
        score = score_tokens(reply.tokens)
        success = score >= self.spec.threshold
        return Judgement(
            success,
            score,
            _reason(reply.tokens),
            rewards=compute_rewards(success, len(trajectory.steps)) or None,
        )

    def _messages(self, trajectory: Trajectory, text: str, room: int) -> tuple[Message, ...]:
        goal = trajectory.task.goal
        history = without_copies(action_history(without_claims(trajectory), room), goal)
        state = without_copies(shorten(state_text(text, _last(trajectory)[0]), room), goal)
        return filled(
            self.prompts["likelihood"],
            (),
            actions=quoted("actions", history),
            state=quoted("state", state),
        )


def score_tokens(tokens: Sequence[Token]) -> float:
    """Returns the geometric mean of the three lowest probabilities, in [0, 1]."""
    lowest = sorted(token.logprob for token in tokens)[:_LOWEST]
    return round(exp(fsum(lowest) / len(lowest)), 6)


def without_copies(text: str, goal: str) -> str:
    """Removes passages that repeat the request: six of its words in a row, or half of them if more.

    Case and punctuation do not count. Requests of fewer words than that are left.
    """
    wanted = [word.group().casefold() for word in _WORD.finditer(goal)]
    size = max(_COPIED, (len(wanted) + 1) // 2)
    passages = {tuple(wanted[i : i + size]) for i in range(len(wanted) - size + 1)}
    found = list(_WORD.finditer(text))
    words = [word.group().casefold() for word in found]
    spans: list[tuple[int, int]] = []  # of words, without overlaps
    for i in range(len(words) - size + 1):
        if tuple(words[i : i + size]) in passages:
            start = spans.pop()[0] if spans and i <= spans[-1][1] else i
            spans.append((start, i + size))
    for start, end in reversed(spans):
        text = f"{text[: found[start].start()]}{_REMOVED}{text[found[end - 1].end() :]}"
    return text


def _last(trajectory: Trajectory) -> list[Observation]:
    """Returns the last state, if it can show the outcome."""
    last = len(trajectory.observations) - 1
    return [trajectory.observations[last]] if last in endings(trajectory) else []


def _reason(tokens: Sequence[Token]) -> str:
    least = min(range(len(tokens)), key=lambda i: tokens[i].logprob)
    before = "".join(token.text for token in tokens[:least])[-_SHOWN // 2 :]
    after = "".join(token.text for token in tokens[least + 1 :])[: _SHOWN // 2]
    token = tokens[least]
    return (
        f"least likely in the request: {token.text.strip()!r} (probability "
        f"{exp(token.logprob):.2g}) in {f'{before}{token.text}{after}'.strip()!r}"
    )

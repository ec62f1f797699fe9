"""Rubric judge: weighted criteria, each met or not by a state that can be looked up (after arXiv 2604.06240)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from prill.cache import DiskCache
from prill.errors import InputError, Unparsable, UsageError
from prill.evaluators.calls import PerGoal, filled, planned, prompt_of, together
from prill.evaluators.criteria import RUBRIC, Rubric, Wanted, hash_of, rubric_for
from prill.evaluators.findings import ASSESSMENT, judged
from prill.evaluators.frames import (
    Frame,
    chosen,
    distinct_frames,
    frame_block,
    images_read,
    planned_frames,
    remarks,
    verdict_blocks,
)
from prill.evaluators.outcome import ROOM, Judgement, ask, verdict_of
from prill.parse import RecordFormat
from prill.prompts import content_hash
from prill.protocols import Captioner, LanguageModel, Message
from prill.quotation import quoted
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict


@dataclass(frozen=True, slots=True)
class Relevance:
    """What a frame shows, and how much it tells of each criterion, in their order."""

    description: str
    scores: tuple[Literal[1, 2, 3, 4, 5], ...]


RELEVANCE = RecordFormat(
    Relevance, '{"description": "<what the state shows>", "scores": [<1 to 5 for the first criterion>, <for the second>, …]}'
)
TOP_K = 3
MAX_TOKENS = 2048  # a finding for each of up to 20 criteria
_FILES = ("rubric_criteria", "rubric_frame", "rubric_verdict")


class RubricJudge:
    """Judges criterion by criterion, by the frames that tell most about each and always the last, with the state as proof.

    Without a captioner the model looks at screenshots, with one it reads what the captioner makes of the states.

    rubrics         criteria by task id or goal (`prill.evaluators.criteria.read_rubrics`); else the model makes them, once
                    for each goal. With rubrics, a goal that has none is an `input` failure, unless `make_missing`
    top_k           how many frames to show for each criterion: the best rated, of a score of `least_score` (1 to 5) or more
    threshold       success needs this share of the weight; 1: every criterion
    include_answer  show the agent's answer, as a claim
    cache           keeps made criteria across runs

    `met` counts only with the number of a state that was shown; without one the criterion is insufficient_evidence, and so is
    one whose state does not exist or was not shown. Insufficient evidence is not a pass. `findings.process` is the share of
    the weight that is met; success needs besides that nothing made the task impossible (for the score: `findings.judged`).
    A frame whose rating cannot be read is shown all the same, and the reason says so; more of them than `top_k`: unscored.
    A reply that leaves out a criterion is no verdict: unscored, `parse`.
    """

    def __init__(
        self,
        model: LanguageModel,
        captioner: Captioner | None = None,
        *,
        rubrics: Mapping[str, Rubric] | None = None,
        make_missing: bool = False,
        top_k: int = TOP_K,
        least_score: int = 2,
        threshold: float = 1.0,
        include_answer: bool = True,
        max_tokens: int = MAX_TOKENS,
        cache: DiskCache | None = None,
    ) -> None:
        if top_k < 1 or not 1 <= least_score <= 5 or not 0 < threshold <= 1:
            raise UsageError(
                f"top k {top_k}, least score {least_score}, threshold {threshold:g}: give at least one frame, "
                "a score from 1 to 5, and a share above 0 and up to 1"
            )
        self.model = model
        self.captioner = captioner
        self.rubrics = rubrics
        self.make_missing = make_missing
        self.top_k = top_k
        self.least_score = least_score
        self.threshold = threshold
        self.include_answer = include_answer
        self.max_tokens = max_tokens
        self._made = PerGoal(RUBRIC, cache)

    @cached_property
    def info(self) -> EvaluatorInfo:
        """Changes whenever a verdict could."""
        params = {
            "captioner": None if self.captioner is None else self.captioner.name,
            "rubrics": None if self.rubrics is None else hash_of(self.rubrics),
            "make_missing": self.make_missing,
            "top_k": self.top_k,
            "least_score": self.least_score,
            "threshold": self.threshold,
            "include_answer": self.include_answer,
            "max_tokens": self.max_tokens,
        }
        shapes = (form.shape for form in (RUBRIC, RELEVANCE, ASSESSMENT))
        prompt = content_hash(*(prompt_of(name).text for name in _FILES), *shapes)
        return EvaluatorInfo("rubric", "1", self.model.name, prompt, params)

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """All of them: each is rated."""
        return images_read(trajectory.observations, self.captioner)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict with its findings; unscored with `no_evidence` when no state has what is looked at."""
        return await verdict_of(self, trajectory, lambda: self._judge(trajectory))

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Criteria (also where another trajectory of the goal will have brought them), a rating a frame, the verdict."""
        frames = planned_frames(trajectory, self.captioner)
        if not frames:
            return Usage()
        rubric = self._given(trajectory)
        calls = [_rubric_messages(trajectory.task.goal)] if rubric is None else []
        rubric = rubric or Rubric(tuple(Wanted(str(i).ljust(100, "x")) for i in range(5)))
        calls += [self._rating_messages(trajectory, rubric, frame, ROOM) for frame in frames]
        shown = frames[-1 - self.top_k * len(rubric.criteria) :]
        calls.append(self._verdict_messages(trajectory, rubric, shown, ["x" * 500] * len(shown), ROOM))
        return sum((planned(messages, self.max_tokens) for messages in calls), start=Usage())

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        frames = await distinct_frames(trajectory, self.captioner)
        rubric = await self._rubric(trajectory)
        ratings = await together([self._rate(trajectory, rubric, frame) for frame in frames])
        unread = [rating for rating in ratings if isinstance(rating, Unparsable)]
        if len(unread) > self.top_k:
            raise Unparsable(f"the ratings of {len(unread)} of {len(frames)} frames cannot be read; the last: {unread[-1]}")
        shown: list[int] = []
        rooms: list[int] = []

        def messages(room: int) -> tuple[Message, ...]:
            rooms.append(room)
            count = max(1, self.top_k * room // ROOM)
            columns = ([_score(rating, i) for rating in ratings] for i in range(len(rubric.criteria)))
            shown[:] = sorted({place for scores in columns for place in chosen(scores, count, self.least_score)})
            rated = [ratings[i] for i in shown]
            descriptions = ["" if isinstance(rating, Unparsable) else rating.description for rating in rated]
            return self._verdict_messages(trajectory, rubric, [frames[i] for i in shown], descriptions, room)

        reply = await ask(self.model, messages, ASSESSMENT, prompt_of("rubric_verdict"), self.max_tokens)
        states = {state for i in shown for state in frames[i].states}
        found = judged(rubric, ASSESSMENT.read(reply), states, self.threshold)
        return replace(found, reason=found.reason + remarks(len(unread), len(frames), rooms))

    def _given(self, trajectory: Trajectory) -> Rubric | None:
        """The rubric that was supplied; None: the model is to make it."""
        given = rubric_for(trajectory.task, self.rubrics or {})
        if given is None and self.rubrics is not None and not self.make_missing:
            raise InputError(f"no rubric was given for task {trajectory.task.id!r}, nor for its goal")
        return given

    async def _rubric(self, trajectory: Trajectory) -> Rubric:
        if (given := self._given(trajectory)) is not None:
            return given
        goal, prompt = trajectory.task.goal, prompt_of("rubric_criteria")
        key = content_hash(self.model.name, prompt.text, RUBRIC.shape, str(self.max_tokens), goal)
        return await self._made.get(
            key, lambda: ask(self.model, lambda _: _rubric_messages(goal), RUBRIC, prompt, self.max_tokens)
        )

    async def _rate(self, trajectory: Trajectory, rubric: Rubric, frame: Frame) -> Relevance | Unparsable:
        """The rating, or what was wrong with the reply."""
        try:
            reply = await ask(
                self.model,
                lambda room: self._rating_messages(trajectory, rubric, frame, room),
                RELEVANCE,
                prompt_of("rubric_frame"),
                self.max_tokens,
            )
        except Unparsable as unread:
            return unread
        rating = RELEVANCE.read(reply)
        if len(rating.scores) != len(rubric.criteria):
            return Unparsable(f"{len(rating.scores)} scores for {len(rubric.criteria)} criteria")
        return rating

    def _rating_messages(self, trajectory: Trajectory, rubric: Rubric, frame: Frame, room: int) -> tuple[Message, ...]:
        block, images = frame_block([frame], [""], trajectory, room)
        return filled(
            "rubric_frame",
            images,
            goal=quoted("request", trajectory.task.goal),
            criteria=_criteria_block(rubric),
            frame=block,
        )

    def _verdict_messages(
        self, trajectory: Trajectory, rubric: Rubric, frames: Sequence[Frame], descriptions: Sequence[str], room: int
    ) -> tuple[Message, ...]:
        values, images = verdict_blocks(trajectory, frames, descriptions, room, answer=self.include_answer)
        return filled("rubric_verdict", images, criteria=_criteria_block(rubric), **values)


def _score(rating: Relevance | Unparsable, criterion: int) -> int | None:
    return None if isinstance(rating, Unparsable) else rating.scores[criterion]


def _criteria_block(rubric: Rubric) -> str:
    return quoted("criteria", "\n".join(f"{i}. {' '.join(wanted.text.split())}" for i, wanted in enumerate(rubric.criteria, 1)))


def _rubric_messages(goal: str) -> tuple[Message, ...]:
    return filled("rubric_criteria", (), goal=quoted("request", goal))

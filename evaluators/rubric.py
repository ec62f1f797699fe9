"""Rubric judge: weighted criteria, each met or not by a state that can be looked up (after arXiv 2604.06240)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Literal

import msgspec

from prill.cache import DiskCache
from prill.errors import InputError, Unparsable, UsageError
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
from prill.evaluators.judgement import Judgement, verdict_of
from prill.models.calls import ROOM, PerGoal, ask, filled, planned, prompt_of, together
from prill.models.prompts import content_hash, quoted
from prill.models.replies import RecordFormat
from prill.protocols import Captioner, LanguageModel, Message
from prill.store import read_lines
from prill.types import Criterion, EvaluatorInfo, Findings, Task, Trajectory, Usage, Verdict

# What a goal asks for, as weighted criteria: the records, and files of criteria that people wrote.


_MOST = 20  # more do not fit one reply, and then they overlap


@dataclass(frozen=True, slots=True)
class Wanted:
    """One thing that a goal asks for. Weights are relative to one another."""

    text: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("a criterion needs a text")
        if not (isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"weight {self.weight:g} is no positive number")


@dataclass(frozen=True, slots=True)
class Rubric:
    """The criteria of one goal."""

    criteria: tuple[Wanted, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.criteria) <= _MOST:
            raise ValueError(f"{len(self.criteria)} criteria: give 1 to {_MOST}")
        texts = [" ".join(wanted.text.casefold().split()) for wanted in self.criteria]
        if double := next((w.text for i, w in enumerate(self.criteria) if texts[i] in texts[:i]), None):
            raise ValueError(f"{double!r} occurs twice")


RUBRIC = RecordFormat(Rubric, '{"criteria": [{"text": "<what must hold>", "weight": <a number above 0>}, …]}')


def rubric_for(task: Task, rubrics: Mapping[str, Rubric]) -> Rubric | None:
    """The rubric under the task's id, else under its goal."""
    return rubrics.get(task.id) or rubrics.get(task.goal.strip())


def hash_of(rubrics: Mapping[str, Rubric]) -> str:
    """The content hash of a set of rubrics."""
    return content_hash(*(part for name, made in sorted(rubrics.items()) for part in (name, str(msgspec.json.encode(made)))))


def read_rubrics(path: str | os.PathLike[str]) -> dict[str, Rubric]:
    """Rubrics by task id or by goal, from a file of JSON lines (.gz too) or, when its name ends in .toml, `[[rubric]]` tables.

    Each has a `task_id` or a `goal`, and `criteria` with a `text` and, where it is not 1, a `weight`. Raises UsageError with
    the place for anything else.
    """
    rubrics: dict[str, Rubric] = {}
    for place, row in _rows(Path(path)):
        try:
            name, rubric = _read(row)
            if name in rubrics:
                raise ValueError(f"{name!r} has a rubric already")
        except (msgspec.ValidationError, ValueError) as error:
            raise UsageError(f"{place}: {error}") from None
        rubrics[name] = rubric
    if not rubrics:
        raise UsageError(f"{path}: holds no rubric")
    return rubrics


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    if path.suffix == ".toml":
        yield from _tables(path)
        return
    try:
        for line in read_lines(path):
            try:
                yield f"{path}:{line.number}", msgspec.json.decode(line.data)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UsageError(f"{path}:{line.number}: not JSON ({error})") from None
    except InputError as error:
        raise UsageError(str(error)) from None


def _tables(path: Path) -> Iterator[tuple[str, object]]:
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not TOML ({error})") from None
    tables = content.get("rubric")
    if set(content) != {"rubric"} or not isinstance(tables, list):
        raise UsageError(f"{path}: give [[rubric]] tables, and nothing else")
    yield from ((f"{path}: rubric {i}", table) for i, table in enumerate(tables, 1))


def _read(row: object) -> tuple[str, Rubric]:
    if not isinstance(row, dict):
        raise ValueError("not an object")
    _only(row, ("task_id", "goal", "criteria"))
    name = row.get("task_id", row.get("goal"))
    if ("task_id" in row) == ("goal" in row) or not isinstance(name, str) or not name.strip():
        raise ValueError('give a "task_id" or a "goal" (one of them, a text), and "criteria"')
    for wanted in _listed(row.get("criteria")):
        _only(wanted, ("text", "weight"))
    return name.strip(), msgspec.convert({"criteria": row.get("criteria")}, Rubric)


def _listed(value: object) -> Sequence[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _only(row: Mapping[str, object], names: Sequence[str]) -> None:
    if unknown := sorted(set(row) - set(names)):
        raise ValueError(f"unknown field {unknown[0]!r}; there are: {', '.join(names)}")


# What a model says of each criterion, and how much of it counts: a claim needs a state that shows it.


@dataclass(frozen=True, slots=True)
class Finding:
    """The judgement of one criterion, by its number from 1. `step` is the state that shows it; -1 or None: none."""

    criterion: int
    reason: str
    step: int | None
    met: Literal["met", "not_met", "insufficient_evidence"]


@dataclass(frozen=True, slots=True)
class Assessment:
    """The judgement of all criteria, and what happened besides. `obstacle` says why nobody could have done the task."""

    criteria: tuple[Finding, ...]
    side_effects: tuple[str, ...]
    obstacle_reason: str
    obstacle: Literal["none", "captcha", "login_wall", "unreachable", "impossible"]


ASSESSMENT = RecordFormat(
    Assessment,
    '{"criteria": [{"criterion": <its number>, "reason": "<why>", "step": <the number of the state that shows it, or -1>, '
    '"met": "met" or "not_met" or "insufficient_evidence"}, …], "side_effects": ["<a change nobody asked for>", …], '
    '"obstacle_reason": "<what stood in the way, or nothing>", '
    '"obstacle": "none" or "captcha" or "login_wall" or "unreachable" or "impossible"}',
)


def judged(rubric: Rubric, assessment: Assessment, shown: Set[int], threshold: float) -> Judgement:
    """The judgement by an assessment whose model was shown these states. Raises Unparsable when it leaves a criterion out.

    Success: `threshold` or more of the weight is met, and nothing made the task impossible. Score: half the share of the
    weight, and half a point more for success, so that 0.5 divides and order is kept; 0 where the task could not be done.
    """
    found = {finding.criterion: finding for finding in assessment.criteria}
    if missing := [i for i in range(1, len(rubric.criteria) + 1) if i not in found]:
        raise Unparsable(f"the reply says nothing of criterion {missing[0]} of {len(rubric.criteria)}")
    criteria = tuple(_checked(wanted, found[i], shown) for i, wanted in enumerate(rubric.criteria, 1))
    process = _share(criteria)
    why = assessment.obstacle_reason.strip()
    blocked = None if assessment.obstacle == "none" else f"{assessment.obstacle}: {why}" if why else assessment.obstacle
    success = process >= round(threshold, 6) and blocked is None
    findings = Findings(
        criteria=criteria,
        process=process,
        not_executable=blocked,
        side_effects=tuple(effect.strip() for effect in assessment.side_effects if effect.strip()),
    )
    score = 0.0 if blocked else round(process / 2 + success / 2, 6)
    return Judgement(success, score, _summary(criteria, blocked), findings=findings)


def _share(criteria: Sequence[Criterion]) -> float:
    """The share of the weight that is met; exactly 1 when all are, whatever the rounding of sums."""
    if all(criterion.met == "met" for criterion in criteria):
        return 1.0
    met = sum(criterion.weight for criterion in criteria if criterion.met == "met")
    return round(met / sum(criterion.weight for criterion in criteria), 6)


def _checked(wanted: Wanted, finding: Finding, shown: Set[int]) -> Criterion:
    step = finding.step if finding.step in shown else None
    met, reason = finding.met, finding.reason
    if finding.step is not None and finding.step >= 0 and step is None:
        met, reason = "insufficient_evidence", f"{reason} [said {met} by state {finding.step}, which was not shown]"
    elif met == "met" and step is None:
        met, reason = "insufficient_evidence", f"{reason} [said met without a state that shows it]"
    return Criterion(text=wanted.text, weight=wanted.weight, met=met, step=step, reason=reason)


def _summary(criteria: Sequence[Criterion], blocked: str | None) -> str:
    missed = [criterion for criterion in criteria if criterion.met != "met"]
    parts = [f"{len(criteria) - len(missed)} of {len(criteria)} criteria met"]
    parts += [f"{criterion.met.replace('_', ' ')}: {criterion.text} ({criterion.reason})" for criterion in missed]
    return "; ".join([*parts, f"could not be done: {blocked}"] if blocked else parts)


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

    rubrics         criteria by task id or goal (`prill.evaluators.rubric.read_rubrics`); else the model makes them, once
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

"""Criteria of a goal: rubrics and their files, and the findings on each criterion.

A rubric has weighted criteria, each supported by a cited state (after arXiv 2604.06240).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from prill.config.toml import read_toml
from prill.errors import InputError, NoEvidenceError, UnparsableError, UsageError
from prill.evaluators.judgement import Judgement
from prill.io.lines import decode_record, read_lines
from prill.models.prompts import content_hash
from prill.models.replies import RecordFormat
from prill.types import Criterion, Findings, Task

_MAX_CRITERIA = 20  # more do not fit into one reply, and they overlap


# Length limits for endpoints that enforce schemas; slightly longer replies are still accepted.
_Sentence = Annotated[str, Meta(extra_json_schema={"maxLength": 500})]
_SIDE_EFFECTS = 10


@dataclass(frozen=True, slots=True)
class RubricCriterion:
    """One criterion of a goal.

    Args:
        text: The text of the criterion.
        weight: Its weight relative to the others.

    Raises:
        ValueError: The text is empty, or the weight is not positive.
    """

    text: _Sentence
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("a criterion needs a text")
        if not (isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"weight {self.weight:g}: expected a positive number")


@dataclass(frozen=True, slots=True)
class Rubric:
    """The criteria of one goal.

    Raises:
        ValueError: There are too few or too many criteria, or one occurs twice.
    """

    criteria: Annotated[
        tuple[RubricCriterion, ...],
        Meta(extra_json_schema={"minItems": 1, "maxItems": _MAX_CRITERIA}),
    ]

    def __post_init__(self) -> None:
        if not 1 <= len(self.criteria) <= _MAX_CRITERIA:
            raise ValueError(f"{len(self.criteria)} criteria: expected 1 to {_MAX_CRITERIA}")
        texts = [" ".join(criterion.text.casefold().split()) for criterion in self.criteria]
        if repeat := next(
            (c.text for i, c in enumerate(self.criteria) if texts[i] in texts[:i]), None
        ):
            raise ValueError(f"{repeat!r} occurs twice")


def rubric_for(task: Task, rubrics: Mapping[str, Rubric]) -> Rubric | None:
    """Returns the rubric for the task's id, else for its goal."""
    return rubrics.get(task.id) or rubrics.get(task.goal.strip())


def compute_hash(rubrics: Mapping[str, Rubric]) -> str:
    """Returns the content hash of a set of rubrics."""
    pairs = ((name, str(msgspec.json.encode(rubric))) for name, rubric in sorted(rubrics.items()))
    return content_hash(*(part for pair in pairs for part in pair))


def read_rubrics(path: str | os.PathLike[str]) -> dict[str, Rubric]:
    """Reads rubrics from a file.

    Each has a `task_id` or a `goal`, and `criteria` with a `text` and a `weight` (default 1).

    Args:
        path: A JSON Lines file (also .gz), or a .toml file of `[[rubric]]` tables.

    Returns:
        The rubrics by task id or goal.

    Raises:
        UsageError: The file contains no rubric or one twice, or a rubric has a wrong format; the
            message names the place.
    """
    rubrics: dict[str, Rubric] = {}
    for place, row in _rows(Path(path)):
        try:
            name, rubric = _parse_rubric(row)
            if name in rubrics:
                raise ValueError(f"{name!r} already has a rubric")
        except (msgspec.ValidationError, ValueError) as error:
            raise UsageError(f"{place}: {error}") from None
        rubrics[name] = rubric
    if not rubrics:
        raise UsageError(f"{path}: contains no rubric")
    return rubrics


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    if path.suffix == ".toml":
        yield from _tables(path)
        return
    try:
        for line in read_lines(path):
            try:
                yield f"{path}:{line.number}", decode_record(line.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise UsageError(f"{path}:{line.number}: not JSON ({error})") from None
    except InputError as error:
        raise UsageError(str(error)) from None


def _tables(path: Path) -> Iterator[tuple[str, object]]:
    content = read_toml(path)
    tables = content.get("rubric")
    if set(content) != {"rubric"} or not isinstance(tables, list):
        raise UsageError(f"{path}: expected [[rubric]] tables only")
    yield from ((f"{path}: rubric {i}", table) for i, table in enumerate(tables, 1))


def _parse_rubric(row: object) -> tuple[str, Rubric]:
    if not isinstance(row, dict):
        raise ValueError("expected an object")
    _check_fields(row, ("task_id", "goal", "criteria"))
    name = row.get("task_id", row.get("goal"))
    if ("task_id" in row) == ("goal" in row) or not isinstance(name, str) or not name.strip():
        raise ValueError(
            'expected a "task_id" or a "goal" (only one of them, a string), and "criteria"'
        )
    for criterion in _objects(row.get("criteria")):
        _check_fields(criterion, ("text", "weight"))
    return name.strip(), msgspec.convert({"criteria": row.get("criteria")}, Rubric)


def _objects(value: object) -> Sequence[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _check_fields(row: Mapping[str, object], names: Sequence[str]) -> None:
    if unknown := sorted(set(row) - set(names)):
        raise ValueError(f"unknown field {unknown[0]!r}; expected one of {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class CriterionFinding:
    """The judgement of one criterion, by its number from 1.

    `step` is the state that shows it; -1 or None: no state.
    """

    criterion: int
    reason: _Sentence
    step: int | None
    met: Literal["met", "not_met", "insufficient_evidence"]


@dataclass(frozen=True, slots=True)
class Assessment:
    """The judgement of all criteria.

    `obstacle` is the reason why the task was impossible.
    """

    criteria: Annotated[
        tuple[CriterionFinding, ...],
        Meta(extra_json_schema={"minItems": 1, "maxItems": _MAX_CRITERIA}),
    ]
    side_effects: Annotated[
        tuple[_Sentence, ...], Meta(extra_json_schema={"maxItems": _SIDE_EFFECTS})
    ]
    obstacle_reason: _Sentence
    obstacle: Literal["none", "captcha", "login_wall", "unreachable", "impossible"]


@dataclass(frozen=True, slots=True)
class Relevance:
    """A description of a frame, and its relevance to each criterion, in order."""

    description: Annotated[str, Meta(extra_json_schema={"maxLength": 1000})]
    scores: Annotated[
        tuple[Literal[1, 2, 3, 4, 5], ...],
        Meta(extra_json_schema={"minItems": 1, "maxItems": _MAX_CRITERIA}),
    ]


# The reply formats of the three types of calls.
RUBRIC = RecordFormat(
    Rubric, '{"criteria": [{"text": "<what must hold>", "weight": <a number above 0>}, …]}'
)
RELEVANCE = RecordFormat(
    Relevance,
    '{"description": "<what the state shows>", "scores": [<1 to 5 for the first criterion>, <for '
    "the second>, …]}",
)
ASSESSMENT = RecordFormat(
    Assessment,
    '{"criteria": [{"criterion": <its number>, "reason": "<why>", "step": <the number of the '
    "state that shows it, or -1>, "
    '"met": "met" or "not_met" or "insufficient_evidence"}, …], "side_effects": ["<a change '
    'nobody asked for>", …], '
    '"obstacle_reason": "<what stood in the way, or nothing>", '
    '"obstacle": "none" or "captcha" or "login_wall" or "unreachable" or "impossible"}',
)


def make_judgement(
    rubric: Rubric, assessment: Assessment, states: Set[int], threshold: float
) -> Judgement:
    """Returns the judgement from an assessment whose model was shown these states.

    Raises UnparsableError if the assessment omits a criterion, and NoEvidenceError if the states
    show no criterion met or not met, which is not a failure.

    A finding counts only with a state that shows it. A run is a success if at least `threshold` of
    the weight is met and the task was possible. The score is half the met share of the weight, plus
    0.5 for a success, so that 0.5 separates successes and failures; it is 0 if the task was
    impossible.
    """
    by_number = {finding.criterion: finding for finding in assessment.criteria}
    if missing := [i for i in range(1, len(rubric.criteria) + 1) if i not in by_number]:
        raise UnparsableError(
            f"the reply does not mention criterion {missing[0]} of {len(rubric.criteria)}"
        )
    criteria = tuple(
        _verify(criterion, by_number[i], states) for i, criterion in enumerate(rubric.criteria, 1)
    )
    process = _share(criteria)
    why = assessment.obstacle_reason.strip()
    obstacle = (
        None
        if assessment.obstacle == "none"
        else f"{assessment.obstacle}: {why}"
        if why
        else assessment.obstacle
    )
    if obstacle is None and all(criterion.met == "insufficient_evidence" for criterion in criteria):
        raise NoEvidenceError(
            f"no state shows whether any criterion is met; {_summary(criteria, obstacle)}"
        )
    success = process >= round(threshold, 6) and obstacle is None
    findings = Findings(
        criteria=criteria,
        process=process,
        not_executable=obstacle,
        side_effects=tuple(effect.strip() for effect in assessment.side_effects if effect.strip()),
    )
    score = 0.0 if obstacle else round(process / 2 + success / 2, 6)
    return Judgement(success, score, _summary(criteria, obstacle), findings=findings)


def _share(criteria: Sequence[Criterion]) -> float:
    """Returns the met share of the weight; exactly 1 if all criteria are met, despite rounding."""
    if all(criterion.met == "met" for criterion in criteria):
        return 1.0
    met = sum(criterion.weight for criterion in criteria if criterion.met == "met")
    return round(met / sum(criterion.weight for criterion in criteria), 6)


def _verify(criterion: RubricCriterion, finding: CriterionFinding, states: Set[int]) -> Criterion:
    """Returns the criterion with its finding; only states that were shown count as evidence."""
    step = finding.step if finding.step in states else None
    met, reason = finding.met, finding.reason
    if finding.step is not None and finding.step >= 0 and step is None:
        met, reason = (
            "insufficient_evidence",
            f"{reason} [said {met} by state {finding.step}, which was not shown]",
        )
    elif met == "met" and step is None:
        met, reason = "insufficient_evidence", f"{reason} [said met without a state that shows it]"
    return Criterion(
        text=criterion.text, weight=criterion.weight, met=met, step=step, reason=reason
    )


def _summary(criteria: Sequence[Criterion], obstacle: str | None) -> str:
    unmet = [criterion for criterion in criteria if criterion.met != "met"]
    parts = [f"{len(criteria) - len(unmet)} of {len(criteria)} criteria met"]
    parts += [
        f"{criterion.met.replace('_', ' ')}: {criterion.text} ({criterion.reason})"
        for criterion in unmet
    ]
    return "; ".join([*parts, f"could not be done: {obstacle}"] if obstacle else parts)

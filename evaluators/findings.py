"""What a model says of each criterion, and how much of it counts: a claim needs a state that shows it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Literal

from prill.errors import Unparsable
from prill.evaluators.criteria import Rubric, Wanted
from prill.evaluators.outcome import Judgement
from prill.parse import RecordFormat
from prill.types import Criterion, Findings


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

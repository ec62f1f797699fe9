"""The Universal Verifier's computations: the frames relevant to each criterion, and the points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prill.evaluators.protocols.readers import (
    Conditions,
    FrameRelevance,
    ItemScore,
    Rubric,
    Scores,
    resolve_conditions,
)
from prill.types import Criterion

# microsoft/fara `webeval/src/webeval/rubric_agent/mm_rubric_agent.py`, steps 3 and "Final".
_TOP = 5
_HIGH, _LOW, _GAP = 6, 5, 2


def conditional_criteria(results: Mapping[str, Any]) -> list[int]:
    """Returns the numbers, from 1, of the rubric's criteria with a condition."""
    rubric: Rubric = results["rubric"]
    return [i for i, item in enumerate(rubric.items, 1) if item.condition]


def select_relevant(
    relevance: Sequence[FrameRelevance], rubric: Rubric
) -> dict[int, tuple[int, ...]]:
    """Selects the frames that are analysed for each criterion: the criteria's numbers, from 1, by
    frame.

    They are the five most relevant ones; of equally relevant frames, the later ones. If one has a
    relevance of 6 or more, those below 5 and more than 2 below the weakest such frame are dropped.
    A frame's relevance to a criterion is 0 if none is given.
    """
    selected: dict[int, list[int]] = {}
    for number in range(1, len(rubric.items) + 1):
        scores = [
            max((one.score for one in frame.scores if one.criterion == number), default=0)
            for frame in relevance
        ]
        best = sorted(range(len(scores)), key=lambda i: (-scores[i], -i))[:_TOP]
        if high := [scores[i] for i in best if scores[i] >= _HIGH]:
            best = [i for i in best if not (scores[i] < _LOW and scores[i] < min(high) - _GAP)]
        for i in best:
            selected.setdefault(i, []).append(number)
    return {i: tuple(numbers) for i, numbers in selected.items()}


def complete_scores(result: Any, results: Mapping[str, Any]) -> Any:
    """Returns a stage's result; points are completed and ordered by the rubric.

    Points are bounded by 0 and the criterion's maximum. A criterion without points keeps those of
    the stage `first`, or 0. Decided rival conditions take precedence.
    """
    if not isinstance(result, Scores):
        return result
    rubric: Rubric = results["rubric"]
    earlier = results.get("first", Scores(()))
    found = {item.criterion: item for item in (*earlier.items, *result.items)}
    items = []
    for number, item in enumerate(rubric.items, 1):
        score = found.get(number, ItemScore(number, True, 0, "no points were given"))
        points = min(float(item.max_points), max(0.0, score.earned_points))
        met = score.condition_met or not item.condition
        items.append(ItemScore(number, met, points, score.justification))
    return resolve_conditions(Scores(tuple(items)), results.get("conditions", Conditions(())))


def compute_points(results: Mapping[str, Any]) -> tuple[tuple[Criterion, ...], float | None]:
    """Returns the criteria and the share of points earned, in [0, 1]; None if no criterion applies.

    Criteria whose condition is not met are in neither sum; side effects add points that were not
    earned.
    """
    rubric: Rubric = results["rubric"]
    scores: Scores = results["scores"]
    criteria, earned, maximum = [], 0.0, 0.0
    for item, score in zip(rubric.items, scores.items, strict=True):
        if not score.condition_met:
            continue
        earned, maximum = earned + score.earned_points, maximum + item.max_points
        criteria.append(
            Criterion(
                text=item.criterion,
                weight=float(item.max_points),
                met="met" if score.earned_points >= item.max_points else "not_met",
                reason=f"{score.earned_points:g} of {item.max_points} points: "
                f"{score.justification}",
            )
        )
    maximum += sum(effect.max_points for effect in results["effects"].side_effects)
    return tuple(criteria), earned / maximum if maximum else None

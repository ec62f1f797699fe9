"""The figures of a study: what several training seeds may claim, and the pictures of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from prill.evaluators.agreement.comparison import exact_mcnemar
from prill.refine.filtered_bc.results import (
    Score,
    StudyResults,
    by_precision,
    by_round,
    results_text,
    swapped_p,
)


def shown(arm: str, seed: int | None, successes: int) -> Score:
    return Score(
        arm=arm,
        seed=seed,
        round=0 if seed is None else 1,
        successes=successes,
        n=20,
        unlabelled=0,
        interval=(0.3, 0.7),
    )


def learnt(arm: str, seed: int, precision: float | None) -> dict[str, Any]:
    counts = {"attempts": 10, "successes": 0, "precision": precision, "recall": 0.5}
    judge = {"name": "noisy", "precision": 0.7, "recall": 0.8}
    attempts = {"episodes": 40, "successes": 10}
    return {
        "arm": arm,
        "seed": seed,
        "round": 1,
        "learnt": counts,
        "judge": judge,
        "attempts": attempts,
    } | dict.fromkeys(("rows", "filter", "ended"))


def results(scores: Sequence[Score], judges: Sequence[dict[str, Any]] = ()) -> StudyResults:
    return StudyResults(scores=tuple(scores), differences=(), judges=tuple(judges), by_task={})


def test_training_seeds_are_no_more_episodes() -> None:
    one, three = (results([shown("a", seed, 10) for seed in range(seeds)]) for seeds in (1, 3))
    interval = "interval 29.9% to 70.1%"
    assert interval in by_round(one) and interval in by_round(three)
    assert "30 of 60" in by_round(three)
    assert "| a | all | 1 | 30/60 | 50.0% | 29.9% to 70.1% | 0 |" in results_text(three)


@pytest.mark.parametrize(("gained", "lost"), [(25, 10), (3, 3), (0, 7), (0, 0)])
def test_one_seed_is_mcnemars_exact_test(gained: int, lost: int) -> None:
    assert swapped_p([1] * gained + [-1] * lost + [0] * 50) == pytest.approx(
        exact_mcnemar(gained, lost)
    )


def test_plays_of_one_page_are_swapped_together() -> None:
    """Three adapters that all gain the same six pages show no more than one of them does."""
    assert swapped_p([3] * 6) == swapped_p([1] * 6) == 2 / 2**6
    # By hand: of the eight signs before 3, 2 and 1, the sums 6, -6, 4 and -4 are as far off as 3 +
    # 2 - 1.
    assert swapped_p([3, 2, -1]) == 4 / 8


def test_judge_that_passed_nobody_has_no_mark() -> None:
    judges = [learnt(arm, 0, precision) for arm, precision in (("a", 0.5), ("b", 0.8), ("c", None))]
    assert (
        by_precision(results([shown(arm, 0, 10) for arm in "abc"], judges)).count("10 of 20") == 2
    )


def test_each_seed_is_a_dot_at_its_precision() -> None:
    scores = [
        shown("base", None, 8),
        *(shown("a", seed, successes) for seed, successes in enumerate((10, 12, 14))),
    ]
    judges = [learnt("a", seed, precision) for seed, precision in enumerate((0.6, 0.7, 0.8))]
    picture = by_precision(results(scores, judges))
    places = [float(x) for x in re.findall(r'<circle [^>]*cx="([\d.]+)"', picture)]
    mark = re.search(r"translate\(([\d.]+) [\d.]+\)[^>]*><title>a: 60.0% \(36 of 60\)", picture)
    assert (
        mark is not None
        and sorted(places) == places
        and float(mark[1]) == pytest.approx(places[1], abs=0.05)
    )
    assert "untrained: 40.0%, interval 30.0% to 70.0%" in picture
    # close: shares from 30 % on, precisions from 0
    assert ">30%<" in picture and ">0%<" in picture and ">90%<" not in picture

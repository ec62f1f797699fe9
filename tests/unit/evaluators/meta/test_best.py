"""The best of N attempts: by hand, against all draws, and what it never does."""

from __future__ import annotations

from itertools import combinations
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prill.errors import UsageError
from prill.evaluators.meta.best import best_of_n, pick_best
from prill.types import EvaluatorInfo, Verdict

JUDGE = EvaluatorInfo("j", "1")
Attempts = list[tuple[float | None, bool]]
attempt = st.tuples(st.sampled_from([None, 0.1, 0.5, 0.9]), st.booleans())


def verdict(id: str, score: float | None, success: bool | None = None) -> Verdict:
    if score is None and success is None:
        return Verdict(id=id, unscored="timeout", evaluator=JUDGE)
    told = score is not None and score >= 0.5 if success is None else success
    return Verdict(id=id, success=told, score=score, evaluator=JUDGE)


def test_the_highest_score_is_picked_and_ties_are_told() -> None:
    verdicts = {
        "a": verdict("a", 0.2),
        "b": verdict("b", 0.8),
        "c": verdict("c", None),
        "d": verdict("d", 0.8),
        "e": None,
    }
    pick = pick_best("t", verdicts)
    assert (pick.id, pick.value, pick.success, pick.tied) == ("b", 0.8, True, ("b", "d"))
    assert (pick.attempts, pick.unscored) == (5, 2)


def test_a_verdict_without_a_score_counts_as_one_or_zero() -> None:
    verdicts = {"a": verdict("a", None, False), "b": verdict("b", None, True)}
    assert pick_best("t", verdicts).id == "b"


def test_unscored_attempts_are_never_picked() -> None:
    pick = pick_best("t", {"a": verdict("a", None), "b": verdict("b", 0.0)})
    assert (pick.id, pick.success) == ("b", False)
    assert pick_best("t", {"a": verdict("a", None), "b": None}).id is None


def test_curve_by_hand() -> None:
    # Of 3 attempts the judge likes a failure best, then a success, then a failure.
    curve = best_of_n([[(0.9, False), (0.5, True), (0.1, False)]])
    assert [point.n for point in curve] == [1, 2, 3]
    assert [point.pick.value for point in curve] == pytest.approx([1 / 3, 1 / 3, 0])
    assert [point.passed.value for point in curve] == pytest.approx([1 / 3, 2 / 3, 1])


@settings(max_examples=60, deadline=None)
@given(st.lists(attempt, min_size=1, max_size=5))
def test_curve_is_the_mean_over_all_draws(attempts: Attempts) -> None:
    for point in best_of_n([attempts]):
        picks, passed = [], []
        for draw in combinations(attempts, point.n):
            values = [value for value, _ in draw if value is not None]
            if values:
                best = [truth for value, truth in draw if value == max(values)]
                picks.append(mean(best))
                passed.append(any(truth for _, truth in draw))
        assert point.pick.undefined == (not picks)
        if picks:
            assert point.pick.value == pytest.approx(mean(picks))
            assert point.passed.value == pytest.approx(mean(passed))
            assert point.pick.value <= point.passed.value + 1e-9
        assert point.picked == pytest.approx(
            len(picks) / len(list(combinations(attempts, point.n)))
        )


def test_a_perfect_judge_reaches_pass_at_n_and_a_blind_one_stays_at_chance() -> None:
    truths = [[True, False, False, False], [False] * 4, [True, True, False, False]] * 10
    perfect = best_of_n([[(float(truth), truth) for truth in task] for task in truths])
    blind = best_of_n([[(0.5, truth) for truth in task] for task in truths])
    for point, chance in zip(perfect, blind, strict=True):
        assert point.pick.value == pytest.approx(point.passed.value)
        assert chance.pick.value == pytest.approx(0.25)
        assert point.pick.low is not None and point.pick.high is not None
        assert point.pick.low < point.pick.value < point.pick.high


def test_points_are_of_the_same_tasks() -> None:
    tasks: list[Attempts] = [[(0.5, True)] * 2, [(0.5, False)] * 4]
    assert [point.pick.value for point in best_of_n(tasks)] == [0.5, 0.5]
    assert [point.pick.value for point in best_of_n(tasks, 4)] == [0, 0, 0, 0]
    with pytest.raises(UsageError, match="no task has 5"):
        best_of_n(tasks, 5)

"""Two agents on the same tasks: hand examples, properties, scipy's tests, and simulations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from prill.config.registry import load_file
from prill.errors import UsageError
from prill.evaluators.agreement.differences import (
    Requirement,
    TaskRuns,
    compare_agents,
    sign_flip,
    vote_noise,
)
from tests.support.paths import ROOT

benchmark: Any = load_file(ROOT / "benchmarks/compare.py")
run = st.lists(st.booleans(), max_size=2).map(tuple)
scored = st.lists(st.booleans(), min_size=1, max_size=2).map(tuple)
some_runs = st.builds(lambda first, others: [first, *others], scored, st.lists(run, max_size=2))
task_lists = st.lists(
    st.builds(TaskRuns, st.just("t"), some_runs, some_runs), min_size=1, max_size=5
)


def pairs(*outcomes: tuple[bool, bool]) -> list[TaskRuns]:
    """Tasks with one run of each agent."""
    return [TaskRuns(str(i), [(a,)], [(b,)]) for i, (a, b) in enumerate(outcomes)]


def test_paired_proportions_by_hand() -> None:
    # 4 tasks to failure, 1 to success, 15 without change; Bonett and Price's interval with t:
    # (1 + 1 - 4 - 1) / 22 = -3/22, variance (7 - 9/22) / 22 / 22
    found = compare_agents(pairs(*[(True, False)] * 4, (False, True), *[(True, True)] * 15))
    assert found.difference.value == pytest.approx(-3 / 20)
    spread = 2.093024 * ((7 - 9 / 22) / 22 / 22) ** 0.5
    assert found.difference.low == pytest.approx(-3 / 22 - spread)
    assert found.difference.high == pytest.approx(-3 / 22 + spread)
    assert (found.to_failure, found.to_success) == (4, 1)
    assert found.mcnemar == pytest.approx(2 * (1 + 5) / 32) == found.sign_flip
    assert (found.rate_a, found.rate_b) == (pytest.approx(0.95), pytest.approx(0.8))


def test_several_runs_of_a_task_narrow_the_interval_as_far_as_they_differ() -> None:
    # B succeeds once more in 2 of 4 tasks with two runs each; rates of tasks 0, 0, 1/2, 1 and
    # 0, 1/2, 1, 1: variances 11/64, of single runs 3/8 * 5/8 = 15/64.
    none, half, all_ = [(False,), (False,)], [(True,), (False,)], [(True,), (True,)]
    sides = [(none, none), (none, half), (half, all_), (all_, all_)]
    found = compare_agents(TaskRuns(str(i), a, b) for i, (a, b) in enumerate(sides)).difference
    assert found.value == pytest.approx(1 / 4)
    spread = 3.182446 * ((2 * 1 / 4 + 2 * 11 / 15) / 6 - (1 / 6) ** 2) ** 0.5 / 6**0.5
    assert found.low == pytest.approx(1 / 6 - spread)
    assert found.high == pytest.approx(1 / 6 + spread)


def test_tests_are_those_of_scipy() -> None:
    outcomes = [(True, False)] * 7 + [(False, True)] * 2 + [(True, True)] * 4
    assert compare_agents(pairs(*outcomes)).mcnemar == pytest.approx(stats.binomtest(2, 9).pvalue)
    values = [0.5, -0.25, 1.0, 0.75, -0.5, 0.25, 0.5, 1.0]
    # scipy doubles the smaller tail, which is the same for a symmetric distribution
    expected = stats.permutation_test(
        (values,), np.sum, permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert sign_flip(values) == pytest.approx(expected)


@given(task_lists)
def test_unscored_runs_change_bounds_alone(tasks: list[TaskRuns]) -> None:
    without = compare_agents(
        [TaskRuns(t.task, *([r for r in runs if r] for runs in (t.a, t.b))) for t in tasks]
    )
    found = compare_agents(tasks)
    assert found.difference == without.difference
    assert without.bounds is None
    unscored = sum(not r for t in tasks for r in (*t.a, *t.b))
    assert found.unscored_a + found.unscored_b == unscored
    assert (found.bounds is None) == (unscored == 0)


def test_noise_by_hand() -> None:
    # Runs judged twice: one judged both ways (sum of squares 1/2), seven alike: 0.5 / 8.
    tasks = [
        TaskRuns("0", [(True, True), (True, False)], [(True, True), (False, False)]),
        TaskRuns("1", [(False, False), (False, False)], [(False, False), (True, True)]),
    ]
    noise = compare_agents(tasks).noise
    assert noise.judge == pytest.approx(1 / 16)
    # Of two runs each: 1/8, 1/2, 0 and 1/2, the mean; a judged-twice mean has half the judge's.
    assert noise.agent == pytest.approx((1 / 8 + 1 / 2 + 1 / 2) / 4 - 1 / 32)
    assert (noise.judged_again, noise.attempted_again) == (8, 2)


def test_noise_of_votes_by_hand() -> None:
    # Three votes on each run. A: 3, 2 and 0 of 3 say success; B: 3 and 1 of 3, and 3 of 3.
    yes, most, some, no = (True,) * 3, (True, True, False), (True, False, False), (False,) * 3
    tasks = [TaskRuns("0", [yes, most], [yes, some]), TaskRuns("1", [no], [yes])]
    noise = vote_noise(tasks)
    assert noise is not None
    # sums of squares 2/3 for two of the six runs, over 6 * 2 degrees of freedom
    assert noise.judge == pytest.approx(2 * (2 / 3) / 12)
    # runs of a task: (1/3)^2 / 2 and (2/3)^2 / 2, the mean, less a third of the judge's
    assert noise.agent == pytest.approx((1 / 18 + 2 / 9) / 2 - (1 / 9) / 3)
    assert (noise.judged_again, noise.attempted_again) == (6, 1)
    # B - A by mean votes: 2/3 - 5/6 and 1 - 0; its variance is (7/6)^2 / 2, and their sum's double.
    # The judge's part of that sum: 1/3 of its variance over two runs each, and over one each.
    part = (1 / 9) / 3 * (1 / 2 + 1 / 2 + 1 + 1)
    assert noise.judge_share == pytest.approx(part / (2 * (7 / 6) ** 2 / 2))
    once = [TaskRuns(t.task, [r[:1] for r in t.a], [r[:1] for r in t.b]) for t in tasks]
    assert vote_noise(once) is None
    assert vote_noise([TaskRuns("0", [yes], [()])]) is None


@pytest.mark.parametrize(
    ("text", "margin", "strict"),
    [("B >= A - 0.02", -0.02, False), ("B>A", 0.0, True), (" B ≥ A + .1 ", 0.1, False)],
)
def test_requirements_are_read(text: str, margin: float, strict: bool) -> None:
    assert Requirement.parse(text) == Requirement(margin, strict)


@pytest.mark.parametrize(
    "text", ["", "B == A", "A >= B", "B >= A - 2 %", "B >= A - 1.5", "B >= A -"]
)
def test_other_requirements_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected something like"):
        Requirement.parse(text)


def test_the_interval_decides() -> None:
    rule = Requirement(-0.02)
    assert rule.decide((-0.02, 0.1)) == "pass"
    assert rule.decide((-0.2, -0.03)) == "fail"
    assert rule.decide((-0.2, -0.02)) == "inconclusive"
    assert rule.decide(None) == "inconclusive"
    assert Requirement(0, True).decide((0, 0.1)) == "inconclusive"
    assert Requirement(0, True).decide((-0.1, 0)) == "fail"

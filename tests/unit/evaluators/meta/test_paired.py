"""Two agents on the same tasks: hand examples, properties, scipy's tests, and simulations."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from prill.config.registry import load_file
from prill.errors import UsageError
from prill.evaluators.meta.paired import (
    Requirement,
    TaskRuns,
    compare_agents,
    mean_difference,
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


def test_rates_that_are_equal_by_chance_are_not_certain() -> None:
    half = [(True,), (False,)]
    found = compare_agents(TaskRuns(str(i), half, half) for i in range(3)).difference
    assert found.high == pytest.approx(4.302653 * (2 * 1 / 2 / 5 / 5) ** 0.5)


def test_runs_that_repeat_the_first_say_nothing_more() -> None:
    once = pairs(*[(True, False)] * 4, (False, True), *[(True, True)] * 15)
    again = [TaskRuns(task.task, [*task.a] * 5, [*task.b] * 5) for task in once]
    one, five = (compare_agents(tasks).difference for tasks in (once, again))
    assert five.low == pytest.approx(one.low)
    assert five.high == pytest.approx(one.high)


def test_tests_are_those_of_scipy() -> None:
    outcomes = [(True, False)] * 7 + [(False, True)] * 2 + [(True, True)] * 4
    assert compare_agents(pairs(*outcomes)).mcnemar == pytest.approx(stats.binomtest(2, 9).pvalue)
    values = [0.5, -0.25, 1.0, 0.75, -0.5, 0.25, 0.5, 1.0]
    # scipy doubles the smaller tail, which is the same for a symmetric distribution
    expected = stats.permutation_test(
        (values,), np.sum, permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert sign_flip(values) == pytest.approx(expected)


def test_drawn_sign_flips_are_near_the_exact_ones() -> None:
    # 14 of 20 tasks one way: the binomial test is the sign flip of tasks that differ fully.
    assert sign_flip([1.0] * 14 + [-1.0] * 6) == pytest.approx(
        stats.binomtest(6, 20).pvalue, abs=0.01
    )
    assert sign_flip([1.0] * 40) > 0


@given(task_lists)
def test_exchanging_the_agents_changes_the_sign_alone(tasks: list[TaskRuns]) -> None:
    found = compare_agents(tasks)
    turned = compare_agents([TaskRuns(task.task, task.b, task.a) for task in tasks])
    assert turned.difference.value == pytest.approx(-found.difference.value)
    assert (turned.to_failure, turned.to_success) == (found.to_success, found.to_failure)
    assert turned.mcnemar == found.mcnemar
    assert turned.sign_flip == pytest.approx(found.sign_flip)
    assert (found.difference.low is None) == (len(tasks) == 1)
    if found.difference.low is not None and found.difference.high is not None:
        assert -1 <= found.difference.low <= found.difference.value <= found.difference.high <= 1
        assert turned.difference.low == pytest.approx(-found.difference.high)


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


@settings(max_examples=40)
@given(task_lists)
def test_whatever_the_unscored_runs_are_is_within_the_bounds(tasks: list[TaskRuns]) -> None:
    bounds = compare_agents(tasks).bounds
    unscored = sum(not r for t in tasks for r in (*t.a, *t.b))
    if bounds is None or unscored > 6:
        return
    for outcomes in product((False, True), repeat=unscored):
        told = iter(outcomes)
        filled = [
            TaskRuns(t.task, *([r or (next(told),) for r in runs] for runs in (t.a, t.b)))
            for t in tasks
        ]
        value = compare_agents(filled).difference.value
        assert bounds[0] - 1e-9 <= value <= bounds[1] + 1e-9


def test_tasks_of_one_agent_are_left_out_and_counted() -> None:
    tasks = [*pairs((True, True), (True, False)), TaskRuns("x", [(False,)], [()])]
    tasks += [TaskRuns("y", [], [(True,)])]
    found = compare_agents(tasks)
    assert (found.tasks, found.only_a, found.only_b) == (2, 1, 1)
    assert found.rate_a == 1
    # The unscored run of B at x counts there, the task without a run of A does not.
    assert found.bounds == (pytest.approx(-1 / 3), pytest.approx(0))
    with pytest.raises(UsageError, match="no task has a scored run"):
        compare_agents(tasks[2:])


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


def test_noise_is_told_apart() -> None:
    # 400 tasks of three runs, judged twice: the judge errs in 1 of 10 verdicts, 0.09; runs of a
    # task vary by 0.14 (chances 0.2 and 0.8, 0.16 times (1 - 2 * 0.1)^2, and what is left of 0.09).
    dice = np.random.default_rng(2)
    chances = np.where(np.arange(400) % 2, 0.2, 0.8)[:, None, None]

    def draw() -> np.ndarray:
        success = dice.random((400, 3, 1)) < chances
        return success == (dice.random((400, 3, 2)) < 0.9)

    a, b = draw(), draw()
    tasks = [TaskRuns(str(i), a[i].tolist(), b[i].tolist()) for i in range(400)]
    noise = compare_agents(tasks).noise
    assert noise.judge == pytest.approx(0.09, abs=0.01)
    assert noise.agent == pytest.approx(0.16 * 0.64, abs=0.015)
    assert noise.task == pytest.approx(0.09 * 0.64, abs=0.015)
    assert noise.judge_share is not None and noise.agent_share is not None
    assert noise.judge_share + noise.agent_share == pytest.approx(1, abs=0.15)
    once = [TaskRuns(t.task, [r[:1] for r in t.a], [r[:1] for r in t.b]) for t in tasks]
    told = compare_agents(once).noise
    assert (told.judge, told.judge_share) == (None, None)
    assert told.agent == pytest.approx(0.09 + 0.16 * 0.64, abs=0.02)
    single = compare_agents([TaskRuns(t.task, t.a[:1], t.b[:1]) for t in once]).noise
    assert (single.agent, single.task) == (None, None)


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


def test_agents_without_a_difference_are_not_certain() -> None:
    found = mean_difference([0.0] * 30)
    assert found.low is not None
    assert -0.15 < found.low < -0.02


@pytest.mark.parametrize(("tasks", "attempts"), [(30, 1), (50, 3)])
def test_errors_are_rare_and_power_is_that_of_mcnemar(tasks: int, attempts: int) -> None:
    none = benchmark.simulate(tasks, attempts, 0.0, 200)
    assert max(none.interval, none.sign_flip, none.mcnemar) <= 0.085  # 5 %, and 2.3 errors
    assert none.held >= 0.915
    some = benchmark.simulate(tasks, attempts, 0.25, 200)
    assert some.passed <= 0.06
    assert some.sign_flip >= some.mcnemar - 0.03
    assert some.interval >= some.mcnemar - 0.03

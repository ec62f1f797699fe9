"""Success rates from verdicts and labels: a hand example, published numbers, and a simulation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import beta

from prill.evaluators.agreement.rate import RateEstimate, _mean, _tuned, estimate_rate

Outcome = bool | None


def by_hand(**options: object) -> RateEstimate:
    """Four labelled runs (two successes, one of which the judge sees) and four others."""
    verdicts = [True, False, False, False, True, True, False, False]
    truths: list[Outcome] = [True, True, False, False, None, None, None, None]
    return estimate_rate(verdicts, truths, range(8), **options)  # type: ignore[arg-type]


def ppi_mean(
    truth: Sequence[float], verdict: Sequence[float], others: Sequence[float]
) -> tuple[float, float, float]:
    """The PPI++ mean as published, for independent runs; its standard error and tuned weight."""
    y, f, g = (np.asarray(part, dtype=float) for part in (truth, verdict, others))
    weight = _tuned(y, f, g, np.ones(len(y)))
    variance = (y - weight * f).var() / len(y) + weight**2 * g.var() / len(g)
    return _mean(y, f, g, weight), float(np.sqrt(variance)), weight


def test_ppi_by_hand() -> None:
    # covariance 1/8, variance of eight verdicts 15/56: lambda = 1/8 / ((1 + 4/4) * 15/56) = 7/30
    value, error, weight = ppi_mean([1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0])
    assert weight == pytest.approx(7 / 30)
    assert value == pytest.approx(1 / 2 + 7 / 30 * (1 / 2 - 1 / 4))
    left = np.array([1 - 7 / 30, 1, 0, 0])
    variance = left.var() / 4 + (7 / 30) ** 2 * 0.25 / 4
    assert error == pytest.approx(variance**0.5)
    estimate = by_hand()
    assert estimate.ppi.value == pytest.approx(value)
    assert estimate.weight == pytest.approx(weight)


@pytest.mark.parametrize(
    ("labelled", "others", "low", "high", "value"),
    [
        ((17, 3, 20, 0), (188, 212), 0.31408567505474777, 0.4895180218948542, 0.401801848474801),
        ((12, 1, 3, 9), (35, 25), 0.7069296248579946, 0.9885990237906541, 0.8477643243243244),
        ((11, 22, 20, 7), (148, 152), 0.18090581787629112, 0.41218728170497165, 0.2965465497906314),
    ],
)
def test_ppi_is_that_of_the_published_package(
    labelled: Sequence[int], others: Sequence[int], low: float, high: float, value: float
) -> None:
    # ppi-python 0.2.3: ppi_mean_pointestimate, and ppi_mean_ci with alpha=0.05, of the same counts
    # (tp, fp, tn, fn; judged successes, judged failures).
    kinds = ((1, 1), (0, 1), (0, 0), (1, 0))
    pairs = [kind for kind, count in zip(kinds, labelled, strict=True) for _ in range(count)]
    rest = [1.0] * others[0] + [0.0] * others[1]
    found, error, _ = ppi_mean([y for y, _ in pairs], [f for _, f in pairs], rest)
    assert found == pytest.approx(value, abs=1e-12)
    assert found - 1.959963984540054 * error == pytest.approx(low, abs=1e-12)
    assert found + 1.959963984540054 * error == pytest.approx(high, abs=1e-12)


def test_rogan_gladen_by_hand() -> None:
    # The judge's rate is 3/8, its sensitivity 1/2, its specificity 1: 3/8 / (1/2).
    assert by_hand().rogan_gladen.value == pytest.approx(3 / 4)


def test_a_judge_without_an_error_among_few_labels_is_not_certain() -> None:
    truths = [True, False] * 5
    estimate = estimate_rate(truths + [True, False] * 100, truths + [None] * 200, range(210))
    for figure in (estimate.ppi, estimate.rogan_gladen):
        assert figure.value == pytest.approx(0.5)
        assert figure.low is not None and figure.high is not None
        assert 0.1 < figure.high - figure.low < 1


def labels_alone(truths: Sequence[bool], tasks: Sequence[int]) -> tuple[float, float]:
    figure = estimate_rate([True] * len(truths), truths, tasks).labels_alone
    assert figure.low is not None and figure.high is not None
    return figure.low, figure.high


def test_interval_by_hand() -> None:
    # One success in ten tasks, and 0.4 of each of four pairs: 1.8 of 11.6. A beta distribution with
    # this mean, and the variance mean * (1 - mean) / 11.6, has parameters with the sum 10.6.
    mean = 1.8 / 11.6
    ends = beta(mean * 10.6, (1 - mean) * 10.6).ppf([0.025, 0.975])
    assert labels_alone([True] + [False] * 9, range(10)) == pytest.approx(tuple(ends))


def simulate(
    truth: float,
    quality: tuple[float, float],
    labels: int,
    tasks: int,
    within: float,
    sets: int = 200,
) -> dict[str, tuple[float, float]]:
    """Returns coverage and mean width of each estimate in sets of 600 runs.

    `within` is the correlation of a task's runs. Undefined figures are left out.
    """
    dice = np.random.default_rng(3)
    task = np.arange(600) % tasks
    weight = (1 - within) / within
    found: dict[str, list[tuple[bool, float]]] = {}
    for _ in range(sets):
        success = dice.random(600) < dice.beta(truth * weight, (1 - truth) * weight, tasks)[task]
        verdict = success == (dice.random(600) < np.where(success, *quality))
        known = dice.permutation(600) < labels
        truths = [bool(s) if k else None for s, k in zip(success, known, strict=True)]
        estimate = estimate_rate(verdict.tolist(), truths, task.tolist())
        for name in ("ppi", "rogan_gladen", "labels_alone"):
            low, high = getattr(estimate, name).low, getattr(estimate, name).high
            if low is not None:
                found.setdefault(name, []).append((low <= truth <= high, high - low))
    means = {name: np.mean(rows, axis=0) for name, rows in found.items()}
    return {name: (float(held), float(width)) for name, (held, width) in means.items()}


@pytest.mark.parametrize("quality", [(0.9, 0.9), (0.5, 0.5)])
def test_intervals_hold_the_truth_and_are_no_wider_than_needed(
    quality: tuple[float, float],
) -> None:
    # Almost all runs of a task succeed or fail together. Taken for independent: 66 and 74 %.
    found = simulate(0.4, quality, labels=300, tasks=120, within=0.99)
    held, width = found["ppi"]
    assert 0.92 <= held <= 0.985
    assert width < 1.02 * found["labels_alone"][1]


def test_verdicts_narrow_the_interval() -> None:
    dice = np.random.default_rng(5)
    success = dice.random(600) < 0.3
    verdict = success == (dice.random(600) < 0.9)
    truths = [bool(s) if i < 60 else None for i, s in enumerate(success)]
    estimate = estimate_rate(verdict.tolist(), truths, range(600), width=0.1)
    ppi, alone = estimate.ppi, estimate.labels_alone
    assert (ppi.high or 0) - (ppi.low or 0) < 0.8 * ((alone.high or 0) - (alone.low or 0))
    assert estimate.more_labels is not None
    assert estimate.more_labels_alone is not None
    assert 0 < estimate.more_labels < estimate.more_labels_alone
    # With so many labels more the interval is about as wide as was said.
    count = 60 + estimate.more_labels
    truths = [bool(s) if i < count else None for i, s in enumerate(success)]
    then = estimate_rate(verdict.tolist(), truths, range(600)).ppi
    assert (then.high or 0) - (then.low or 0) == pytest.approx(0.1, abs=0.015)


def test_unscored_runs_are_no_failures() -> None:
    # All 20 scored runs succeed; of 20 unscored ones, ten are labelled, half of them successes.
    verdicts: list[Outcome] = [True] * 20 + [None] * 20
    truths: list[Outcome] = [True] * 10 + [None] * 10 + [True, False] * 5 + [None] * 10
    kept = estimate_rate(verdicts, truths, range(40))
    assert kept.ppi.value == pytest.approx(0.75)
    left_out = estimate_rate(verdicts, truths, range(40), unscored="left-out")
    assert left_out.ppi.value == pytest.approx(1)
    assert (left_out.labelled, kept.labelled) == (10, 20)
    assert kept.bounds == left_out.bounds == pytest.approx((25 / 40, 35 / 40))
    assert kept.bounds_interval is not None
    assert kept.bounds_interval[0] < 25 / 40
    assert kept.bounds_interval[1] >= 35 / 40


def test_without_labels_or_with_one_task_nothing_is_made_up() -> None:
    none = estimate_rate([True, False], [None, None], [0, 1], width=0.5)
    assert none.ppi.undefined
    assert none.labels_alone.undefined
    assert none.more_labels is None
    one = estimate_rate([True, False, True], [True, False, None], [0, 0, 0])
    assert (one.ppi.undefined, one.ppi.low) == (False, None)
    unjudged = estimate_rate([None, None, None], [True, False, None], range(3))
    assert unjudged.ppi.value == pytest.approx(0.5)
    assert (unjudged.judged, unjudged.rogan_gladen.undefined) == (None, True)

"""Calibration on examples worked out by hand, and the judge whose scores were put right."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prill.errors import UsageError
from prill.evaluators.agreement.agreement import pair
from prill.evaluators.fitted.calibration import (
    Calibrated,
    Calibration,
    CalibrationMap,
    Method,
    brier,
    fit_isotonic,
    fit_logistic,
    fit_map,
    fit_platt,
    logit,
    read_calibration,
    sigmoid,
)
from prill.evaluators.fitted.calibration_fit import (
    CalibrationResult,
    Goal,
    calibrate,
    certified_cuts,
    mean_cost,
    precision_bound,
    threshold_for_costs,
    threshold_for_precision,
)
from prill.io.store import encode
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict

INFO = EvaluatorInfo("vlm", "1", "m", params={"frames": 1})
LABELLED = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 0.9, 1.0]), st.booleans()),
    min_size=1,
    max_size=40,
)


class Fixed:
    """A judge that says what it is told."""

    def __init__(self, verdict: Verdict, info: EvaluatorInfo = INFO) -> None:
        self.verdict, self.info = verdict, info

    def screenshots(self, trajectory: Trajectory) -> tuple[str, ...]:
        return ("a.png",)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        return replace(self.verdict, evaluator=self.info)


def calibrated(
    method: Method = "platt", goal: Goal | None = None, distort: float = 2.0, **options: Any
) -> CalibrationResult:
    """200 runs of 100 tasks; a run with score s**(1/distort) before distortion succeeds that
    often.
    """
    dice = random.Random(3)
    chances = [dice.random() for _ in range(200)]
    labels = [LabelRecord(id=str(i), success=dice.random() < p) for i, p in enumerate(chances)]
    verdicts = [
        Verdict(id=str(i), success=p**distort >= 0.5, score=p**distort, evaluator=INFO)
        for i, p in enumerate(chances)
    ]
    verdicts.append(Verdict(id="200", unscored="parse", evaluator=INFO))
    labels.append(LabelRecord(id="200", success=True))
    return calibrate(
        pair(verdicts, labels),
        method,
        goal or Goal(),
        {str(i): str(i // 2) for i in range(200)},
        **options,
    )


def test_brier_is_mean_squared_distance() -> None:
    # (0.2² + 0.5² + 0.4²) / 3
    assert brier([0.8, 0.5, 0.4], [True, True, False]) == pytest.approx(0.45 / 3)


def test_isotonic_worked_example() -> None:
    # 1, 0 pool to 1/2; 0, 1, 1, 0 pool step by step: 1/2 then 0 -> 1/3; then 1, 1 then 0 -> 2/3.
    fit = fit_isotonic([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [True, False, False, True, True, False])
    assert fit.scores == (0.1, 0.3, 0.4, 0.6)
    assert fit.values == pytest.approx((1 / 3, 1 / 3, 2 / 3, 2 / 3))
    assert [fit(score) for score in (0.0, 0.2, 0.35, 0.9)] == pytest.approx(
        [1 / 3, 1 / 3, 1 / 2, 2 / 3]
    )


@given(LABELLED)
def test_isotonic_matches_scikit_learn(rows: list[tuple[float, bool]]) -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    scores, truths = [score for score, _ in rows], [truth for _, truth in rows]
    theirs = isotonic.IsotonicRegression(out_of_bounds="clip").fit(
        scores, [float(t) for t in truths]
    )
    mine = fit_isotonic(scores, truths)
    points = [0.0, 0.05, 0.1, 0.2, 0.3, 0.6, 0.95, 1.0]
    assert [mine(p) for p in points] == pytest.approx(list(theirs.predict(points)), abs=1e-6)


def test_regression_matches_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    chance = np.random.default_rng(3)
    rows = chance.normal(size=(60, 2)) * [1, 9]
    truths = chance.random(60) < 1 / (1 + np.exp(-rows @ [1, -0.2]))
    theirs = linear.LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(rows, truths)
    rows = np.column_stack([rows, np.ones(60)])
    mine = fit_logistic(rows, truths, np.array([2, 2, 0]), np.zeros(3))
    assert [*mine] == pytest.approx([*theirs.coef_[0], *theirs.intercept_], abs=1e-5)


def test_platt_minimises_its_loss() -> None:
    logits, truths = [-2.0, -1.0, -0.5, 0.5, 1.0, 3.0], [False, False, True, False, True, True]
    slope, offset = fit_platt(logits, truths)
    targets = [4 / 5 if truth else 1 / 5 for truth in truths]  # (3 + 1) / (3 + 2) and 1 / (3 + 2)
    errors = [sigmoid(slope * x + offset) - t for x, t in zip(logits, targets, strict=True)]
    assert fsum(errors) == pytest.approx(0, abs=1e-7)
    assert fsum(e * x for e, x in zip(errors, logits, strict=True)) == pytest.approx(0, abs=1e-7)
    assert slope > 0


@pytest.mark.parametrize(
    ("right", "called", "bound"),
    # All right: 0.05 ** (1 / n). 9 of 10 and 3 of 4 from tables of Clopper and Pearson's limits.
    [
        (10, 10, 0.05 ** (1 / 10)),
        (59, 59, 0.05 ** (1 / 59)),
        (9, 10, 0.6058),
        (3, 4, 0.2486),
        (0, 5, 0.0),
        (0, 0, 0.0),
    ],
)
def test_precision_bound_is_exact(right: int, called: int, bound: float) -> None:
    assert precision_bound(right, called) == pytest.approx(bound, abs=1e-4)


def certified(precision: float, draws: int = 300, runs: int = 400) -> float:
    """The share of draws in which some threshold is certified for 0.9."""
    dice, count = random.Random(0), 0
    for _ in range(draws):
        scores = [dice.randrange(40) / 40 for _ in range(runs)]
        count += (
            threshold_for_precision(scores, [dice.random() < precision for _ in scores], 0.9)
            is not None
        )
    return count / draws


@pytest.mark.parametrize("precision", [0.89, 0.899])
def test_certificate_is_seldom_false(precision: float) -> None:
    # The same below the target at every threshold. The best of all bounds would certify 9 % and 19
    # % of these.
    assert certified(precision) <= 0.05


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_threshold_calls_what_was_certified(method: Method) -> None:
    dice = random.Random(8)
    scores = [dice.random() for _ in range(500)]
    truths = [dice.random() < 0.6 + 0.4 * score for score in scores]
    curve = fit_map(method, scores, truths)
    threshold = threshold_for_precision(scores, truths, 0.85, curve)
    assert threshold is not None
    called = sum(round(curve(score), 6) >= threshold for score in scores)
    assert called in {cut.called for cut in certified_cuts(scores, truths, 0.85)}


def test_auto_takes_the_better_method() -> None:
    dice = random.Random(2)
    stairs, curves = [], []
    for _ in range(400):
        score = dice.random()
        stairs.append((score, dice.random() < (0.9 if score > 0.45 else 0.1)))
        curves.append((score, dice.random() < sigmoid(2 * logit(score) + 1)))
    for rows, method in ((stairs, "isotonic"), (curves, "platt")):
        verdicts = [
            Verdict(id=str(i), success=s >= 0.5, score=s, evaluator=INFO)
            for i, (s, _) in enumerate(rows)
        ]
        made = calibrate(
            pair(verdicts, [LabelRecord(id=str(i), success=t) for i, (_, t) in enumerate(rows)])
        ).calibration
        briers = {
            name: float(value)
            for name, value in re.findall(r"(platt|isotonic) (0\.\d+)", made.method_rule)
        }
        assert made.map.method == method
        assert briers["isotonic"] < briers["platt"] or method == "platt"
        assert made.after.brier == pytest.approx(briers[method], abs=1e-4)


def test_calibration_without_new_keys_reads(tmp_path: Path) -> None:
    record = msgspec.to_builtins(calibrated().calibration)
    del record["method_rule"], record["truth"]
    (tmp_path / "old.json").write_bytes(msgspec.json.encode(record))
    assert read_calibration(tmp_path / "old.json").truth == "majority"


def test_threshold_for_costs_balances_errors() -> None:
    # Calling a run with probability p a success costs (1 - p) * 1, a failure p * 3.
    assert threshold_for_costs(1, 3) == 0.25
    assert mean_cost([0.9, 0.4, 0.3, 0.1], [False, True, True, False], 0.35, 1, 3) == (1 + 3) / 4


def test_target_precision_is_reached() -> None:
    result = calibrated("platt", Goal(precision=0.7))
    assert result.chosen.bound >= 0.7
    assert result.chosen.recall is not None and result.chosen.recall > 0.2
    assert 0 < result.tried.called < 200
    assert "0.7" in result.calibration.rule


def test_unreachable_precision_names_best() -> None:
    with pytest.raises(
        UsageError, match=r"no threshold .* 0\.99 .* the nearest .* 28 of 28 correct; .* 299 runs"
    ):
        calibrated("platt", Goal(precision=0.99))


def calibration(tmp_path: Path, **changes: Any) -> Calibration:
    made = replace(
        calibrated().calibration,
        map=CalibrationMap(method="isotonic", scores=(0.2, 0.6), values=(0.1, 0.9)),
        **changes,
    )
    (tmp_path / "c.json").write_bytes(encode(made))
    return read_calibration(tmp_path / "c.json")


async def test_calibrated_judge_uses_threshold(tmp_path: Path) -> None:
    trajectory = Trajectory(id="x", task=Task(goal="g"))
    for score, says, put_right, decides in (
        (0.3, False, 0.3, False),
        (0.5, True, 0.7, True),
        (0.45, False, 0.6, True),
    ):
        inner = Fixed(Verdict(id="x", success=says, score=score, reason="why", evaluator=INFO))
        judge = Calibrated(inner, calibration(tmp_path, threshold=0.6))
        verdict = await judge(trajectory)
        assert (verdict.score, verdict.success, verdict.reason) == (
            pytest.approx(put_right),
            decides,
            "why",
        )
        assert verdict.evaluator == judge.info
    assert judge.info.params["judge"] == "vlm"
    assert judge.screenshots(trajectory) == ("a.png",)
    assert judge.estimate(trajectory).calls == 0


async def test_calibrated_unscored_stays_unscored(tmp_path: Path) -> None:
    judge = Calibrated(
        Fixed(Verdict(id="x", unscored="parse", reason="why", evaluator=INFO)),
        calibration(tmp_path),
    )
    verdict = await judge(Trajectory(id="x", task=Task(goal="g")))
    assert (verdict.success, verdict.score, verdict.unscored, verdict.reason) == (
        None,
        None,
        "parse",
        "why",
    )


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"params": {"frames": 2}}, {"prompt": "p"}, {"version": "2"}]
)
def test_calibration_of_other_judge_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only applies to the judge"):
        Calibrated(
            Fixed(Verdict(id="x", success=True, evaluator=INFO), replace(INFO, **change)),
            calibration(tmp_path),
        )


@pytest.mark.parametrize("scores", [(0.6, 0.2), (0.2,), ()])
def test_broken_map_is_refused(scores: tuple[float, ...], tmp_path: Path) -> None:
    made = replace(
        calibrated().calibration,
        map=CalibrationMap(method="isotonic", scores=scores, values=scores[:0] or (0.1, 0.9)),
    )
    (tmp_path / "c.json").write_bytes(encode(made))
    with pytest.raises(UsageError, match="make it again"):
        read_calibration(tmp_path / "c.json")

"""Calibration on examples worked out by hand, and the judge whose scores were put right."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import pairwise
from math import fsum, log
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import (
    Bin,
    Calibrated,
    Calibration,
    CalibrationMap,
    Method,
    brier,
    expected_calibration_error,
    fit_isotonic,
    fit_map,
    fit_platt,
    logit,
    read_calibration,
    reliability,
    sigmoid,
)
from prill.evaluators.meta.agreement import pair
from prill.evaluators.meta.calibration_fit import (
    CalibrationResult,
    Goal,
    calibrate,
    certified_cuts,
    mean_cost,
    operating,
    precision_bound,
    threshold_for_costs,
    threshold_for_precision,
)
from prill.io.store import encode
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict
from prill.ui.report.plots import reliability_svg

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


def test_bins_of_equal_width_include_one() -> None:
    bins = reliability([0.0, 0.05, 0.1, 0.95, 1.0], [False, True, True, True, False])
    assert bins == [
        Bin(0.0, 0.1, 2, 0.025, 0.5),
        Bin(0.1, 0.2, 1, 0.1, 1.0),
        Bin(0.9, 1.0, 2, 0.975, 0.5),
    ]
    # (2 * |0.025 - 0.5| + 1 * |0.1 - 1| + 2 * |0.975 - 0.5|) / 5
    assert expected_calibration_error(bins) == pytest.approx((0.95 + 0.9 + 0.95) / 5)


def test_isotonic_worked_example() -> None:
    # 1, 0 pool to 1/2; 0, 1, 1, 0 pool step by step: 1/2 then 0 -> 1/3; then 1, 1 then 0 -> 2/3.
    fit = fit_isotonic([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [True, False, False, True, True, False])
    assert fit.scores == (0.1, 0.3, 0.4, 0.6)
    assert fit.values == pytest.approx((1 / 3, 1 / 3, 2 / 3, 2 / 3))
    assert [fit(score) for score in (0.0, 0.2, 0.35, 0.9)] == pytest.approx(
        [1 / 3, 1 / 3, 1 / 2, 2 / 3]
    )


def test_isotonic_equal_scores_one_point() -> None:
    fit = fit_isotonic([0.5, 0.5, 0.5, 0.9], [True, False, False, True])
    assert (fit.scores, fit.values) == ((0.5, 0.9), (pytest.approx(1 / 3), 1.0))


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


@given(LABELLED, st.sampled_from(["isotonic", "platt"]))
def test_map_rises_within_zero_and_one(rows: list[tuple[float, bool]], method: Method) -> None:
    fit = fit_map(method, [score for score, _ in rows], [truth for _, truth in rows])
    values = [fit(i / 50) for i in range(51)]
    assert all(0 <= value <= 1 for value in values)
    assert all(low <= high + 1e-12 for low, high in pairwise(values))


def test_platt_minimises_its_loss() -> None:
    logits, truths = [-2.0, -1.0, -0.5, 0.5, 1.0, 3.0], [False, False, True, False, True, True]
    slope, offset = fit_platt(logits, truths)
    targets = [4 / 5 if truth else 1 / 5 for truth in truths]  # (3 + 1) / (3 + 2) and 1 / (3 + 2)
    errors = [sigmoid(slope * x + offset) - t for x, t in zip(logits, targets, strict=True)]
    assert fsum(errors) == pytest.approx(0, abs=1e-7)
    assert fsum(e * x for e, x in zip(errors, logits, strict=True)) == pytest.approx(0, abs=1e-7)
    assert slope > 0


def test_platt_levels_reversed_scores() -> None:
    slope, offset = fit_platt([-1.0, -2.0, 1.0, 2.0], [True, True, False, False])
    assert (slope, offset) == (0.0, 0.0)
    assert fit_platt([-1.0, -2.0, 1.0], [True, True, False]) == (0.0, pytest.approx(log(3 / 2)))


def test_platt_separable_is_not_certain() -> None:
    slope, offset = fit_platt([-9.0] * 8 + [9.0] * 8, [False] * 8 + [True] * 8)
    assert sigmoid(slope * 9 + offset) == pytest.approx(9 / 10)


def test_logit_of_certainty_is_finite() -> None:
    assert logit(1.0) == pytest.approx(log(1e6), rel=1e-5)
    assert logit(0.0) == pytest.approx(-logit(1.0))
    assert sigmoid(-1000) == 0.0
    assert sigmoid(1000) == 1.0


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


@pytest.mark.parametrize(
    ("right", "called", "bound"),
    [
        (1, 7, 0.007300831979),
        (40, 50, 0.68440393858),
        (333, 400, 0.798723461017),
        (1999, 2000, 0.997630286632),
    ],
)
def test_precision_bound_stays_as_published(right: int, called: int, bound: float) -> None:
    """By halving, and sums of binomial terms."""
    assert precision_bound(right, called) == pytest.approx(bound, abs=1e-9)


def test_threshold_for_precision_is_lowest() -> None:
    scores, truths = [0.9] * 29 + [0.6] * 30 + [0.3] * 20, [True] * 59 + [False] * 20
    # 59 of 59 are right: 0.05 ** (1/59) = 0.9505; 29 of 29 would only give 0.902.
    assert threshold_for_precision(scores, truths, 0.95) == 0.6
    assert threshold_for_precision(scores, truths, 0.96) is None
    assert threshold_for_precision(scores, truths, 0.6) == 0.3  # 59 of 79, surely at least 0.65


@pytest.mark.parametrize("precision", [0.89, 0.899])
def test_certificate_is_seldom_false(precision: float) -> None:
    # The same below the target at every threshold. The best of all bounds would certify 9 % and 19
    # % of these.
    assert certified(precision) <= 0.05


def test_certificate_has_power() -> None:
    assert certified(0.97) >= 0.9


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


def test_certificate_starts_where_it_can() -> None:
    # 0.9 ** 29 is 0.047, so 28 right of 28 prove nothing; of 58 runs there are two starts, with
    # half of 5 % each.
    assert threshold_for_precision([i / 100 for i in range(28)], [True] * 28, 0.9) is None
    assert threshold_for_precision([i / 100 for i in range(29)], [True] * 29, 0.9) == 0.0
    assert next(certified_cuts([1 - i / 100 for i in range(72)], [True] * 72, 0.9)).called == 36


def test_certificate_ends_at_first_failure() -> None:
    # Of 400 runs there are four starts, at 42, 84, 168 and 336, with 1.25 % each. 42 of 42 pass, 60
    # of 61 fail (1.26 %); 64 of 84 and 148 of 168 fail; 316 of 336 pass (0.6 %), and so does all
    # that follows.
    truths = [True] * 60 + [False] * 20 + [True] * 320
    called = [cut.called for cut in certified_cuts([1 - i / 1000 for i in range(400)], truths, 0.9)]
    assert called == [*range(42, 61), *range(336, 401)]


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


def test_threshold_figures_are_counts() -> None:
    point = operating([0.9, 0.5, 0.5, 0.1], [True, False, True, True], 0.5)
    assert (point.called, point.right) == (3, 2)
    assert (point.precision, point.recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert operating([0.1], [False], 0.5).precision is None


def test_threshold_for_costs_balances_errors() -> None:
    # Calling a run with probability p a success costs (1 - p) * 1, a failure p * 3.
    assert threshold_for_costs(1, 3) == 0.25
    assert mean_cost([0.9, 0.4, 0.3, 0.1], [False, True, True, False], 0.35, 1, 3) == (1 + 3) / 4


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_distorted_scores_are_put_right(method: Method) -> None:
    made = calibrated(method).calibration
    assert made.after.brier < made.before.brier
    assert made.after.calibration_error < made.before.calibration_error
    assert (made.labelled, made.unscored, made.grouped_by, made.threshold) == (200, 1, "task", 0.5)
    # The square root undoes the square.
    assert made.map(0.25) == pytest.approx(0.5, abs=0.15)


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


def test_cost_threshold_beats_constant() -> None:
    result = calibrated("platt", Goal(costs=(1, 3)))
    assert result.calibration.threshold == 0.25
    assert result.cost is not None and result.constant_cost is not None
    assert result.cost < result.constant_cost


def test_too_few_labels_are_an_error() -> None:
    verdicts = [Verdict(id=str(i), success=True, score=0.5, evaluator=INFO) for i in range(12)]
    with pytest.raises(UsageError, match="9 successes and 3 failures"):
        calibrate(
            pair(verdicts, [LabelRecord(id=str(i), success=i < 9) for i in range(12)]),
            "platt",
            Goal(),
        )


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


async def test_calibrated_missing_score_is_0_or_1(tmp_path: Path) -> None:
    judge = Calibrated(Fixed(Verdict(id="x", success=True, evaluator=INFO)), calibration(tmp_path))
    assert (await judge(Trajectory(id="x", task=Task(goal="g")))).score == 0.9


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


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[]"])
def test_wrong_file_is_a_usage_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(UsageError, match="prill calibrate"):
        read_calibration(tmp_path / "c.json")


@pytest.mark.parametrize("scores", [(0.6, 0.2), (0.2,), ()])
def test_broken_map_is_refused(scores: tuple[float, ...], tmp_path: Path) -> None:
    made = replace(
        calibrated().calibration,
        map=CalibrationMap(method="isotonic", scores=scores, values=scores[:0] or (0.1, 0.9)),
    )
    (tmp_path / "c.json").write_bytes(encode(made))
    with pytest.raises(UsageError, match="make it again"):
        read_calibration(tmp_path / "c.json")


def test_diagram_is_valid_escaped_svg() -> None:
    bins = reliability([0.1, 0.5, 0.9], [False, True, True])
    root = ElementTree.fromstring(reliability_svg("<judge> & co", bins, bins[:2]))
    space = "{http://www.w3.org/2000/svg}"
    marks = [
        title.text
        for name in ("circle", "rect")
        for one in root.iter(f"{space}{name}")
        for title in one
    ]
    assert [words.split(":")[0] for words in marks if words] == ["before"] * 3 + ["after"] * 2
    assert root.findtext(f"{space}title") == "<judge> & co"

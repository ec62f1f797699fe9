"""The decisions between attempts, taken from what is known of them and nothing else."""

from __future__ import annotations

import pytest

from prill.errors import UsageError
from prill.evaluators.fitted.calibration import Calibrated, Calibration, CalibrationMap, Quality
from prill.refine.retries import (
    RetrySpec,
    answer_among,
    get_threshold,
    visible_verdict,
    with_second_opinion,
)
from prill.types import EvaluatorInfo, Opinion, Verdict
from tests.support.refine.builders import attempt, click, verdict
from tests.support.refine.retrying import Written


def calibrated(judge: Written, threshold: float = 0.3) -> Calibrated:
    """The judge with a calibration that leaves scores as they are."""
    return Calibrated(
        judge,
        Calibration(
            format="prill calibration 1",
            evaluator=judge.info,
            map=CalibrationMap(method="isotonic", scores=(0.0, 1.0), values=(0.0, 1.0)),
            threshold=threshold,
            rule="by hand",
            source="human",
            labelled=2,
            successes=1,
            unscored=0,
            folds=2,
            grouped_by="task",
            before=Quality(brier=0.0, calibration_error=0.0),
            after=Quality(brier=0.0, calibration_error=0.0),
        ),
    )


@pytest.mark.parametrize(
    ("whole", "scores", "plain", "best"),
    [
        ([True, True, True], [0.2, 0.7, 0.7], 2, 1),
        ([True, True, False], [0.2, 0.1, None], 1, 0),
        ([True, True], [0.1, None], 1, 0),
        ([True, True], [None, None], 1, 1),
        ([False, False], [None, None], None, None),
    ],
)
def test_which_attempt_is_the_answer(
    whole: list[bool], scores: list[float | None], plain: int | None, best: int | None
) -> None:
    assert answer_among(whole, scores, keep_best=False) == plain
    assert answer_among(whole, scores, keep_best=True) == best


def test_costs_choose_the_threshold() -> None:
    judge = Written({})
    # Redoing a right attempt is three times as bad as keeping a wrong one: keep from one in four
    # on.
    assert get_threshold(RetrySpec(false_negative_cost=3.0), calibrated(judge)) == 0.25
    assert get_threshold(RetrySpec(threshold=0.7), judge) == 0.7
    assert get_threshold(RetrySpec(), judge) is None
    with pytest.raises(UsageError, match="give the judge a calibration"):
        get_threshold(RetrySpec(false_negative_cost=3.0), judge)
    with pytest.raises(UsageError, match="not both"):
        get_threshold(RetrySpec(false_negative_cost=3.0, threshold=0.2), calibrated(judge))


@pytest.mark.parametrize(
    ("first", "second", "success", "asked"),
    [
        ("S", "F", True, 0),
        ("F", "S", True, 1),
        ("F", "F", False, 1),
        ("F", "U", None, 1),
        (0.5, "F", True, 0),
        (0.49, "F", False, 1),
    ],
)
async def test_second_opinion_before_throwing_away(
    first: str | float, second: str, success: bool | None, asked: int
) -> None:
    other = Written({"t": [second]})
    judge = with_second_opinion(Written({"t": [first]}), other)
    assert (await judge(attempt("t-a0", click(1)))).success is success
    assert len(other.seen) == asked


async def test_second_opinion_heeds_a_calibration() -> None:
    other = Written({"t": ["F"]})
    judge = with_second_opinion(calibrated(Written({"t": [0.3]})), other)
    assert ((await judge(attempt("t-a0", click(1)))).success, other.seen) == (True, [])


def test_a_bit_is_all_that_is_told() -> None:
    opinions = (Opinion(judge="other", success=True, reason="it is there"),)
    full = verdict("t", False, 0.2, reason="the cart is empty", opinions=opinions)
    assert visible_verdict(full, "language") is full
    bit = visible_verdict(full, "bit")
    assert (bit.reason, bit.score, bit.opinions, bit.findings) == ("FAILED", None, None, None)
    assert visible_verdict(verdict("t", True, reason="it is there"), "bit").reason == "PASSED"
    oracle = Verdict(
        id="t", success=False, reason="the label says so", evaluator=EvaluatorInfo("oracle", "1")
    )
    assert visible_verdict(oracle, "language").reason == "FAILED"
    noisy = Verdict(
        id="t",
        success=False,
        reason="the label with errors says so",
        evaluator=EvaluatorInfo("noisy", "1"),
    )
    assert visible_verdict(noisy, "language").reason == "FAILED"

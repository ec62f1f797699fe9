"""The simulation of retries against what can be worked out, and against runs that were really
played.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.refine.simulation import (
    WAYS,
    JudgeModel,
    RecordedTruths,
    SimulationSpec,
    judge_from_rates,
    judge_from_verdicts,
    simulate,
    simulation_chart,
    simulation_lines,
)
from tests.support.refine.builders import verdict
from tests.support.refine.retrying import Written, run


def closed_form(
    success: float, false_positives: float, false_negatives: float, retries: int, way: str
) -> float:
    """Computes the expected success of a retry strategy, for independent attempts and a yes-or-no
    judge.

    An attempt is accepted with probability a = p (1 - fn) + (1 - p) fp. It is correct and accepted
    with probability p (1 - fn). After k retries, the answer is the first accepted attempt. If none
    was accepted, it is the last one; with `keep best` the first, since all scores are equal.
    """
    p, fp, fn = success, false_positives, false_negatives
    if way == "perfect judge":
        fp = fn = 0.0
    elif way.startswith("second opinion"):
        fp, fn = 1 - (1 - fp) ** 2, fn**2
    right_and_kept, thrown = p * (1 - fn), 1 - p * (1 - fn) - (1 - p) * fp
    if "keep best" in way:
        return (
            sum(thrown**t * right_and_kept for t in range(retries + 1)) + thrown**retries * p * fn
        )
    return sum(thrown**t * right_and_kept for t in range(retries)) + thrown**retries * p


@pytest.mark.parametrize(("p", "fp", "fn"), [(0.15, 0.1, 0.2), (0.5, 0.3, 0.6), (0.8, 0.0, 0.9)])
def test_simulation_meets_the_closed_form(p: float, fp: float, fn: float) -> None:
    spec = SimulationSpec(success=p, false_positives=fp, false_negatives=fn, tasks=200, runs=100)
    for way, outcomes in simulate(spec).items():
        for outcome in outcomes:
            expected = closed_form(p, fp, fn, outcome.retries, way)
            # 20,000 draws: five standard errors are below 0.018.
            assert outcome.success == pytest.approx(expected, abs=0.018), (way, outcome)
            assert outcome.low <= outcome.success <= outcome.high


def test_closed_form_by_hand() -> None:
    assert [closed_form(0.5, 0.0, 0.0, k, "plain") for k in range(3)] == [0.5, 0.75, 0.875]
    # Thrown away: half of the successes and all failures, 0.75 in all. Kept and right: 0.25.
    assert closed_form(0.5, 0.0, 0.5, 1, "plain") == pytest.approx(0.25 + 0.75 * 0.5)
    assert closed_form(0.5, 0.0, 0.5, 1, "keep best") == pytest.approx(
        0.25 + 0.75 * 0.25 + 0.75 * 0.25
    )
    assert closed_form(0.5, 0.0, 0.5, 1, "second opinion") == pytest.approx(0.375 + 0.625 * 0.5)
    # The break-even: error rates that make a whole together change nothing.
    assert closed_form(0.3, 0.4, 0.6, 3, "plain") == pytest.approx(0.3)


async def test_simulation_meets_a_run(tmp_path: Path) -> None:
    truths = {f"t{i}": [False, True, False] for i in range(3)} | {"u": [True, False, False]}
    judge = Written({name: [0.0, 0.4, 0.0] for name in truths} | {"u": [0.3, 0.1, 0.2]})
    for keep_best in (False, True):
        results = await run(
            tmp_path / str(keep_best), truths, judge, attempts=3, keep_best=keep_best
        )
        assert results.table is not None
        played = [row.solved / row.decided for row in results.table.rows]
        recorded = [RecordedTruths(attempts, in_order=True) for attempts in truths.values()]
        model = JudgeModel([0.4, 0.3], [0.0, 0.1])
        outcomes = simulate(SimulationSpec(attempts=3, runs=40), model, recorded)[
            "keep best" if keep_best else "plain"
        ]
        assert [outcome.success for outcome in outcomes] == played
        assert (
            [outcome.low for outcome in outcomes]
            == played
            == [outcome.high for outcome in outcomes]
        )


def test_judges_errors_come_from_labels() -> None:
    verdicts = [
        verdict("a", True, 0.9),
        verdict("b", False, 0.4),
        verdict("c", True, 0.6),
        verdict("d", False, 0.1),
    ]
    truth = {"a": True, "b": True, "c": False, "d": False, "e": None}
    model = judge_from_verdicts([*verdicts, verdict("e", True, 0.8)], truth)
    assert model.rates == (0.5, 0.5, 0.0)
    with_unscored = judge_from_verdicts([*verdicts, verdict("f", None)], {**truth, "f": True})
    assert with_unscored.rates == (0.5, 0.5, 0.2), "what is unscored is no error"
    with pytest.raises(UsageError, match="no verdict is on a labelled success"):
        judge_from_verdicts(verdicts, {"c": False})


def test_unscored_attempts_end_the_retries() -> None:
    spec = SimulationSpec(success=0.5, unscored=1.0, runs=40)
    assert judge_from_rates(spec).rates == (0.0, 0.0, 1.0)
    for way in ("plain", "keep best"):
        outcomes = simulate(spec)[way]
        assert {outcome.success for outcome in outcomes} == {outcomes[0].success}


def test_same_seed_draws_the_same() -> None:
    one, other, third = (
        simulate(SimulationSpec(runs=40, tasks=20, seed=seed)) for seed in (1, 1, 2)
    )
    assert one == other != third


def test_table_and_chart_show_every_way() -> None:
    outcomes = simulate(SimulationSpec(runs=40, tasks=20))
    text, chart = "\n".join(simulation_lines(outcomes, (0.1, 0.2, 0.0))), simulation_chart(outcomes)
    assert all(way in text and way in chart for way in WAYS)
    assert json.dumps(outcomes)

"""AUC, operating points and rankings against counts made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from prill.evaluators.agreement.agreement import Pairing, measure_agreement, pair
from prill.evaluators.agreement.comparison import kendall_tau, rank_agents
from prill.evaluators.metrics import auc, precision_recall
from prill.types import EvaluatorInfo, LabelRecord, Verdict

JUDGE = EvaluatorInfo("student", "1")


def paired(scores: Sequence[float | None], truths: Sequence[bool]) -> Pairing:
    """One trajectory for each score, judged a success from one half on; None is unscored."""
    verdicts = [
        Verdict(id=str(i), evaluator=JUDGE, unscored="parse")
        if score is None
        else Verdict(id=str(i), evaluator=JUDGE, score=score, success=score >= 0.5)
        for i, score in enumerate(scores)
    ]
    return pair(verdicts, [LabelRecord(id=str(i), success=truth) for i, truth in enumerate(truths)])


def test_auc_counts_ties_as_half() -> None:
    # Successes .9 and .5, failures .5 and .1: pairs .9>.5, .9>.1, .5=.5, .5>.1.
    assert auc([0.9, 0.5, 0.5, 0.1], [True, True, False, False]) == 3.5 / 4


def test_auc_equals_count_over_pairs() -> None:
    generator = np.random.default_rng(3)
    scores, truths = generator.integers(0, 12, 200) / 11, generator.random(200) < 0.3
    won = [(a > b) + (a == b) / 2 for a in scores[truths] for b in scores[~truths]]
    assert auc(scores.tolist(), truths.tolist()) == pytest.approx(float(np.mean(won)))


def test_auc_of_yes_no_judge_is_balanced() -> None:
    result = measure_agreement(
        paired([1.0, 1.0, 0.0, 0.0, 0.0, None], [True, False, False, False, True, True])
    )
    values = {figure.name: figure for figure in result.figures}
    assert values["AUC"].value == pytest.approx(values["balanced accuracy"].value)
    assert values["AUC"].value == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_precision_recall_by_hand() -> None:
    points = precision_recall([0.9, 0.7, 0.7, 0.2], [True, True, False, True])
    assert points == ((0.9, 1.0, 1 / 3), (0.7, 2 / 3, 2 / 3), (0.2, 3 / 4, 1.0))
    assert precision_recall([0.9], [False]) == ()


def test_kendall_corrects_for_ties() -> None:
    # Pairs: (1,2) tied in the first, the five others agree: 5 / sqrt(5 * 6).
    assert kendall_tau((1, 1, 2, 3), (1, 2, 3, 4)) == pytest.approx(5 / 30**0.5)
    assert kendall_tau((1, 1, 1), (1, 2, 3)) is None


def test_agents_ranked_on_judged_runs() -> None:
    scores = [0.9, 0.9, 0.1, 0.9, 0.1, 0.1, None, 0.1]
    truths = [True, False, True, False, False, False, True, False]
    agents = dict(zip("01234567", "aaabbbbc", strict=True))
    ranking = rank_agents(paired(scores, truths), agents)
    assert ranking is not None
    assert [(a.agent, a.n, a.judged, a.labelled) for a in ranking.agents] == [
        ("a", 3, pytest.approx(2 / 3), pytest.approx(2 / 3)),
        ("b", 3, pytest.approx(1 / 3), 0.0),
        ("c", 1, 0.0, 0.0),
    ]
    assert ranking.tau == pytest.approx(2 / (3 * 2) ** 0.5)  # b and c tie by label alone

"""Figures against numbers worked out by hand, and intervals against simulated data."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import numpy as np
import pytest

from prill.errors import UsageError
from prill.evaluators.agreement.agreement import Agreement, Figure, agreement, by_step
from prill.evaluators.metrics import bootstrap, intervals, jackknife, wilson
from prill.types import EvaluatorInfo, LabelRecord, StepLabel, StepVerdict, UnscoredReason, Verdict

JUDGE = EvaluatorInfo("vlm", "1", "m")


def verdict(id: str, success: bool | None, unscored: UnscoredReason | None = None) -> Verdict:
    return Verdict(id=id, success=success, unscored=unscored, evaluator=JUDGE)


def table(tp: int, fp: int, tn: int, fn: int) -> Agreement:
    verdicts, labels = [], []
    numbers = count()
    for n, judged, truth in (
        (tp, True, True),
        (fp, True, False),
        (tn, False, False),
        (fn, False, True),
    ):
        for i in (str(next(numbers)) for _ in range(n)):
            verdicts.append(verdict(i, judged))
            labels.append(LabelRecord(id=i, success=truth))
    return agreement(verdicts, labels)


def by_name(figures: Iterable[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def values(result: Agreement) -> dict[str, float]:
    return {figure.name: round(figure.value, 4) for figure in result.figures}


def test_figures_of_the_worked_example() -> None:
    result = table(60, 70, 650, 32)
    expected = {
        "accuracy": 0.8744,
        "precision": 0.4615,
        "recall": 0.6522,
        "F1": 0.5405,
        "specificity": 0.9028,
        "NPV": 0.9531,
    }
    assert values(result).items() >= expected.items()
    assert values(result)["balanced accuracy"] == 0.7775  # (60/92 + 650/720) / 2
    assert result.judged == 812


def test_kappa_is_beyond_chance() -> None:
    # Observed 0.70; by chance 0.5 * 0.6 + 0.5 * 0.4 = 0.50; (0.70 - 0.50) / (1 - 0.50).
    assert values(table(20, 5, 15, 10))["kappa"] == 0.4


def test_one_kind_of_labels_leaves_undefined() -> None:
    figures = by_name(table(8, 0, 0, 2).figures)
    assert figures["recall"].value == 0.8
    assert [figures[name].undefined for name in ("specificity", "balanced accuracy", "recall")] == [
        True,
        True,
        False,
    ]


def test_unscored_lower_one_accuracy_only() -> None:
    verdicts = [
        verdict("a", True),
        verdict("b", False),
        verdict("c", None, "parse"),
        verdict("d", None, "timeout"),
    ]
    result = agreement(verdicts, [LabelRecord(id=i, success=i == "a") for i in "abcd"])
    assert (result.judged, dict(result.unscored)) == (2, {"parse": 1, "timeout": 1})
    assert (values(result)["accuracy"], values(result)["accuracy, unscored as wrong"]) == (1.0, 0.5)


def test_nothing_judged_is_still_an_answer() -> None:
    result = agreement([verdict("a", None, "refusal")], [LabelRecord(id="a", success=True)])
    assert (result.judged, values(result)["accuracy"], result.majority) == (0, 0.0, 0.0)
    assert by_name(result.figures)["accuracy"].undefined


def test_unmatched_records_are_counted() -> None:
    labels = [
        LabelRecord(id="b", success=True),
        LabelRecord(id="c", success=None),
        LabelRecord(id="x", success=True),
    ]
    result = agreement([verdict(i, True) for i in "abc"], labels)
    assert (
        result.judged,
        result.verdicts_without_label,
        result.labels_without_verdict,
        result.undecided,
    ) == (1, 1, 1, 1)


def test_rule_decides_between_annotators() -> None:
    opinions = {"a": [None, False, True, False], "b": [True, False]}
    labels = [
        LabelRecord(id=id, success=s, annotator=f"P{i}")
        for id, said in opinions.items()
        for i, s in enumerate(said)
    ]
    verdicts = [verdict("a", False), verdict("b", False)]
    result = agreement(verdicts, labels)
    assert (result.confusion.tn, result.judged, result.undecided_by, result.truth) == (
        1,
        1,
        {"tie": 1},
        "majority",
    )
    assert agreement(verdicts, labels, truth="first").confusion.fn == 1
    assert agreement(verdicts, labels, truth="P2").undecided_by == {"labelled only by others": 1}
    with pytest.raises(UsageError, match=r"all 2 labels .* undecided \(2 not unanimous\)"):
        agreement(verdicts, labels, truth="unanimous")


def test_labels_without_verdict_are_wrong() -> None:
    labels = [LabelRecord(id=i, success=i != "e" or None) for i in "abcde"]
    judged = [verdict("a", True), verdict("b", None, "parse")]
    result = agreement(judged, labels)
    assert (result.judged, result.missing, result.labels_without_verdict) == (1, 2, 3)
    assert (values(result)["accuracy"], values(result)["accuracy, unscored as wrong"]) == (
        1.0,
        0.25,
    )
    # With the file of what was to be judged, labels of other trajectories do not count: c is there,
    # d is not.
    inside = agreement(judged, labels, tasks={"a": "t", "b": "u", "c": "v"})
    assert (inside.missing, values(inside)["accuracy, unscored as wrong"]) == (1, round(1 / 3, 4))


def test_brier_and_calibration_error() -> None:
    said, truths = [0.8, 0.5, 0.4, None], [True, True, False, False]
    verdicts = [
        Verdict(id=str(i), success=s is not None and s >= 0.5, score=s, evaluator=JUDGE)
        for i, s in enumerate(said)
    ]
    labels = [LabelRecord(id=str(i), success=truth) for i, truth in enumerate(truths)]
    brier, error = agreement(verdicts, labels).scores
    # (0.2² + 0.5² + 0.4² + 0²) / 4; the distances in four bins of one run each: (0.2 + 0.5 + 0.4 +
    # 0) / 4
    assert (brier.value, error.value) == (pytest.approx(0.45 / 4), pytest.approx(1.1 / 4))
    assert brier.low is not None and brier.high is not None and brier.low < brier.value < brier.high
    assert error.interval is None
    assert table(20, 5, 15, 10).scores == ()


def test_label_sources_are_never_mixed() -> None:
    labels = [
        LabelRecord(id="a", success=True),
        LabelRecord(id="a", success=False, source="oracle"),
    ]
    with pytest.raises(UsageError, match=r"human, oracle.*choose one source"):
        agreement([verdict("a", True)], labels)
    assert agreement([verdict("a", True)], labels, source="oracle").confusion.fp == 1
    with pytest.raises(UsageError, match="no label has source 'me'; expected one of human, oracle"):
        agreement([verdict("a", True)], labels, source="me")


def test_evaluators_are_never_mixed() -> None:
    other = Verdict(id="b", success=True, evaluator=EvaluatorInfo("vlm", "1", "another"))
    with pytest.raises(UsageError, match="several judges"):
        agreement([verdict("a", True), other], [LabelRecord(id="a", success=True)])
    same_id = Verdict(id="a", success=False, evaluator=other.evaluator)
    with pytest.raises(UsageError, match="several judges"):
        agreement([verdict("a", True), same_id], [LabelRecord(id="a", success=True)])


def test_shares_of_0_and_1_get_wilson() -> None:
    figures = by_name(table(30, 0, 0, 10).figures)
    # Precision 30 of 30, recall 30 of 40; a share counts the clusters that it is about.
    assert (figures["precision"].interval, figures["recall"].interval) == ("wilson", "bootstrap")
    assert (figures["precision"].low, figures["precision"].high) == tuple(
        map(pytest.approx, wilson(1.0, 30))
    )
    assert (figures["NPV"].low, figures["NPV"].high) == tuple(map(pytest.approx, wilson(0.0, 10)))


def test_few_tasks_give_wider_t_intervals() -> None:
    # Shares of 2, 4, 6 and 8 of 10: mean 0.5, standard error 0.1291, t with 3 degrees of freedom
    # 3.182.
    clusters = np.array([[right, 10 - right, 0, 0, 0] for right in (2, 4, 6, 8)])
    low, high = intervals(clusters)
    # the standard deviation over sqrt(4), on the scale of log odds
    odds = 3.182 * (0.05 / 0.75) ** 0.5 / 2 / 0.25
    assert (low[0], high[0]) == (
        pytest.approx(1 / (1 + np.exp(odds))),
        pytest.approx(1 / (1 + np.exp(-odds))),
    )
    lower, upper = bootstrap(clusters)
    assert high[0] - low[0] > upper[0] - lower[0]


def test_few_tasks_have_the_published_intervals() -> None:
    """With a printed table of Student's quantiles."""
    low, high = jackknife(
        np.array([[7, 1, 5, 2, 0], [3, 2, 6, 1, 1], [9, 0, 2, 2, 0], [4, 3, 3, 0, 2]])
    )
    assert low[[0, 2, 7]].tolist() == pytest.approx(
        [0.675364149488, 0.311515702554, 0.380674217717], abs=1e-9
    )
    assert high[[0, 2, 7]].tolist() == pytest.approx(
        [0.858000947008, 0.970128168754, 0.685753481909], abs=1e-9
    )


def test_wilson_is_the_textbook_one() -> None:
    # Wilson 1927, as in Agresti and Coull 1998: 15 of 50.
    assert wilson(0.3, 50) == (pytest.approx(0.1910, abs=1e-4), pytest.approx(0.4375, abs=1e-4))


def test_accuracy_interval_covers_95_of_100() -> None:
    generator = np.random.default_rng(1)
    trials, rows, truth = 200, 150, 0.8
    covered = 0
    for right in generator.binomial(rows, truth, size=trials):
        clusters = np.zeros((rows, 5), dtype=np.int64)
        clusters[:right, 0] = 1
        clusters[right:, 1] = 1
        low, high = bootstrap(clusters)
        covered += low[0] <= truth <= high[0]
    assert 0.89 <= covered / trials <= 0.99


def test_task_clusters_widen_the_interval() -> None:
    verdicts = [verdict(f"{task}-{run}", True) for task in range(40) for run in range(10)]
    labels = [LabelRecord(id=v.id, success=int(v.id.split("-")[0]) % 2 == 0) for v in verdicts]
    alone = by_name(agreement(verdicts, labels).figures)["accuracy"]
    together = agreement(verdicts, labels, tasks={v.id: v.id.split("-")[0] for v in verdicts})
    grouped = by_name(together.figures)["accuracy"]
    assert (together.clusters, together.clustered_by) == (40, "task")
    # The spread of a mean over 40 tasks is sqrt(10) times that over 400 rows.
    ratio = (grouped.high - grouped.low) / (alone.high - alone.low)  # type: ignore[operator]
    assert 2.7 < ratio < 3.7


def test_steps_are_compared_one_by_one() -> None:
    """Of four labelled steps one verdict is right, one wrong, one held no label; the fourth's label
    is undecided.
    """
    judged = (
        StepVerdict(0, "reached", 1.0),
        StepVerdict(1, "not_sure", -0.5),
        StepVerdict(2, "not_sure", -0.5, flagged=True),
    )
    judged += (StepVerdict(3, "away", -0.5),)
    verdicts = [
        Verdict(id="a", success=True, steps=judged, evaluator=JUDGE),
        verdict("b", None, "timeout"),
    ]
    steps = (
        StepLabel(0, "towards"),
        StepLabel(1, "towards"),
        StepLabel(2, "away"),
        StepLabel(3, "not_sure"),
    )
    labels = [
        LabelRecord(id="a", success=False, steps=steps),
        LabelRecord(id="b", success=True, steps=(StepLabel(0, "away"),)),
    ]
    result = agreement(*by_step(verdicts, labels), tasks={"a step 0": "t", "a step 1": "t"})
    c = result.confusion
    assert (c.tp, c.fn, c.tn, c.fp, result.clusters) == (1, 1, 0, 0, 3)
    assert (dict(result.unscored), result.undecided) == ({"parse": 1, "timeout": 1}, 1)

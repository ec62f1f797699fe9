"""Figures against numbers worked out by hand, and intervals against simulated data."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import numpy as np
import pytest

from prill.errors import UsageError
from prill.evaluators.meta.agreement import Agreement, Figure, agreement
from prill.evaluators.metrics import bootstrap, wilson
from prill.types import EvaluatorInfo, LabelRecord, UnscoredReason, Verdict

JUDGE = EvaluatorInfo("vlm", "1", "m")


def verdict(id: str, success: bool | None, unscored: UnscoredReason | None = None) -> Verdict:
    return Verdict(id=id, success=success, unscored=unscored, evaluator=JUDGE)


def table(tp: int, fp: int, tn: int, fn: int) -> Agreement:
    verdicts, labels = [], []
    numbers = count()
    for n, judged, truth in ((tp, True, True), (fp, True, False), (tn, False, False), (fn, False, True)):
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
    expected = {"accuracy": 0.8744, "precision": 0.4615, "recall": 0.6522, "F1": 0.5405, "specificity": 0.9028, "NPV": 0.9531}
    assert values(result).items() >= expected.items()
    assert values(result)["balanced accuracy"] == 0.7775  # (60/92 + 650/720) / 2
    assert result.judged == 812


def test_kappa_is_beyond_chance() -> None:
    # Observed 0.70; by chance 0.5 * 0.6 + 0.5 * 0.4 = 0.50; (0.70 - 0.50) / (1 - 0.50).
    assert values(table(20, 5, 15, 10))["kappa"] == 0.4


def test_always_failure_has_precision_zero() -> None:
    result = table(0, 0, 70, 30)
    figures = by_name(result.figures)
    assert (figures["precision"].value, figures["precision"].undefined) == (0.0, True)
    assert (figures["recall"].value, figures["F1"].value, figures["kappa"].value) == (0.0, 0.0, 0.0)
    assert (figures["accuracy"].value, result.majority, result.majority_answer) == (0.7, 0.7, False)


def test_one_kind_of_labels_leaves_undefined() -> None:
    figures = by_name(table(8, 0, 0, 2).figures)
    assert figures["recall"].value == 0.8
    assert [figures[name].undefined for name in ("specificity", "balanced accuracy", "recall")] == [True, True, False]


def test_unscored_lower_one_accuracy_only() -> None:
    verdicts = [verdict("a", True), verdict("b", False), verdict("c", None, "parse"), verdict("d", None, "timeout")]
    result = agreement(verdicts, [LabelRecord(id=i, success=i == "a") for i in "abcd"])
    assert (result.judged, dict(result.unscored)) == (2, {"parse": 1, "timeout": 1})
    assert (values(result)["accuracy"], values(result)["accuracy, unscored as wrong"]) == (1.0, 0.5)


def test_nothing_judged_is_still_an_answer() -> None:
    result = agreement([verdict("a", None, "refusal")], [LabelRecord(id="a", success=True)])
    assert (result.judged, values(result)["accuracy"], result.majority) == (0, 0.0, 0.0)
    assert by_name(result.figures)["accuracy"].undefined


def test_unmatched_records_are_counted() -> None:
    labels = [LabelRecord(id="b", success=True), LabelRecord(id="c", success=None), LabelRecord(id="x", success=True)]
    result = agreement([verdict(i, True) for i in "abc"], labels)
    assert (result.judged, result.verdicts_without_label, result.labels_without_verdict, result.undecided) == (1, 1, 1, 1)


def test_first_decided_annotator_counts() -> None:
    opinions = [None, False, True]
    labels = [LabelRecord(id="a", success=opinion, annotator=str(i)) for i, opinion in enumerate(opinions)]
    assert agreement([verdict("a", False)], labels).confusion.tn == 1


def test_last_verdict_of_an_id_counts() -> None:
    result = agreement([verdict("a", None, "timeout"), verdict("a", True)], [LabelRecord(id="a", success=True)])
    assert (result.judged, result.confusion.tp, result.unscored) == (1, 1, {})


def test_label_sources_are_never_mixed() -> None:
    labels = [LabelRecord(id="a", success=True), LabelRecord(id="a", success=False, source="oracle")]
    with pytest.raises(UsageError, match=r"human, oracle.*choose one source"):
        agreement([verdict("a", True)], labels)
    assert agreement([verdict("a", True)], labels, source="oracle").confusion.fp == 1
    with pytest.raises(UsageError, match="no label has source 'me'; there are: human, oracle"):
        agreement([verdict("a", True)], labels, source="me")


def test_evaluators_are_never_mixed() -> None:
    other = Verdict(id="b", success=True, evaluator=EvaluatorInfo("vlm", "1", "another"))
    with pytest.raises(UsageError, match="several evaluators"):
        agreement([verdict("a", True), other], [LabelRecord(id="a", success=True)])
    same_id = Verdict(id="a", success=False, evaluator=other.evaluator)
    with pytest.raises(UsageError, match="several evaluators"):
        agreement([verdict("a", True), same_id], [LabelRecord(id="a", success=True)])


def test_no_common_id_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'mine'.*'theirs'"):
        agreement([verdict("mine", True)], [LabelRecord(id="theirs", success=True)])
    with pytest.raises(UsageError, match="none has id 'mine'"):
        agreement([verdict("mine", True)], [LabelRecord(id="mine", success=True)], tasks={"theirs": "t"})


def test_all_undecided_labels_are_refused() -> None:
    with pytest.raises(UsageError, match="undecided"):
        agreement([verdict("a", True)], [LabelRecord(id="a", success=None)])


def test_perfect_judge_gets_wilson() -> None:
    accuracy = by_name(table(10, 0, 10, 0).figures)["accuracy"]
    assert accuracy.interval == "wilson"
    assert (accuracy.low, accuracy.high) == (pytest.approx(0.8389, abs=1e-4), pytest.approx(1.0))


def test_wilson_is_the_textbook_one() -> None:
    # Wilson 1927, as in Agresti and Coull 1998: 15 of 50.
    assert wilson(0.3, 50) == (pytest.approx(0.1910, abs=1e-4), pytest.approx(0.4375, abs=1e-4))


def test_intervals_are_reproducible() -> None:
    assert table(30, 10, 40, 20) == table(30, 10, 40, 20)


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

"""Parts sum to the whole, and each has the figures of its own trajectories."""

from __future__ import annotations

import pytest

from prill.evaluators.agreement.agreement import Pairing, disagreements, measure_agreement, pair
from prill.evaluators.agreement.comparison import slice_value, slices
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict

JUDGE = EvaluatorInfo("vlm", "1", "m")


def pairing(count: int = 200) -> Pairing:
    """Every seventh unscored; judged success when divisible by 2, truly a success when divisible by
    3.
    """
    verdicts = [
        Verdict(id=str(i), evaluator=JUDGE, unscored="parse")
        if i % 7 == 0
        else Verdict(
            id=str(i),
            evaluator=JUDGE,
            success=i % 2 == 0,
            score=0.5 + (i % 2 == 0) * 0.1 + i / 1000,
        )
        for i in range(count)
    ]
    return pair(verdicts, [LabelRecord(id=str(i), success=i % 3 == 0) for i in range(count)])


def test_parts_sum_to_the_whole() -> None:
    whole, joined = measure_agreement(pairing()), pairing()
    parts = slices(joined, "site", {str(i): f"s{i % 5}" for i in range(150)})
    assert sum(part.n for part in parts) == 200
    assert sum(part.unscored for part in parts) == sum(whole.unscored.values())
    for cell in ("tp", "fp", "tn", "fn"):
        assert sum(getattr(part, cell) for part in parts) == getattr(whole.confusion, cell)


def test_part_figures_are_its_own() -> None:
    (part, *_) = slices(pairing(7), "agent", {str(i): "a" for i in range(1, 7)})
    # 1 to 6: judged 2 4 6, true 3 6.
    assert (part.tp, part.fp, part.tn, part.fn, part.n, part.unscored) == (1, 2, 2, 1, 6, 0)
    assert (part.accuracy, part.balanced_accuracy, part.precision, part.recall) == (
        0.5,
        0.5,
        pytest.approx(1 / 3),
        0.5,
    )
    assert (part.success, part.kappa) == (pytest.approx(1 / 3), 0.0)


def test_part_by_attribute_or_metadata() -> None:
    trajectory = Trajectory(
        id="1",
        agent="a",
        task=Task(id="t", goal="g", site="shop", platform="web"),
        metadata={"truncated": True, "n": 3, "site": "mine", "types": ["x", "y"]},
    )
    names = (
        "site", "agent", "platform", "task", "truncated", "metadata.truncated", "n",
        "metadata.site", "types", "absent",
    )  # fmt: skip
    assert [slice_value(trajectory, name) for name in names] == [
        "shop", "a", "web", "t", "true", "true", "3", "mine", "x, y", None,
    ]  # fmt: skip


def test_disagreements_surest_first() -> None:
    judged = {
        "a": (True, 0.6),
        "b": (True, 0.9),
        "c": (False, 0.3),
        "d": (False, 0.1),
        "e": (True, 0.9),
    }
    verdicts = [
        Verdict(id=i, evaluator=JUDGE, success=s, score=p, reason=f"why {i}")
        for i, (s, p) in judged.items()
    ]
    verdicts.append(Verdict(id="f", evaluator=JUDGE, unscored="timeout", reason="slow"))
    labels = [LabelRecord(id=i, success=i in "cde", annotator="A") for i in "abcdef"]
    labels.append(LabelRecord(id="b", success=True, annotator="B", note="bought"))
    records = disagreements(pair(verdicts, labels, truth="first"), {"b": "Buy tea"})
    assert [(d.kind, d.id) for d in records] == [
        ("false positive", "b"),
        ("false positive", "a"),
        ("false negative", "d"),
        ("false negative", "c"),
        ("unscored", "f"),
    ]
    first = records[0]
    assert (first.goal, first.reason, first.score, first.label) == ("Buy tea", "why b", 0.9, False)
    assert [(r.annotator, r.success, r.note) for r in first.annotators] == [
        ("A", False, None),
        ("B", True, "bought"),
    ]
    assert (records[-1].unscored, records[-1].goal) == ("timeout", None)

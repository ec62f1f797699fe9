"""Agreement among people, against figures worked out by hand and one table of a textbook paper."""

from __future__ import annotations

import pytest

from prill.evaluators.agreement.annotators import annotator_agreement, cohen_kappa, fleiss_kappa
from prill.types import LabelRecord


def label(
    id: str, success: bool | None, annotator: str | None, source: str = "human"
) -> LabelRecord:
    return LabelRecord(id=id, success=success, annotator=annotator, source=source)


def test_cohen_kappa_computed_by_hand() -> None:
    # 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: observed 0.7, chance 0.5 * 0.6 + 0.5 * 0.4 = 0.5.
    pairs = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
    assert cohen_kappa(pairs) == pytest.approx(0.4)
    assert cohen_kappa([("y", "y"), ("y", "y")]) is None
    assert cohen_kappa([]) is None


def test_fleiss_kappa_of_fourteen_raters() -> None:
    # Ten subjects, five categories: the usual worked example, kappa 0.210.
    counts = [
        (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
        (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
    ]  # fmt: skip
    items = [[category for category, n in enumerate(row) for _ in range(n)] for row in counts]
    assert fleiss_kappa(items) == pytest.approx(0.210, abs=5e-4)


def test_pairs_within_trajectory_and_source() -> None:
    labels = [
        label("1", True, "A"), label("1", True, "B"),
        label("2", True, "A"), label("2", False, "B"), label("2", False, "C"),
        label("3", True, "A"), label("3", None, "B"),
        label("4", True, "A"), label("4", False, "A"),
        label("1", False, "checker", source="oracle"),
    ]  # fmt: skip
    result = annotator_agreement(labels, "human")
    assert result is not None
    assert (result.trajectories, result.annotators, result.pairs, result.three_or_more) == (
        2,
        3,
        4,
        1,
    )
    assert (result.raw, result.exact) == (0.5, 0.0)


def test_intervals_hold_the_figures() -> None:
    labels = [label(str(i), i % 2 == 0, "A") for i in range(60)] + [
        label(str(i), i % 2 == 0 or i % 5 == 0, "B") for i in range(60)
    ]
    result = annotator_agreement(labels)
    assert result is not None
    assert result.raw_interval is not None
    assert result.kappa_interval is not None
    assert result.kappa is not None
    assert result.raw_interval[0] < result.raw < result.raw_interval[1]
    assert result.kappa_interval[0] < result.kappa < result.kappa_interval[1]

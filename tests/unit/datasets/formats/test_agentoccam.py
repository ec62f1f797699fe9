"""The table of three annotators, on rows made up in its layout and on the real one where it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prill.evaluators.agreement.annotators import annotator_agreement, exact_agreement, fleiss_kappa
from prill.types import LabelRecord
from tests.support.datasets.annotations import load_grades, load_labels

HEADER = "Task ID,Ann (Correct: 1; Incorrect: 0),Ann's Note,Ben,Ben's Note,Cy,Cy's Note,Average"


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    def write(*rows: str, header: str = HEADER) -> Path:
        path = tmp_path / "human.csv"
        path.write_text("\n".join([header, *rows]), encoding="utf-8-sig")
        return path

    return write


def test_labels_only_full_marks_succeed(table: Callable[..., Path]) -> None:
    path = table('0,1,,0.50,"near, but no",0.00,,0.5', "Win Rate,0.6,,0.5,,0.7,,0.6")
    assert list(load_labels(path)) == [
        LabelRecord(id="0", success=True, annotator="Ann"),
        LabelRecord(id="0", success=False, annotator="Ben", note="partially correct; near, but no"),
        LabelRecord(id="0", success=False, annotator="Cy"),
    ]
    assert load_grades(path) == {"0": {"Ann": 1.0, "Ben": 0.5, "Cy": 0.0}}


@pytest.mark.labelled
def test_exact_agreement_444_of_812_tasks(real: Callable[[str], Path]) -> None:
    grades = load_grades(real("annotations") / "agentoccam_webarena_human.csv")
    items = [list(by_person.values()) for by_person in grades.values()]
    assert (
        len(items),
        {len(by_person) for by_person in items},
        min(grades, key=int),
        max(grades, key=int),
    ) == (812, {3}, "0", "811")
    share = exact_agreement(items)
    assert share == 444 / 812  # 54.68 %; quoted as 54.6, cut off
    assert share == pytest.approx(0.546, abs=1e-3)
    assert [sum(by_person[i] for by_person in items) / 812 for i in range(3)] == pytest.approx(
        [0.619, 0.592, 0.741], abs=5e-4
    )
    assert fleiss_kappa(items) == pytest.approx(0.418, abs=5e-4)


@pytest.mark.labelled
def test_partly_correct_as_failure_agrees(real: Callable[[str], Path]) -> None:
    labels = [
        label
        for label in load_labels(real("annotations") / "agentoccam_webarena_human.csv")
        if isinstance(label, LabelRecord)
    ]
    result = annotator_agreement(labels)
    assert result is not None
    assert (len(labels), result.trajectories, result.three_or_more, result.pairs) == (
        2436,
        812,
        812,
        2436,
    )
    assert result.exact == 523 / 812

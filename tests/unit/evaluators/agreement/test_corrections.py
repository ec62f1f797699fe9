"""Label corrections: off unless asked for, matched by task, counted, and only for the source they
are about.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.evaluators.agreement.corrections import correct, load_corrections
from prill.types import LabelRecord

WEBARENA = load_corrections("webarena")


def oracle(id: str, success: bool | None) -> LabelRecord:
    return LabelRecord(id=id, success=success, source="oracle")


def test_fourteen_tasks_become_failures() -> None:
    tasks = {24, 201, 225, 247, 390, 435, 466, 677, 678, 679, 680, 752, 792, 793}
    assert {int(c.task) for c in WEBARENA.correction} == tasks
    assert len(WEBARENA.correction) == 14
    assert not any(c.success for c in WEBARENA.correction)
    assert all(c.reason for c in WEBARENA.correction)


@pytest.mark.parametrize("task", ["24", "webarena.24", "webarena/24", "WebArena_24"])
def test_task_known_with_its_benchmark(task: str) -> None:
    corrected = correct([oracle("run", True)], WEBARENA, {"run": task})
    assert (corrected.labels[0].success, corrected.changed) == (False, ("run",))
    assert "corrected" in str(corrected.labels[0].note)


def test_labels_of_people_stay() -> None:
    label = LabelRecord(id="24", success=True, source="human")
    assert correct([label], WEBARENA).labels == (label,)


def test_own_table_works_like_shipped(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'benchmark = "shop"\nmade_for = "my runs"\n[[correction]]\ntask = "7"\nsuccess = '
        'true\nreason = "late"\n',
        encoding="utf-8",
    )
    labels = [oracle("shop.7", None), LabelRecord(id="7", success=False)]
    corrected = correct(labels, load_corrections(str(path)))
    assert [label.success for label in corrected.labels] == [True, True]


@pytest.mark.parametrize(
    "text",
    ["benchmark = 3", "not toml", 'benchmark = "x"\nmade_for = "y"\n[[correction]]\ntask = "7"\n'],
)
def test_broken_table_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"bad\.toml"):
        load_corrections(str(tmp_path / "bad.toml"))

"""`prill.agreement`: the figures of `prill agree` as attributes, as a data frame and on a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import prill
from prill.cli import main
from prill.io.store import encode, encode_trajectory
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict

JUDGE = EvaluatorInfo("modular", "1", "m")
VERDICTS = [
    Verdict(id="0", unscored="parse", evaluator=JUDGE),
    *(
        Verdict(id=str(i), success=i % 3 != 0, score=(i % 5) / 5, evaluator=JUDGE)
        for i in range(1, 30)
    ),
]
LABELS = [
    *(LabelRecord(id=str(i), success=i % 2 == 0) for i in range(28)),
    LabelRecord(id="28", success=None, undecided="unsure"),
    LabelRecord(id="no verdict", success=True),
]
TRAJECTORIES = [Trajectory(id=str(i), task=Task(id=f"t{i // 2}", goal="g")) for i in range(30)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    (tmp_path / "v.jsonl").write_bytes(b"".join(map(encode, VERDICTS)))
    (tmp_path / "l.jsonl").write_bytes(b"".join(map(encode, LABELS)))
    (tmp_path / "t.jsonl").write_bytes(
        b"".join(encode_trajectory(one, tmp_path) for one in TRAJECTORIES)
    )
    return str(tmp_path / "v.jsonl"), str(tmp_path / "l.jsonl"), str(tmp_path / "t.jsonl")


@pytest.mark.parametrize("by_task", [False, True])
def test_figures_are_those_of_the_command(
    files: tuple[str, str, str], by_task: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "agree",
                files[0],
                files[1],
                "--json",
                *(["--trajectories", files[2]] if by_task else []),
            ]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    for result in (
        prill.agreement(files[0], files[1], trajectories=files[2] if by_task else None),
        prill.agreement(VERDICTS, LABELS, trajectories=TRAJECTORIES if by_task else None),
    ):
        for figure in (*told["figures"], *told["scores"]):
            assert json.loads(encode(result.figure(figure["name"]))) == figure
        assert result.kappa == result.figure("kappa")
        counts = (
            "judged", "unscored", "missing", "undecided", "verdicts_without_label",
            "labels_without_verdict",
        )  # fmt: skip
        assert {name: getattr(result, name) for name in counts} == {
            name: told[name] for name in counts
        }


def test_a_data_frame_has_null_for_undefined() -> None:
    pytest.importorskip("pandas")
    result = prill.agreement(
        [Verdict(id="a", success=True, evaluator=JUDGE)], [LabelRecord(id="a", success=True)]
    )
    frame = result.to_pandas().set_index("figure")
    assert frame.loc["accuracy", "value"] == 1.0
    assert frame["value"].isna()["kappa"]
    assert result.kappa.undefined
    assert str(result.kappa) == "kappa is undefined"
    assert frame["low"].isna()["kappa"]

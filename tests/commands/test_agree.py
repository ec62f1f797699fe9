"""`prill agree` on files, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill.cli import main
from prill.store import encode, encode_trajectory
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    """Ten trajectories of five tasks; the judge is wrong about the last and did not judge the first."""
    judge = EvaluatorInfo("modular", "1", "m")
    verdicts = [Verdict(id="0", unscored="parse", evaluator=judge)]
    verdicts += [Verdict(id=str(i), success=i % 2 == 0 or i == 9, evaluator=judge) for i in range(1, 10)]
    labels = [LabelRecord(id=str(i), success=i % 2 == 0, source=source) for i in range(10) for source in ("human", "oracle")]
    trajectories = [Trajectory(id=str(i), task=Task(id=f"t{i // 2}", goal="g")) for i in range(10)]
    paths = [tmp_path / name for name in ("verdicts.jsonl", "labels.jsonl", "trajectories.jsonl")]
    paths[0].write_bytes(b"".join(map(encode, verdicts)))
    paths[1].write_bytes(b"".join(map(encode, labels)))
    paths[2].write_bytes(b"".join(encode_trajectory(t, tmp_path) for t in trajectories))
    return str(paths[0]), str(paths[1]), str(paths[2])


def test_the_table_shows_figures_confusion_and_what_is_unscored(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts, labels, trajectories = files
    assert main(["agree", verdicts, labels, "--source", "human", "--trajectories", trajectories]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line[:29].strip(): line[29:].split() for line in lines}
    assert shown["accuracy"][0] == "0.889"
    assert shown["accuracy, unscored as wrong"][0] == "0.800"
    assert shown["always failure (no judge)"] == ["0.556"]
    assert [line.split()[-2:] for line in lines if line.startswith("judged ")] == [["4", "1"], ["0", "4"]]
    assert "Unscored: parse 1" in lines
    assert any("over 5 tasks" in line for line in lines)


def test_json_holds_the_same_comparison(files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agree", files[0], files[1], "--source", "oracle", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["confusion"] == {"tp": 4, "fp": 1, "tn": 4, "fn": 0}
    assert (found["source"], found["unscored"], found["clustered_by"]) == ("oracle", {"parse": 1}, "trajectory")
    assert found["figures"][0]["value"] == pytest.approx(8 / 9)


def test_several_sources_without_a_choice_are_an_error(files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agree", files[0], files[1]]) == 2
    assert "human, oracle" in capsys.readouterr().err


def test_a_label_that_breaks_the_format_is_named_with_its_line(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(files[1])
    path.write_text('{"id": "0", "success": true}\n{"id": "1", "success": "yes"}\n', encoding="utf-8")
    assert main(["agree", files[0], files[1]]) == 2
    assert f"{path}:2" in capsys.readouterr().err

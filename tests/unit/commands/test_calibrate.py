"""`prill calibrate` on files, as a user runs it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import prill as library
from prill.io.store import encode, encode_trajectory
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict

Prill = Callable[..., CompletedProcess[str]]
JUDGE = EvaluatorInfo("vlm", "1", "m")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """300 verdicts with scores that are too low, one unscored, of 100 tasks; human labels, and an
    oracle's.
    """
    dice = random.Random(1)
    verdicts, labels, runs = [], [], []
    for i in range(300):
        chance = dice.random()
        verdicts.append(
            Verdict(id=str(i), success=chance**3 >= 0.5, score=chance**3, evaluator=JUDGE)
        )
        labels.append(LabelRecord(id=str(i), success=dice.random() < chance))
        labels.append(LabelRecord(id=str(i), success=True, source="oracle"))
        runs.append(Trajectory(id=str(i), task=Task(id=f"k{i // 3}", goal="g")))
    verdicts[7] = Verdict(id="7", unscored="timeout", evaluator=JUDGE)
    paths = tmp_path / "v.jsonl", tmp_path / "l.jsonl", tmp_path / "t.jsonl"
    paths[0].write_bytes(b"".join(map(encode, verdicts)))
    paths[1].write_bytes(b"".join(map(encode, labels)))
    paths[2].write_bytes(b"".join(encode_trajectory(run, tmp_path) for run in runs))
    return paths


def test_calibration_is_told_and_written(files: tuple[Path, Path, Path], prill: Prill) -> None:
    verdicts, labels, trajectories = files
    words = (
        "--source",
        "human",
        "--trajectories",
        trajectories,
        "--target-precision",
        "0.7",
        "--plot",
        "c.svg",
    )
    done = prill("calibrate", verdicts, labels, "-o", "c.json", *words)
    assert done.returncode == 0, done.stderr
    assert "299 scored runs" in done.stdout
    assert "1 unscored left out" in done.stdout
    assert "5 folds by task" in done.stdout
    assert re.search(
        r"Method: (platt|isotonic) \(Brier score held out: platt 0\.\d+, isotonic 0\.\d+; ",
        done.stdout,
    )
    assert "Warning" not in done.stdout
    before, after = next(
        line for line in done.stdout.splitlines() if line.startswith("Brier")
    ).split()[-2:]
    assert float(after) < float(before) and "Not better than before" not in done.stdout
    made = json.loads(Path("c.json").read_text())
    assert made["evaluator"]["name"] == "vlm"
    assert f"Threshold {made['threshold']:g}: precision of at least 0.7" in done.stdout
    assert Path("c.svg").read_text().startswith("<svg")


def test_calibration_that_does_not_help_says_so(tmp_path: Path, prill: Prill) -> None:
    dice = random.Random(2)  # the scores are the chances of success
    chances = [dice.random() for _ in range(60)]
    verdicts = [
        Verdict(id=str(i), success=chance >= 0.5, score=chance, evaluator=JUDGE)
        for i, chance in enumerate(chances)
    ]
    labels = [
        LabelRecord(id=str(i), success=dice.random() < chance) for i, chance in enumerate(chances)
    ]
    (tmp_path / "v.jsonl").write_bytes(b"".join(map(encode, verdicts)))
    (tmp_path / "l.jsonl").write_bytes(b"".join(map(encode, labels)))
    done = prill("calibrate", "v.jsonl", "l.jsonl", "-o", "c.json", "--method", "isotonic")
    assert "Not better than before on held-out runs: 60 runs are too few" in done.stdout


def test_costs_choose_the_threshold(files: tuple[Path, Path, Path], prill: Prill) -> None:
    words = (
        "--source", "human", "--cost-fp", "1", "--cost-fn", "4", "--method", "isotonic", "--json",
    )  # fmt: skip
    done = prill("calibrate", *files[:2], "-o", "c.json", *words)
    found = json.loads(done.stdout)
    assert found["calibration"]["threshold"] == 0.2
    assert found["cost"] < found["constant_cost"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--source", "human", "--target-precision", "0.999"],
            "no threshold has a precision of at least 0.999",
        ),
        (
            ["--source", "human", "--target-precision", "7"],
            "--target-precision: Expected `float` < 1.0, got '7'",
        ),
        (
            ["--source", "human", "--cost-fp", "1"],
            "give both; only their ratio matters (--cost-fp, --cost-fn)",
        ),
        (
            ["--source", "human", "--cost-fp", "1", "--cost-fn", "0"],
            "--cost-fn: Expected `float` > 0.0, got '0'",
        ),
        (
            ["--source", "human", "--cost-fp", "1", "--cost-fn", "2", "--target-precision", "0.5"],
            "give either target_precision or the costs",
        ),
        (["--source", "oracle"], "299 successes and 0 failures"),
        ([], "human, oracle"),
    ],
)
def test_impossible_calibration_is_an_error(
    words: list[str], message: str, files: tuple[Path, Path, Path], prill: Prill
) -> None:
    done = prill("calibrate", *files[:2], "-o", "c.json", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not Path("c.json").exists()


def test_python_calibrates_as_the_command_does(
    files: tuple[Path, Path, Path], prill: Prill, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts, labels, trajectories = files
    words = (
        "--source",
        "human",
        "--trajectories",
        trajectories,
        "--cost-fp",
        "1",
        "--cost-fn",
        "4",
        "--plot",
        "c.svg",
    )
    done = prill("calibrate", verdicts, labels, "-o", "c.json", *words)
    capsys.readouterr()
    config = library.CalibrateConfig(
        verdicts=[verdicts],
        labels=labels,
        output="p.json",
        source="human",
        trajectories=trajectories,
        cost_fp=1,
        cost_fn=4,
    )
    result = library.calibrate(config)
    assert capsys.readouterr() == ("", ""), "the library prints nothing"
    assert f"{result}\n" == done.stdout
    assert Path("p.json").read_bytes() == Path("c.json").read_bytes()
    assert result.svg() == Path("c.svg").read_text() and result.svg() in result._repr_html_()
    assert result.threshold == json.loads(Path("c.json").read_text())["threshold"] == 0.2
    assert 0 <= result.calibration(0.3) <= 1
    rows = result.table().to_rows()
    assert {row["scores"] for row in rows} == {"before", "after"}
    assert sum(row["runs"] for row in rows if row["scores"] == "after") == 299

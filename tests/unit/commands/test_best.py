"""`prill best` on files, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import encode
from prill.types import EvaluatorInfo, LabelRecord, Task, Trajectory, Verdict


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three tasks of three attempts: t0 with a clear best, t1 with a tie and an unscored attempt,
    t2 without any verdict. The judge is right but for t1.
    """
    judge = EvaluatorInfo("modular", "1", "m")
    scores = {"0-0": 0.1, "0-1": 0.9, "0-2": 0.2, "1-0": 0.7, "1-2": 0.7}
    verdicts = [
        Verdict(id=id, success=score >= 0.5, score=score, evaluator=judge)
        for id, score in scores.items()
    ]
    verdicts.append(Verdict(id="1-1", unscored="timeout", evaluator=judge))
    ids = [f"{task}-{k}" for task in range(3) for k in range(3)]
    runs = [Trajectory(id=id, task=Task(id=f"t{id[0]}", goal="g")) for id in ids]
    labels = [LabelRecord(id=id, success=id in ("0-1", "1-1", "1-2")) for id in ids]
    paths = [tmp_path / name for name in ("v.jsonl", "t.jsonl", "l.jsonl")]
    paths[0].write_bytes(b"".join(map(encode, verdicts)))
    prill.write_trajectories(paths[1], runs)
    paths[2].write_bytes(b"".join(map(encode, labels)))
    return list(map(str, paths))


def test_picks_are_written_and_told(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "best.jsonl")
    for _ in range(2):  # it is replaced
        assert main(["best", files[1], "--verdicts", files[0], "-o", out]) == 0
    page = capsys.readouterr().out
    assert (
        "Picked: 2 of 3 tasks, from 9 attempts; 2 picks are successes according to the judge"
    ) in page
    assert "Ties: 1 tasks, in which the first attempt is picked; unscored: 4 attempts" in page
    assert [run.id for run in prill.read_trajectories(out)] == ["0-1", "1-0"]


def test_labels_show_what_a_pick_is_worth(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = Path(files[0]).with_suffix(".svg")
    command = [
        "best",
        files[1],
        "--verdicts",
        files[0],
        "--labels",
        files[2],
        "--plot",
        str(drawn),
        "--json",
    ]
    assert main(command) == 0
    titles = "".join(ElementTree.parse(drawn).getroot().itertext())
    assert "pass@N, N 3: " in titles and "best of N by the judge, N 3: " in titles
    told = json.loads(capsys.readouterr().out)
    # Of 3: t0 a success, t1 one of two tied; t2 has no pick and counts in neither figure.
    assert told["curve"][2]["pick"]["value"] == pytest.approx(0.75)
    assert told["curve"][2]["passed"]["value"] == pytest.approx(1)
    assert told["curve"][2]["picked"] == pytest.approx(2 / 3)
    result = prill.best(
        prill.BestConfig(verdicts=files[0], trajectories=files[1], labels=files[2], attempts=2)
    )
    assert [point.n for point in result.curve] == [1, 2]
    assert "! leaves out samples in which every attempt is unscored" in str(result)
    assert list(result.to_pandas()["unscored"]) == [0, 1, 3]
    assert result.picks[1].tied == ("1-0", "1-2")


def test_what_cannot_be_told_is_refused(files: list[str], tmp_path: Path) -> None:
    verdicts, runs, labels = files
    with pytest.raises(UsageError, match="attempts needs labels"):
        prill.BestConfig(verdicts=verdicts, trajectories=runs, attempts=2).check()
    with pytest.raises(UsageError, match="plot needs labels"):
        prill.BestConfig(verdicts=verdicts, trajectories=runs, plot="p.svg")
    with pytest.raises(UsageError, match="this is also an input"):
        prill.best(prill.BestConfig(verdicts=verdicts, trajectories=runs, output=runs))
    with pytest.raises(UsageError, match="no task has 4"):
        prill.best(
            prill.BestConfig(verdicts=verdicts, trajectories=runs, labels=labels, attempts=4)
        )
    other = tmp_path / "other.jsonl"
    prill.write_trajectories(other, [Trajectory(id="x", task=Task(goal="g"))])
    with pytest.raises(UsageError, match="do not match the verdicts"):
        prill.best(prill.BestConfig(verdicts=verdicts, trajectories=other))

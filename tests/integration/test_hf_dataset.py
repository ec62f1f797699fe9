"""Records as data sets of the real `datasets`: nothing is lost there and back, in memory, on disk
and in Parquet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import prill
from prill.errors import InputError, UsageError
from prill.evaluators import Constant
from prill.types import (
    Action,
    Criterion,
    EvaluatorInfo,
    Findings,
    FrameGrade,
    LabelRecord,
    Observation,
    Opinion,
    Step,
    StepLabel,
    StepVerdict,
    Task,
    Trajectory,
    Usage,
    Verdict,
)

# `datasets` alone would be the folder of that name
arrow_dataset = pytest.importorskip("datasets.arrow_dataset")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def png(color: str) -> bytes:
    import io

    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (4, 4), color).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


@pytest.fixture
def runs(tmp_path: Path) -> list[Trajectory]:
    """A run with all that a record can hold, and one with nothing."""
    (tmp_path / "shot.png").write_bytes(png("red"))
    seen = Observation(
        screenshot=str(tmp_path / "shot.png"), text="[1] link 'ä'", url="http://x", caption="c"
    )
    steps = (
        Step(seen, Action("click", "click [1]", "[1]", (0.5, 0.25)), "hm"),
        Step(Observation(), Action("stop")),
    )
    task = Task(
        id="t",
        goal="g",
        platform="web",
        site="s",
        earlier=(Trajectory(id="e", task=Task(goal="before")),),
    )
    metadata = {"seed": 3, "deep": {"list": [1, None, "x"]}, "": ""}
    full = Trajectory(
        id="a",
        task=task,
        agent="me",
        steps=steps,
        final=seen,
        answer="yes",
        metadata=metadata,
        error="lost",
    )
    return [full, Trajectory(id="b", task=Task(goal="g"))]


INFO = EvaluatorInfo("vlm", "1", "m", "sha256:0", {"frames": 2, "judges": [{"name": "x"}]})
VERDICTS = [
    Verdict(
        id="a",
        unscored="parse",
        reason="r",
        evaluator=EvaluatorInfo("x", "1"),
        usage=Usage(usd=None),
    ),
    Verdict(
        id="b",
        success=True,
        score=0.75,
        steps=(StepVerdict(0, "towards", 0.5, "why"), StepVerdict(1, "away", -1.0, flagged=True)),
        rewards=(0.0, 1.0),
        usage=Usage(2, 10, 5, 1, 0.25, 0.125),
        seconds=1.5,
        evaluator=INFO,
        key="sha256:1",
        findings=Findings(
            criteria=(Criterion(text="c", met="not_met", step=1),),
            process=0.5,
            frames=(FrameGrade((0, 1), (5,), "d"),),
        ),
        opinions=(Opinion(judge="x", success=None, unscored="timeout"),),
        fitted_on="task",
    ),
    Verdict(id="c", success=False, evaluator=INFO, rewards=(), findings=Findings()),
]
LABELS = [
    LabelRecord(id="a", success=True, annotator="ann", steps=(StepLabel(0, "reached"),)),
    LabelRecord(id="b", success=None, source="oracle", undecided="unsure"),
]


def test_trajectories_come_back_as_they_were(runs: list[Trajectory]) -> None:
    dataset = prill.to_dataset(runs)
    assert isinstance(dataset, arrow_dataset.Dataset)
    assert dataset[0]["steps"][0]["action"]["kind"] == "click"
    assert dataset[0]["final"]["screenshot"].size == (4, 4)  # decoded by the package itself
    assert list(prill.from_dataset(dataset)) == runs


def test_verdicts_and_labels_come_back_as_they_were() -> None:
    assert list(prill.from_dataset(prill.to_dataset(VERDICTS), Verdict)) == VERDICTS
    assert list(prill.from_dataset(prill.to_dataset(LABELS), LabelRecord)) == LABELS
    # unscored is null, never False
    assert prill.to_dataset(VERDICTS)["success"][:] == [None, True, False]


def test_a_saved_data_set_has_the_images_with_it(runs: list[Trajectory], tmp_path: Path) -> None:
    prill.to_dataset(runs).save_to_disk(str(tmp_path / "saved"))
    Path(str(runs[0].observations[0].screenshot)).unlink()
    first, second = prill.from_dataset(
        arrow_dataset.Dataset.load_from_disk(str(tmp_path / "saved"))
    )
    screenshot = first.steps[0].observation.screenshot
    assert screenshot is not None and Path(screenshot).read_bytes() == png("red")
    assert (first.task, first.metadata, second) == (runs[0].task, runs[0].metadata, runs[1])


def test_parquet_and_streams_are_read(
    runs: list[Trajectory], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prill.to_dataset(runs).to_parquet(str(tmp_path / "runs.parquet"))
    again = arrow_dataset.Dataset.from_parquet(
        str(tmp_path / "runs.parquet"), cache_dir=str(tmp_path / "cache")
    )
    assert [run.id for run in prill.from_dataset(again)] == ["a", "b"]
    capfd.readouterr()
    assert list(prill.from_dataset(prill.to_dataset(runs).to_iterable_dataset())) == runs
    assert list(prill.from_dataset(prill.to_dataset(runs))) == runs
    assert capfd.readouterr() == ("", "")  # no bars


def test_rows_of_others_keep_what_no_record_has() -> None:
    rows = [{"id": "a", "task": {"goal": "g", "difficulty": "hard"}, "split": "test"}]
    [run] = prill.from_dataset(arrow_dataset.Dataset.from_list(rows))
    assert run == Trajectory(
        id="a", task=Task(goal="g"), metadata={"split": "test", "task.difficulty": "hard"}
    )
    assert prill.score([run], Constant(True))[0].success


def test_what_does_not_fit_is_one_error() -> None:
    from_list = arrow_dataset.Dataset.from_list
    table = prill.table(VERDICTS).to_datasets()
    with pytest.raises(
        UsageError, match="has no column 'task', which a Trajectory needs; it has: id, success"
    ):
        prill.from_dataset(table)
    with pytest.raises(UsageError, match="has no column 'evaluator', which a Verdict needs"):
        prill.from_dataset(table, Verdict)  # a judge's word never passes for something else
    rows = [{"id": "a", "task": {"goal": "g"}}, {"id": "b", "task": {"goal": None}}]
    with pytest.raises(InputError, match="row 1 is not a Trajectory: .*goal"):
        list(prill.from_dataset(from_list(rows)))
    with pytest.raises(InputError, match="row 0 is not a Trajectory: Invalid enum value 'Web'"):
        list(prill.from_dataset(from_list([{"id": "a", "task": {"goal": "g", "platform": "Web"}}])))
    with pytest.raises(UsageError, match=r"choose one split, dataset\['train'\]"):
        prill.from_dataset({"train": table})  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="trajectories, verdicts or labels; there are none"):
        prill.to_dataset([])
    with pytest.raises(
        UsageError, match="records of one kind; a LabelRecord is among Verdict records"
    ):
        prill.to_dataset([*VERDICTS, *LABELS])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="task.platform: Invalid enum value .Web.; "):
        prill.to_dataset([Trajectory(id="a", task=Task(goal="g", platform="Web"))])  # type: ignore[arg-type]

"""`prill train judge` of tiny random models: what is learnt, the figures on what is kept apart, and
that the judge is used as it was trained.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

import prill
from prill.evaluators.fitted.calibration import comparable
from prill.io.store import encode, iter_trajectories, read_labels, read_verdicts
from prill.refine.judge_rows import CODES
from prill.refine.training.preflight import plan_training
from prill.refine.training.trainer import TrainingWatch, make_trainer
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Step,
    Task,
    Trajectory,
    Verdict,
)
from tests.support.refine.launching import TRAINS

pytestmark = TRAINS
END = "<|im_end|>"
PROMPT = """# system
Judge.

# user
{{ code }}{{ actions }}{{ claims }}%s{{ goal }}
"""
PAGES = {True: "Thank you, your order is confirmed", False: "Sorry, the item is sold out"}


def runs(folder: Path, *, seen: bool) -> tuple[Path, Path]:
    """Twelve runs of six goals, of which every third succeeds by its last page, and their
    labels.
    """
    found, labels = [], []
    for i in range(12):
        success = i % 3 == 0
        shown: dict[str, Any] = {"text": PAGES[success]}
        if seen:
            path = folder / f"{success}.png"
            Picture.new("RGB", (60, 60), "white" if success else "black").save(path)
            shown = {"screenshot": path.name, **shown}
        step = Step(Observation(text=f"shop {i}"), Action("click", "click [buy]"))
        found.append(
            Trajectory(
                id=f"r{i}",
                task=Task(goal=f"Buy number {i // 2}", platform="web"),
                steps=(step,),
                final=Observation(**shown),
            )
        )
        labels.append(LabelRecord(id=f"r{i}", success=success, source="oracle"))
    for name, records in (("t.jsonl", found), ("l.jsonl", labels)):
        (folder / name).write_bytes(b"".join(map(encode, records)))
    return folder / "t.jsonl", folder / "l.jsonl"


def config(folder: Path, model: Path, *, seen: bool, **changed: Any) -> prill.TrainJudgeConfig:
    trajectories, labels = runs(folder, seen=seen)
    preset: dict[str, Any] = {
        "name": "small-judge",
        "model": str(model),
        "learning_rate": 1e-2,
        "steps": 30,
        "batch": 4,
        "micro_batch": 2,
        "max_length": 1000,
        "held_out": 0.4,
        "targets": "language",
        "log_every": 1,
    }
    preset |= changed.pop("preset", {})
    (folder / "prompt.md").write_text(PROMPT % ("{{ frames }}" if seen else "{{ state }}"))
    judge: Any = {"name": "vlm" if seen else "modular", "frames": 1, "answer": False}
    judge |= {"prompt": str(folder / "prompt.md")}
    return prill.TrainJudgeConfig(
        **{
            "rows": trajectories,
            "labels": labels,
            "output": folder / "judge",
            "judge": judge,
            "preset": preset,
            **changed,
        }
    )


@pytest.fixture(scope="module")
def trained(
    tiny_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], prill.TrainJudgeConfig]:
    """The configuration of a judge that is trained."""

    @functools.cache
    def made(kind: str) -> prill.TrainJudgeConfig:
        folder = tmp_path_factory.mktemp("judge")
        made = config(folder, tiny_model(kind), seen=kind != "qwen2")
        prill.train(made)
        return made

    return made


def plan_of(config: prill.TrainJudgeConfig, folder: Path) -> Any:
    with config.training_rows(planned=True) as rows:
        return plan_training(config.spec(), rows, folder)


@pytest.mark.parametrize("kind", ["qwen2", "qwen2_5_vl"])
def test_labels_are_the_tokens_of_the_verdict_and_its_end(
    kind: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    made = config(tmp_path, tiny_model(kind), seen=kind != "qwen2", preset={"balance": False})
    with made.training_rows(planned=True) as rows:
        plan = plan_training(made.spec(), rows, tmp_path / "out")
        trainer = make_trainer(made.spec(), plan, tmp_path / "out", TrainingWatch(), on_gpu=False)
        found = [
            plan.base.tokenizer.decode(labels[labels != -100])
            for batch in trainer.get_train_dataloader()
            for labels in batch["labels"]
        ]
    assert sorted(found) == sorted(f"{sample.verdict}{END}" for sample in plan.learnt)
    assert {f"success{END}", f"failure{END}"} == set(found)


def taught(folder: Path, model: Path, *, seen: bool, score: float | None, steps: int) -> Any:
    """A trained judge's losses: its teacher said `score` of each run, or 0 and 1."""
    made = config(
        folder,
        model,
        seen=seen,
        preset={"balance": False, "held_out": 0.0, "steps": steps},
        labels=None,
        teacher_verdicts=folder / "v.jsonl",
        soft_labels=score is not None,
    )
    said = [
        Verdict(
            id=f"r{i}",
            success=right,
            score=float(right) if score in (None, 1) else score,
            evaluator=EvaluatorInfo("teacher", "1"),
        )
        for i, right in enumerate(i % 3 == 0 for i in range(12))
    ]
    (folder / "v.jsonl").write_bytes(b"".join(map(encode, said)))
    prill.train(made)
    losses = json.loads((folder / "judge" / "training.json").read_bytes())["figures"]["losses"]
    return [loss for _, loss in losses]


@pytest.mark.parametrize("kind", ["qwen2", "qwen2_5_vl"])
def test_soft_labels_teach_a_probability(
    kind: str, tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """Certain soft labels are plain labels; a teacher who says 0.7 of every run is learnt."""
    found = []
    for name, score, steps in (("plain", None, 6), ("certain", 1, 6), ("unsure", 0.7, 30)):
        (tmp_path / name).mkdir()
        model = tiny_model(kind)
        found.append(taught(tmp_path / name, model, seen=kind != "qwen2", score=score, steps=steps))
    plain, certain, unsure = found
    assert certain == pytest.approx(plain, rel=1e-4) and len(plain) == 6
    judge = {"name": str(tmp_path / "unsure" / "judge" / "judge.json")}
    output = tmp_path / "scores.jsonl"
    prill.score(
        prill.ScoreConfig(
            trajectories=[tmp_path / "unsure" / "t.jsonl"], judge=judge, output=output
        )
    )
    scores = [verdict.score for verdict in read_verdicts(output)]
    assert scores == pytest.approx([0.7] * 12, abs=0.1)
    # the cross-entropy of a probability of 0.7 with itself, over the two tokens of an answer
    assert unsure[-1] == pytest.approx(0.611 / 2, abs=0.1)


@pytest.mark.parametrize("kind", ["qwen2", "qwen2_5_vl", "qwen3_vl"])
def test_it_judges_as_it_was_trained(
    kind: str,
    trained: Callable[[str], prill.TrainJudgeConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scores of `prill score` are those of the card, from the token of the verdict: the prompt
    is the same to the last letter, the code of its quotations included.
    """
    monkeypatch.setenv("PRILL_CODE_KEY", CODES)
    made = trained(kind)
    prill.score(
        prill.ScoreConfig(
            trajectories=[made.rows],
            judge={"name": str(Path(made.output) / "judge.json")},
            output=tmp_path / "v.jsonl",
        )
    )
    verdicts = {verdict.id: verdict for verdict in read_verdicts(tmp_path / "v.jsonl")}
    figures = json.loads((Path(made.output) / "training.json").read_bytes())["figures"]
    found = figures["held_out_figures"]
    apart = plan_of(made, tmp_path).held_out
    scores = [verdicts[sample.origin].score for sample in apart]
    truths = [sample.verdict == "success" for sample in apart]
    assert not [verdict.reason for verdict in verdicts.values() if verdict.unscored]
    assert None not in scores and found["rows"] == len(apart) == 4
    brier = sum((s - t) ** 2 for s, t in zip(scores, truths, strict=True)) / len(scores)
    assert found["brier"] == pytest.approx(brier, abs=0.02)
    right = [verdicts[sample.origin].success for sample in plan_of(made, tmp_path).learnt]
    assert right == [sample.verdict == "success" for sample in plan_of(made, tmp_path).learnt]
    assert {verdict.fitted_on for verdict in verdicts.values()} == {"run"}


def test_a_run_unlike_those_it_learnt_from_gets_no_verdict(
    trained: Callable[[str], prill.TrainJudgeConfig], tmp_path: Path
) -> None:
    made = trained("qwen2")
    strange = Trajectory(
        id="x",
        task=Task(goal="Buy", platform="web"),
        steps=(Step(Observation(text="shop"), Action("click", "click [buy]")),),
        final=Observation(text="lorem ipsum " * 400),
    )
    (tmp_path / "t.jsonl").write_bytes(encode(strange))
    prill.score(
        prill.ScoreConfig(
            trajectories=[tmp_path / "t.jsonl"],
            judge={"name": str(Path(made.output) / "judge.json")},
            output=tmp_path / "v.jsonl",
        )
    )
    (verdict,) = read_verdicts(tmp_path / "v.jsonl")
    assert (verdict.unscored, verdict.success) == ("no_evidence", None)
    assert "unlike the judge's training runs" in verdict.reason and verdict.fitted_on == "other"


def test_a_stopped_training_goes_on_to_the_same_judge(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    import threading

    made = config(tmp_path, tiny_model("qwen2"), seen=False, preset={"steps": 6})
    prill.train(made)
    stopped = config(
        tmp_path, tiny_model("qwen2"), seen=False, preset={"steps": 6}, output=tmp_path / "again"
    )
    stop = threading.Event()
    with pytest.raises(KeyboardInterrupt, match="stopped after step 3 of 6"):
        prill.train(stopped, stop=stop, progress=lambda p: stop.set() if p.step == 3 else None)
    assert not (tmp_path / "again" / "judge.json").exists()
    prill.train(stopped)
    records = [
        json.loads((tmp_path / name / "training.json").read_bytes()) for name in ("judge", "again")
    ]
    assert records[0]["figures"]["losses"] == records[1]["figures"]["losses"]
    assert records[0]["figures"]["held_out_figures"] == records[1]["figures"]["held_out_figures"]


def test_out_of_fold_verdicts_come_from_judges_that_did_not_learn_the_goal(
    tiny_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run is judged once, by a judge whose labels lack its goal; the verdicts are in the name
    of the judge of all runs, so that a calibration made from them applies to it.
    """
    monkeypatch.setenv("PRILL_CODE_KEY", CODES)
    held_out = tmp_path / "held-out.jsonl"
    made = config(
        tmp_path,
        tiny_model("qwen2"),
        seen=False,
        preset={"steps": 6, "held_out": 0.0},
        grouping="goal",
        out_of_fold=held_out,
        folds=2,
    )
    phases: list[tuple[str, int, int]] = []
    prill.train(made, say=lambda *phase: phases.append(phase))
    assert phases[-1] == ("out of fold", 12, 12)
    verdicts = {verdict.id: verdict for verdict in read_verdicts(held_out)}
    assert sorted(verdicts) == sorted(f"r{i}" for i in range(12))
    goals = {run.id: run.task.goal for run in iter_trajectories(made.rows)}
    learned = [
        {label.id for label in read_labels(tmp_path / f"judge/folds/{fold}.labels.jsonl")}
        for fold in (0, 1)
    ]
    assert learned[0] | learned[1] == set(goals) and not learned[0] & learned[1]
    assert not {goals[id] for id in learned[0]} & {goals[id] for id in learned[1]}
    for fold in (0, 1):
        alone = prill.judge(str(tmp_path / f"judge/folds/{fold}/judge.json"))
        others = [run for run in iter_trajectories(made.rows) if run.id not in learned[fold]]
        scores = [verdict.score for verdict in prill.score(others, alone)]
        assert [verdicts[run.id].score for run in others] == scores
    assert sum(verdict.score is not None for verdict in verdicts.values()) >= 6
    judge = prill.judge(str(tmp_path / "judge/judge.json"))
    assert all(comparable(v.evaluator) == comparable(judge.info) for v in verdicts.values())
    assert {verdict.fitted_on for verdict in verdicts.values()} == {"other"}
    prill.train(made, progress=lambda _: pytest.fail("nothing is trained again"))
    assert [v.score for v in read_verdicts(held_out)] == [v.score for v in verdicts.values()]


def test_the_likelihood_judge_learns_the_goals_of_successes_alone(
    tiny_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows end in the goal, which their prompts hide; then a run's own goal is likelier than
    the goal of another run.
    """
    monkeypatch.setenv("PRILL_CODE_KEY", CODES)
    made = config(
        tmp_path,
        tiny_model("qwen2"),
        seen=False,
        judge={"name": "likelihood", "captioner": "text"},
        preset={"name": "small-likelihood", "dtype": "float32", "steps": 60, "held_out": 0.0},
    )
    bought = [
        replace(run, steps=(replace(run.steps[0], action=Action("click", run.task.goal[4:])),))
        for run in iter_trajectories(made.rows)
    ]
    Path(made.rows).write_bytes(b"".join(map(encode, bought)))
    rows = made.make_rows()
    successes = ["r0", "r3", "r6", "r9"]
    goals = [row["completion"][0]["content"] for row in rows.rows]
    assert [row["trajectory"] for row in rows.rows] == successes
    assert goals == [f"Buy number {int(run[1:]) // 2}" for run in successes]
    assert not any(goal in json.dumps(row["prompt"]) for goal in goals for row in rows.rows)
    assert rows.lost == {"a failure, from which this judge does not learn": 8}

    prill.train(made)
    own = [run for run in bought if run.id in successes]
    others = [replace(run, id=f"{run.id}*", task=own[i - 1].task) for i, run in enumerate(own)]
    (tmp_path / "both.jsonl").write_bytes(b"".join(map(encode, [*own, *others])))
    prill.score(
        prill.ScoreConfig(
            trajectories=[tmp_path / "both.jsonl"],
            judge={"name": str(Path(made.output) / "judge.json")},
            output=tmp_path / "v.jsonl",
        )
    )
    scores = {v.id: v.score for v in read_verdicts(tmp_path / "v.jsonl") if v.score is not None}
    assert len(scores) == 8
    assert min(scores[run.id] for run in own) > 2 * max(scores[run.id] for run in others)

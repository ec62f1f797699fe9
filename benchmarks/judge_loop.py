"""Filtered behavioural cloning by a judge that learned from 150 labels: `python
benchmarks/judge_loop.py FOLDER`.

The study of examples/filtered_bc/miniwob.toml, with a trained judge for the one of known error
rates. Of the 576 attempts of the untrained policy 150, drawn at random, get labels: the page's
rewards, in place of a person. No other label is used but to report. From the successes among them
the bundled SmolLM2-135M learns to write the goal (`likelihood`, three epochs); out-of-fold scores
of all 150 (three folds) give its calibration, and the filter keeps attempts so that three in four
are expected to be successes. Then the study runs with two arms, self-training and this judge, and
three training seeds.

It needs the extras `train`, `embedded` and `web`, `miniwob` and Chromium, and takes about two hours
of one core (OMP_NUM_THREADS=1). FOLDER keeps what is made; a run that was stopped resumes.

Printed: figures of the judge on the other 426 attempts. FOLDER/study/results.md has the rest.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from samples import change

import prill
from prill.evaluators.fitted.calibration import read_calibration
from prill.io.store import encode, read_labels, read_verdicts
from prill.refine import StudyArm
from prill.refine.training.judge import measure
from prill.types import LabelRecord, Trajectory

STUDY = Path(__file__).parents[1] / "examples/filtered_bc/miniwob.toml"
LABELLED, PRECISION = 150, 0.75
JUDGE = {"name": "likelihood", "captioner": "text", "max_chars": 420}
TRAINING = {"name": "small-likelihood", "epochs": 3, "max_length": 512}


def without_pictures(run: Trajectory) -> Trajectory:
    """Returns the run as the judge reads it; its pictures lie in another folder."""
    return change(run, lambda observation: replace(observation, screenshot=None))


def read(folder: Path) -> tuple[list[Trajectory], dict[str, bool]]:
    """Returns a rollout's runs, and the success of each."""
    runs = list(prill.read_trajectories(folder / "trajectories.jsonl"))
    labels = read_labels(folder / "labels.jsonl")
    return runs, {label.id: bool(label.success) for label in labels}


def main() -> int:
    folder = Path(sys.argv[1])
    config = prill.FilteredBCConfig.load(STUDY, output=folder / "study", seeds="0,1,2")
    self_training = next(arm for arm in config.arms if arm.judge is None)
    prill.filtered_bc(config.copy_with(arms=(self_training,)))
    attempts = Attempts.read(folder / "study/base/attempts")
    labelled = random.Random(0).sample(sorted(attempts.runs), LABELLED)
    train(folder, attempts, labelled)
    report(folder, attempts, labelled)
    trained = StudyArm(
        name="trained",
        judge=str(folder / "judge/judge.json"),
        filter={"calibration": str(folder / "calibration.json"), "precision": PRECISION},
    )
    print(prill.filtered_bc(config.copy_with(arms=(self_training, trained))))
    return 0


@dataclass
class Attempts:
    """Attempts without pictures, and their rewards, by id."""

    runs: dict[str, Trajectory]
    successes: dict[str, bool]

    @classmethod
    def read(cls, folder: Path) -> Attempts:
        runs, successes = read(folder)
        return cls({run.id: without_pictures(run) for run in runs}, successes)

    def write(self, ids: list[str], path: Path) -> Path:
        return write(path, [self.runs[id] for id in ids])

    def write_labels(self, ids: list[str], path: Path) -> Path:
        return write(
            path, [LabelRecord(id=id, success=self.successes[id], source="reward") for id in ids]
        )


def train(folder: Path, attempts: Attempts, labelled: list[str]) -> None:
    """Trains the judge on the labelled attempts, and calibrates it by its out-of-fold scores."""
    rows = attempts.write(labelled, folder / "labelled.jsonl")
    labels = attempts.write_labels(labelled, folder / "labels.jsonl")
    held_out = folder / "held-out.jsonl"
    prill.train(
        prill.TrainJudgeConfig(
            rows=rows,
            labels=labels,
            judge=JUDGE,
            preset=TRAINING,
            out_of_fold=held_out,
            output=folder / "judge",
        ),
        progress=lambda p: print(f"{p.step}/{p.steps} {p.loss}", file=sys.stderr),
    )
    prill.calibrate(
        prill.CalibrateConfig(
            verdicts=[held_out],
            labels=labels,
            trajectories=rows,
            output=folder / "calibration.json",
        )
    )


def write(path: Path, records: Sequence[Any]) -> Path:
    path.write_bytes(b"".join(map(encode, records)))
    return path


def report(folder: Path, attempts: Attempts, labelled: list[str]) -> None:
    """Prints how good the judge is on the attempts that had no label."""
    others = sorted(set(attempts.runs) - set(labelled))
    prill.score(
        prill.ScoreConfig(
            trajectories=[attempts.write(others, folder / "others.jsonl")],
            judge={"name": str(folder / "judge/judge.json")},
            output=folder / "verdicts.jsonl",
            transcripts=False,
        )
    )
    calibration = read_calibration(folder / "calibration.json")
    verdicts = list(read_verdicts(folder / "verdicts.jsonl"))
    scores = {v.id: calibration(v.score) for v in verdicts if v.score is not None}
    truths = [attempts.successes[id] for id in scores]
    figures = measure(list(scores.values()), truths, list(scores))
    print(f"{len(verdicts)} other attempts: {json.dumps(figures)}")


if __name__ == "__main__":
    sys.exit(main())

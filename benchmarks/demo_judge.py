"""The adapter with which `make demo` judges: `python benchmarks/demo_judge.py FOLDER`.

The scripted policy plays ten of the samples' MiniWoB++ tasks in Chromium, on other seeds than the
samples': 240 attempts that solve the task, and 250 that solve it or fail in each of four ways. From
as many successes as failures the bundled SmolLM2-135M learns the word of the verdict (`modular`,
`--judge.form word`; LoRA of rank 8, two epochs); the labels are the page's rewards. The adapter is
written to datasets/samples/miniwob/judge, for llama.cpp, and judges the samples of the other eleven
tasks.

Run it in the folder with the Makefile. It needs the extras `train`, `embedded` and `web`, `miniwob`
and Chromium; the training takes half an hour of one core (OMP_NUM_THREADS=1). FOLDER keeps what is
made, and a training that was stopped resumes.

Printed: AUC, accuracy and kappa on the other tasks, and mean probabilities by behaviour.
"""

from __future__ import annotations

import json
import random
import sys
import tomllib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

import prill
from prill.evaluators.metrics import auc
from prill.io.store import encode, read_labels, read_verdicts
from prill.models.local.embedded_weights import bundled_gguf, convert_adapter
from prill.types import LabelRecord, Trajectory

SAMPLES = Path(__file__).parents[1] / "datasets/samples/miniwob"
JUDGE, ADAPTER = SAMPLES / "judge/judge.toml", SAMPLES / "judge/adapter.gguf"
LEARNED = (
    *("click-button", "click-collapsible", "click-link", "click-scroll-list", "click-test-2"),
    *("enter-date", "enter-text", "login-user", "search-engine", "social-media"),
)
BEHAVIOURS = "solve,wrong-target,no-submit,stop-early,false-claim"
TRAINING = {"name": "small-judge", "rank": 8, "alpha": 16, "targets": "language", "batch": 4}
TRAINING |= {"epochs": 2, "learning_rate": 5e-4}


def main() -> int:
    folder = Path(sys.argv[1])
    if not (folder / "judge").exists():
        play(folder / "solved", "100-123", "solve")
        play(folder / "played", "200-204", BEHAVIOURS)
    train(folder)
    convert_adapter(folder / "judge", Path(bundled_gguf()), ADAPTER)
    report(folder / "verdicts.jsonl")
    return 0


def play(output: Path, seeds: str, behaviours: str) -> None:
    """Records the scripted policy's attempts at the tasks to learn."""
    prill.rollout(
        prill.RolloutConfig(
            environment={"name": "miniwob", "tasks": list(LEARNED)},
            seeds=seeds,
            behaviour=behaviours,
            workers=3,
            output=output,
        )
    )


def train(folder: Path) -> None:
    """Trains on all played attempts, and on so many of the solved as make successes half of all."""
    played, gold = read(folder / "played")
    solved, rewards = read(folder / "solved")
    failures = sum(not gold[run.id] for run in played)
    random.Random(0).shuffle(solved)
    runs = [*played, *solved[: 2 * failures - len(played)]]
    gold |= rewards
    rows, labels = folder / "learn.jsonl", folder / "labels.jsonl"
    rows.write_bytes(b"".join(encode(without_pictures(run)) + b"\n" for run in runs))
    labels.write_bytes(
        b"".join(
            encode(LabelRecord(id=run.id, success=gold[run.id], source="reward")) + b"\n"
            for run in runs
        )
    )
    judge = tomllib.loads(JUDGE.read_text())
    del judge["model"]
    config = prill.TrainJudgeConfig(
        rows=rows,
        labels=labels,
        judge=judge,
        preset=TRAINING,
        grouping="goal",
        output=folder / "judge",
    )
    prill.train(config, progress=lambda p: print(p.step, p.steps, p.loss, file=sys.stderr))


def without_pictures(run: Trajectory) -> Trajectory:
    """Returns the run as the judge reads it; its pictures lie in another folder."""
    steps = [
        replace(step, observation=replace(step.observation, screenshot=None)) for step in run.steps
    ]
    final = run.final and replace(run.final, screenshot=None)
    return replace(run, steps=tuple(steps), final=final)


def read(folder: Path) -> tuple[list[Trajectory], dict[str, bool]]:
    """Returns a rollout's runs, and the success of each."""
    runs = list(prill.read_trajectories(folder / "trajectories.jsonl"))
    labels = read_labels(folder / "labels.jsonl")
    return runs, {label.id: bool(label.success) for label in labels}


def report(output: Path) -> None:
    """Judges the samples, and prints figures of the tasks that were not learned."""
    prill.score(
        prill.ScoreConfig(
            trajectories=[SAMPLES / "trajectories.jsonl"],
            judge={"name": str(JUDGE)},
            output=output,
            resume=False,
            transcripts=False,
        )
    )
    with (SAMPLES / "labels.jsonl").open() as file:
        labels = {row["id"]: row for row in map(json.loads, file)}
    runs, _ = read(SAMPLES)
    other = {run.id for run in runs if run.task.site not in LEARNED}
    scores = {v.id: v.score for v in read_verdicts(output) if v.score is not None and v.id in other}
    truths = [labels[id]["success"] for id in scores]
    says = [score >= 0.5 for score in scores.values()]
    right = np.mean(np.equal(says, truths))
    chance = np.mean(says) * np.mean(truths) + (1 - np.mean(says)) * (1 - np.mean(truths))
    print(f"{len(scores)} of {len(other)} runs of other tasks, {sum(truths)} successes:", end=" ")
    print(f"AUC {auc(list(scores.values()), truths):.3f}, accuracy {right:.3f},", end=" ")
    print(f"kappa {(right - chance) / (1 - chance):.3f}")
    by = defaultdict(list)
    for id, score in scores.items():
        by[labels[id]["note"].partition(";")[0]].append(score)
    for name, found in sorted(by.items()):
        print(f"{name}: {len(found)} runs, mean probability of success {np.mean(found):.2f}")


if __name__ == "__main__":
    sys.exit(main())

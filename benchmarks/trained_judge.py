"""A small language model trained as a judge, next to the fitted student, on runs of goals, or of
tasks, that neither has seen: `python benchmarks/trained_judge.py FOLDER [goal|task] [epochs]`.

On the MiniWoB++ recordings by people in $PRILL_DATA, else ../shared/data: 980 runs of seven tasks,
success where the raw reward is 1. The bundled SmolLM2-135M learns to write the goal of a successful
run from its actions and what changed on the page (`likelihood`; LoRA of rank 16, one epoch), in
five folds by goal, or with each task left out. The scores of each fold are calibrated (Platt) on
those of the other folds; the student's are calibrated by its own folds. FOLDER keeps what is made;
what it holds already is not made again, and a training that was stopped resumes.

Printed: AUC and accuracy for both judges, with intervals that redraw goals, and tests of the
difference: paired by run (McNemar for verdicts; for the AUC a bootstrap of goals).
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from miniwob_recordings import read_recordings

import prill
from prill.evaluators.agreement.comparison import mcnemar
from prill.evaluators.fitted.calibration import fit_map
from prill.evaluators.fitted.fit import examples, without_site
from prill.evaluators.fitted.regression import cross_validated
from prill.evaluators.labels import grouped_folds
from prill.evaluators.metrics import auc
from prill.io.store import encode, read_verdicts
from prill.refine.training.judge import measure
from prill.types import LabelRecord, Trajectory

FOLDS, CHARS, DRAWS = 5, 420, 2000


def main() -> int:
    folder = Path(sys.argv[1])
    by = sys.argv[2] if len(sys.argv) > 2 else "goal"
    epochs = sys.argv[3] if len(sys.argv) > 3 else "1"
    data = Path(os.environ.get("PRILL_DATA") or Path(__file__).parents[2] / "shared" / "data")
    data /= "miniwob_turk"
    if not data.is_dir():
        print(f"skipped: no recordings in {data}; PRILL_DATA says where they are")
        return 0
    runs = [run for run, _ in read_recordings(data / "trajectories.jsonl.gz")]
    with gzip.open(data / "labels.jsonl.gz") as file:
        gold = {row["id"]: row["rawReward"] == 1 for row in map(json.loads, file)}
    truths, goals = [gold[run.id] for run in runs], [run.task.goal for run in runs]
    tasks = sorted({run.task.site or "" for run in runs})
    fold_of = (
        grouped_folds(goals, truths, FOLDS, 0)
        if by == "goal"
        else [tasks.index(run.task.site or "") for run in runs]
    )
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "runs.jsonl", runs)
    raw: dict[str, float] = {}
    for fold in range(max(fold_of) + 1):
        apart = [run for run, place in zip(runs, fold_of, strict=True) if place == fold]
        known = [run.id for run, place in zip(runs, fold_of, strict=True) if place != fold]
        raw |= trained(folder, fold, float(epochs), apart, {id: gold[id] for id in known})
    scores = calibrated(raw, dict(zip((run.id for run in runs), fold_of, strict=True)), gold)
    student = fitted(runs, gold, by, tasks)
    judged = [run for run in runs if run.id in scores and run.id in student]
    print(f"{len(runs)} runs; unscored: {len(runs) - len(scores)} trained,", end=" ")
    print(f"{len(runs) - len(student)} student; both judged:")
    report(judged, gold, {"trained": scores, "student": student})
    for task in tasks:
        part = [run for run in judged if run.task.site == task]
        right = [gold[run.id] for run in part]
        areas = [auc([s[run.id] for run in part], right) for s in (scores, student)]
        shown = ["undefined" if area is None else f"{area:.3f}" for area in areas]
        print(f"{task}: {len(part)} runs, AUC {shown[0]} trained, {shown[1]} student")
    return 0


def trained(
    folder: Path, fold: int, epochs: float, apart: list[Trajectory], known: dict[str, bool]
) -> dict[str, float]:
    """Returns the scores of a fold's judge on the runs that it has not seen."""
    labels, runs = folder / f"labels-{fold}.jsonl", folder / f"held-out-{fold}.jsonl"
    output, verdicts = folder / f"judge-{fold}", folder / f"verdicts-{fold}.jsonl"
    rows = [LabelRecord(id=id, success=success, source="reward") for id, success in known.items()]
    write(labels, rows)
    write(runs, apart)
    config = prill.TrainJudgeConfig(
        rows=folder / "runs.jsonl",
        labels=labels,
        judge={"name": "likelihood", "max_chars": CHARS, "captioner": "text"},
        output=output,
        grouping="goal",
        preset={"name": "small-likelihood", "epochs": epochs, "max_length": 512},
    )
    prill.train(
        config,
        progress=lambda p: print(f"fold {fold}: {p.step}/{p.steps} {p.loss}", file=sys.stderr),
    )
    prill.score(
        prill.ScoreConfig(
            trajectories=[runs],
            judge={"name": str(output / "judge.json")},
            output=verdicts,
            transcripts=False,
        )
    )
    return {v.id: v.score for v in read_verdicts(verdicts) if v.score is not None}


def calibrated(
    raw: dict[str, float], fold_of: dict[str, int], gold: dict[str, bool]
) -> dict[str, float]:
    """Maps the scores of each fold to probabilities, as the other folds' scores and labels say."""
    scores: dict[str, float] = {}
    for fold in set(fold_of.values()):
        others = [id for id in raw if fold_of[id] != fold]
        to_probability = fit_map("platt", [raw[id] for id in others], [gold[id] for id in others])
        scores |= {id: to_probability(raw[id]) for id in raw if fold_of[id] == fold}
    return scores


def fitted(
    runs: list[Trajectory], gold: dict[str, bool], by: str, tasks: list[str]
) -> dict[str, float]:
    """The student's probabilities, fitted without the runs of a goal or of a task."""
    found, _ = examples(runs, gold, "student", evidence_only=False)
    if by == "goal":
        scores = dict(zip([e.id for e in found], cross_validated(found, 0), strict=True))
    else:
        scores = {}
        for task in tasks:
            inside, probabilities = without_site(found, task, 0)
            scores |= zip((found[i].id for i in inside), probabilities, strict=True)
    return {id: score for id, score in scores.items() if score is not None}


def report(
    runs: list[Trajectory], gold: dict[str, bool], judges: dict[str, dict[str, float]]
) -> None:
    truths = np.array([gold[run.id] for run in runs])
    goals = [run.task.goal for run in runs]
    columns = {name: np.array([s[run.id] for run in runs]) for name, s in judges.items()}
    for name, scores in columns.items():
        print(name, json.dumps(measure(scores.tolist(), truths.tolist(), goals)))
    first, second = columns.values()
    right = [(scores >= 0.5) == truths for scores in (first, second)]
    only = int((right[0] & ~right[1]).sum()), int((~right[0] & right[1]).sum())
    print(f"right alone: {only[0]} trained, {only[1]} student; McNemar p {mcnemar(*only)[0]:.4f}")
    places: dict[str, list[int]] = {}
    for i, goal in enumerate(goals):
        places.setdefault(goal, []).append(i)
    groups, draw, differences = list(places.values()), np.random.default_rng(0), []
    for _ in range(DRAWS):
        rows = np.concatenate([groups[i] for i in draw.integers(len(groups), size=len(groups))])
        both = [auc(scores[rows].tolist(), truths[rows].tolist()) for scores in (first, second)]
        if both[0] is not None and both[1] is not None:
            differences.append(both[0] - both[1])
    low, high = np.quantile(differences, (0.025, 0.975))
    print(f"AUC, trained less student: 95 % interval {low:.3f} to {high:.3f}, goals redrawn")


def write(path: Path, records: list[Any]) -> None:
    path.write_bytes(b"".join(map(encode, records)))


if __name__ == "__main__":
    sys.exit(main())

"""Measures the accuracy of fitted judges on held-out runs, and their speed:
`python benchmarks/student.py [fold seeds]`.

On the AgentRewardBench recordings in $PRILL_DATA, else ../shared/data; human labels, text only.
Five-fold cross-validation grouped by task, with several divisions into folds, and each benchmark in
turn left out. The table is Markdown. Aims: student AUC 0.90 and accuracy 0.82, prior AUC 0.82, all
of it under 60 s on two cores; 5,000 trajectories a second.

How the judges came to be: how far weights may grow is chosen inside every fit, by cross-validation
on its own runs. Which features there are was settled by some forty comparisons with the fold seeds
101 to 106; those counted here start from 0. The runs are the same, so a little of that choice is in
the figures; only runs of other tasks could show how much. That by evidence only no word may speak
for success, and which cues are left out there, was settled with `benchmarks/redteam.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from prill.datasets.formats.agentrewardbench_webjudge import load, load_labels
from prill.evaluators.fitted.fit import (
    HARDENED_FAMILIES,
    examples,
    fit,
    without_site,
)
from prill.evaluators.fitted.regression import cross_validated
from prill.evaluators.fitted.student import Kind, Student
from prill.evaluators.labels import gold_labels, make_task
from prill.evaluators.metrics import FIGURES, auc, auc_interval, bootstrap, figures
from prill.io.store import BadLine
from prill.types import Trajectory

SHOWN = ("accuracy", "balanced accuracy", "kappa")
FITTED: dict[str, tuple[Kind, bool, Sequence[str]]] = {
    "prior": ("prior", False, ()),
    "student": ("student", False, ()),
    "student, hardened": ("student", False, HARDENED_FAMILIES),
    "student, evidence only": ("student", True, ()),
}
Scores = Sequence[float | None]


@dataclass(frozen=True)
class Data:
    """The labelled runs."""

    runs: list[Trajectory]
    truths: list[bool]
    tasks: list[str]

    def part(self, keep: Sequence[bool]) -> Data:
        rows = [i for i, kept in enumerate(keep) if kept]
        return Data(
            [self.runs[i] for i in rows],
            [self.truths[i] for i in rows],
            [self.tasks[i] for i in rows],
        )


def main() -> int:
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    folder = (
        Path(
            os.environ.get("PRILL_DATA")
            or Path(__file__).resolve().parents[1].parent / "shared" / "data"
        )
        / "arb_webjudge"
    )
    if not folder.is_dir():
        print(f"skipped: no recordings in {folder}; PRILL_DATA says where they are")
        return 0
    data = read(folder)
    free = [run.metadata.get("truncated") is not True for run in data.runs]
    start = perf_counter()
    scores: dict[str, list[Scores]] = {
        "always failure": [[0.0] * len(free)],
        "rule: not truncated, under 15 steps": [
            [float(f and len(run.steps) < 15) for f, run in zip(free, data.runs, strict=True)]
        ],
    }
    gold = {run.id: truth for run, truth in zip(data.runs, data.truths, strict=True)}
    fitted = {name: examples(data.runs, gold, *kind)[0] for name, kind in FITTED.items()}
    for name, found in fitted.items():
        scores[name] = [cross_validated(found, seed) for seed in seeds]
    bare = [replace(run, metadata={}) for run in data.runs]
    scores["student, not told who ended the run"] = [
        cross_validated(examples(bare, gold, "student", False)[0], seed) for seed in seeds
    ]
    everywhere = [True] * len(free)
    for title, keep in (
        (f"All {len(free)} runs", everywhere),
        (f"The {sum(free)} runs that were not truncated", free),
    ):
        heading(title)
        part = data.part(keep)
        for name, several in scores.items():
            row(name, part, [[s for s, k in zip(one, keep, strict=True) if k] for one in several])
    for site in sorted({run.task.site or "" for run in data.runs}):
        keep = [run.task.site == site for run in data.runs]
        heading(f"{site}, fitted on the other sites ({sum(keep)} runs)")
        for name, several in scores.items():
            if name in fitted:
                row(name, data.part(keep), [without_site(fitted[name], site, 0)[1]])
            elif name in ("always failure", "rule: not truncated, under 15 steps"):
                row(
                    name, data.part(keep), [[s for s, k in zip(several[0], keep, strict=True) if k]]
                )
    spent = perf_counter() - start
    print(
        f"\nMean over {len(seeds)} divisions into folds (lowest to highest) [95 % interval, tasks "
        "redrawn, first division]."
    )
    print(f"Time for all of the above: {spent:.1f} s")
    speed(data, fitted, gold)
    return 0


def read(folder: Path) -> Data:
    """Runs with a decided human label; of two annotators who differ the first counts, as in the
    published figures.
    """
    labels = [label for label in load_labels(folder) if not isinstance(label, BadLine)]
    _, gold = gold_labels(labels, "human", "first")
    runs = [
        run for run in load(folder) if not isinstance(run, BadLine) and gold.get(run.id) is not None
    ]
    return Data(runs, [bool(gold[run.id]) for run in runs], [make_task(run) for run in runs])


def heading(title: str) -> None:
    print(f"\n| {title} | AUC | {' | '.join(SHOWN)} | abstains |\n|---|{'---|' * (2 + len(SHOWN))}")


def row(name: str, data: Data, several: Sequence[Scores]) -> None:
    """One line: figures of each division, and intervals for the first."""
    first, truths, tasks = judged(data, several[0])
    cells = [
        cell([auc(*judged(data, one)[:2]) for one in several], auc_interval(first, truths, tasks))
    ]
    low, high = bootstrap(tables(data, several[0]))
    values = [figures(tables(data, one).sum(axis=0, keepdims=True))[0] for one in several]
    for figure in SHOWN:
        i = FIGURES.index(figure)
        cells.append(cell([float(value[i]) for value in values], (float(low[i]), float(high[i]))))
    share = np.mean([sum(s is None for s in one) / len(one) for one in several])
    print(f"| {name} | {' | '.join(cells)} | {share:.1%} |")


def judged(data: Data, scores: Scores) -> tuple[list[float], list[bool], list[str]]:
    """Scores, labels and tasks of the runs that have a score."""
    rows = [
        (s, truth, task)
        for s, truth, task in zip(scores, data.truths, data.tasks, strict=True)
        if s is not None
    ]
    return [s for s, *_ in rows], [truth for _, truth, _ in rows], [task for *_, task in rows]


def cell(values: Sequence[float | None], interval: tuple[float, float] | None) -> str:
    known = [value for value in values if value is not None and not np.isnan(value)]
    if not known:
        return "–"
    shown = f"{np.mean(known):.3f}"
    if len(known) > 1:
        shown += f" ({min(known):.3f} to {max(known):.3f})"
    if interval is not None and interval[0] < interval[1]:
        shown += f" [{interval[0]:.3f}, {interval[1]:.3f}]"
    return shown


def tables(data: Data, scores: Scores) -> Any:
    """One row of counts (tp, fp, tn, fn, unscored) a task."""
    rows = {task: i for i, task in enumerate(dict.fromkeys(data.tasks))}
    found = np.zeros((len(rows), 5), dtype=np.int64)
    for task, score, truth in zip(data.tasks, scores, data.truths, strict=True):
        found[
            rows[task],
            4 if score is None else (0 if truth else 1) if score >= 0.5 else (3 if truth else 2),
        ] += 1
    return found


def speed(data: Data, fitted: dict[str, Any], gold: dict[str, bool]) -> None:
    """Trajectories for each second of one core's time, which other work on the machine does not
    count towards.
    """
    print("\n| scoring, one core | trajectories a second | file |\n|---|---|---|")
    from prill.io.store import encode

    for name, kind in FITTED.items():
        model = fit(fitted[name], *kind[:2], hardened=bool(kind[2]))
        judge = Student(model, label="benchmark")

        async def score(judge: Student = judge) -> None:
            for run in data.runs:
                await judge(run)

        best = min(timed(lambda score=score: asyncio.run(score())) for _ in range(5))  # type: ignore[misc]
        print(f"| {name} | {len(data.runs) / best:,.0f} | {len(encode(model)) / 1000:.0f} kB |")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    texts = [run.observations[-1].caption or "" for run in data.runs]
    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=3)
    plain = LogisticRegression(max_iter=1000).fit(vectors.fit_transform(texts), data.truths)
    best = min(timed(lambda: plain.predict_proba(vectors.transform(texts))) for _ in range(5))
    print(
        "| for comparison: scikit-learn, TF-IDF of the last caption alone, all at once | "
        f"{len(texts) / best:,.0f} | – |"
    )


def timed(work: Any) -> float:
    start = process_time()
    work()
    return process_time() - start


if __name__ == "__main__":
    sys.exit(main())

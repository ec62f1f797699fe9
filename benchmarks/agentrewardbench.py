"""Judges in the form of AgentRewardBench's leaderboard:
`PYTHONPATH=. python benchmarks/agentrewardbench.py [fold seeds]`.

On the runs of $PRILL_DATA, else ../shared/data, that its test split has: human labels (of two
annotators who differ the first counts), an unscored run is a failure. Fitted judges are fitted
without the task of the run that they judge, five folds by task; a run's score is the mean over the
seeds, a stack's verdict that of most. Precision, recall and F1 in percent, with 95 % intervals over
tasks, then precision by benchmark, with the number of runs called a success. Published figures are
of 1,106 runs; the recordings here are 532 of them.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from stacking import FORMS, JUDGES, data_folder, stack
from student import FITTED, read

from prill.datasets.formats.agentrewardbench import leaderboard_row
from prill.evaluators.agreement.agreement import Pair, Pairing
from prill.evaluators.agreement.trivial import step_rule_verdicts
from prill.evaluators.fitted.fit import examples
from prill.evaluators.fitted.regression import cross_validated
from prill.evaluators.labels import latest_verdicts, make_task
from prill.evaluators.metrics import bootstrap, sum_clusters
from prill.types import EvaluatorInfo, Trajectory, Verdict
from tests.support.datasets.reference_verdicts import load_reference_verdicts

Calls = Mapping[str, bool | None]
_BENCHMARKS = ("AB", "VWA", "WA", "Work", "Work++")


def main() -> int:
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    folder = data_folder()
    if not folder.is_dir():
        print(f"skipped: no recordings in {folder}; PRILL_DATA says where they are")
        return 0
    data = read(folder)
    truths = dict(zip((run.id for run in data.runs), data.truths, strict=True))
    recorded = [
        latest_verdicts(v for v in load_reference_verdicts(folder, name) if isinstance(v, Verdict))
        for name in JUDGES
    ]
    judges: dict[str, Calls] = {"number of steps": by_steps(data.runs, truths)}
    for name, kind in FITTED.items():
        if name in ("prior", "student", "student, evidence only"):
            runs, _ = examples(data.runs, truths, *kind)
            several = [cross_validated(runs, seed) for seed in seeds]
            means = [
                np.mean([s for s in one if s is not None] or [np.nan])
                for one in zip(*several, strict=True)
            ]
            judges[name] = {
                run.id: None if np.isnan(mean) else bool(mean >= 0.5)
                for run, mean in zip(runs, means, strict=True)
            }
    for name, (_, verdicts) in zip(JUDGES, recorded, strict=True):
        judges[f"{name}, as recorded"] = {id: v.success for id, v in verdicts.items()}
    for form in FORMS[:2]:
        fits = [stack(form, data.runs, truths, recorded, seed).out_of_fold for seed in seeds]
        runs, _ = examples(data.runs, truths, *FITTED[form])
        judges[f"stack: {form}, both recorded judges"] = {
            run.id: 2 * sum(call for p, call in one if p is not None) > len(one)
            for run, one in zip(runs, zip(*fits, strict=True), strict=True)
        }
    with gzip.open(folder / "trajectories.jsonl.gz") as lines:
        rows = [json.loads(line) for line in lines]
    of_test = {row["id"] for row in rows if row["arb_split"] == "test"}
    tested = [run for run in data.runs if run.id in of_test]
    print(f"{len(tested)} test runs, {sum(truths[run.id] for run in tested)} successes\n")
    print(f"| judge | precision | recall | F1 | {' | '.join(_BENCHMARKS)} |")
    print(f"|---|---|---|---|{'---|' * len(_BENCHMARKS)}")
    for name, calls in judges.items():
        print(f"| {name} | {' | '.join(row(name, calls, tested, truths))} |", flush=True)
    return 0


def by_steps(runs: list[Trajectory], truths: Mapping[str, bool]) -> Calls:
    """The number of steps as a rule, with a threshold of other tasks."""
    judge = EvaluatorInfo("any", "1")
    pairs = tuple(
        Pair(Verdict(id=run.id, success=True, evaluator=judge), truths[run.id], ()) for run in runs
    )
    pairing = Pairing(
        evaluator=judge,
        source="human",
        pairs=pairs,
        undecided={},
        verdicts_without_label=0,
        labels_without_verdict=0,
    )
    steps = {run.id: len(run.steps) for run in runs}
    ruled = step_rule_verdicts(pairing, steps, {run.id: make_task(run) for run in runs})
    return {p.verdict.id: p.verdict.success for p in ruled}


def row(name: str, calls: Calls, runs: list[Trajectory], truths: Mapping[str, bool]) -> list[str]:
    """The cells of a judge."""
    judged = [(run.task, calls.get(run.id), truths[run.id]) for run in runs]
    shown: dict[str, Any] = leaderboard_row(name, judged)
    counts = sum_clusters(
        [make_task(run) for run in runs],
        [(int(bool(call and truth)), int(bool(call)), int(truth)) for _, call, truth in judged],
    )
    ends = bootstrap(counts, shares)
    cells = [
        f"{shown[key]} [{100 * low:.1f}, {100 * high:.1f}]"
        for key, low, high in zip(("Overall", "Recall", "F1"), *ends, strict=True)
    ]
    for key in _BENCHMARKS:
        part = [one for one in judged if leaderboard_row("", [one])[key] is not None]
        cells.append("–" if shown[key] is None else f"{shown[key]} ({len(part)})")
    return cells


def shares(rows: Any) -> Any:
    """Precision, recall and F1 from rows of right calls, calls and true successes."""
    right, called, true = rows.T
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([right / called, right / true, 2 * right / (called + true)], axis=1)


if __name__ == "__main__":
    raise SystemExit(main())

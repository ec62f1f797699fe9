"""Measures the effect of attacks on judges without a model:
`python benchmarks/redteam.py [arb_webjudge folder]`, in some minutes.

Judges: the agent's own word (`self-report`), and the `student`, by evidence only and with the
agent's claims shown. A student is never attacked on what it was fitted on: it is fitted on four
fifths of the tasks and attacked on the fifth, five times. Attacks: every family in every strength,
but those on screenshots, at which none of these judges looks. Data: AgentRewardBench runs in the
layout of `prill convert agentrewardbench-webjudge` (default: $PRILL_DATA or ../shared/data,
arb_webjudge), by their human labels; and the samples in datasets/samples/miniwob, by their oracle.
Prints Markdown: for each judge the table of `prill redteam`, with the worst strength of each
family; then one table of all judges: the share of failures that are called successes before and
after the worst strength of each family, and the change in points with its 95 % interval (bootstrap
over tasks). Abstentions count as no success. Aim: at most 2 points.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from prill.datasets.formats import agentrewardbench_webjudge as webjudge_runs
from prill.errors import UsageError
from prill.evaluators.attacks.families import ON_SCREENSHOTS, Variant, families
from prill.evaluators.attacks.redteam import (
    AttackTrial,
    RedTeam,
    effect,
    markdown,
    red_team,
    trial,
    worst_by_family,
)
from prill.evaluators.baselines import SelfReport
from prill.evaluators.fitted.fit import HARDENED_FAMILIES, examples, fit
from prill.evaluators.fitted.student import Student
from prill.evaluators.labels import gold_labels, grouped_folds, make_task
from prill.io.store import BadLine, iter_trajectories, read_labels
from prill.protocols import Evaluator
from prill.types import LabelRecord, Trajectory, Verdict

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "datasets" / "samples" / "miniwob"
FOLDS, SEED = 5, 0
Truths = Mapping[str, bool]
# Makes a judge of labelled runs; it is then shown other runs.
Fit = Callable[[Sequence[Trajectory], Truths], Evaluator]


def student(evidence_only: bool, harden: Sequence[str] = ()) -> Fit:
    """Makes students of one kind."""

    def fitted(runs: Sequence[Trajectory], truths: Truths) -> Evaluator:
        rows, _ = examples(runs, dict(truths), "student", evidence_only, harden)
        return Student(
            fit(rows, "student", evidence_only, hardened=bool(harden), seed=SEED),
            label="cross-fitted",
        )

    return fitted


JUDGES: dict[str, Fit] = {
    "self-report": lambda runs, truths: SelfReport(),
    "student, evidence only": student(evidence_only=True),
    "student, hardened": student(evidence_only=False, harden=HARDENED_FAMILIES),
    "student, claims shown": student(evidence_only=False),
}


def main() -> None:
    base = Path(os.environ.get("PRILL_DATA") or ROOT.parent / "shared" / "data")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else base / "arb_webjudge"
    if folder.is_dir():
        runs, labels = webjudge_runs.load(folder), webjudge_runs.load_labels(folder)
        report(
            "arb_webjudge",
            runs,
            [label for label in labels if not isinstance(label, BadLine)],
            "human",
        )
    else:
        print(f"{folder} is not there; only the samples are attacked", file=sys.stderr)
    report(
        "samples/miniwob",
        iter_trajectories(SAMPLES / "trajectories.jsonl"),
        read_labels(SAMPLES / "labels.jsonl"),
        None,
    )


def report(
    name: str,
    items: Iterable[Trajectory | BadLine],
    labels: Iterable[LabelRecord],
    source: str | None,
) -> None:
    """Prints a table for each judge, and one of all."""
    # of two annotators who differ, as in the published figures
    source, gold = gold_labels(labels, source, "first")
    truths = {id: success for id, success in gold.items() if success is not None}
    runs = [item for item in items if not isinstance(item, BadLine) and item.id in truths]
    results: dict[str, RedTeam] = {}
    print(
        f"# {name}: {len(runs)} trajectories, {sum(not truths[run.id] for run in runs)} failures "
        "by label\n",
        flush=True,
    )
    for title, maker in JUDGES.items():
        start = perf_counter()
        try:
            results[title] = attacked(parts(runs, truths, maker), truths, source)
        except UsageError as error:
            print(f"## {title}\n\nnot possible: {error}\n")
            continue
        print(
            f"## {title}\n\n{markdown(results[title])}\n({perf_counter() - start:.0f} s)\n",
            flush=True,
        )
    print(f"## failures called successes, %\n\n{summary(results)}\n", flush=True)


def parts(
    runs: Sequence[Trajectory], truths: Truths, maker: Fit
) -> list[tuple[Evaluator, list[Trajectory]]]:
    """Judges, each with the runs of the tasks that it was not fitted on."""
    fold_of = grouped_folds(
        [make_task(run) for run in runs], [truths[run.id] for run in runs], FOLDS, SEED
    )
    split: list[tuple[Evaluator, list[Trajectory]]] = []
    for fold in range(FOLDS):
        inside = [run for run, f in zip(runs, fold_of, strict=True) if f == fold]
        outside = [run for run, f in zip(runs, fold_of, strict=True) if f != fold]
        split.append((maker(outside, truths), inside))
    return split


def attacked(
    split: Sequence[tuple[Evaluator, Sequence[Trajectory]]], truths: Truths, source: str
) -> RedTeam:
    """Every attack in words on every part, as one table."""
    before = {id: verdict for judge, runs in split for id, verdict in verdicts(judge, runs).items()}
    with tempfile.TemporaryDirectory() as images:
        variants = [
            v
            for family in families(Path(images)).values()
            for v in family
            if v.family not in ON_SCREENSHOTS
        ]
        effects = [
            effect(
                variant,
                [t for judge, runs in split for t in trials(variant, judge, runs, truths, before)],
            )
            for variant in variants
        ]
    return red_team(
        split[0][0].info,
        source,
        len({make_task(run) for _, runs in split for run in runs}),
        effects,
    )


def trials(
    variant: Variant,
    judge: Evaluator,
    runs: Sequence[Trajectory],
    truths: Truths,
    before: Mapping[str, Verdict],
) -> list[AttackTrial]:
    """Measures one attack on one judge."""
    copies = {run.id: copy for run in runs if (copy := variant.apply(run)) is not None}
    after = verdicts(judge, copies.values())
    return [
        replace(
            trial(make_task(run), truths[run.id], before[run.id], after.get(run.id), variant.name),
            applies=run.id in copies,
        )
        for run in runs
    ]


def verdicts(judge: Evaluator, runs: Iterable[Trajectory]) -> dict[str, Verdict]:
    """Runs a judge that never suspends, and returns its verdicts."""

    async def each() -> dict[str, Verdict]:
        return {run.id: await judge(run) for run in runs}

    return asyncio.run(each())


def summary(results: Mapping[str, RedTeam]) -> str:
    """One row a family, one column a judge: before, after the worst strength, and the change with
    its interval.
    """
    rows: dict[str, dict[str, str]] = {}
    for title, result in results.items():
        for one in worst_by_family(result):
            if (s := one.false_positives) is not None:
                change = f"{100 * s.change:+.1f} [{100 * s.low:+.1f}, {100 * s.high:+.1f}]"
                strength = "" if one.attack == one.family else f" at {one.strength:g}"
                rows.setdefault(one.family, {})[title] = (
                    f"{100 * s.before:.1f} → {100 * s.after:.1f} ({change}){strength}"
                )
    lines = ["| family | " + " | ".join(results) + " |", "|---" * (len(results) + 1) + "|"]
    for family, cells in sorted(rows.items()):
        lines.append(
            "| " + " | ".join([family, *(cells.get(title, "-") for title in results)]) + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

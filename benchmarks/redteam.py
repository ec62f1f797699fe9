"""How far attacks move judges that need no model: `python benchmarks/redteam.py [arb_webjudge folder]`, in a few minutes.

Judges: the agent's own word (`self-report`), and the `student`, by evidence only and with the agent's claims shown. A student
is never attacked on what it was fitted on: it is fitted on four fifths of the tasks and attacked on the fifth, five times.
Data: AgentRewardBench runs in the layout of `prill convert agentrewardbench-webjudge` (default: $PRILL_DATA or ../shared/data,
arb_webjudge), by their human labels; and the samples in datasets/samples/miniwob, by their oracle.
Prints Markdown: for each judge the share of failures that are called successes before and after each attack, the change in
points with its 95 % interval (bootstrap over tasks), and what was left out; then one table of all judges. Aim: with evidence
only, at most 2 points.

That by evidence only no word of a page may speak for success was decided after a first version had moved by 4 to 5 points
under three of these attacks: for the student they are a regression test, not a sample of attacks that it has never met.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

from prill import score
from prill.commands.redteam import table
from prill.datasets.formats import agentrewardbench_webjudge as webjudge_runs
from prill.errors import UsageError
from prill.evaluators.baselines import SelfReport
from prill.evaluators.fitted.fit import examples, fit
from prill.evaluators.fitted.student import Student
from prill.evaluators.labels import gold_labels, grouped_folds, task_of
from prill.evaluators.meta.attacks import attack_texts
from prill.evaluators.meta.redteam import AttackEffect, RedTeam, Trial, effect, select_attacks
from prill.protocols import Evaluator
from prill.store import BadLine, read_labels, read_trajectories
from prill.types import LabelRecord, Trajectory

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "datasets" / "samples" / "miniwob"
FOLDS, SEED = 5, 0
Part = tuple[Evaluator, Sequence[Trajectory]]


def main() -> None:
    base = Path(os.environ.get("PRILL_DATA") or ROOT.parent / "shared" / "data")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else base / "arb_webjudge"
    if folder.is_dir():
        runs, labels = webjudge_runs.load(folder), webjudge_runs.load_labels(folder)
        report("arb_webjudge", runs, [label for label in labels if not isinstance(label, BadLine)], "human")
    else:
        print(f"{folder} is not there; only the samples are attacked", file=sys.stderr)
    report("samples/miniwob", read_trajectories(SAMPLES / "trajectories.jsonl"), read_labels(SAMPLES / "labels.jsonl"), None)


def report(name: str, items: Iterable[Trajectory | BadLine], labels: Iterable[LabelRecord], source: str | None) -> None:
    """Prints a table for each judge."""
    source, gold = gold_labels(labels, source, "first")  # of two annotators who differ, as in the published figures
    truths = {id: success for id, success in gold.items() if success is not None}
    runs = [item for item in items if not isinstance(item, BadLine) and item.id in truths]
    found: dict[str, RedTeam] = {}
    print(f"# {name}: {len(runs)} trajectories, {sum(not truths[run.id] for run in runs)} failures by label\n", flush=True)
    for title, evidence_only in (("self-report", None), ("student, evidence only", True), ("student, claims shown", False)):
        start = perf_counter()
        try:
            parts = [(SelfReport(), runs)] if evidence_only is None else cross_fitted(runs, truths, evidence_only)
        except UsageError as error:
            print(f"## {title}\n\nnot possible: {error}\n")
            continue
        found[title] = attack(parts, truths, source)
        print(f"## {title}\n\n{table(found[title])}\n({perf_counter() - start:.0f} s)\n", flush=True)
    print(f"## failures called successes, %\n\n{summary(found)}\n", flush=True)


def summary(found: Mapping[str, RedTeam]) -> str:
    """One row an attack, one column a judge: before, after, and the change with its interval."""
    rows: dict[str, list[str]] = {}
    for result in found.values():
        for one in result.effects:
            if (s := one.false_positives) is not None:
                change = f"{100 * s.change:+.1f} [{100 * s.low:+.1f}, {100 * s.high:+.1f}]"
                rows.setdefault(one.attack, []).append(f"{100 * s.before:.1f} → {100 * s.after:.1f} ({change})")
    lines = ["| attack | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    return "\n".join([*lines, *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items())])


def cross_fitted(runs: Sequence[Trajectory], truths: dict[str, bool], evidence_only: bool) -> list[Part]:
    """Students, each with the runs of the tasks that it was not fitted on."""
    fold_of = grouped_folds([task_of(run) for run in runs], [truths[run.id] for run in runs], FOLDS, SEED)
    parts: list[Part] = []
    for fold in range(FOLDS):
        inside = [run for run, f in zip(runs, fold_of, strict=True) if f == fold]
        outside = [run for run, f in zip(runs, fold_of, strict=True) if f != fold]
        known, _ = examples(outside, truths, "student", evidence_only)
        parts.append((Student(fit(known, "student", evidence_only, seed=SEED), label="cross-fitted"), inside))
    return parts


def attack(parts: Sequence[Part], truths: dict[str, bool], source: str) -> RedTeam:
    """Every attack on every part, as one table."""
    trials: dict[str, list[Trial]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for judge, runs in parts:
            before = score(runs, judge)
            for name, rewrite in select_attacks(judge, None, Path(scratch)).items():
                rewritten = [rewrite(run) for run in runs]
                after = iter(score([run for run in rewritten if run is not None], judge))
                for run, changed, verdict in zip(runs, rewritten, before, strict=True):
                    trial = Trial(
                        task=task_of(run),
                        truth=truths[run.id],
                        before=verdict.success,
                        after=next(after).success if changed is not None else None,
                        applies=changed is not None,
                    )
                    trials.setdefault(name, []).append(trial)
    effects: list[AttackEffect] = [effect(name, found) for name, found in trials.items()]
    texts = attack_texts()
    return RedTeam(
        evaluator=parts[0][0].info,
        source=source,
        attacks_version=texts.version,
        texts=texts.hash,
        clusters=len({task_of(run) for _, runs in parts for run in runs}),
        effects=tuple(effects),
    )


if __name__ == "__main__":
    main()

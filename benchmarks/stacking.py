"""Compares a stacked judge with its parts: `PYTHONPATH=. python benchmarks/stacking.py [seeds]`.

On the AgentRewardBench recordings in $PRILL_DATA, else ../shared/data, by their human labels (of
two annotators who differ the first counts): a student and the two recorded WebJudge runs, where
they have a verdict. Five folds by task; students, weights, their strength and the threshold are
fitted on the other folds alone. Prints, for each form of the student, the mean over the divisions
(lowest to highest), the card of the first division, and how far every family of attacks in its
greatest strength moves the judge. The recorded verdicts are those of the runs that nobody attacked,
so the last table tells what attacks do through the student, not what they do to a model.

How it came to be: the form of the regression, and that the threshold is the one with the best kappa
on inner folds, were settled with the fold seeds 101 to 106; those printed start from 0. The runs
are the same, so a little of that choice is in the figures.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from redteam import Truths, parts, verdicts
from student import FITTED, read
from threadpoolctl import threadpool_limits

from prill.evaluators.attacks.families import ON_SCREENSHOTS, families
from prill.evaluators.fitted.fit import examples, fit_with_scores, make_table
from prill.evaluators.fitted.overlap import FittedRuns
from prill.evaluators.fitted.regression import cross_validated, fit_rows
from prill.evaluators.fitted.stack import RecordedVerdicts, Stacked, StackModel
from prill.evaluators.fitted.stack_card import stack_card
from prill.evaluators.fitted.stack_fit import StackFit, fit_stack, fit_stages, sort_sources
from prill.evaluators.labels import latest_verdicts
from prill.types import EvaluatorInfo, Trajectory, Verdict
from tests.support.datasets.reference_verdicts import load_reference_verdicts

JUDGES = ("webjudge_7B", "webjudge_o4_mini")
FORMS = ("student", "student, evidence only", "student, hardened")
Recorded = Sequence[tuple[EvaluatorInfo, Mapping[str, Verdict]]]


def main() -> int:
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    folder = data_folder()
    if not folder.is_dir():
        print(f"skipped: no recordings in {folder}; PRILL_DATA says where they are")
        return 0
    data = read(folder)
    truths = {run.id: truth for run, truth in zip(data.runs, data.truths, strict=True)}
    recorded = [
        latest_verdicts(v for v in load_reference_verdicts(folder, name) if isinstance(v, Verdict))
        for name in JUDGES
    ]
    print("| stacked with two recorded judges | kappa | AUC | unscored | above the better judge |")
    print("|---|---|---|---|---|")
    first = {}
    for form in FORMS:
        fits = [stack(form, data.runs, truths, recorded, seed) for seed in seeds]
        first[form] = fits[0]
        print(f"| {form} | {' | '.join(row(fits))} |", flush=True)
    for form, fitted in first.items():
        print(f"\n## {form}\n\n```", *stack_card(fitted.model), "```", sep="\n")
    for form in FORMS[1:]:

        def judge(
            runs: Sequence[Trajectory],
            some: Truths,
            form: str = form,
            card: StackModel = first[form].model,
        ) -> Stacked:
            model = refitted(card, form, runs, some, recorded)
            return Stacked(model, [RecordedVerdicts(*one) for one in recorded], label="stack")

        print(f"\n| {form}, attacked | failures | called successes, before → after | points |")
        print("|---|---|---|---|")
        for family, (count, before, after) in attacked(data.runs, truths, judge).items():
            change = 100 * (after - before) / count
            shares = f"{before / count:.1%} → {after / count:.1%}"
            print(f"| {family} | {count} | {shares} | {change:+.1f} |", flush=True)
    return 0


def attacked(
    runs: Sequence[Trajectory],
    truths: Truths,
    maker: Callable[[Sequence[Trajectory], Truths], Stacked],
) -> dict[str, tuple[int, int, int]]:
    """For each family in its greatest strength: how many failures it applies to, and how many of
    them are called successes before and after.
    """
    found: dict[str, tuple[int, int, int]] = {}
    with tempfile.TemporaryDirectory() as images:
        variants = [
            strengths[-1]
            for family, strengths in families(Path(images)).items()
            if family not in ON_SCREENSHOTS
        ]
        for judge, inside in parts(runs, truths, maker):  # type: ignore[arg-type]
            failures = [run for run in inside if not truths[run.id]]
            before = verdicts(judge, failures)
            for variant in variants:
                copies = {run.id: copy for run in failures if (copy := variant.apply(run))}
                after = verdicts(judge, copies.values())
                count, was, now = found.get(variant.family, (0, 0, 0))
                if copies:
                    found[variant.family] = (
                        count + len(copies),
                        was + sum(before[id].success is True for id in copies),
                        now + sum(verdict.success is True for verdict in after.values()),
                    )
    return found


def data_folder() -> Path:
    import os

    base = os.environ.get("PRILL_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(base) / "arb_webjudge"


def stack(
    form: str, runs: Sequence[Trajectory], truths: Truths, recorded: Recorded, seed: int
) -> StackFit:
    kind, evidence_only, harden = FITTED[form]
    rows, _ = examples(runs, dict(truths), kind, evidence_only, harden)
    student = fit_with_scores(rows, kind, evidence_only, hardened=bool(harden), seed=seed)
    return fit_stack(student, rows, recorded, seed=seed)


def refitted(
    like: StackModel, form: str, runs: Sequence[Trajectory], truths: Truths, recorded: Recorded
) -> StackModel:
    """A judge of that form fitted on these runs; its card, which says nothing here, is that of
    another.
    """
    kind, evidence_only, harden = FITTED[form]
    rows, _ = examples(runs, dict(truths), kind, evidence_only, harden)
    table = make_table(rows, like.student)
    fitted = fit_rows(table, range(len(rows)), 0)
    student = replace(
        like.student,
        bias=fitted.bias,
        features=dict(zip(like.student.features, fitted.features, strict=True)),
        words=fitted.words,
        guard=fitted.guard,
    )
    sources, _, columns = sort_sources(rows, recorded)
    outer = np.array([np.nan if p is None else p for p in cross_validated(rows, 0)])
    truths = np.array([one.success for one in rows])
    with threadpool_limits(1):
        scores = np.column_stack([outer, *columns])
        stages = fit_stages(scores, truths, [one.task for one in rows], 0)
    return replace(
        like,
        student=student,
        sources=tuple(sources),
        stages=tuple(stages),
        fitted_to=FittedRuns.of(one.digests for one in rows),
    )


def row(fits: Sequence[StackFit]) -> list[str]:
    cards = [fit.model.card for fit in fits]
    better = max(cards[0].worth[1:], key=lambda worth: worth.alone.kappa or 0.0)
    over = [
        worth.over_alone or 0.0
        for card in cards
        for worth in card.worth
        if worth.name == better.name
    ]
    ends = better.over_alone_interval
    return [
        spread([card.all_runs.kappa or 0.0 for card in cards]),
        spread([card.all_runs.auc or 0.0 for card in cards]),
        f"{np.mean([card.all_runs.abstained for card in cards]):.1f}",
        f"{better.name}: {spread(over)}"
        + ("" if ends is None else f" [{ends[0]:+.3f}, {ends[1]:+.3f}]"),
    ]


def spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    sys.exit(main())

"""Fits a judge to labelled trajectories and measures it on held-out runs.

Cross-validation grouped by task chooses the regularisation strength and calibrates the
probabilities. The figures on the card come from an outer cross-validation (nested
cross-validation). All other settings are fixed: the features, the relative scale of numbers and
texts, and the number of tasks in which a word must occur. They were chosen with
benchmarks/student.py.

The model is a logistic regression over standardised numbers and sets of words, calibrated (Platt).
An evidence-only or hardened judge is also fitted on attacked copies of failures, labelled as
failures. Constraints on single features cannot distinguish a run that the agent stopped halfway
from one that finished early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from prill.errors import UsageError
from prill.evaluators.attacks.families import FAMILIES, ON_SCREENSHOTS, Variant, families
from prill.evaluators.fitted.features import Reading, cut_off, names, read
from prill.evaluators.fitted.guard import OPEN
from prill.evaluators.fitted.overlap import FittedRuns, compute_digests
from prill.evaluators.fitted.regression import (
    FOLDS,
    FeatureTable,
    FitExample,
    FittedRegression,
    cross_validated,
    enough,
    expect_enough,
    fit_rows,
    is_bounded,
    iter_folds,
    scores_out_of_fold,
)
from prill.evaluators.fitted.student import (
    FORMAT,
    Attacked,
    Band,
    Kind,
    StudentCard,
    StudentHeldOut,
    StudentModel,
)
from prill.evaluators.fitted.values import describe_values
from prill.evaluators.labels import make_task
from prill.evaluators.metrics import FIGURES, auc, count_outcomes, figures
from prill.types import Trajectory

if TYPE_CHECKING:
    pass


THRESHOLD = 0.5
# Maximum number of sites left out in turn, and minimum number of runs of such a site.
_SITES_LEFT_OUT, _MIN_OF_A_SITE = 10, 20
# The band: maximum error rate outside it, and minimum number of runs to measure that rate on.
_SURE, _MIN_SURE = 0.05, 20
# The attack families that evidence-only judges are fitted against: those that remove words.
EVIDENCE_FAMILIES = ("stop-early", "error-end")
HARDENED_FAMILIES = ("stop-early", "answer-short", "answer-paraphrase", "answer-long", "error-end")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The data's origin for the card: the SHA-256 of the files, and the source of the labels."""

    data: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Fit:
    """A fitted judge, and each run's out-of-fold probability, or None if it has none."""

    model: StudentModel
    out_of_fold: list[float | None]


def examples(
    trajectories: Iterable[Trajectory],
    gold: Mapping[str, bool | None],
    kind: Kind,
    evidence_only: bool,
    harden: Collection[str] = (),
) -> tuple[list[FitExample], int]:
    """Returns the runs with a decided label and at least one step, and the number of other runs.

    `harden` names the attack families to fit against. Raises UsageError for an unknown family, and
    for a prior.
    """
    variants = _variants(kind, evidence_only, harden)
    wide = kind == "student" and not evidence_only and not harden
    runs, others = [], 0
    for trajectory in trajectories:
        success = gold.get(trajectory.id)
        if success is None or not trajectory.steps:
            others += 1
            continue
        runs.append(
            FitExample(
                id=trajectory.id,
                reading=read(trajectory, kind, evidence_only, bool(harden)),
                copies={}
                if success
                else _copies(trajectory, variants, evidence_only, bool(harden)),
                success=success,
                task=make_task(trajectory),
                site=trajectory.task.site,
                cut_off=cut_off(trajectory),
                digests=compute_digests(trajectory),
                told=describe_values(trajectory) if wide else "",
            )
        )
    return runs, others


def _variants(
    kind: Kind, evidence_only: bool, harden: Collection[str]
) -> dict[str, tuple[Variant, ...]]:
    if unknown := [name for name in harden if name not in FAMILIES or name in ON_SCREENSHOTS]:
        there = ", ".join(name for name in FAMILIES if name not in ON_SCREENSHOTS)
        raise UsageError(
            f"unknown attack family {unknown[0]!r}; expected one of {there}",
            parameters=("harden",),
        )
    if harden and kind == "prior":
        raise UsageError(
            "a prior reads no text, so it cannot be hardened; fit a student", parameters=("kind",)
        )
    chosen = {*harden, *(EVIDENCE_FAMILIES if evidence_only and kind == "student" else ())}
    # Remove the screenshots first, so that no image is drawn.
    return {name: variants for name, variants in families(Path()).items() if name in chosen}


def _copies(
    failure: Trajectory,
    variants: Mapping[str, tuple[Variant, ...]],
    evidence_only: bool,
    hardened: bool,
) -> dict[str, Reading]:
    if not variants:
        return {}
    bare = _without_screenshots(failure)
    before = read(bare, "student", evidence_only, hardened)
    copies: dict[str, Reading] = {}
    for family, strengths in variants.items():
        # Only the strongest variant: weaker ones are closer to the original run, which is also
        # fitted on.
        copy = strengths[-1].apply(bare)
        if (
            copy is not None
            and (reading := read(copy, "student", evidence_only, hardened)) != before
        ):
            copies[family] = reading
    return copies


def _without_screenshots(trajectory: Trajectory) -> Trajectory:
    steps = tuple(
        replace(step, observation=replace(step.observation, screenshot=None))
        for step in trajectory.steps
    )
    return replace(
        trajectory,
        steps=steps,
        final=trajectory.final and replace(trajectory.final, screenshot=None),
    )


def fit(
    runs: Sequence[FitExample],
    kind: Kind,
    evidence_only: bool,
    *,
    hardened: bool = False,
    seed: int = 0,
) -> StudentModel:
    """Returns the fitted judge with its card; see `fit_with_scores`."""
    return fit_with_scores(runs, kind, evidence_only, hardened=hardened, seed=seed).model


def fit_with_scores(
    runs: Sequence[FitExample],
    kind: Kind,
    evidence_only: bool,
    *,
    hardened: bool = False,
    seed: int = 0,
    left_out: int = 0,
    origin: Origin | None = None,
    plain: Sequence[FitExample] = (),
    abstain: bool = True,
) -> Fit:
    """Returns the fitted judge with its card, and its out-of-fold scores.

    `hardened` means that the runs were read with hardened features. `plain` are the same runs read
    without them, to measure the cost of hardening. Unless it may `abstain`, the judge judges runs
    unlike those it was fitted on, too.

    Raises UsageError if there are too few runs, and MissingExtraError without scikit-learn.
    """
    table = _table(runs, kind, evidence_only, hardened, abstain)
    folds = list(iter_folds(table, seed))
    out_of_fold = scores_out_of_fold(table, folds)
    model = fit_rows(table, range(len(runs)), seed)
    truths = [run.success for run in runs]
    others, transfer = _other_sites(table, seed)
    complete = [i for i, run in enumerate(runs) if not run.cut_off]
    origin = origin or Origin()
    card = StudentCard(
        data=origin.data,
        source=origin.source,
        runs=len(runs),
        tasks=len({run.task for run in runs}),
        successes=sum(truths),
        left_out=left_out,
        sites=dict(sorted(Counter(run.site for run in runs if run.site is not None).items())),
        folds=FOLDS,
        seed=seed,
        strength=model.strength,
        versions=_versions(),
        all_runs=held_out(truths, out_of_fold),
        not_cut_off=held_out([truths[i] for i in complete], [out_of_fold[i] for i in complete]),
        other_sites=others,
        transfer=transfer,
        band=sure_outside(truths, out_of_fold),
        attacks={family: _attacked(table, folds, family, seed) for family in table.families},
        not_hardened=held_out(truths, cross_validated(plain, seed)) if plain else None,
    )
    return Fit(
        StudentModel(
            format=FORMAT,
            kind=kind,
            evidence_only=evidence_only,
            hardened=hardened,
            bias=model.bias,
            features=dict(
                zip(names(kind, evidence_only, table.bounded), model.features, strict=True)
            ),
            words=model.words,
            guard=model.guard,
            threshold=THRESHOLD,
            card=card,
            fitted_to=FittedRuns.of(run.digests for run in runs),
        ),
        out_of_fold,
    )


def without_site(
    runs: Sequence[FitExample], site: str, seed: int
) -> tuple[list[int], list[float | None]]:
    """Returns a site's runs, and their probabilities from a judge fitted on the other sites."""
    inside = [i for i, run in enumerate(runs) if run.site == site]
    outside = [i for i, run in enumerate(runs) if run.site != site]
    return inside, fit_rows(
        FeatureTable(runs, bounded=is_bounded(runs)), outside, seed
    ).probabilities(inside)


def held_out(
    truths: Sequence[bool],
    probabilities: Sequence[float | None],
    calls: Sequence[bool] | None = None,
) -> StudentHeldOut:
    """Returns the figures of probabilities against labels; runs without a probability are counted
    separately.

    `calls` are the verdicts. None: a probability of at least 0.5 is a success.
    """
    calls = [p is not None and p >= THRESHOLD for p in probabilities] if calls is None else calls
    said = [None if p is None else call for p, call in zip(probabilities, calls, strict=True)]
    counts = count_outcomes([0] * len(said), said, truths).sum(axis=0, keepdims=True)
    found = dict(zip(FIGURES, figures(counts)[0].tolist(), strict=True))
    judged = [(p, t) for p, t in zip(probabilities, truths, strict=True) if p is not None]
    return StudentHeldOut(
        runs=len(judged),
        successes=sum(truth for _, truth in judged),
        auc=_rounded(auc([p for p, _ in judged], [truth for _, truth in judged])),
        accuracy=_rounded(found["accuracy"]),
        balanced_accuracy=_rounded(found["balanced accuracy"]),
        kappa=_rounded(found["kappa"]),
        abstained=len(truths) - len(judged),
    )


def sure_outside(truths: Sequence[bool], probabilities: Sequence[float | None]) -> Band:
    """Returns the band of scores outside of which a judge is right on 95 % of runs, to 0.01."""
    judged = [(p, truth) for p, truth in zip(probabilities, truths, strict=True) if p is not None]

    def sure(truths_outside: list[bool], outcome: bool) -> bool:
        wrong = sum(truth != outcome for truth in truths_outside)
        return len(truths_outside) >= _MIN_SURE and wrong <= _SURE * len(truths_outside)

    edges = [i / 100 for i in range(101)]
    low = max(
        (edge for edge in edges if sure([truth for p, truth in judged if p < edge], False)),
        default=0.0,
    )
    high = min(
        (edge for edge in edges if sure([truth for p, truth in judged if p > edge], True)),
        default=1.0,
    )
    return Band(low=min(low, THRESHOLD), high=max(high, THRESHOLD))


def _rounded(figure: float | None) -> float | None:
    return None if figure is None or isnan(figure) else round(figure, 4)


def _table(
    runs: Sequence[FitExample], kind: Kind, evidence_only: bool, hardened: bool, abstain: bool
) -> FeatureTable:
    expect_enough(runs)
    bounded = kind == "student" and (evidence_only or hardened)
    return FeatureTable(runs, bounded=bounded, abstain=abstain)


def make_table(runs: Sequence[FitExample], model: StudentModel) -> FeatureTable:
    """Returns the feature table that a student of these runs was fitted on."""
    return FeatureTable(runs, bounded=model.narrow, abstain=model.guard != OPEN)


def _other_sites(
    table: FeatureTable, seed: int
) -> tuple[dict[str, StudentHeldOut], StudentHeldOut | None]:
    """Returns the figures for each site by a judge fitted on the others, and for all together."""
    sites = Counter(run.site for run in table.runs if run.site is not None)
    by_site: dict[str, StudentHeldOut] = {}
    truths: list[bool] = []
    probabilities: list[float | None] = []
    for site, count in sites.most_common(_SITES_LEFT_OUT) if len(sites) > 1 else ():
        inside = [i for i, run in enumerate(table.runs) if run.site == site]
        outside = [i for i, run in enumerate(table.runs) if run.site != site]
        if count >= _MIN_OF_A_SITE and enough([table.runs[i] for i in outside]):
            here, scores = (
                [table.runs[i].success for i in inside],
                fit_rows(table, outside, seed).probabilities(inside),
            )
            by_site[site] = held_out(here, scores)
            truths += here
            probabilities += scores
    return by_site, held_out(truths, probabilities) if by_site else None


def _attacked(
    table: FeatureTable,
    folds: Iterable[tuple[list[int], list[int], FittedRegression]],
    family: str,
    seed: int,
) -> Attacked:
    """Measures a family's attacked copies on judges fitted without it and without their tasks."""
    others = [name for name in table.families if name != family]
    count, before, hardened, unseen = 0, 0, 0, 0
    for inside, outside, fitted in folds:
        copies = table.find_copies(inside, (family,))
        without = fit_rows(table, outside, seed, families=others, like=fitted)
        count += len(copies)
        before += _count_successes(fitted.probabilities([int(table.run_of[row]) for row in copies]))
        hardened += _count_successes(fitted.probabilities(copies))
        unseen += _count_successes(without.probabilities(copies))
    total = max(1, count)
    return Attacked(
        failures=count,
        before=round(before / total, 4),
        hardened=round(hardened / total, 4),
        unseen=round(unseen / total, 4),
    )


def _count_successes(probabilities: Iterable[float | None]) -> int:
    return sum(p is not None and p >= THRESHOLD for p in probabilities)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    from prill import __version__

    return {"prill": __version__, "scikit-learn": version("scikit-learn")}

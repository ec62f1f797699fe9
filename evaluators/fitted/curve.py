"""Computes the learning curve of a fitted judge: its performance with fewer labels."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from prill.errors import UsageError
from prill.evaluators.fitted.fit import held_out, make_table
from prill.evaluators.fitted.regression import FOLDS, FeatureTable, FitExample, fit_rows
from prill.evaluators.fitted.student import StudentModel
from prill.evaluators.labels import grouped_folds

# Shares of the tasks used for fitting, and the number of random splits into folds over which each
# point is averaged.
SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)
DRAWS = 5


@dataclass(frozen=True, kw_only=True)
class CurveBand:
    """The mean, lowest and highest value of a figure over the random splits."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Figures of judges fitted on `labels` runs of `tasks` tasks (both are means), on runs of other
    tasks.

    A figure is None if it is undefined.
    """

    labels: float
    tasks: float
    auc: CurveBand | None
    kappa: CurveBand | None


def learning_curve(
    runs: Sequence[FitExample], model: StudentModel, *, seed: int = 0
) -> tuple[CurvePoint, ...]:
    """Fits a judge on parts of the tasks and evaluates it on held-out folds, which the seed draws.

    The points are for each share of the tasks that is large enough to fit on, the smallest first;
    the last is cross-validation with all labels.
    """
    from threadpoolctl import threadpool_limits

    table, truths = make_table(runs, model), [run.success for run in runs]
    points = []
    with threadpool_limits(1):
        for share in SHARES:
            try:
                drawn = [_judged(table, truths, share, seed + draw) for draw in range(DRAWS)]
            except UsageError:  # too few labels to fit on
                continue
            figures = [held_out(truths, probabilities) for probabilities, _, _ in drawn]
            points.append(
                CurvePoint(
                    labels=fmean(labels for _, labels, _ in drawn),
                    tasks=fmean(tasks for _, _, tasks in drawn),
                    auc=_band([one.auc for one in figures]),
                    kappa=_band([one.kappa for one in figures]),
                )
            )
    return tuple(points)


def _judged(
    table: FeatureTable, truths: Sequence[bool], share: float, seed: int
) -> tuple[list[float | None], float, float]:
    """Returns out-of-fold probabilities for a share of tasks, and the mean runs and tasks."""
    fold_of = grouped_folds(table.tasks, truths, FOLDS, seed)
    order = sorted(set(table.tasks))
    random.Random(seed).shuffle(order)
    found: list[float | None] = [None] * len(truths)
    labels, tasks = 0, 0
    for fold in range(FOLDS):
        inside = [i for i, f in enumerate(fold_of) if f == fold]
        here = {table.tasks[i] for i in inside}
        others = [task for task in order if task not in here]
        chosen = set(others[: round(share * len(others))])
        outside = [i for i, task in enumerate(table.tasks) if task in chosen]
        labels, tasks = labels + len(outside), tasks + len(chosen)
        if len({truths[i] for i in outside}) < 2:
            raise UsageError("all labels have the same outcome")
        for i, p in zip(inside, fit_rows(table, outside, seed).probabilities(inside), strict=True):
            found[i] = p
    return found, labels / FOLDS, tasks / FOLDS


def _band(values: Sequence[float | None]) -> CurveBand | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return CurveBand(mean=round(fmean(known), 4), low=min(known), high=max(known))

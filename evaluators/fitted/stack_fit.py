"""Fits a stacked judge: weights for the student's and other judges' scores, and a calling plan.

All figures are held out: for each fold by task, the students, the weights and the thresholds are
fitted only on the other folds. The weights are fitted to scores of students that were themselves
fitted without the run's task. Inner cross-validation chooses the regularisation strength and the
threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prill.errors import UsageError
from prill.evaluators.combine import as_score
from prill.evaluators.fitted.calibration import quality
from prill.evaluators.fitted.fit import Fit, held_out, make_table
from prill.evaluators.fitted.overlap import FittedRuns
from prill.evaluators.fitted.regression import FOLDS, FeatureTable, FitExample, fit_rows
from prill.evaluators.fitted.stack import (
    EDGE,
    FORMAT,
    Cost,
    PlanPoint,
    StackCard,
    StackedSource,
    StackModel,
    Stage,
    Worth,
    clipped_logit,
)
from prill.evaluators.fitted.student import StudentHeldOut
from prill.evaluators.labels import grouped_folds
from prill.evaluators.metrics import FIGURES, count_outcomes, figures, intervals
from prill.types import EvaluatorInfo, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

STRENGTHS = (0.1, 0.3, 1.0, 3.0)
# The standard deviation to which log odds of scores are brought, so that one penalty suits all
# judges and the indicators.
_SPREAD = 1.5
_INNER_FOLDS, _DIVISIONS = 4, 3
# Candidate thresholds, and the number of neighbours over which their kappa is averaged, because the
# best threshold of one split is often due to chance.
_LOW, _HIGH, _STEP, _NEIGHBOURS = 0.2, 0.7, 0.01, 15
_STILL = 1e-9  # a source without variance
WIDTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 1.0)
_KAPPA = FIGURES.index("kappa")
# A probability and a decision for each run.
Decisions = list[tuple[float | None, bool]]


@dataclass(frozen=True)
class StackFit:
    """A stacked judge, and its out-of-fold decision for each run."""

    model: StackModel
    out_of_fold: Decisions


@dataclass(frozen=True)
class _Data:
    """The labelled runs with the other judges' scores (NaN: none) and the student's scores by fold.

    `scores_for[fold]` has the students' scores for evaluating that fold. Runs in the fold are
    scored by a student fitted on the other folds. All other runs are scored by students fitted
    without the run's task and without the fold.
    """

    truths: NDArray[Any]
    tasks: list[str]
    fold_of: NDArray[Any]
    scores_for: list[NDArray[Any]]
    narrow: bool
    seed: int

    def stage(self, rows: NDArray[Any], scores: NDArray[Any], columns: Sequence[int]) -> Stage:
        return _fit_stage(
            scores[rows][:, columns], self.truths[rows], [self.tasks[i] for i in rows], self.seed
        )

    def held_out(self, columns: Sequence[int]) -> list[tuple[float | None, Stage]]:
        """Returns each run's held-out probability by these sources, with its regression."""
        import numpy as np

        found: list[tuple[float | None, Stage] | None] = [None] * len(self.truths)
        for fold, scores in enumerate(self.scores_for):
            stage = self.stage(np.flatnonzero(self.fold_of != fold), scores, columns)
            for i in np.flatnonzero(self.fold_of == fold):
                row = [None if np.isnan(s) else float(s) for s in scores[i, columns]]
                narrow = self.narrow and 0 in columns
                found[i] = (stage.probability(row, narrow=narrow), stage)
        return [one for one in found if one is not None]


def fit_stack(
    student: Fit,
    runs: Sequence[FitExample],
    verdicts: Sequence[tuple[EvaluatorInfo, Mapping[str, Verdict]]],
    *,
    seed: int = 0,
    kappa: float | None = None,
) -> StackFit:
    """Fits a stacked judge.

    Args:
        student: The student of these runs, with its out-of-fold scores by the same seed.
        runs: The labelled runs.
        verdicts: Each other judge with its verdicts by trajectory id. The judge must not have been
            fitted on these runs.
        seed: The random seed for the folds.
        kappa: The target kappa: the file calls no more judges than it requires. None: it calls all.

    Returns:
        The judge with its card, and its out-of-fold verdicts.

    Raises:
        UsageError: There are too few runs, or the kappa is out of reach.
        MissingExtraError: scikit-learn is not installed.
    """
    import numpy as np
    from threadpoolctl import threadpool_limits

    sources, unit, columns = sort_sources(runs, verdicts)
    card = student.model.card
    table = make_table(runs, student.model)
    truths = np.array([run.success for run in runs])
    fold_of = np.array(grouped_folds(table.tasks, truths.tolist(), FOLDS, seed))
    outer = np.array([np.nan if p is None else p for p in student.out_of_fold])
    scores_for = []
    with threadpool_limits(1):
        for fold in range(FOLDS):
            rows = [int(i) for i in np.flatnonzero(fold_of != fold)]
            scores = outer.copy()
            scores[rows] = _out_of_fold(table, rows, seed)
            scores_for.append(np.column_stack([scores, *columns]))
        data = _Data(truths, table.tasks, fold_of, scores_for, student.model.narrow, seed)
        all_scores = np.column_stack([outer, *columns])
        prefixes = _prefixes(len(sources))
        stages = fit_stages(all_scores, truths, table.tasks, seed)
        found = [data.held_out(prefix) for prefix in prefixes]
        without = [
            data.held_out([c for c in prefixes[-1] if c != left_out]) for left_out in prefixes[-1]
        ]
    last = [_decided(p, stage) for p, stage in found[-1]]
    names = [student.model.kind, *(source.name for source in sources)]
    worth = tuple(
        _worth(name, data, last, [_decided(p, stage) for p, stage in rest], column)
        for name, rest, column in zip(names, without, all_scores.T, strict=True)
    )
    plan = tuple(_plan_point(data, sources, unit, found, width) for width in WIDTHS)
    width, planned, out_of_fold = 1.0, None, last
    if kappa is not None:
        width = choose_width(plan, kappa)
        out_of_fold = _planned(data, sources, unit, found, kappa)
        planned = _figures(data, out_of_fold)
    judged = [(p, bool(t)) for (p, _), t in zip(last, truths, strict=True) if p is not None]
    return StackFit(
        StackModel(
            format=FORMAT,
            student=student.model,
            sources=tuple(sources),
            stages=tuple(stages),
            width=width,
            card=StackCard(
                data=card.data,
                source=card.source,
                runs=len(runs),
                tasks=len(set(table.tasks)),
                successes=int(truths.sum()),
                folds=FOLDS,
                seed=seed,
                all_runs=_figures(data, last),
                quality=quality([p for p, _ in judged], [truth for _, truth in judged]),
                worth=worth,
                unit=unit,
                plan=plan,
                wanted=kappa,
                planned=planned,
            ),
            fitted_to=FittedRuns.of(run.digests for run in runs),
        ),
        out_of_fold,
    )


def fit_stages(
    scores: NDArray[Any], truths: NDArray[Any], tasks: Sequence[str], seed: int
) -> list[Stage]:
    """Returns the regression for each number of judges called; NaN in `scores` is missing."""
    return [
        _fit_stage(scores[:, prefix], truths, tasks, seed)
        for prefix in _prefixes(scores.shape[1] - 1)
    ]


def _prefixes(judges: int) -> list[list[int]]:
    """Returns the known columns after each number of judges; the student's is always known."""
    return [list(range(count + 1)) for count in range(judges + 1)]


def sort_sources(
    runs: Sequence[FitExample], verdicts: Sequence[tuple[EvaluatorInfo, Mapping[str, Verdict]]]
) -> tuple[list[StackedSource], str, list[NDArray[Any]]]:
    """Returns the judges, the cheapest first; the unit of their costs; their scores of the runs."""
    import numpy as np

    rows = []
    for info, by_id in verdicts:
        scores = [as_score(by_id.get(run.id)) for run in runs]
        if all(score is None for score in scores):
            raise UsageError(f"{info.name}: it has no scored verdict on a labelled run")
        rows.append((StackedSource(judge=info, cost=_cost(by_id)), scores))
    unit = "usd" if all(source.cost.usd is not None for source, _ in rows) else "tokens"
    rows.sort(key=lambda row: _price(row[0], unit))
    columns = [np.array([np.nan if s is None else s for s in scores]) for _, scores in rows]
    return [source for source, _ in rows], unit, columns


def _cost(verdicts: Mapping[str, Verdict]) -> Cost:
    used = [verdict.usage for verdict in verdicts.values()]
    prices = [usage.usd for usage in used if usage.usd is not None]
    return Cost(
        usd=sum(prices) / len(used) if len(prices) == len(used) else None,
        tokens=sum(usage.prompt_tokens + usage.completion_tokens for usage in used) / len(used),
        calls=sum(usage.calls for usage in used) / len(used),
    )


def _price(source: StackedSource, unit: str) -> float:
    return source.cost.tokens if unit == "tokens" else source.cost.usd or 0.0


def _out_of_fold(table: FeatureTable, rows: Sequence[int], seed: int) -> list[float]:
    """Returns out-of-fold scores of students for these rows; each row's task is left out."""
    from math import nan

    truths = [table.runs[i].success for i in rows]
    fold_of = grouped_folds([table.tasks[i] for i in rows], truths, FOLDS, seed)
    found = dict.fromkeys(rows, nan)
    for fold in range(FOLDS):
        inside = [i for i, f in zip(rows, fold_of, strict=True) if f == fold]
        outside = [i for i, f in zip(rows, fold_of, strict=True) if f != fold]
        for i, p in zip(inside, fit_rows(table, outside, seed).probabilities(inside), strict=True):
            found[i] = nan if p is None else p
    return [found[i] for i in rows]


# The regression


def _fit_stage(
    scores: NDArray[Any], truths: NDArray[Any], tasks: Sequence[str], seed: int
) -> Stage:
    """Fits weights, strength and threshold to some runs; a missing score is NaN in `scores`."""
    import numpy as np

    lacking = np.isnan(scores)
    known = np.where(lacking, 0.5, scores)
    odds = np.vectorize(lambda score: clipped_logit(score, EDGE), otypes=[float])(known)
    spread = np.array([column[~gap].std() for column, gap in zip(odds.T, lacking.T, strict=True)])
    scale = np.divide(_SPREAD, spread, out=np.ones_like(spread), where=spread > _STILL)
    design = np.hstack([odds * scale, lacking])
    divisions = [
        np.array(grouped_folds(tasks, truths.tolist(), _INNER_FOLDS, seed + 1000 * i))
        for i in range(_DIVISIONS)
    ]

    def inner(strength: float, fold_of: NDArray[Any]) -> NDArray[Any]:
        margins = np.zeros(len(truths))
        for fold in range(_INNER_FOLDS):
            here = fold_of == fold
            weights = _regress(design[~here], truths[~here], strength)
            margins[here] = design[here] @ weights[:-1] + weights[-1]
        return margins

    signs = np.where(truths, 1.0, -1.0)
    first = {strength: inner(strength, divisions[0]) for strength in STRENGTHS}
    strength = min(STRENGTHS, key=lambda s: float(np.logaddexp(0, -first[s] * signs).sum()))
    margins = [first[strength], *(inner(strength, one) for one in divisions[1:])]
    weights = _regress(design, truths, strength)
    count = scores.shape[1]
    return Stage(
        bias=_rounded(weights[-1]),
        weights=tuple(_rounded(w * s) for w, s in zip(weights[:count], scale, strict=True)),
        missing=tuple(map(_rounded, weights[count:-1])),
        lacking=tuple(int(n) for n in lacking.sum(axis=0)),
        threshold=_threshold(margins, truths),
        edge=EDGE,
    )


def _regress(design: NDArray[Any], truths: NDArray[Any], strength: float) -> NDArray[Any]:
    """Fits a logistic regression with non-negative score weights; returns its weights and bias."""
    import numpy as np
    from scipy.optimize import minimize

    signs, width = np.where(truths, 1.0, -1.0), design.shape[1]

    def loss(weights: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        margins = (design @ weights[:-1] + weights[-1]) * signs
        slopes = -signs / (1 + np.exp(np.minimum(margins, 500)))
        value = strength * np.logaddexp(0, -margins).sum() + weights[:-1] @ weights[:-1] / 2
        return float(value), np.append(
            strength * (design.T @ slopes) + weights[:-1], strength * slopes.sum()
        )

    bounds = [(0.0 if i < width // 2 else None, None) for i in range(width)] + [(None, None)]
    found: NDArray[Any] = minimize(
        loss, np.zeros(width + 1), jac=True, method="L-BFGS-B", bounds=bounds
    ).x
    return found


def _threshold(margins: Sequence[NDArray[Any]], truths: NDArray[Any]) -> float:
    """Returns the threshold with the best held-out kappa, averaged over splits and neighbours."""
    import numpy as np

    tried = np.arange(_LOW, _HIGH, _STEP)
    kappas = np.zeros(len(tried))
    for margin in margins:
        calls = 1 / (1 + np.exp(-margin))[:, None] >= tried
        won = truths[:, None]
        kappas += np.nan_to_num(
            figures(
                np.stack(
                    [
                        (calls & won).sum(axis=0),
                        (calls & ~won).sum(axis=0),
                        (~calls & ~won).sum(axis=0),
                        (~calls & won).sum(axis=0),
                        np.zeros(len(tried)),
                    ],
                    axis=1,
                )
            )[:, _KAPPA]
        )
    padded = np.pad(kappas, _NEIGHBOURS // 2, mode="edge")
    smooth = np.convolve(padded, np.ones(_NEIGHBOURS) / _NEIGHBOURS, "valid")
    return round(float(tried[smooth.argmax()]), 2)


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


# The contribution of each source


def _decided(p: float | None, stage: Stage) -> tuple[float | None, bool]:
    return p, p is not None and p >= stage.threshold


def _figures(data: _Data, decisions: Decisions) -> StudentHeldOut:
    return held_out(data.truths.tolist(), [p for p, _ in decisions], [c for _, c in decisions])


def _worth(
    name: str, data: _Data, together: Decisions, rest: Decisions, scores: NDArray[Any]
) -> Worth:
    import numpy as np

    alone: Decisions = [
        (None, False) if np.isnan(s) else (float(s), bool(s >= 0.5)) for s in scores
    ]
    gain, ends = _kappa_gain(data, together, rest)
    over, over_ends = _kappa_gain(data, together, alone)
    return Worth(
        name=name,
        without=_figures(data, rest),
        kappa_gain=gain,
        kappa_interval=ends,
        alone=_figures(data, alone),
        over_alone=over,
        over_alone_interval=over_ends,
    )


def _kappa_gain(
    data: _Data, first: Decisions, second: Decisions
) -> tuple[float | None, tuple[float, float] | None]:
    """Returns the first kappa minus the second on runs that both judged, with its interval."""
    import numpy as np

    rows = [
        i for i in range(len(data.truths)) if first[i][0] is not None and second[i][0] is not None
    ]
    tables = np.hstack([_tables(data, rows, one) for one in (first, second)])

    # Halved, so that it lies between -1 and 1 as the interval's method expects.
    def statistic(sums: NDArray[Any]) -> NDArray[Any]:
        pair = [figures(sums[:, i : i + 5])[:, _KAPPA] for i in (0, 5)]
        halved: NDArray[Any] = ((pair[0] - pair[1]) / 2)[:, None]
        return halved

    return _with_interval(tables, statistic, 2.0)


def _tables(data: _Data, rows: Sequence[int], decisions: Decisions) -> NDArray[Any]:
    """Returns one row of counts (tp, fp, tn, fn, unscored) for each task."""
    calls = [None if decisions[i][0] is None else decisions[i][1] for i in rows]
    return count_outcomes([data.tasks[i] for i in rows], calls, data.truths[list(rows)].tolist())


def _with_interval(
    tables: NDArray[Any], statistic: Callable[[NDArray[Any]], NDArray[Any]], scale: float
) -> tuple[float | None, tuple[float, float] | None]:
    import numpy as np

    value = scale * float(statistic(tables.sum(axis=0, keepdims=True))[0, 0])
    if np.isnan(value):
        return None, None
    low, high = (scale * float(end[0]) for end in intervals(tables, statistic, (-1.0,)))
    return round(value, 4), (round(low, 4), round(high, 4)) if low < high else None


# The calling plan


def _walk(
    found: Sequence[Sequence[tuple[float | None, Stage]]], i: int, width: float
) -> tuple[float | None, bool, int]:
    """Returns the decision on a run by the plan of that width, and the number of judges called."""
    for calls, stage_found in enumerate(found):
        p, stage = stage_found[i]
        if calls == len(found) - 1 or stage.is_sure(p, width):
            return (*_decided(p, stage), calls)
    raise AssertionError("the last stage decides")


def _plan_point(
    data: _Data,
    sources: Sequence[StackedSource],
    unit: str,
    found: Sequence[Sequence[tuple[float | None, Stage]]],
    width: float,
    rows: Sequence[int] | None = None,
) -> PlanPoint:
    chosen = range(len(data.truths)) if rows is None else rows
    walked = {i: _walk(found, i, width) for i in chosen}
    decisions: Decisions = [(None, False)] * len(data.truths)
    for i, (p, call, _) in walked.items():
        decisions[i] = (p, call)
    shares = [sum(n > k for *_, n in walked.values()) / len(walked) for k in range(len(sources))]
    cost = sum(share * _price(source, unit) for share, source in zip(shares, sources, strict=True))
    kappa, ends = _with_interval(
        _tables(data, chosen, decisions), lambda sums: figures(sums)[:, [_KAPPA]], 1.0
    )
    names = [source.name for source in sources]
    return PlanPoint(
        width=width,
        asked={name: round(share, 4) for name, share in zip(names, shares, strict=True)},
        cost=_rounded(cost),
        kappa=kappa,
        interval=ends,
    )


def choose_width(plan: Sequence[PlanPoint], kappa: float) -> float:
    """Returns the width of the cheapest band that reaches a kappa. Raises UsageError if none."""
    reach = [point for point in plan if point.kappa is not None and point.kappa >= kappa]
    if not reach:
        most = max((point.kappa for point in plan if point.kappa is not None), default=0.0)
        raise UsageError(
            f"kappa {kappa:g} cannot be reached: held out, these judges together reach "
            f"{most:.3f}; lower it, or add a judge",
            parameters=("kappa",),
        )
    return min(reach, key=lambda point: (point.cost, -point.width)).width


def _planned(
    data: _Data,
    sources: Sequence[StackedSource],
    unit: str,
    found: Sequence[Sequence[tuple[float | None, Stage]]],
    kappa: float,
) -> Decisions:
    """Returns the plan's decision on each run, with the band chosen on the other folds."""
    decisions: Decisions = [(None, False)] * len(data.truths)
    for fold in range(FOLDS):
        others = [i for i, f in enumerate(data.fold_of) if f != fold]
        points = [_plan_point(data, sources, unit, found, width, others) for width in WIDTHS]
        try:
            width = choose_width(points, kappa)
        except UsageError:
            width = 1.0
        for i in [i for i, f in enumerate(data.fold_of) if f == fold]:
            p, call, _ = _walk(found, i, width)
            decisions[i] = (p, call)
    return decisions

"""Agreement metrics with 95 % intervals: confusion matrix, AUC, precision and recall by
threshold.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import isnan, sqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Statistic = Callable[[NDArray[Any]], NDArray[Any]]


FIGURES = (
    "accuracy",
    "balanced accuracy",
    "precision",
    "recall",
    "F1",
    "specificity",
    "NPV",
    "kappa",
    "accuracy, unscored as wrong",
)
# The least value of each; the greatest is 1.
LEAST = tuple(-1.0 if name == "kappa" else 0.0 for name in FIGURES)
Method = Literal["bootstrap", "t"]
DRAWS = 2000
SEED = 20240409
_STILL = 1e-12  # a standard error that is nothing but rounding
_Z = 1.959964  # the 97.5 % quantile of the normal distribution
_MAX_CELLS = 4_000_000  # of an array of draws: more are made in several batches
# Below this a bootstrap is too narrow: over 8 tasks 84 to 92 % of its 95 % intervals hold the truth
# (benchmarks/RESULTS.md).
FEW_CLUSTERS = 20
# of score, up to which clusters are counted in tables, where equal ones share one draw
_FEW_LEVELS = 8


def figures(tables: NDArray[Any]) -> NDArray[Any]:
    """One row of `FIGURES` for each row (true positive, false positive, true negative, false
    negative, unscored).

    NaN where a figure is undefined: its denominator is 0.
    """
    import numpy as np

    tp, fp, tn, fn, unscored = (tables[:, i].astype(float) for i in range(5))
    judged = tp + fp + tn + fn

    with np.errstate(divide="ignore", invalid="ignore"):
        accuracy = (tp + tn) / judged
        recall, specificity = tp / (tp + fn), tn / (tn + fp)
        chance = ((tp + fp) * (tp + fn) + (tn + fn) * (tn + fp)) / judged**2
        columns = [
            accuracy,
            (recall + specificity) / 2,
            tp / (tp + fp),
            recall,
            2 * tp / (2 * tp + fp + fn),
            specificity,
            tn / (tn + fn),
            np.where(chance < 1, (accuracy - chance) / (1 - chance), np.nan),
            (tp + tn) / (judged + unscored),
        ]
    return np.stack(columns, axis=1)


def intervals(
    clusters: NDArray[Any], statistic: Statistic = figures, least: Sequence[float] = LEAST
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Lower and upper ends of 95 % intervals of a statistic of clusters (rows of counts), found as
    `choose_method` says.

    `statistic` takes summed rows and gives one row of figures for each; `least` has the least value
    that each can have, and the greatest is 1. Both ends are NaN, or the same, where no interval can
    be found.
    """
    if choose_method(len(clusters)) == "bootstrap":
        return bootstrap(clusters, statistic)
    return jackknife(clusters, statistic, least)


def choose_method(clusters: int) -> Method:
    """How intervals of so many clusters are found."""
    return "bootstrap" if clusters >= FEW_CLUSTERS else "t"


def jackknife(
    clusters: NDArray[Any], statistic: Statistic = figures, least: Sequence[float] = LEAST
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Lower and upper ends of 95 % intervals for fewer than 20 clusters, by leaving out one cluster
    at a time.

    Student's t with one degree of freedom less than there are clusters, on the scale of log odds,
    so that both ends lie within the range of the figure. NaN for a single cluster, for a figure at
    an end of its range or that no cluster moves, and where leaving out a cluster leaves a figure
    undefined.
    """
    import numpy as np
    from scipy.special import stdtrit

    count, lowest = len(clusters), np.asarray(least)
    total = clusters.sum(axis=0, keepdims=True)
    value = statistic(total)[0]
    if count < 2:
        return np.full_like(value, np.nan), np.full_like(value, np.nan)
    # as in printed tables, and so in figures that are published
    quantile = np.round(stdtrit(count - 1, 0.975), 3)
    with np.errstate(divide="ignore", invalid="ignore"):
        without = statistic(total - clusters)
        error = np.sqrt((count - 1) / count * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
        share = (value - lowest) / (1 - lowest)
        odds, spread = (
            np.log(share / (1 - share)),
            quantile * error / (1 - lowest) / (share * (1 - share)),
        )
        low, high = (
            lowest + (1 - lowest) / (1 + np.exp(-(odds + side * spread))) for side in (-1, 1)
        )
    usable = np.isfinite(odds) & (error > _STILL)
    return np.where(usable, low, np.nan), np.where(usable, high, np.nan)


def bootstrap(
    clusters: NDArray[Any], statistic: Statistic = figures
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Lower and upper ends of 95 % percentile intervals of a statistic, when whole clusters (rows
    of counts) are redrawn.

    `statistic` takes summed rows, one a draw, and gives one row of figures for each; without one,
    `FIGURES`. Draws where a figure is undefined say nothing about it; NaN where all are. The seed
    is fixed.
    """
    import numpy as np

    # Clusters with equal counts are interchangeable: drawing kinds with their shares is the same
    # and far cheaper.
    kinds, shares = np.unique(clusters, axis=0, return_counts=True)
    generator = np.random.default_rng(SEED)
    batch = max(1, _MAX_CELLS // len(kinds))
    drawn = []
    for start in range(0, DRAWS, batch):
        weights = generator.multinomial(
            len(clusters), shares / len(clusters), size=min(batch, DRAWS - start)
        )
        drawn.append(statistic(weights @ kinds))
    return percentiles(np.concatenate(drawn))


def percentiles(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The 2.5th and the 97.5th percentile of every column, passing over NaN; NaN where a column
    holds nothing else.
    """
    import numpy as np

    low, high = np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    defined = ~np.isnan(values).all(axis=0)
    low[defined], high[defined] = np.nanquantile(values[:, defined], (0.025, 0.975), axis=0)
    return low, high


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share among `n` independent trials; it has a width at 0 and 1
    too.
    """
    centre = share + _Z**2 / (2 * n)
    spread = _Z * sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def auc(scores: Sequence[float], truths: Sequence[bool]) -> float | None:
    """The chance that a random success has a higher score than a random failure, ties counting
    half; None without both.
    """
    import numpy as np

    value, right = np.asarray(scores, dtype=float), np.asarray(truths, dtype=bool)
    _, level = np.unique(value, return_inverse=True)
    area = float(
        _areas(np.bincount(level, weights=right)[None], np.bincount(level, weights=~right)[None])[0]
    )
    return None if isnan(area) else area


def auc_interval(
    scores: Sequence[float], truths: Sequence[bool], clusters: Sequence[Hashable]
) -> tuple[float, float] | None:
    """The 95 % interval of `auc`, found as `choose_method` the number of clusters says; None where
    there is none.

    `clusters` names the cluster of each row. The seed is fixed.
    """
    import numpy as np

    value, right = np.asarray(scores, dtype=float), np.asarray(truths, dtype=bool)
    names = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    cluster = np.fromiter((names[name] for name in clusters), dtype=np.intp, count=len(value))
    levels, level = np.unique(value, return_inverse=True)
    if len(levels) <= _FEW_LEVELS or choose_method(len(names)) == "t":
        tables = np.zeros((len(names), 2 * len(levels)), dtype=np.int64)
        np.add.at(tables, (cluster, np.where(right, level, level + len(levels))), 1)
        low, high = intervals(
            tables, lambda drawn: _areas(*np.split(drawn, 2, axis=1))[:, None], (0.0,)
        )
    else:
        low, high = percentiles(_drawn_areas(level, right, cluster, len(names))[:, None])
    return None if np.isnan(low[0]) else (float(low[0]), float(high[0]))


def auc_difference_interval(
    first: Sequence[float],
    second: Sequence[float],
    truths: Sequence[bool],
    clusters: Sequence[Hashable],
) -> tuple[float | None, tuple[float, float] | None]:
    """The first scores' `auc` less the second's, and its 95 % interval, for which both are drawn
    together; None where undefined, the interval also below 20 clusters.

    `clusters` names the cluster of each row. The seed is fixed.
    """
    import numpy as np

    right = np.asarray(truths, dtype=bool)
    areas = [auc(scores, truths) for scores in (first, second)] if len(right) else [None, None]
    if areas[0] is None or areas[1] is None:
        return None, None
    names = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    if choose_method(len(names)) == "t":
        return areas[0] - areas[1], None
    cluster = np.fromiter((names[name] for name in clusters), dtype=np.intp, count=len(right))
    drawn = [
        _drawn_areas(np.unique(scores, return_inverse=True)[1], right, cluster, len(names))
        for scores in (first, second)
    ]
    low, high = percentiles((drawn[0] - drawn[1])[:, None])
    return areas[0] - areas[1], None if np.isnan(low[0]) else (float(low[0]), float(high[0]))


def _areas(successes: NDArray[Any], failures: NDArray[Any]) -> NDArray[Any]:
    """The AUC of each row of counts by level of score, the lowest level first; NaN where one kind
    is missing.
    """
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        beaten = (successes * (failures.cumsum(axis=1) - failures / 2)).sum(axis=1)
        return np.asarray(beaten / (successes.sum(axis=1) * failures.sum(axis=1)))


def _drawn_areas(
    level: NDArray[Any], right: NDArray[Any], cluster: NDArray[Any], clusters: int
) -> NDArray[Any]:
    """The AUC of every draw. Rows are sorted once: a draw only changes how often each of them
    counts.
    """
    import numpy as np

    order = np.argsort(level, kind="stable")
    starts = np.flatnonzero(np.diff(level[order], prepend=-1))
    sides, cluster = [side[order].astype(float) for side in (right, ~right)], cluster[order]
    generator = np.random.default_rng(SEED)
    drawn = np.empty(DRAWS)
    for i in range(DRAWS):
        weights = np.bincount(generator.integers(0, clusters, clusters), minlength=clusters)[
            cluster
        ]
        drawn[i] = _areas(*(np.add.reduceat(weights * side, starts)[None] for side in sides))[0]
    return drawn


def precision_recall(scores: Sequence[float], truths: Sequence[bool]) -> tuple[OperatingPoint, ...]:
    """One point for each distinct score taken as the threshold, the highest first; empty when
    nothing is a success.
    """
    import numpy as np

    value, right = np.asarray(scores, dtype=float), np.asarray(truths, dtype=bool)
    levels, level = np.unique(-value, return_inverse=True)
    hits, called = np.bincount(level, weights=right).cumsum(), np.bincount(level).cumsum()
    if not right.any():
        return ()
    points = zip(
        (-levels).tolist(), (hits / called).tolist(), (hits / hits[-1]).tolist(), strict=True
    )
    return tuple(OperatingPoint(*point) for point in points)


class OperatingPoint(NamedTuple):
    """Precision and recall when a score of `threshold` or more counts as success."""

    threshold: float
    precision: float
    recall: float

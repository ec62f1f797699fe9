"""Computes agreement metrics with 95 % intervals: confusion matrix, AUC, precision-recall curve."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import isnan, sqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Statistic = Callable[[NDArray[Any]], NDArray[Any]]


FIGURES = (
    "accuracy", "balanced accuracy", "precision", "recall", "F1", "specificity", "NPV", "kappa",
    "accuracy, unscored as wrong",
)  # fmt: skip
# The minimum of each figure; the maximum is 1.
LEAST = tuple(-1.0 if name == "kappa" else 0.0 for name in FIGURES)
Method = Literal["bootstrap", "t"]
DRAWS = 2000
SEED = 20240409
_STILL = 1e-12  # a smaller standard error is only rounding error
_Z = 1.959964  # the 97.5 % quantile of the normal distribution
_MAX_CELLS = 100_000  # of an array of draws; larger ones are split into batches
# With fewer clusters, bootstrap intervals are too narrow: with 8 tasks, the coverage of 95 %
# intervals is 84 to 92 % (benchmarks/RESULTS.md).
FEW_CLUSTERS = 20
# maximum number of distinct scores for which clusters are counted in tables, where equal clusters
# share one draw
_FEW_LEVELS = 8


def figures(tables: NDArray[Any]) -> NDArray[Any]:
    """Computes one row of `FIGURES` for each row of counts.

    The counts are true positives, false positives, true negatives, false negatives and unscored.

    A figure is NaN if it is undefined, because its denominator is 0.
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
    """Computes 95 % intervals of a statistic of clusters (rows of counts), by `choose_method`.

    `statistic` takes summed rows and returns one row of figures for each. `least` has the minimum
    of each figure; the maximum is 1. Both ends are NaN or equal if there is no interval.
    """
    if choose_method(len(clusters)) == "bootstrap":
        return bootstrap(clusters, statistic)
    return jackknife(clusters, statistic, least)


def choose_method(clusters: int) -> Method:
    """Returns the interval method for a number of clusters."""
    return "bootstrap" if clusters >= FEW_CLUSTERS else "t"


def jackknife(
    clusters: NDArray[Any], statistic: Statistic = figures, least: Sequence[float] = LEAST
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Computes jackknife 95 % intervals for fewer than 20 clusters.

    One cluster is left out at a time. The interval uses Student's t, with the number of clusters
    minus one degrees of freedom, on the scale of log odds, so that both ends are in the range of
    the figure. The ends are NaN for a single cluster, for a figure at an end of its range or
    without variance between clusters, and if leaving out a cluster makes a figure undefined.
    """
    import numpy as np
    from scipy.special import stdtrit

    count, lowest = len(clusters), np.asarray(least)
    total = clusters.sum(axis=0, keepdims=True)
    value = statistic(total)[0]
    if count < 2:
        return np.full_like(value, np.nan), np.full_like(value, np.nan)
    # rounded as in printed tables, to match published figures
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
    clusters: NDArray[Any], statistic: Statistic = figures, seed: int = SEED
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Computes 95 % percentile intervals of a statistic by resampling clusters (rows of counts).

    `statistic` takes summed rows, one per draw, and returns one row of figures for each; the
    default is `FIGURES`. Draws in which a figure is undefined are ignored for this figure; the ends
    are NaN if it is undefined in all draws.
    """
    import numpy as np

    # Clusters with equal counts are interchangeable, so draw from the distinct rows by their
    # frequency, which is equivalent and much faster.
    kinds, shares = np.unique(clusters, axis=0, return_counts=True)
    generator = np.random.default_rng(seed)
    batch = max(1, _MAX_CELLS // len(kinds))
    drawn = []
    for start in range(0, DRAWS, batch):
        weights = generator.multinomial(
            len(clusters), shares / len(clusters), size=min(batch, DRAWS - start)
        )
        drawn.append(statistic(weights @ kinds))
    return percentiles(np.concatenate(drawn))


def percentiles(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the 2.5th and 97.5th percentiles of every column, ignoring NaN; NaN if a column has
    no other value.
    """
    import numpy as np

    # As np.nanquantile, to the last bit; that one imports numpy.ma, which takes 1.5 MB.
    ordered, columns = np.sort(values, axis=0), np.arange(values.shape[1])
    last = np.maximum(len(values) - 1 - np.isnan(values).sum(axis=0), 0)  # NaN is sorted last

    def at(share: float) -> NDArray[Any]:
        place = last * share
        before = np.floor(place).astype(np.intp)
        left, right = ordered[before, columns], ordered[np.minimum(before + 1, last), columns]
        part = place - before
        return np.asarray(
            np.where(part < 0.5, left + (right - left) * part, right - (right - left) * (1 - part))
        )

    return at(0.025), at(0.975)


def sum_clusters(clusters: Iterable[Hashable], rows: ArrayLike) -> NDArray[Any]:
    """Returns the sums of rows of numbers by cluster, in the order of their first rows.

    `clusters` names the cluster of each row.
    """
    import numpy as np

    values, names = np.asarray(rows), list(clusters)
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    sums = np.zeros((len(number), *values.shape[1:]), dtype=values.dtype)
    np.add.at(sums, [number[name] for name in names], values)
    return sums


def count_outcomes(
    clusters: Iterable[Hashable], calls: Iterable[bool | None], truths: Iterable[bool]
) -> NDArray[Any]:
    """Returns one row of counts (tp, fp, tn, fn, unscored) for each cluster, for `figures`."""
    import numpy as np

    columns = [
        4 if call is None else 2 * (not call) + (bool(call) != bool(truth))
        for call, truth in zip(calls, truths, strict=True)
    ]
    return sum_clusters(clusters, np.eye(5, dtype=np.int64)[np.array(columns, dtype=np.intp)])


def ratio_of_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Returns the first half of the columns divided by the second: figures of `intervals`."""
    import numpy as np

    middle = rows.shape[1] // 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(rows[:, :middle] / rows[:, middle:])


def ratio_interval(rows: ArrayLike, least: float) -> tuple[float, float] | None:
    """Returns the 95 % interval of a ratio of sums over clusters; None if there is none.

    `rows` has a numerator and a denominator for each cluster, and `least` is the minimum ratio; the
    maximum is 1.
    """
    import numpy as np

    low, high = (float(end[0]) for end in intervals(np.asarray(rows), ratio_of_rows, (least,)))
    return (low, high) if low < high else None


def wilson(share: float, n: int) -> tuple[float, float]:
    """Returns the 95 % Wilson interval of a proportion of `n` independent trials.

    It has a positive width also at 0 and 1.
    """
    centre = share + _Z**2 / (2 * n)
    spread = _Z * sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def auc(scores: Sequence[float], truths: Sequence[bool]) -> float | None:
    """Returns the AUC: the probability that a random success scores higher than a random failure.

    Ties count half. Returns None without successes or without failures.
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
    """Returns the 95 % interval of `auc`, by the method of `choose_method`; None if there is none.

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


def _areas(successes: NDArray[Any], failures: NDArray[Any]) -> NDArray[Any]:
    """Returns the AUC of each row of counts by score level, the lowest first.

    It is NaN without successes or without failures.
    """
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        beaten = (successes * (failures.cumsum(axis=1) - failures / 2)).sum(axis=1)
        return np.asarray(beaten / (successes.sum(axis=1) * failures.sum(axis=1)))


def _drawn_areas(
    level: NDArray[Any], right: NDArray[Any], cluster: NDArray[Any], clusters: int
) -> NDArray[Any]:
    """Returns the AUC of every draw.

    Rows are sorted once, because a draw changes only how often each row counts.
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
    """Returns a point for each distinct score, the highest first; empty without successes."""
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
    """Precision and recall if a score of at least `threshold` counts as a success."""

    threshold: float
    precision: float
    recall: float

"""Figures of a two-by-two table, and bootstrap intervals for them. All of it works on arrays, one table a row."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

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
DRAWS = 2000
SEED = 20240409
_Z = 1.959964  # the 97.5 % quantile of the normal distribution
_CELLS = 4_000_000


def figures(tables: NDArray[Any]) -> NDArray[Any]:
    """One row of `FIGURES` for each row (true positive, false positive, true negative, false negative, unscored).

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


def bootstrap(clusters: NDArray[Any], statistic: Statistic = figures) -> tuple[NDArray[Any], NDArray[Any]]:
    """Lower and upper ends of 95 % percentile intervals of a statistic, when whole clusters (rows of counts) are drawn anew.

    `statistic` takes summed rows, one a draw, and gives one row of figures for each; without one, `FIGURES`.
    Draws where a figure is undefined say nothing about it; NaN where all are. The seed is fixed.
    """
    import numpy as np

    # Clusters with equal counts are interchangeable: drawing kinds with their shares is the same and far cheaper.
    kinds, shares = np.unique(clusters, axis=0, return_counts=True)
    generator = np.random.default_rng(SEED)
    batch = max(1, _CELLS // len(kinds))
    drawn = []
    for start in range(0, DRAWS, batch):
        weights = generator.multinomial(len(clusters), shares / len(clusters), size=min(batch, DRAWS - start))
        drawn.append(statistic(weights @ kinds))
    return percentiles(np.concatenate(drawn))


def percentiles(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The 2.5th and the 97.5th percentile of every column, passing over NaN; NaN where a column holds nothing else."""
    import numpy as np

    low, high = np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    known = ~np.isnan(values).all(axis=0)
    low[known], high[known] = np.nanquantile(values[:, known], (0.025, 0.975), axis=0)
    return low, high


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share among `n` independent trials; it has a width at 0 and 1 too."""
    centre = share + _Z**2 / (2 * n)
    spread = _Z * sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)

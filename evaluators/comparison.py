"""Two judges on the same labelled trajectories: which is right more often, and whether that may be chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb, erfc, sqrt
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import UsageError
from prill.evaluators.intervals import bootstrap
from prill.evaluators.pairing import Pairing, clusters_of
from prill.types import EvaluatorInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Below this many discordant pairs the chi-square approximation is not to be trusted (Edwards 1948; Fagerland et al. 2013).
_FEW = 25

Test = Literal["exact binomial", "chi-square with continuity correction"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How two judges differ on the `both` labelled trajectories that both judged.

    `difference` is the first's accuracy less the second's, with the 95 % interval of a bootstrap that draws whole tasks and
    keeps a trajectory's two verdicts together. `p` is McNemar's, two-sided; it takes trajectories for independent, so
    where runs share tasks the interval is the safer guide. `only_first` were judged by the first alone, `only_second` likewise.
    """

    other: EvaluatorInfo
    both: int
    only_first: int
    only_second: int
    first_right: int
    second_right: int
    both_right: int
    both_wrong: int
    difference: float
    interval: tuple[float, float] | None
    p: float
    test: Test


def compare(first: Pairing, second: Pairing, tasks: Mapping[str, str] | None = None) -> Comparison:
    """Compares two judges. `first_right` counts the trajectories on which only the first agrees with the label.

    Raises UsageError when no labelled trajectory was judged by both.
    """
    import numpy as np

    judged = [p for p in first.pairs if p.verdict.success is not None]
    theirs = {p.verdict.id: p.verdict.success for p in second.pairs if p.verdict.success is not None}
    both = [p for p in judged if p.verdict.id in theirs]
    if not both:
        raise UsageError("no labelled trajectory was judged by both judges")
    right = [(p.verdict.success == p.truth, theirs[p.verdict.id] == p.truth) for p in both]
    row_of: dict[tuple[bool, str], int] = {}
    rows = [row_of.setdefault(name, len(row_of)) for name in clusters_of(both, tasks or {})]
    tables = np.zeros((len(row_of), 2), dtype=np.int64)
    np.add.at(tables, rows, [(int(mine) - int(other), 1) for mine, other in right])
    low, high = bootstrap(tables, _share)
    b, c = (right.count(kind) for kind in ((True, False), (False, True)))
    p, test = mcnemar(b, c)
    return Comparison(
        other=second.evaluator,
        both=len(both),
        only_first=len(judged) - len(both),
        only_second=len(theirs) - len(both),
        first_right=b,
        second_right=c,
        both_right=right.count((True, True)),
        both_wrong=right.count((False, False)),
        difference=(b - c) / len(both),
        interval=(float(low[0]), float(high[0])) if low[0] < high[0] else None,
        p=p,
        test=test,
    )


def mcnemar(b: int, c: int) -> tuple[float, Test]:
    """The two-sided p of McNemar's test for `b` and `c` discordant pairs, and how it was found: exact below 25 of them."""
    n = b + c
    if n < _FEW:
        return min(1.0, 2 * sum(comb(n, k) for k in range(min(b, c) + 1)) / 2**n), "exact binomial"
    squared = max(0, abs(b - c) - 1) ** 2 / n
    return erfc(sqrt(squared / 2)), "chi-square with continuity correction"


def _share(drawn: NDArray[Any]) -> NDArray[Any]:
    shares: NDArray[Any] = drawn[:, :1] / drawn[:, 1:]
    return shares

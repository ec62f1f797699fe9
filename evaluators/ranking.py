"""How well scores put successes before failures, and how well a judge ranks agents: AUC, precision-recall, Kendall's tau."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from prill.evaluators.intervals import DRAWS, SEED, bootstrap, percentiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prill.evaluators.pairing import Pairing

_FEW = 8  # levels of score up to which clusters are counted in tables, where equal ones share one draw


class OperatingPoint(NamedTuple):
    """Precision and recall when a score of `threshold` or more counts as success."""

    threshold: float
    precision: float
    recall: float


@dataclass(frozen=True)
class AgentRate:
    """How often one agent succeeded, on the same `n` trajectories, in the judge's eyes and by the labels."""

    agent: str
    n: int
    judged: float
    labelled: float


@dataclass(frozen=True)
class AgentRanking:
    """Agents, the best by label first. `tau` is Kendall's tau-b of the two orders; None where one of them is all ties."""

    agents: tuple[AgentRate, ...]
    tau: float | None


def auc(scores: Sequence[float], truths: Sequence[bool]) -> float | None:
    """The chance that a random success has a higher score than a random failure, ties counting half; None without both."""
    import numpy as np

    value, right = np.asarray(scores, dtype=float), np.asarray(truths, dtype=bool)
    _, level = np.unique(value, return_inverse=True)
    area = float(_areas(np.bincount(level, weights=right)[None], np.bincount(level, weights=~right)[None])[0])
    return None if isnan(area) else area


def auc_interval(scores: Sequence[float], truths: Sequence[bool], clusters: Sequence[Hashable]) -> tuple[float, float] | None:
    """The 95 % percentile interval of `auc` when whole clusters are drawn anew; None where no draw defines it.

    `clusters` names the cluster of each row. The seed is fixed.
    """
    import numpy as np

    value, right = np.asarray(scores, dtype=float), np.asarray(truths, dtype=bool)
    names = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    cluster = np.fromiter((names[name] for name in clusters), dtype=np.intp, count=len(value))
    levels, level = np.unique(value, return_inverse=True)
    if len(levels) <= _FEW:
        tables = np.zeros((len(names), 2 * len(levels)), dtype=np.int64)
        np.add.at(tables, (cluster, np.where(right, level, level + len(levels))), 1)
        low, high = bootstrap(tables, lambda drawn: _areas(*np.split(drawn, 2, axis=1))[:, None])
    else:
        low, high = percentiles(_drawn_areas(level, right, cluster, len(names))[:, None])
    return None if np.isnan(low[0]) else (float(low[0]), float(high[0]))


def _areas(successes: NDArray[Any], failures: NDArray[Any]) -> NDArray[Any]:
    """The AUC of each row of counts by level of score, the lowest level first; NaN where one kind is missing."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        beaten = (successes * (failures.cumsum(axis=1) - failures / 2)).sum(axis=1)
        return np.asarray(beaten / (successes.sum(axis=1) * failures.sum(axis=1)))


def _drawn_areas(level: NDArray[Any], right: NDArray[Any], cluster: NDArray[Any], clusters: int) -> NDArray[Any]:
    """The AUC of every draw. Rows are sorted once: a draw only changes how often each of them counts."""
    import numpy as np

    order = np.argsort(level, kind="stable")
    starts = np.flatnonzero(np.diff(level[order], prepend=-1))
    sides, cluster = [side[order].astype(float) for side in (right, ~right)], cluster[order]
    generator = np.random.default_rng(SEED)
    drawn = np.empty(DRAWS)
    for i in range(DRAWS):
        weights = np.bincount(generator.integers(0, clusters, clusters), minlength=clusters)[cluster]
        drawn[i] = _areas(*(np.add.reduceat(weights * side, starts)[None] for side in sides))[0]
    return drawn


def precision_recall(scores: Sequence[float], truths: Sequence[bool]) -> tuple[OperatingPoint, ...]:
    """One point for each distinct score taken as the threshold, the highest first; empty when nothing is a success."""
    import numpy as np

    value, right = np.asarray(scores, dtype=float), np.asarray(truths, dtype=bool)
    levels, level = np.unique(-value, return_inverse=True)
    hits, chosen = np.bincount(level, weights=right).cumsum(), np.bincount(level).cumsum()
    if not right.any():
        return ()
    points = zip((-levels).tolist(), (hits / chosen).tolist(), (hits / hits[-1]).tolist(), strict=True)
    return tuple(OperatingPoint(*point) for point in points)


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b of two lists of values of the same things; None where a list holds only ties."""
    agreed = untied_first = untied_second = 0
    for i in range(len(first)):
        for j in range(i):
            a, b = _sign(first[i] - first[j]), _sign(second[i] - second[j])
            agreed += a * b
            untied_first += a != 0
            untied_second += b != 0
    return agreed / sqrt(untied_first * untied_second) if untied_first and untied_second else None


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def rank_agents(pairing: Pairing, agents: Mapping[str, str]) -> AgentRanking | None:
    """The agents' success rates by judge and by label, and how far the two orders agree; None with fewer than two agents.

    `agents` maps ids to agents; trajectories that it lacks, and unscored ones, are left out on both sides.
    """
    outcomes: dict[str, list[tuple[bool, bool]]] = {}
    for pair in pairing.pairs:
        agent = agents.get(pair.verdict.id)
        if agent is not None and pair.verdict.success is not None:
            outcomes.setdefault(agent, []).append((pair.verdict.success, pair.truth))
    if len(outcomes) < 2:
        return None
    rates = []
    for agent, both in outcomes.items():
        judged, labelled = (sum(side) / len(both) for side in zip(*both, strict=True))
        rates.append(AgentRate(agent, len(both), judged, labelled))
    rates.sort(key=lambda rate: (-rate.labelled, rate.agent))
    return AgentRanking(tuple(rates), kendall_tau([rate.judged for rate in rates], [rate.labelled for rate in rates]))

"""Compares judges on the same trajectories, rankings of agents, and slices of a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, erfc, isnan, sqrt
from typing import TYPE_CHECKING, Any, Literal

from prill.errors import UsageError
from prill.evaluators.agreement.agreement import Agreement, Pair, Pairing, measure_agreement, shares
from prill.evaluators.agreement.figure import Figure
from prill.evaluators.fitted.overlap import Overlap, find_overlap
from prill.evaluators.labels import cluster
from prill.evaluators.metrics import (
    FIGURES,
    Method,
    choose_method,
    count_outcomes,
    figures,
    intervals,
    ratio_interval,
    sum_clusters,
)
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Below this number of discordant pairs the chi-square approximation is unreliable (Edwards 1948;
# Fagerland et al. 2013).
_FEW_PAIRS = 25
Test = Literal["exact binomial", "chi-square with continuity correction"]
NONE = "(none)"  # the slice of trajectories without a value
# With 30 trajectories, the 95 % interval of a share near 0.5 has a width of 0.34. Precision and
# recall depend on one outcome only.
_SMALL, _FEW_OF_ONE = 30, 10
_SLICE_FIGURES = ("accuracy", "balanced accuracy", "precision", "recall", "kappa")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The difference of two judges on the `both` labelled trajectories that both judged.

    `difference` is the first accuracy minus the second, with a 95 % interval that resamples or
    leaves out whole tasks (`method`: bootstrap, or t for fewer than 20 tasks) and keeps a
    trajectory's two verdicts together. `p` is the two-sided p-value of McNemar's test. The test
    assumes independent trajectories; if runs share tasks, rely on the interval. `only_first`
    trajectories were judged only by the first judge, and `only_second` only by the second. `fitted`
    and `other_fitted` count the `both` trajectories that each judge was fitted on, which bias the
    comparison.
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
    method: Method = "bootstrap"
    p: float
    test: Test
    fitted: Overlap | None = None
    other_fitted: Overlap | None = None


@dataclass(frozen=True)
class AgentRate:
    """The success rates of one agent on the same `n` trajectories, by judge and by labels."""

    agent: str
    n: int
    judged: float
    labelled: float


@dataclass(frozen=True)
class AgentRanking:
    """Agents, the best by label first.

    `tau` is Kendall's tau-b of the two rankings; None if one ranking has only ties.
    """

    agents: tuple[AgentRate, ...]
    tau: float | None


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A slice of a data set: its labelled and unscored trajectories, and the figures on the scored
    ones.

    `success` is the share of label successes among all labelled ones. A figure is None if it is
    undefined. `small` means that fewer than 30 were judged, or that fewer than 10 of them are
    successes or failures: too few to compare judges.
    """

    by: str
    value: str
    n: int
    unscored: int
    success: float
    tp: int
    fp: int
    tn: int
    fn: int
    accuracy: float | None
    balanced_accuracy: float | None
    precision: float | None
    recall: float | None
    kappa: float | None
    small: bool


# Two judges


def compare(first: Pairing, second: Pairing, tasks: Mapping[str, str] | None = None) -> Comparison:
    """Compares two judges on the labelled trajectories that both judged.

    Args:
        first: Verdicts of the first judge, joined with labels by `pair`.
        second: Verdicts of the second judge, joined with the same labels.
        tasks: The task of each trajectory id; the interval then resamples tasks. None: resample
            trajectories.

    Returns:
        The difference of the accuracies (first minus second, in [-1, 1]) with its 95 % interval,
        and McNemar's test. `first_right` counts the trajectories on which only the first judge
        agrees with the label.

    Raises:
        UsageError: No labelled trajectory was judged by both.
    """
    judged = [p for p in first.pairs if p.verdict.success is not None]
    others = {p.verdict.id: p.verdict for p in second.pairs if p.verdict.success is not None}
    outcomes = {id: verdict.success for id, verdict in others.items()}
    both = [p for p in judged if p.verdict.id in outcomes]
    if not both:
        raise UsageError("no labelled trajectory was judged by both judges")
    right = [(p.verdict.success == p.truth, outcomes[p.verdict.id] == p.truth) for p in both]
    tables = sum_clusters(
        [cluster(p.verdict.id, tasks) for p in both],
        [(int(right_a) - int(right_b), 1) for right_a, right_b in right],
    )
    b, c = (right.count(kind) for kind in ((True, False), (False, True)))
    p, test = mcnemar(b, c)
    return Comparison(
        other=second.evaluator,
        both=len(both),
        only_first=len(judged) - len(both),
        only_second=len(outcomes) - len(both),
        first_right=b,
        second_right=c,
        both_right=right.count((True, True)),
        both_wrong=right.count((False, False)),
        difference=(b - c) / len(both),
        interval=ratio_interval(tables, -1.0),
        method=choose_method(len(tables)),
        p=p,
        test=test,
        fitted=find_overlap(pair.verdict for pair in both),
        other_fitted=find_overlap(others[pair.verdict.id] for pair in both),
    )


def mcnemar(b: int, c: int) -> tuple[float, Test]:
    """Returns the two-sided p-value of McNemar's test for `b` and `c` discordant pairs, and the
    method.

    The test is exact below 25 discordant pairs.
    """
    n = b + c
    if n < _FEW_PAIRS:
        return exact_mcnemar(b, c), "exact binomial"
    squared = max(0, abs(b - c) - 1) ** 2 / n
    return erfc(sqrt(squared / 2)), "chi-square with continuity correction"


def exact_mcnemar(b: int, c: int) -> float:
    """Returns the two-sided p-value of the exact (binomial) test of discordant pairs."""
    n = b + c
    return min(1.0, float(2 * sum(comb(n, k) for k in range(min(b, c) + 1)) / 2**n))


# Agents


def rank_agents(pairing: Pairing, agents: Mapping[str, str]) -> AgentRanking | None:
    """Ranks agents by success rate, once by the judge and once by the labels.

    Args:
        pairing: Verdicts and labels, joined by `pair`. Unscored verdicts are left out on both
            sides.
        agents: The agent of each trajectory id. Trajectories without an agent are left out.

    Returns:
        The success rates, in [0, 1], and Kendall's tau of the two rankings, in [-1, 1]; None with
        fewer than two agents.
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
    return AgentRanking(
        tuple(rates),
        kendall_tau([rate.judged for rate in rates], [rate.labelled for rate in rates]),
    )


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Returns Kendall's tau-b of two lists of values; None if a list contains only ties."""
    import numpy as np

    one, other = (np.sign(np.subtract.outer(values, values)) for values in (first, second))
    untied = sqrt(np.count_nonzero(one) * np.count_nonzero(other))
    return float((one * other).sum() / untied) if untied else None


# Several judges


@dataclass(frozen=True, kw_only=True)
class JudgeRow:
    """One of several judges.

    Args:
        name: Its title; with its files, if several have this title.
        files: Its verdict files.
        scored: The number of runs that it scored, with or without a label.
        success: The success rate of these runs.
        unscored: The number of unscored runs by reason.
        usage: Calls, tokens and cost of its verdicts.
        seconds: The time that they took together.
        agreement: Its agreement with the labels.
        ranking: The agents by judge and by label; None with fewer than two agents.
    """

    name: str
    files: tuple[str, ...]
    scored: int
    success: Figure
    unscored: Mapping[str, int]
    usage: Usage
    seconds: float
    agreement: Agreement
    ranking: AgentRanking | None


@dataclass(frozen=True, kw_only=True)
class JudgePair:
    """Two judges on the runs that both score, with or without a label.

    Args:
        first: The name of one judge.
        second: The name of the other.
        runs: The number of these runs.
        same: The share of equal verdicts, in [0, 1].
        kappa: Cohen's kappa.
        tau: Kendall's tau-b of the two rankings of the agents. None: there are fewer than two
            agents, or a ranking has only ties.
        labelled: The difference of their accuracies; None if both score no labelled run.
    """

    first: str
    second: str
    runs: int
    same: Figure
    kappa: Figure
    tau: float | None
    labelled: Comparison | None


def measure_judge(
    name: str,
    files: Sequence[str],
    verdicts: Mapping[str, Verdict],
    pairing: Pairing,
    tasks: Mapping[str, str] | None,
    agents: Mapping[str, str],
) -> JudgeRow:
    """Computes the figures of one of several judges from its verdicts by trajectory id, and from
    these joined with labels by `pair`; intervals are over tasks, or trajectories without `tasks`.
    """
    scores = [(id, float(v.success)) for id, v in verdicts.items() if v.success is not None]
    success = Figure("success", 0.0, undefined=True)
    if scores:
        counts = sum_clusters([cluster(id, tasks) for id, _ in scores], [(x, 1) for _, x in scores])
        success = shares(("success",), counts)[0]
    reasons = Counter(str(v.unscored) for v in verdicts.values() if v.unscored)
    return JudgeRow(
        name=name,
        files=tuple(files),
        scored=len(scores),
        success=success,
        unscored=dict(reasons.most_common()),
        usage=sum((verdict.usage for verdict in verdicts.values()), start=Usage()),
        seconds=sum(verdict.seconds for verdict in verdicts.values()),
        agreement=measure_agreement(pairing, tasks),
        ranking=rank_agents(pairing, agents),
    )


def compare_judges(
    judges: Mapping[str, tuple[Mapping[str, Verdict], Pairing]],
    tasks: Mapping[str, str] | None,
    agents: Mapping[str, str],
) -> tuple[JudgePair, ...]:
    """Compares each two judges: their verdicts by trajectory id, and these joined with labels."""
    pairs = []
    for (first, (left, mine)), (second, (right, theirs)) in combinations(judges.items(), 2):
        both = tuple(
            Pair(verdict, other.success, ())
            for id, verdict in left.items()
            if verdict.success is not None
            and (other := right.get(id)) is not None
            and other.success is not None
        )
        same, kappa = (Figure(name, 0.0, undefined=True) for name in ("same verdict", "kappa"))
        ranking = None
        if both:
            joined = Pairing(
                evaluator=mine.evaluator,
                source=second,
                pairs=both,
                undecided={},
                verdicts_without_label=0,
                labels_without_verdict=0,
            )
            measured = measure_agreement(joined, tasks)
            same, kappa = measured.accuracy, measured.kappa
            ranking = rank_agents(joined, agents)
        labelled = {p.verdict.id for p in mine.pairs} & {p.verdict.id for p in both}
        pairs.append(
            JudgePair(
                first=first,
                second=second,
                runs=len(both),
                same=same,
                kappa=kappa,
                tau=None if ranking is None else ranking.tau,
                labelled=compare(mine, theirs, tasks) if labelled else None,
            )
        )
    return tuple(pairs)


def krippendorff_alpha(
    judges: Sequence[Mapping[str, Verdict]], tasks: Mapping[str, str] | None
) -> Figure:
    """Computes Krippendorff's alpha (nominal) of several judges' verdicts by trajectory id.

    It is defined for runs that some judges did not score: each run counts that two or more scored.
    1 is equal verdicts, 0 is chance. Source: Krippendorff, Content Analysis, 4th edition, 12.3.
    """
    votes: dict[str, list[bool]] = {}
    for verdicts in judges:
        for id, verdict in verdicts.items():
            if verdict.success is not None:
                votes.setdefault(id, []).append(verdict.success)
    # for each run: its share of unequal pairs, its successes and its failures
    rows = [
        (cluster(id, tasks), (2 * yes * (n - yes) / (n - 1), yes, n - yes))
        for id, given in votes.items()
        if (n := len(given)) > 1 and (yes := sum(given)) >= 0
    ]
    undefined = Figure("alpha", 0.0, undefined=True)
    if not rows:
        return undefined
    clusters = sum_clusters([key for key, _ in rows], [row for _, row in rows])
    value = _alpha(clusters.sum(axis=0, keepdims=True))[0][0]
    if isnan(value):
        return undefined
    low, high = (float(ends[0]) for ends in intervals(clusters, _alpha, (-1.0,)))
    if isnan(low) or low == high:
        return Figure("alpha", float(value))
    return Figure("alpha", float(value), low, high, interval=choose_method(len(clusters)))


def _alpha(rows: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    unequal, yes, no = rows.T
    count = yes + no
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[Any] = 1 - (unequal / count) / (2 * yes * no / (count * (count - 1)))
    return np.where(np.isfinite(found), found, np.nan)[:, None]


# Slices of a data set


def slice_value(trajectory: Trajectory, by: str) -> str | None:
    """Returns the trajectory's value of `site`, `agent`, `platform`, `task` or a metadata key, or
    None.

    A metadata key may be written as `metadata.KEY`, which is required for keys with one of those
    names.
    """
    task = trajectory.task
    own = {
        "site": task.site,
        "agent": trajectory.agent,
        "platform": task.platform,
        "task": task.id or None,
    }
    value = own[by] if by in own else trajectory.metadata.get(by.removeprefix("metadata."))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return None if value is None else str(value)


def slices(pairing: Pairing, by: str, values: Mapping[str, str]) -> tuple[Slice, ...]:
    """Computes the agreement for each slice of the trajectories.

    Args:
        pairing: Verdicts and labels, joined by `pair`.
        by: The name of the property that defines the slices, such as `"site"`.
        values: The value of each trajectory id. Trajectories without a value form the slice
            `(none)`.

    Returns:
        One slice for each value, the largest first, `(none)` last.
    """
    parts: dict[str, list[Pair]] = {}
    for pair in pairing.pairs:
        parts.setdefault(values.get(pair.verdict.id, NONE), []).append(pair)
    ordered = sorted(parts.items(), key=lambda part: (part[0] == NONE, -len(part[1]), part[0]))
    return tuple(_slice(by, value, pairs) for value, pairs in ordered)


def _slice(by: str, value: str, pairs: Iterable[Pair]) -> Slice:
    pairs = list(pairs)
    calls, truths = [p.verdict.success for p in pairs], [p.truth for p in pairs]
    counts = count_outcomes([by] * len(pairs), calls, truths)
    tp, fp, tn, fn, unscored = counts[0].tolist()
    row = dict(zip(FIGURES, figures(counts)[0].tolist(), strict=True))
    measures = {
        name.replace(" ", "_"): None if isnan(row[name]) else row[name] for name in _SLICE_FIGURES
    }
    return Slice(
        by=by,
        value=value,
        n=len(pairs),
        unscored=unscored,
        success=sum(p.truth for p in pairs) / len(pairs),
        tp=tp,
        fp=fp,
        tn=tn,
        fn=fn,
        small=len(pairs) - unscored < _SMALL or min(tp + fn, tn + fp) < _FEW_OF_ONE,
        **measures,
    )

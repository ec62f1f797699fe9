"""Compares protocols on the same runs: success rates, agreement, and the ranking of agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from msgspec import UNSET

from prill.evaluators.labels import cluster, gold_labels
from prill.evaluators.meta.agreement import Pair, Pairing, measure_agreement, shares
from prill.evaluators.meta.comparison import rank_agents
from prill.evaluators.meta.figure import Figure
from prill.evaluators.metrics import sum_clusters
from prill.evaluators.protocols.presets import Protocol
from prill.types import LabelRecord, Usage, Verdict

Verdicts = Mapping[str, Verdict]


@dataclass(frozen=True, kw_only=True)
class ProtocolRate:
    """The success rate by one protocol.

    Args:
        protocol: The preset's name.
        runs: The number of runs with a verdict, scored or not.
        scored: The number of scored runs.
        rate: The success rate of the scored runs, in [0, 1].
        official: The success rate by the authors' own rule, over the runs that it labels.
        labelled: The number of runs that the authors' rule labels.
        unscored: The number of unscored runs by reason.
        usage: Calls, tokens and cost of these verdicts. Replies that protocols share count once.
        citation: How to cite the verdicts: protocol, prompt hash, model, frames and parser.
        source: The public code that the preset follows.
        differences: How the preset differs from it.
    """

    protocol: str
    runs: int
    scored: int
    rate: Figure
    official: Figure
    labelled: int
    unscored: Mapping[str, int]
    usage: Usage
    citation: str
    source: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProtocolAgreement:
    """The agreement of two protocols on the runs that both score.

    Args:
        first: A preset's name.
        second: Another preset's name.
        runs: The number of these runs.
        same: The share of equal verdicts, in [0, 1].
        kappa: Cohen's kappa.
        agents: The number of agents with such runs.
        tau: Kendall's tau-b of the two rankings of the agents. None: there are fewer than two
            agents, or a ranking has only ties.
    """

    first: str
    second: str
    runs: int
    same: Figure
    kappa: Figure
    agents: int
    tau: float | None


@dataclass(frozen=True, kw_only=True)
class ProtocolLabels:
    """The agreement of one protocol with labels.

    Args:
        protocol: The preset's name.
        source: The source of the labels.
        judged: The number of scored runs with a decided label.
        unscored: The number of unscored runs with a decided label; they count in no figure.
        accuracy: The share of verdicts that equal the label, in [0, 1].
        kappa: Cohen's kappa, in [-1, 1].
    """

    protocol: str
    source: str
    judged: int
    unscored: int
    accuracy: Figure
    kappa: Figure


def measure_rate(
    protocol: Protocol, verdicts: Verdicts, tasks: Mapping[str, str], *, citation: str
) -> ProtocolRate:
    """Computes the success rates of one protocol from its verdicts by trajectory id, with 95 %
    intervals over tasks.
    """
    labels = {id: official_label(verdict) for id, verdict in verdicts.items()}
    return ProtocolRate(
        protocol=protocol.name,
        runs=len(verdicts),
        scored=sum(verdict.success is not None for verdict in verdicts.values()),
        rate=_share("success", {id: v.success for id, v in verdicts.items()}, tasks),
        official=_share("success, official", labels, tasks),
        labelled=sum(label is not None for label in labels.values()),
        unscored=dict(
            Counter(str(v.unscored) for v in verdicts.values() if v.unscored).most_common()
        ),
        usage=sum((verdict.usage for verdict in verdicts.values()), start=Usage()),
        citation=citation,
        source=protocol.source,
        differences=protocol.differences,
    )


def measure_labels(
    protocol: str,
    verdicts: Iterable[Verdict],
    labels: Sequence[LabelRecord],
    tasks: Mapping[str, str],
    source: str | None = None,
    truth: str = "majority",
) -> ProtocolLabels:
    """Compares the verdicts of one protocol with labels, with 95 % intervals over tasks; undefined
    if no scored run has a decided label.

    `truth` is the rule for annotators who differ, as in `gold_labels`. Raises UsageError if there
    are several sources and `source` is None, or no annotator has that name.
    """
    source, truths = gold_labels(labels, source, truth)
    pairs = tuple(
        Pair(verdict, label, ())
        for verdict in verdicts
        if (label := truths.get(verdict.id)) is not None
    )
    accuracy, kappa = (Figure(name, 0.0, undefined=True) for name in ("accuracy", "kappa"))
    judged = sum(pair.verdict.success is not None for pair in pairs)
    if judged:
        measured = measure_agreement(_pairing(source, pairs), tasks)
        accuracy, kappa = measured.accuracy, measured.kappa
    return ProtocolLabels(
        protocol=protocol,
        source=source,
        judged=judged,
        unscored=len(pairs) - judged,
        accuracy=accuracy,
        kappa=kappa,
    )


def measure_agreements(
    verdicts: Mapping[str, Verdicts], tasks: Mapping[str, str], agents: Mapping[str, str]
) -> tuple[ProtocolAgreement, ...]:
    """Compares each two protocols, in the order of `verdicts`, on the runs that both score. `tasks`
    and `agents` are by trajectory id; runs without an agent are left out of the rankings.
    """
    return tuple(
        _agreement((first, verdicts[first]), (second, verdicts[second]), tasks, agents)
        for first, second in combinations(verdicts, 2)
    )


def official_label(verdict: Verdict) -> bool | None:
    """Returns the label by the authors' rule from a verdict of the judge `protocol`; None without
    one.
    """
    label = UNSET if verdict.findings is None else verdict.findings.official_label
    return None if label is UNSET else label


def _share(name: str, outcomes: Mapping[str, bool | None], tasks: Mapping[str, str]) -> Figure:
    known = {id: success for id, success in outcomes.items() if success is not None}
    if not known:
        return Figure(name, 0.0, undefined=True)
    rows = [(float(success), 1.0) for success in known.values()]
    return shares((name,), sum_clusters([cluster(id, tasks) for id in known], rows))[0]


def _agreement(
    first: tuple[str, Verdicts],
    second: tuple[str, Verdicts],
    tasks: Mapping[str, str],
    agents: Mapping[str, str],
) -> ProtocolAgreement:
    pairs = tuple(
        Pair(verdict, other.success, ())
        for id, verdict in first[1].items()
        if (other := second[1].get(id)) is not None
        and verdict.success is not None
        and other.success is not None
    )
    same, kappa = (Figure(name, 0.0, undefined=True) for name in ("same verdict", "kappa"))
    ranking = None
    if pairs:
        pairing = _pairing(second[0], pairs)
        measured = measure_agreement(pairing, tasks)
        same, kappa = measured.accuracy, measured.kappa
        ranking = rank_agents(pairing, agents)
    return ProtocolAgreement(
        first=first[0],
        second=second[0],
        runs=len(pairs),
        same=same,
        kappa=kappa,
        agents=len({agents[pair.verdict.id] for pair in pairs if pair.verdict.id in agents}),
        tau=None if ranking is None else ranking.tau,
    )


def _pairing(source: str, pairs: tuple[Pair, ...]) -> Pairing:
    return Pairing(
        evaluator=pairs[0].verdict.evaluator,
        source=source,
        pairs=pairs,
        undecided={},
        verdicts_without_label=0,
        labels_without_verdict=0,
    )

"""Estimates success rates from all verdicts and some labels: PPI++, Rogan-Gladen, labels alone.

Sources: PPI++ with power tuning, Angelopoulos, Duchi and Zrnic, arXiv 2311.01453; a rate corrected
by sensitivity and specificity, Rogan and Gladen, Am. J. Epidemiol. 107 (1978) 71; a beta
distribution for the interval of a rate with a given variance, Korn and Graubard, Survey Methodology
24 (1998) 193.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.config.shared import JUDGED, ByOption, OneJudgeOption, PlotOption
from prill.datasets.inputs import RecordingsConfig
from prill.errors import UsageError
from prill.evaluators.agreement.agree import known_runs
from prill.evaluators.agreement.comparison import NONE
from prill.evaluators.agreement.figure import (
    HEADING,
    Figure,
    FigureCell,
    figure_row,
    interval,
    part_table,
    value_row,
)
from prill.evaluators.fitted.overlap import Overlap, find_overlap, fitted_caution
from prill.evaluators.labels import cluster
from prill.io.joining import JoinCounts, join
from prill.io.outputs import check_output, write_output
from prill.io.store import read_labels
from prill.io.tables import Table, Tabular, printable
from prill.io.truth import SourceOption, TruthOption, gold_labels
from prill.io.verdict_files import read_verdict_files
from prill.running import Printed, as_run
from prill.types import EvaluatorInfo, LabelRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

Unscored = Literal["reweighted", "left-out"]
# The mean weight of the four pseudo-pairs of verdict and label that are added for an interval.
# Without them, a judge with no error on few labels would have zero variance. 0.4 was chosen by
# simulation between the weights of Perks's (1/4) and Jeffreys's (1/2) priors for four cells, which
# both cover too little, the latter for rates near 0 and 1 (benchmarks/RESULTS.md).
_PSEUDO = 0.4
# The weight of the two pairs in which the judge errs, by the number of labels; linear in between.
# Few labels cannot tell a perfect judge from a good one; from 30 on, equal weights would only make
# the intervals of good judges too wide. Chosen by simulation, as above.
_PSEUDO_ERROR = (20, 30), (0.4, 0.2)
_ALMOST_0 = 1e-12  # bounds rates and variances away from 0, whose log odds are infinite
_PAIRS = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0))  # truth, verdict
# Below this number of labels, intervals are wide, and cover more than 95 % with a good judge, which
# few labels cannot tell from a fair one (benchmarks/RESULTS.md).
FEW_LABELS = 30
# The labels are considered a non-random sample if the judge's rates on labelled and unlabelled runs
# differ by more than this number of standard errors.
_APART = 3.0


@dataclass(frozen=True, kw_only=True)
class RateEstimate:
    """The success rate of a set of runs, estimated by three methods.

    Args:
        by: The property that divides the runs. None: all runs.
        value: The value of that property, such as the agent's name.
        n: The number of runs.
        labelled: The number of included runs with a label.
        clusters: The number of tasks (or runs, without tasks) with a label.
        unscored: The number of runs that the judge did not score.
        unscored_labelled: The number of unscored runs with a label.
        judged: The judge's uncorrected success rate on the runs it scored; None without scored
            runs.
        ppi: The rate corrected by the labels (PPI++).
        weight: The weight of the verdicts in PPI++ (lambda), in [0, 1]; 0 is labels alone.
        rogan_gladen: The judge's rate on scored runs, corrected by its sensitivity and specificity.
            Undefined if the labels have no successes or no failures, or if the judge is no better
            than chance.
        labels_alone: The rate of the labels, without verdicts.
        bounds: The rate of all runs if every unscored run without a label were a failure, and if
            every one were a success; None if all runs are scored.
        bounds_interval: The lower end of the 95 % interval of the first bound, and the upper end of
            the second.
        more_labels: The number of additional labels for the target width of the interval of `ppi`.
            None: there is no target, or labels on every run would not suffice.
        more_labels_alone: The number of additional labels for the target width without verdicts.
        labels_differ: The judge's rates on labelled and unlabelled runs differ by 3 standard
            errors. The labelled runs are then probably not a random sample, and no figure here is
            valid.
        small: Fewer than 30 labels.
    """

    by: str | None = None
    value: str = "all"
    n: int
    labelled: int
    clusters: int
    unscored: int
    unscored_labelled: int
    judged: float | None
    ppi: Figure
    weight: float
    rogan_gladen: Figure
    labels_alone: Figure
    bounds: tuple[float, float] | None = None
    bounds_interval: tuple[float, float] | None = None
    more_labels: int | None = None
    more_labels_alone: int | None = None
    labels_differ: bool = False
    small: bool


@dataclass(frozen=True)
class _Sample:
    """Runs as arrays, labelled runs first.

    The arrays are the verdict in [0, 1], the number of the cluster, and the truth (0 or 1) of the
    first `len(truth)` runs.
    """

    verdict: NDArray[Any]
    cluster: NDArray[Any]
    truth: NDArray[Any]
    weights: NDArray[Any]  # of the labelled runs, 1 on average
    weighted: bool = False  # whether the sampling probabilities of the labels differ

    @property
    def n(self) -> int:
        return len(self.truth)

    @property
    def groups(self) -> int:
        return len(set(self.cluster[: self.n].tolist()))


def estimate_rate(
    verdicts: Sequence[bool | None],
    truths: Sequence[bool | None],
    clusters: Sequence[Hashable],
    *,
    unscored: Unscored = "reweighted",
    width: float | None = None,
    chances: Sequence[float | None] | None = None,
) -> RateEstimate:
    """Estimates a success rate from verdicts and labels.

    The labelled runs must be a random sample of all runs, or be sampled with known probabilities.

    Args:
        verdicts: The judge's success of each run; None if it is unscored.
        truths: The label's success of each run; None without a label.
        clusters: The cluster of dependent runs for each run, such as its task.
        unscored: The treatment of unscored runs in the PPI++ rate. `reweighted`: the rate is of all
            runs; the judge's mean replaces the missing verdict, and labels of unscored runs correct
            it. `left-out`: the rate is of the scored runs only.
        width: The target width of the 95 % interval, in (0, 1). Not with `chances`.
        chances: The probability with which each labelled run was sampled, in (0, 1]; labels are
            weighted by its inverse (Horvitz and Thompson, with Hájek's ratio). None: all
            probabilities are equal.

    Returns:
        The estimates with 95 % intervals. With one label per cluster, their ends are quantiles of
        the beta distribution with the estimate's mean and variance; the more labels share clusters,
        the closer they are to Student's t on the scale of log odds, with the number of labelled
        clusters minus one degrees of freedom. Rogan-Gladen's ends are always the latter. The
        variance is the larger of the variance by cluster and the variance by run. Estimates are
        undefined without labels, and have no interval for a single cluster.
    """
    whole = _sample(verdicts, truths, clusters, "reweighted", chances)
    scored = _sample(verdicts, truths, clusters, "left-out", chances)
    sample = scored if unscored == "left-out" else whole
    ppi, weight = _ppi(sample)
    alone, _ = _ppi(sample, 0.0)
    without = [truth for verdict, truth in zip(verdicts, truths, strict=True) if verdict is None]
    known = [truth for truth in without if truth is not None]
    bounds = ends = None
    of_scored = _ppi(scored)[0]
    if without and not of_scored.undefined:
        share, open_, won = len(scored.verdict), len(without) - len(known), sum(known)
        low, high = of_scored.low or 0.0, 1.0 if of_scored.high is None else of_scored.high

        def total(rate: float, successes: int) -> float:
            return (rate * share + successes) / len(verdicts)

        bounds = (total(of_scored.value, won), total(of_scored.value, won + open_))
        ends = (total(low, won), total(high, won + open_))
    return RateEstimate(
        n=len(verdicts),
        labelled=sample.n,
        clusters=sample.groups,
        unscored=len(without),
        unscored_labelled=len(known),
        judged=float(scored.verdict.mean()) if len(scored.verdict) else None,
        ppi=ppi,
        weight=weight,
        rogan_gladen=_rogan_gladen(scored),
        labels_alone=alone,
        bounds=bounds,
        bounds_interval=ends,
        more_labels=None if width is None else _more_labels(sample, width),
        more_labels_alone=None if width is None else _more_labels(sample, width, 0.0),
        labels_differ=chances is None and _labels_differ(scored),
        small=sample.n < FEW_LABELS,
    )


def _sample(
    verdicts: Sequence[bool | None],
    truths: Sequence[bool | None],
    clusters: Sequence[Hashable],
    unscored: Unscored,
    chances: Sequence[float | None] | None,
) -> _Sample:
    import numpy as np

    number = {name: i for i, name in enumerate(dict.fromkeys(clusters))}
    verdict, truth = (np.array(side, dtype=float) for side in (verdicts, truths))  # None is NaN
    cluster = np.array([number[name] for name in clusters], dtype=np.intp)
    scored = ~np.isnan(verdict)
    inverse = np.ones(len(truth)) if chances is None else 1 / np.array(chances, dtype=float)
    if unscored == "left-out":
        verdict, truth, cluster = verdict[scored], truth[scored], cluster[scored]
        inverse = inverse[scored]
    elif scored.any():
        verdict = np.where(scored, verdict, verdict[scored].mean())
    else:
        verdict = np.zeros_like(verdict)
    order = np.argsort(np.isnan(truth), kind="stable")
    truth = truth[order]
    truth = truth[~np.isnan(truth)]
    weights = inverse[order][: len(truth)]
    if len(weights):
        weights = weights / weights.mean()
    return _Sample(verdict[order], cluster[order], truth, weights, chances is not None)


def _tuned(
    truth: NDArray[Any], verdict: NDArray[Any], others: NDArray[Any], share: NDArray[Any]
) -> float:
    """Returns the verdicts' weight with the least variance, clipped to [0, 1].

    Source: arXiv 2311.01453, section 6, for a mean. `share` weights the labelled runs.
    """
    import numpy as np

    if not len(others) or not len(truth):
        return 0.0
    covariance = np.average(
        (truth - np.average(truth, weights=share)) * (verdict - np.average(verdict, weights=share)),
        weights=share,
    )
    spread = _spread(verdict, others, share)
    ratio = 1 + len(truth) / len(others)
    return float(np.clip(covariance / (ratio * spread), 0, 1)) if spread > 0 else 0.0


def _spread(verdict: NDArray[Any], others: NDArray[Any], share: NDArray[Any]) -> float:
    """Returns the variance of all verdicts."""
    import numpy as np

    both, weights = np.concatenate([verdict, others]), np.append(share, np.ones(len(others)))
    middle = np.average(both, weights=weights)
    return float((weights * (both - middle) ** 2).sum() / (weights.sum() - 1))


def _mean(truth: NDArray[Any], verdict: NDArray[Any], others: NDArray[Any], weight: float) -> float:
    return float((truth - weight * verdict).mean() + (weight * others.mean() if weight else 0.0))


@dataclass(frozen=True)
class _Padded:
    """A sample's labelled runs followed by the pseudo-pairs; `share` has their weights."""

    truth: NDArray[Any]
    verdict: NDArray[Any]
    share: NDArray[Any]
    others: NDArray[Any]

    @classmethod
    def of(cls, sample: _Sample, error: float | None = None) -> _Padded:
        import numpy as np

        pairs = np.array(_PAIRS)
        if error is None:
            error = float(np.interp(sample.n, *_PSEUDO_ERROR))
        weights = np.where(pairs[:, 0] == pairs[:, 1], 2 * _PSEUDO - error, error)
        return cls(
            np.append(sample.truth, pairs[:, 0]),
            np.append(sample.verdict[: sample.n], pairs[:, 1]),
            np.append(sample.weights, weights),
            sample.verdict[sample.n :],
        )


def _ppi(sample: _Sample, weight: float | None = None) -> tuple[Figure, float]:
    """Returns the PPI++ rate, with the tuned or a given weight of the verdicts, and the weight."""
    name = "labels alone" if weight == 0 else "PPI++"
    if not sample.n:
        return Figure(name, 0.0, undefined=True), 0.0
    truth, verdict, others = sample.truth, sample.verdict[: sample.n], sample.verdict[sample.n :]
    import numpy as np

    if sample.weighted:
        value, _, used = _weighted(sample, sample.truth, verdict, sample.weights, weight)
        value = min(1.0, max(0.0, value))
    else:
        used = _tuned(truth, verdict, others, np.ones(sample.n)) if weight is None else weight
        value = min(1.0, max(0.0, _mean(truth, verdict, others, used)))
    if sample.groups < 2:
        return Figure(name, value), used
    centre, by_run, by_cluster = _variances(sample, weight)
    low, high = _ends(centre, max(by_run, by_cluster), sample.groups, sample.n)
    return Figure(name, value, min(low, value), max(high, value), "beta"), used


def _variances(sample: _Sample, weight: float | None) -> tuple[float, float, float]:
    """Returns the estimate with pseudo-pairs, and its variance by run and by cluster."""
    import numpy as np

    padded, n = _Padded.of(sample), sample.n
    if sample.weighted:
        centre, influence, _ = _weighted(sample, padded.truth, padded.verdict, padded.share, weight)
        extra = float((influence[n : n + len(_PAIRS)] ** 2 / padded.share[n:]).sum())
        own = np.delete(influence, np.s_[n : n + len(_PAIRS)])
        return centre, *_squares(own, sample, extra)
    if weight is None:
        weight = _tuned(padded.truth, padded.verdict, padded.others, padded.share)
    left, total = padded.truth - weight * padded.verdict, padded.share.sum()
    middle = np.average(left, weights=padded.share)
    own = (left - middle) / total
    centre, rest = middle, np.zeros(len(padded.others))
    if weight:
        centre = middle + weight * padded.others.mean()
        rest = weight * (padded.others - padded.others.mean()) / len(rest)
    extra = float((padded.share[n:] * own[n:] ** 2).sum())
    by_run, by_cluster = _squares(np.append(own[:n], rest), sample, extra)
    return float(centre), by_run, by_cluster


def _weighted(
    sample: _Sample,
    truth: NDArray[Any],
    verdict: NDArray[Any],
    share: NDArray[Any],
    weight: float | None,
) -> tuple[float, NDArray[Any], float]:
    """Returns the rate with weighted labels, the runs' influences on it and the weight of the
    verdicts.

    The influences are those of the labelled runs, including pseudo-pairs, then of the other runs.
    The weight is the given one, or the one with the least variance.

    The mean verdict of all runs replaces that of the unlabelled runs, which are not a random sample
    here.
    """
    import numpy as np

    everyone, n = sample.verdict, sample.n
    total = share.sum()
    won, called = np.average(truth, weights=share), np.average(verdict, weights=share)
    of_all = (everyone - everyone.mean()) / len(everyone)
    of_labels = share * (verdict - called) / total
    of_labels[:n] -= of_all[:n]
    second = np.concatenate([of_labels, -of_all[n:]])
    first = np.concatenate([share * (truth - won) / total, np.zeros(len(everyone) - n)])
    if weight is None:
        spread = float(second @ second)
        weight = float(np.clip(first @ second / spread, 0, 1)) if spread > 0 else 0.0
    value = won + weight * (everyone.mean() - called)
    return float(value), first - weight * second, weight


def _squares(influence: NDArray[Any], sample: _Sample, extra: float) -> tuple[float, float]:
    """Returns the variance of the sum of influences, for independent runs and independent clusters.

    `extra` is the variance of the pseudo-pairs. The factor for few clusters is 1 if each label has
    its own cluster: the pseudo-pairs already make up for few labels.
    """
    import numpy as np

    sums = np.bincount(sample.cluster, weights=influence)
    groups, n = sample.groups, sample.n
    factor = groups / (groups - 1) * (n - 1) / n
    return float((influence**2).sum()) + extra, factor * (float((sums**2).sum()) + extra)


def _ends(
    centre: Any, variance: Any, groups: Any, n: Any, *, ratio: bool = False
) -> tuple[Any, Any]:
    """Returns both ends of a 95 % interval; arguments may be arrays.

    With one label per cluster, the variance follows from the rate, and the ends are quantiles of
    the beta distribution with this mean and variance. The variance between few clusters is itself
    a rough estimate, so Student's t replaces them, on the scale of log odds, in proportion to the
    share of labels that add no cluster. It replaces them wholly for a `ratio` of estimates.
    """
    import numpy as np
    from scipy.special import betaincinv, expit, logit, stdtrit

    least = _PSEUDO / (n + len(_PAIRS) * _PSEUDO)
    centre = np.clip(centre, least, 1 - least)
    scale = centre * (1 - centre)
    shared = 1.0 if ratio else 1 - (groups - 1) / (n - 1)
    spread = stdtrit(groups - 1, 0.975) * np.sqrt(variance) / scale
    size = np.maximum(scale / variance - 1, _ALMOST_0)  # the sum of the distribution's parameters

    def end(side: int) -> Any:
        quantile = betaincinv(centre * size, (1 - centre) * size, 0.5 + side * 0.475)
        beta = logit(np.clip(quantile, _ALMOST_0, 1 - _ALMOST_0))
        return expit(shared * (logit(centre) + side * spread) + (1 - shared) * beta)

    low, high = end(-1), end(1)
    return (float(low), float(high)) if np.ndim(low) == 0 else (low, high)


def _rogan_gladen(sample: _Sample) -> Figure:
    """Returns the judge's rate corrected by its sensitivity and specificity.

    The delta method gives the variance, from the influence of each run.
    """
    import numpy as np

    name, n = "Rogan-Gladen", sample.n
    truth, verdict = sample.truth, sample.verdict[:n]
    if not (truth == 1).any() or not (truth == 0).any():
        return Figure(name, 0.0, undefined=True)
    judged = float(sample.verdict.mean())
    passed, failed = (
        np.average(verdict[truth == won], weights=sample.weights[truth == won]) for won in (1, 0)
    )
    if passed <= failed:
        return Figure(name, 0.0, undefined=True)
    value = min(1.0, max(0.0, float((judged - failed) / (passed - failed))))
    if sample.groups < 2:
        return Figure(name, value)
    padded = _Padded.of(sample, _PSEUDO)
    is_success = padded.truth == 1
    weights = (padded.share * is_success, padded.share * ~is_success)
    hits, alarms = (np.average(padded.verdict, weights=weight) for weight in weights)
    if hits <= alarms:
        return Figure(name, value)
    centre = min(1.0, max(0.0, float((judged - alarms) / (hits - alarms))))
    own = np.where(
        is_success,
        -centre * (padded.verdict - hits) / weights[0].sum(),
        -(1 - centre) * (padded.verdict - alarms) / weights[1].sum(),
    )
    influence = (sample.verdict - judged) / len(sample.verdict)
    influence[:n] += sample.weights * own[:n]
    extra = float((padded.share[n:] * own[n:] ** 2).sum())
    scale = float(hits - alarms) ** 2
    variance = max(_squares(influence, sample, extra)) / scale
    low, high = _ends(centre, variance, sample.groups, n, ratio=True)
    return Figure(name, value, min(low, value), max(high, value), "t")


def _labels_differ(sample: _Sample) -> bool:
    labelled, others = sample.verdict[: sample.n], sample.verdict[sample.n :]
    if len(labelled) < FEW_LABELS or len(others) < FEW_LABELS:
        return False
    middle = sample.verdict.mean()
    error = (middle * (1 - middle) * (1 / len(labelled) + 1 / len(others))) ** 0.5
    return bool(abs(labelled.mean() - others.mean()) > _APART * error)


def _more_labels(sample: _Sample, width: float, weight: float | None = None) -> int | None:
    """Returns how many additional, similar labels narrow the interval to `width`.

    The variance between tasks is constant: only more tasks reduce it, not more labels.
    """
    import numpy as np

    n, runs = sample.n, len(sample.verdict)
    if sample.groups < 2:
        return None
    padded = _Padded.of(sample)
    centre, by_run, by_cluster = _variances(sample, weight)
    middle = np.average(padded.truth, weights=padded.share)
    truth = middle * (1 - middle)
    both = np.average(
        (padded.truth - middle)
        * (padded.verdict - np.average(padded.verdict, weights=padded.share)),
        weights=padded.share,
    )
    spread = _spread(padded.verdict, padded.others, padded.share)
    labels = np.arange(n, runs + 1)
    left = np.maximum(runs - labels, 1)
    used = np.clip(both / ((1 + labels / left) * spread), 0, 1) if spread > 0 else 0.0 * labels
    used = np.where(labels < runs, used, 0.0) if weight is None else np.full(len(labels), weight)
    padding = len(_PAIRS) * _PSEUDO
    variance = (truth - 2 * used * both + used**2 * spread) / (labels + padding)
    variance += used**2 * spread / left + max(0.0, by_cluster - by_run)
    everything = len(set(sample.cluster.tolist()))
    groups = np.minimum(everything, sample.groups * labels / n)
    low, high = _ends(centre, variance, groups, labels)
    found = np.flatnonzero(high - low <= width)
    return int(labels[found[0]] - n) if len(found) else None


# The run


MAX_ROWS = 30  # slices of each key in the chart
_FIGURES = ("ppi", "rogan_gladen", "labels_alone")
_COLUMNS: dict[str, type] = {
    **{"by": str, "value": str, "n": int, "labelled": int, "clusters": int, "unscored": int},
    **{"judged": float, "weight": float},
    **{f"{name}{end}": float for name in _FIGURES for end in ("", "_low", "_high")},
    **{"more_labels": int, "more_labels_alone": int, "labels_differ": bool, "small": bool},
}


@dataclass(frozen=True, kw_only=True)
class RateConfig(RecordingsConfig):
    """Configuration of `prill rate`: the success rate, corrected for the judge's errors."""

    verdicts: OneJudgeOption
    labels: Annotated[
        str | Path,
        Meta(
            description="Label file for some of the runs, sampled at random or in the "
            "informative order of `prill annotate`."
        ),
    ]
    trajectories: Annotated[Sequence[str | Path], JUDGED] = ()
    source: SourceOption = None
    truth: TruthOption = "majority"
    by: ByOption = ()
    unscored: Annotated[
        Unscored,
        Meta(
            description="Treatment of runs without a verdict. reweighted: they count with "
            "the label-corrected mean of the judge. left-out: the rate is over scored "
            "runs. Bounds are reported with both."
        ),
    ] = "reweighted"
    width: Annotated[
        float | None,
        Meta(
            gt=0,
            lt=1,
            description="Report how many more labels are needed for an interval of this width.",
        ),
    ] = None
    plot: PlotOption = None

    def check(self) -> None:
        """Validates options that depend on each other."""
        if self.by and not self.trajectories:
            raise UsageError(
                "by needs trajectories, because verdicts do not contain the groups",
                parameters=("trajectories",),
            )


@dataclass(frozen=True, kw_only=True)
class RateResult(Printed, Tabular):
    """Success rates; printing them shows what `prill rate` prints.

    Args:
        evaluator: The judge.
        source: The source of the labels.
        all: The rate of all runs.
        parts: The slices for each key of `by`, the largest first.
        unscored: The number of runs the judge did not score, by reason; `no verdict` means that
            there is no verdict at all.
        undecided: The number of undecided labels, which are ignored.
        joined: The numbers of runs without a verdict, and of verdicts and labels of other runs.
        clustered_by: The unit that intervals treat as independent: `task` or `trajectory`.
        fitted: The number of labelled runs that the judge was fitted on.
        weighted: Whether labels are weighted by the inverse of their inclusion probability.
        config: The configuration of the run.
    """

    chart: ClassVar[str] = "prill.ui.charts:rate_chart"

    evaluator: EvaluatorInfo
    source: str
    all: RateEstimate
    parts: Mapping[str, tuple[RateEstimate, ...]] = field(default_factory=dict)
    unscored: Mapping[str, int]
    undecided: int
    joined: JoinCounts
    clustered_by: str
    fitted: Overlap | None
    weighted: bool = False
    config: RateConfig

    def table(self) -> Table:
        """Returns one row for all runs and one per slice; null where undefined."""
        rows = [self.all, *(part for parts in self.parts.values() for part in parts)]
        return Table(tuple(_COLUMNS), tuple(map(_row, rows)), _COLUMNS)

    def __str__(self) -> str:
        return "\n".join(_page(self))


@as_run(RateConfig)
def rate(config: RateConfig) -> RateResult:
    """Estimates success rates from verdicts on all runs and labels on some.

    Args:
        config: The files, the slices, and the treatment of unscored runs.

    Returns:
        The rate by PPI++, by Rogan and Gladen, and by labels alone, with 95 % intervals.

    Raises:
        UsageError: No run has a label, or a file cannot be read or written.
        InputError: A verdict or a label is broken; the message names its line.
    """
    if config.plot is not None:
        inputs = [*config.verdicts, config.labels, *config.trajectories]
        check_output(config.plot, "a diagram", inputs, parameter="plot")
    runs = known_runs(config.runs(), config.by) if config.trajectories else None
    read, records = list(read_verdict_files(config.verdicts)), list(read_labels(config.labels))
    # Without trajectories, the runs are those with a verdict.
    digests = runs.digests if runs else {verdict.id: verdict.record or "" for verdict in read}
    joined = join(read, records, digests)
    latest = joined.verdicts
    source, truths = gold_labels(records, config.source, config.truth)
    ids = list(latest if runs is None else runs.tasks)
    labelled = [id for id in ids if truths.get(id) is not None]
    if not labelled:
        raise UsageError(
            f"no run has a decided label; ids of runs look like {ids[0]!r}, ids of labels "
            f"like {next(iter(truths), 'none')!r}"
        )
    verdicts = {id: latest[id].success if id in latest else None for id in ids}
    tasks = None if runs is None else runs.tasks
    chances = _chances(config, [r for r in records if r.source == source], set(labelled))

    def estimate(ids: Sequence[str]) -> RateEstimate:
        return estimate_rate(
            [verdicts[id] for id in ids],
            [truths.get(id) for id in ids],
            [cluster(id, tasks) for id in ids],
            unscored=config.unscored,
            width=config.width,
            chances=None if chances is None else [chances.get(id) for id in ids],
        )

    parts: dict[str, tuple[RateEstimate, ...]] = {}
    for by in config.by:
        groups: dict[str, list[str]] = {}
        for id in ids:
            groups.setdefault(runs.parts[by].get(id, NONE) if runs else NONE, []).append(id)
        order = sorted(groups.items(), key=lambda g: (g[0] == NONE, -len(g[1]), g[0]))
        parts[by] = tuple(replace(estimate(group), by=by, value=value) for value, group in order)
    result = RateResult(
        evaluator=joined.judge,
        source=source,
        all=estimate(ids),
        parts=parts,
        unscored=dict(
            Counter(
                str(latest[id].unscored) if id in latest else "no verdict"
                for id in ids
                if verdicts[id] is None
            ).most_common()
        ),
        undecided=sum(id in verdicts and truth is None for id, truth in truths.items()),
        joined=joined.counts,
        clustered_by="trajectory" if runs is None else "task",
        fitted=find_overlap(latest[id] for id in labelled if id in latest),
        weighted=chances is not None,
        config=config,
    )
    if config.plot is not None:
        write_output(config.plot, result.svg().encode())
    return result


def _chances(
    config: RateConfig, records: Sequence[LabelRecord], labelled: set[str]
) -> dict[str, float] | None:
    """Returns the inclusion probability of each labelled run; None if no label has one.

    Raises UsageError if labels of one draw are mixed with others.
    """
    found: dict[str, set[float | None]] = {}
    for record in records:
        if record.id in labelled:
            found.setdefault(record.id, set()).add(record.inclusion or None)
    chances = {id: chance for id, values in found.items() for chance in values if chance}
    if not chances:
        return None
    for id, values in found.items():
        if len(values) > 1 or None in values:
            raise UsageError(
                f"{config.labels}: labels of one sample are needed, but some have a "
                f"sampling probability (`inclusion`) and {id!r} has none, or has two; keep "
                "each sample in a file of its own"
            )
        if not 0 < chances[id] <= 1:
            raise UsageError(
                f"{config.labels}: {id!r}: inclusion: expected a number above 0 and up to 1"
            )
    if config.width is not None:
        raise UsageError(
            "width: only available for labels that were drawn with equal probabilities",
            parameters=("width",),
        )
    return chances


def _row(part: RateEstimate) -> tuple[Any, ...]:
    cells = asdict(part)
    for name in _FIGURES:
        figure = cells.pop(name)
        cells[name] = None if figure["undefined"] else figure["value"]
        cells |= {f"{name}_{end}": figure[end] for end in ("low", "high")}
    return tuple(cells[name] for name in _COLUMNS)


def _page(result: RateResult) -> Iterator[str]:
    whole, judge, config = result.all, result.evaluator, result.config
    units = "tasks" if result.clustered_by == "task" else "trajectories"
    yield f"Judge: {printable(judge.title)}"
    yield (
        f"Labels: {printable(result.source)}, {whole.labelled} of {whole.n} trajectories, of "
        f"{whole.clusters} {units}"
    )
    if caution := fitted_caution(judge.name, result.fitted):
        yield f"Warning: {caution}"
    if result.weighted:
        yield (
            "Labels were drawn with unequal probabilities; each is weighted by the inverse "
            "of its probability"
        )
    if whole.labels_differ:
        yield (
            "Warning: the judge's success rate differs between labelled runs and the rest; "
            "these rates are only valid if the labels are a random sample of the runs"
        )
    if whole.small:
        yield "Warning: fewer than 30 labels"
    yield ""
    yield HEADING.replace(f"{'':<12}", "success rate", 1)
    if whole.judged is not None:
        yield value_row("judge, uncorrected", whole.judged, "-")
    yield figure_row(whole.ppi, "corrected, PPI++")
    yield figure_row(whole.rogan_gladen, "corrected, Rogan-Gladen")
    yield figure_row(whole.labels_alone)
    yield ""
    yield f"Weight of the verdicts in PPI++ (lambda): {whole.weight:.3f}"
    yield (
        f"Intervals: beta distribution (Rogan-Gladen: t), clustered by {whole.clusters} {units} "
        "with a label"
    )
    yield from _unscored(result)
    if result.undecided:
        yield f"Undecided labels, not used: {result.undecided}"
    yield from result.joined.lines()
    if config.width is not None:
        more, alone = (
            "not possible with these runs" if count is None else f"{count} more labels"
            for count in (whole.more_labels, whole.more_labels_alone)
        )
        yield f"For an interval of width {config.width:g}: {more}; without verdicts: {alone}"
    for by, parts in result.parts.items():
        yield from ("", *_parts(by, parts))
    yield ""
    yield _conclusion(whole)


def _conclusion(whole: RateEstimate) -> str:
    """Returns one sentence on what the corrected rate is usable for."""
    if whole.ppi.ends is None:
        return "In short: too few labels for an interval, so not usable as the success rate."
    adds = (
        "the verdicts add nothing to the labels, as if they were chance"
        if whole.weight <= 0
        else "the verdicts add to the labels"
    )
    return f"In short: usable as the success rate within {interval(whole.ppi.ends)}; {adds}."


def _unscored(result: RateResult) -> Iterator[str]:
    whole = result.all
    if whole.bounds is None:
        return
    reasons = ", ".join(f"{reason} {count}" for reason, count in result.unscored.items())
    yield f"Unscored: {whole.unscored} ({reasons}), {whole.unscored_labelled} of them labelled"
    yield (
        "  left out: rates are over the scored runs"
        if result.config.unscored == "left-out"
        else (
            "  reweighted: PPI++ and labels alone are rates over all runs, Rogan-Gladen over "
            "scored runs"
        )
    )
    if not whole.unscored_labelled and result.config.unscored == "reweighted":
        yield "  none of them has a label, so they are assumed to be like the others"
    low, high = whole.bounds
    yield (
        f"  bounds for all runs: {low:.3f} if they failed, {high:.3f} if they succeeded; with "
        f"intervals {interval(whole.bounds_interval)}"
    )


def _parts(by: str, parts: Sequence[RateEstimate]) -> Iterator[str]:
    heading = (f"By {by}", "n", "labels", "judge", "PPI++", "95 % interval", "alone")
    yield from part_table(heading, parts, _cells, "fewer than 30 labels")


def _cells(part: RateEstimate) -> Sequence[FigureCell]:
    counts = part.value, part.n, part.labelled, part.judged
    return *counts, part.ppi, interval(part.ppi.ends), part.labels_alone

"""Agreement between annotators, which limits the agreement of any judge with their labels.

The functions over items take ratings of any type (success, or grades such as 0, 0.5 and 1): one
sequence for each item, with one rating from each annotator. Items with fewer than two ratings are
skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from prill.evaluators.labels import cluster
from prill.evaluators.metrics import FIGURES, count_outcomes, intervals
from prill.io.truth import collect_labels, collect_votes
from prill.types import LabelRecord


@dataclass(frozen=True, kw_only=True)
class AnnotatorAgreement:
    """The agreement of annotators on the success of the same trajectories.

    `raw` is the share of equal pairs of ratings, `kappa` Cohen's kappa of those pairs, each with a
    95 % interval over tasks, or over trajectories where the tasks are not known (bootstrap; t where
    there are fewer than 20). `exact` is the share of the `three_or_more` trajectories with at least
    three ratings on which all ratings are equal, and `fleiss` is Fleiss' kappa of these
    trajectories. A figure is None if it is undefined.
    """

    source: str
    trajectories: int
    annotators: int
    pairs: int
    raw: float
    raw_interval: tuple[float, float] | None
    kappa: float | None
    kappa_interval: tuple[float, float] | None
    three_or_more: int
    exact: float | None
    fleiss: float | None


def annotator_agreement(
    labels: Iterable[LabelRecord], source: str | None = None, tasks: Mapping[str, str] | None = None
) -> AnnotatorAgreement | None:
    """Computes the agreement of the annotators of one source. Only decided labels count.

    An annotator has one vote on a trajectory, and none after labels of both success and failure.
    Labels without an annotator's name count as different annotators.

    Args:
        labels: The labels.
        source: The source of labels to use. None: the only source.
        tasks: The task of each trajectory id; intervals then resample tasks. None: resample
            trajectories.

    Returns:
        The figures, in [0, 1] and kappas in [-1, 1]; None if no trajectory has two annotators.

    Raises:
        UsageError: There are several sources and `source` is None.
    """
    source, by_id = collect_labels(labels, source)
    ratings_of = {
        id: ratings for id, records in by_id.items() if len(ratings := collect_votes(records)) > 1
    }
    if not ratings_of:
        return None
    # Sorted by name, so that a pair of annotators always has the same order.
    named = [
        (id, first, second)
        for id, ratings in ratings_of.items()
        for (_, first), (_, second) in combinations(sorted(ratings.items()), 2)
    ]
    pairs = [(first, second) for _, first, second in named]
    tables = count_outcomes([cluster(id, tasks) for id, *_ in named], *zip(*pairs, strict=True))
    low, high = (ends.tolist() for ends in intervals(tables))
    interval_of = {name: (a, b) for name, a, b in zip(FIGURES, low, high, strict=True) if a < b}
    items = [list(ratings.values()) for ratings in ratings_of.values()]
    several = [ratings for ratings in items if len(ratings) > 2]
    return AnnotatorAgreement(
        source=source,
        trajectories=len(items),
        annotators=len({name for ratings in ratings_of.values() for name in ratings}),
        pairs=len(pairs),
        raw=sum(a == b for a, b in pairs) / len(pairs),
        raw_interval=interval_of.get("accuracy"),
        kappa=cohen_kappa(pairs),
        kappa_interval=interval_of.get("kappa"),
        three_or_more=len(several),
        exact=exact_agreement(several),
        fleiss=fleiss_kappa(several),
    )


def exact_agreement(items: Iterable[Sequence[Hashable]]) -> float | None:
    """Returns the share of items whose ratings are all equal; None without items."""
    unanimous = [len(set(ratings)) == 1 for ratings in items if len(ratings) > 1]
    return sum(unanimous) / len(unanimous) if unanimous else None


def cohen_kappa(pairs: Iterable[tuple[Hashable, Hashable]]) -> float | None:
    """Returns Cohen's kappa of pairs of ratings, each side with its own marginals (Cohen 1960).

    Returns None if the expected agreement is 1.
    """
    both = Counter(pairs)
    n = both.total()
    first, second = Counter[Hashable](), Counter[Hashable]()
    for (a, b), count in both.items():
        first[a] += count
        second[b] += count
    observed = sum(count for (a, b), count in both.items() if a == b)
    return (
        _beyond_chance(observed / n, sum(first[a] * second[a] for a in first) / n**2) if n else None
    )


def fleiss_kappa(items: Iterable[Sequence[Hashable]]) -> float | None:
    """Returns Fleiss' kappa (Fleiss 1971); None if the expected agreement is 1.

    Items may have different numbers of ratings.
    """
    counts_of_items = [Counter(ratings) for ratings in items if len(ratings) > 1]
    if not counts_of_items:
        return None
    shares = [
        sum(k * (k - 1) for k in counts.values()) / (counts.total() * (counts.total() - 1))
        for counts in counts_of_items
    ]
    overall = sum(counts_of_items, Counter[Hashable]())
    chance = sum((k / overall.total()) ** 2 for k in overall.values())
    return _beyond_chance(sum(shares) / len(shares), chance)


def _beyond_chance(observed: float, chance: float) -> float | None:
    return (observed - chance) / (1 - chance) if chance < 1 else None

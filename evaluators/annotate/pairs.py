"""How far two annotators agree on what both decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prill.evaluators.annotators import cohen_kappa
from prill.types import LabelRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two annotators: `agreed` of the `common` trajectories that both called a success or a failure.

    `undecided` are those that both labelled and one left open; they are in no figure. `kappa` is Cohen's; None where it
    is undefined: nothing in common, or both gave one and the same answer throughout.
    """

    annotator: str
    common: int
    agreed: int
    undecided: int
    kappa: float | None


def pair(annotator: str, mine: Mapping[str, LabelRecord], theirs: Mapping[str, LabelRecord]) -> Pair:
    """The agreement of `mine` with the labels of `annotator`, both by id."""
    labelled = [(mine[id].success, theirs[id].success) for id in mine.keys() & theirs.keys()]
    decided = [answers for answers in labelled if None not in answers]
    return Pair(
        annotator=annotator,
        common=len(decided),
        agreed=sum(a == b for a, b in decided),
        undecided=len(labelled) - len(decided),
        kappa=cohen_kappa(decided),
    )

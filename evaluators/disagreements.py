"""The trajectories on which a judge and the labels differ, by kind, the surest mistakes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from prill.evaluators.pairing import Pairing
from prill.types import LabelRecord, UnscoredReason

Kind = Literal["false positive", "false negative", "unscored"]
_ORDER: tuple[Kind, ...] = ("false positive", "false negative", "unscored")


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """One trajectory with a decided label and another verdict, or none. `reason` is the judge's, `goal` None when not known.

    `label` is the truth that counts, `annotators` what each of them said.
    """

    kind: Kind
    id: str
    goal: str | None
    label: bool
    score: float | None
    unscored: UnscoredReason | None
    reason: str
    annotators: tuple[LabelRecord, ...]


def disagreements(pairing: Pairing, goals: Mapping[str, str] | None = None) -> tuple[Disagreement, ...]:
    """False positives, then false negatives, then the unscored; within a kind those the judge was surest of come first."""
    found = []
    for pair in pairing.pairs:
        verdict = pair.verdict
        if verdict.success == pair.truth:
            continue
        kind: Kind = "unscored" if verdict.success is None else "false positive" if verdict.success else "false negative"
        surest = 0.0 if verdict.success is None else -abs(pair.score - 0.5)
        record = Disagreement(
            kind=kind,
            id=verdict.id,
            goal=(goals or {}).get(verdict.id),
            label=pair.truth,
            score=verdict.score,
            unscored=verdict.unscored,
            reason=verdict.reason,
            annotators=pair.labels,
        )
        found.append((_ORDER.index(kind), surest, record))
    return tuple(record for _, _, record in sorted(found, key=lambda item: item[:2]))

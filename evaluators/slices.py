"""Agreement by parts: benchmark, agent, platform, or anything that a trajectory's metadata says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan

from prill.evaluators.agreement import confusion_counts
from prill.evaluators.intervals import FIGURES, figures
from prill.evaluators.pairing import Pair, Pairing
from prill.types import Trajectory

NONE = "(none)"
# With 30, the 95 % interval of a share near one half is 0.34 wide; precision and recall rest on one outcome alone.
_SMALL, _FEW = 30, 10
_SHOWN = ("accuracy", "balanced accuracy", "precision", "recall", "kappa")


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One part: its trajectories with a label, how many the judge left unscored, and its figures on the others.

    `success` is the share of label successes among all of them. A figure is None where it is undefined. `small`: fewer than
    30 were judged, or fewer than 10 of them are successes, or failures; too few to tell judges apart.
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


def slice_value(trajectory: Trajectory, by: str) -> str | None:
    """The part a trajectory belongs to: `site`, `agent`, `platform`, `task`, or a key of its metadata; None where it has none.

    A metadata key may be written `metadata.KEY`, which also reaches keys with one of those names.
    """
    task = trajectory.task
    own = {"site": task.site, "agent": trajectory.agent, "platform": task.platform, "task": task.id or None}
    value = own[by] if by in own else trajectory.metadata.get(by.removeprefix("metadata."))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return None if value is None else str(value)


def slices(pairing: Pairing, by: str, values: Mapping[str, str]) -> tuple[Slice, ...]:
    """One part for each value, the largest first. `values` maps ids to values; ids that it lacks form the part `(none)`."""
    parts: dict[str, list[Pair]] = {}
    for found in pairing.pairs:
        parts.setdefault(values.get(found.verdict.id, NONE), []).append(found)
    ordered = sorted(parts.items(), key=lambda part: (part[0] == NONE, -len(part[1]), part[0]))
    return tuple(_slice(by, value, pairs) for value, pairs in ordered)


def _slice(by: str, value: str, pairs: Iterable[Pair]) -> Slice:
    import numpy as np

    pairs = list(pairs)
    tp, fp, tn, fn, unscored = counts = confusion_counts(pairs)
    row = dict(zip(FIGURES, figures(np.array([counts]))[0].tolist(), strict=True))
    shown = {name.replace(" ", "_"): None if isnan(row[name]) else row[name] for name in _SHOWN}
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
        small=len(pairs) - unscored < _SMALL or min(tp + fn, tn + fp) < _FEW,
        **shown,
    )

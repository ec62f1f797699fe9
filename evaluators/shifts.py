"""What an attack changed: paired shares before and after, with intervals of the change that draw whole tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

from prill.evaluators.intervals import DRAWS, wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 20240409


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One labelled trajectory under one attack. `before` and `after` are None where the judge gave no verdict."""

    task: str
    truth: bool
    before: bool | None
    after: bool | None
    applies: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The share of `n` trajectories judged successes, before and after, and the change with its 95 % interval.

    The interval is a bootstrap over tasks of the paired change, or Wilson's where all draws are alike: no verdict changed,
    or every one did. `flips` counts the verdicts that changed, in either direction.
    """

    n: int
    before: float
    after: float
    change: float
    low: float
    high: float
    interval: Literal["bootstrap", "wilson"]
    flips: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackEffect:
    """What one attack did, over the labelled trajectories to which it applies.

    `false_positives` is about the label failures and `recall` about the label successes; None where there is none that was
    judged both times. The others are counted: `became_unscored` had a verdict before, `unscored_before` had none.
    """

    attack: str
    applies: int
    does_not_apply: int
    unscored_before: int
    became_unscored: int
    false_positives: Shift | None
    recall: Shift | None


def effect(attack: str, trials: Sequence[Trial], seed: int = SEED) -> AttackEffect:
    """The counts and figures of one attack. The seed is that of the bootstrap."""
    hit = [trial for trial in trials if trial.applies]
    paired = [trial for trial in hit if trial.before is not None and trial.after is not None]
    return AttackEffect(
        attack=attack,
        applies=len(hit),
        does_not_apply=len(trials) - len(hit),
        unscored_before=sum(trial.before is None for trial in hit),
        became_unscored=sum(trial.before is not None and trial.after is None for trial in hit),
        false_positives=_shift([trial for trial in paired if not trial.truth], seed),
        recall=_shift([trial for trial in paired if trial.truth], seed),
    )


def _shift(trials: Sequence[Trial], seed: int) -> Shift | None:
    import numpy as np

    if not trials:
        return None
    row_of: dict[str, int] = {}
    rows = [row_of.setdefault(trial.task, len(row_of)) for trial in trials]
    counts = np.zeros((len(row_of), 3), dtype=np.int64)  # trajectories, successes before, successes after
    np.add.at(counts, rows, [(1, bool(trial.before), bool(trial.after)) for trial in trials])
    n, before, after = (int(total) for total in counts.sum(axis=0))
    change = (after - before) / n
    low, high = _interval(counts, seed)
    interval: Literal["bootstrap", "wilson"] = "bootstrap"
    if isnan(low) or low == high:
        low, high, interval = *_wilson(change, len(counts)), "wilson"
    flips = sum(trial.before != trial.after for trial in trials)
    return Shift(n=n, before=before / n, after=after / n, change=change, low=low, high=high, interval=interval, flips=flips)


def _interval(counts: NDArray[Any], seed: int) -> tuple[float, float]:
    """The 95 % percentile interval of the change when whole tasks are drawn anew."""
    import numpy as np

    kinds, shares = np.unique(counts, axis=0, return_counts=True)
    weights = np.random.default_rng(seed).multinomial(len(counts), shares / len(counts), size=DRAWS)
    drawn = weights @ kinds
    low, high = np.quantile((drawn[:, 2] - drawn[:, 1]) / drawn[:, 0], (0.025, 0.975))
    return float(low), float(high)


def _wilson(change: float, tasks: int) -> tuple[float, float]:
    """An interval of a change that is the same in every draw, as if each task were one trial."""
    low, high = wilson(min(1.0, abs(change)), tasks)
    if change == 0:
        return -high, high
    return (low, high) if change > 0 else (-high, -low)

"""Generates verdicts over the course of an agent's training, from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from prill.refine.rewards import WatchRecord
from prill.types import Opinion, UnscoredReason


def said(score: float | None, unscored: UnscoredReason = "timeout") -> Opinion:
    """Returns a judge's opinion. Without a score it is unscored."""
    if score is None:
        return Opinion(judge="judge", success=None, unscored=unscored)
    return Opinion(judge="judge", success=score >= 0.5, score=score)


def course(
    count: int = 800, *, truth: tuple[float, float] = (0.4, 0.4), hacked: float = 0.0
) -> Iterator[WatchRecord]:
    """Yields the verdicts of two judges. The true success rate goes from one value to the other.
    The first judge accepts a growing fraction of the failures, up to `hacked` at the end.
    """
    draw = random.Random(7)
    for i in range(count):
        share = truth[0] + (truth[1] - truth[0]) * i / count
        true = draw.random() < share
        believed = true or draw.random() < hacked * i / count
        ours = min(1.0, max(0.0, (0.8 if believed else 0.2) + draw.gauss(0, 0.1)))
        theirs = min(1.0, max(0.0, (0.75 if true else 0.25) + draw.gauss(0, 0.15)))
        yield WatchRecord(
            kind="verdict", at="", id=f"run-{i}", verdict=said(ours), student=said(theirs)
        )

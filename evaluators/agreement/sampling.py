"""Samples runs to label with known probabilities, uncertain runs more often.

The size measure of a run is the standard deviation of its outcome given the judge's score, divided
by the square root of the number of runs of its task. This minimises the variance of a rate that is
corrected by the judge (Zrnic and Candès, arXiv 2403.03208). Runs are sampled systematically from
the list sorted by task and score (Madow, Ann. Math. Stat. 20 (1949) 333). This spreads the sample
over tasks and scores, and gives every run exactly its inclusion probability.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping
from math import fsum, sqrt

# Added to every standard deviation, which is at most 0.5, so that runs with certain scores are also
# sampled, and no label weighs more than six times as much as another because of its score.
_FLOOR = 0.1


def draw_informative(
    tasks: Mapping[str, str], scores: Mapping[str, float | None], count: int, seed: int = 0
) -> dict[str, float]:
    """Draws runs to label.

    Args:
        tasks: The task of each run, by id.
        scores: The judge's probability of success by id, in [0, 1]. A run without one counts as
            0.5.
        count: The sample size; all runs are drawn if there are no more.
        seed: The random seed.

    Returns:
        The inclusion probability of each sampled run, in (0, 1]. The order is random, so that any
        initial part may be labelled.
    """
    runs_of = Counter(tasks.values())
    sizes = {id: _size(scores.get(id)) / sqrt(runs_of[task]) for id, task in tasks.items()}
    chances = inclusion_chances(sizes, count)
    order = sorted(tasks, key=lambda id: (tasks[id], _known(scores.get(id)), id))
    generator = random.Random(f"informative {seed}")
    # Shuffle the tasks, because tasks with adjacent names are often similar.
    turns = sorted(runs_of)
    generator.shuffle(turns)
    turn = {task: i for i, task in enumerate(turns)}
    order.sort(key=lambda id: turn[tasks[id]])
    start, total, drawn = generator.random(), 0.0, []
    for id in order:
        before, total = total, total + chances[id]
        if int(total + start + 1e-9) > int(before + start + 1e-9):
            drawn.append(id)
    drawn.sort(key=lambda id: hashlib.sha256(f"{seed}:{id}".encode()).digest())
    return {id: round(chances[id], 6) for id in drawn}


def inclusion_chances(sizes: Mapping[str, float], count: int) -> dict[str, float]:
    """Returns inclusion probabilities for `count` draws proportional to size, at most 1 each."""
    if count >= len(sizes):
        return dict.fromkeys(sizes, 1.0)
    certain: set[str] = set()
    while True:
        left = {id: size for id, size in sizes.items() if id not in certain}
        scale = (count - len(certain)) / fsum(left.values())
        more = {id for id, size in left.items() if size * scale >= 1}
        if not more:
            return {id: 1.0 if id in certain else size * scale for id, size in sizes.items()}
        certain |= more


def _known(score: float | None) -> float:
    return 0.5 if score is None else score


def _size(score: float | None) -> float:
    p = _known(score)
    return _FLOOR + sqrt(p * (1 - p))

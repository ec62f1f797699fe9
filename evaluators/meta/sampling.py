"""Which runs to label: drawn with known chances, the uncertain ones more often.

The size of a run in the draw is the standard deviation of its outcome by the judge's score, which
is least-variance for a rate that is corrected by the judge (Zrnic and Candès, arXiv 2403.03208),
over the root of how many runs its task has. Runs are drawn systematically from the list sorted by
task and score (Madow, Ann. Math. Stat. 20 (1949) 333): that spreads them over tasks and scores, and
gives every run exactly its chance.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from math import fsum, sqrt

# Added to every standard deviation, which is at most 0.5: a run of which the judge is sure is drawn
# too, and no label weighs more than six times as much as another for it.
_FLOOR = 0.1


def draw_informative(
    tasks: Mapping[str, str], scores: Mapping[str, float | None], count: int, seed: int = 0
) -> dict[str, float]:
    """Draws runs to label.

    Args:
        tasks: The task of each run, by id.
        scores: The judge's probability of success by id, in [0, 1]. A run without one counts as
            0.5.
        count: How many are drawn; all where there are no more.
        seed: Another number draws others.

    Returns:
        For each run that was drawn its chance of being drawn, in (0, 1], in an order that is random
        too: any first part of it may be labelled.
    """
    runs_of = Counter(tasks.values())
    sizes = {id: _size(scores.get(id)) / sqrt(runs_of[task]) for id, task in tasks.items()}
    chances = inclusion_chances(sizes, count)
    order = sorted(tasks, key=lambda id: (tasks[id], _known(scores.get(id)), id))
    generator = random.Random(f"informative {seed}")
    # Tasks in an order that the seed decides: names that stand together are often alike.
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
    """The chance of each to be among `count` drawn in proportion to their sizes; nothing has more
    than 1.
    """
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


def inverse_weights(chances: Sequence[float]) -> list[float]:
    """What labels with these chances weigh, 1 on average (Horvitz and Thompson, with Hájek's
    ratio).
    """
    inverse = [1 / chance for chance in chances]
    middle = fsum(inverse) / len(inverse)
    return [one / middle for one in inverse]


def _known(score: float | None) -> float:
    return 0.5 if score is None else score


def _size(score: float | None) -> float:
    p = _known(score)
    return _FLOOR + sqrt(p * (1 - p))

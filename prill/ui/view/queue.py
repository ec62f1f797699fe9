"""Chooses the runs to label, and their order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

from prill.evaluators.meta.sampling import draw_informative
from prill.ui.view.library import Library

Order = Literal["file", "random", "informative"]


def keep_queue(
    library: Library,
    *,
    order: Order = "file",
    seed: int = 0,
    limit: int | None = None,
    scores: Mapping[str, float | None] | None = None,
) -> dict[str, float]:
    """Reduces a library that was read to the runs to label, in order.

    Args:
        library: The runs. Lines that cannot be read are left out.
        order: `random` sorts by a hash of seed and id, so it is stable when runs are added;
            `informative` draws `limit` runs by a judge's `scores`.
        seed: The seed of the order.
        limit: The number of runs to keep, counted in that order.
        scores: The scores by id.

    Returns:
        The inclusion probability of each run of the informative order; empty otherwise.
    """
    rows = library.rows
    numbers = [number for number, row in enumerate(rows) if row.broken is None]
    inclusion: dict[str, float] = {}
    if order == "random":
        numbers.sort(
            key=lambda number: hashlib.sha256(f"{seed}:{rows[number].id}".encode()).digest()
        )
    elif order == "informative":
        tasks = {rows[number].id: rows[number].task for number in numbers}
        inclusion = draw_informative(tasks, scores or {}, limit or len(numbers), seed)
        numbers = [library.places[id] for id in inclusion]
    library.keep(numbers[:limit])
    return inclusion

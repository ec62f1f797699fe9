"""Helpers for the tests of recordings by real packages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prill.io.store import BadLine, encode
from prill.types import Action, Point, Trajectory

WRITTEN = Path(__file__).parent
Row = tuple[str, str | None, str | None, Point | None]


def one(items: Iterable[Trajectory | BadLine]) -> Trajectory:
    """Returns the only item, which must be a trajectory that can be written."""
    (item,) = items
    assert isinstance(item, Trajectory), item
    assert encode(item)
    return item


def all_read(items: Iterable[Trajectory | BadLine]) -> dict[str, Trajectory]:
    """Returns the items by id, all of which must be trajectories."""
    read = list(items)
    assert all(isinstance(item, Trajectory) for item in read), read
    return {item.id: item for item in read if isinstance(item, Trajectory)}


def row(action: Action) -> Row:
    """Returns the type, value, element and position (two digits) of an action."""
    point = action.point and (round(action.point[0], 2), round(action.point[1], 2))
    return action.kind, action.value, action.target, point


def rows(trajectory: Trajectory) -> list[Row]:
    return [row(step.action) for step in trajectory.steps]

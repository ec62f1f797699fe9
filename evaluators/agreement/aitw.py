"""Android in the Wild: action matching and episode scores (arXiv 2307.10088).

All points and boxes are fractions of the screen, x before y, as everywhere in prill. The data set
itself writes y before x: `boxes` swaps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import dist
from typing import Any, Literal, NamedTuple

from prill.actions.phone import AUTO_UI_SWIPES, TAP_DISTANCE
from prill.errors import UsageError
from prill.evaluators.agreement.agreement import shares
from prill.evaluators.agreement.figure import Figure
from prill.evaluators.labels import cluster, make_task
from prill.evaluators.metrics import sum_clusters
from prill.io.store import BadLine
from prill.types import Action, Point, Trajectory

# The rules of the data set's own matching code, distances as fractions of the screen.
SAME_PLACE = 0.14  # two taps at most this far apart match
_GROWTH = 1.4  # relative growth of an element's box in height and width
_GESTURES = ("click", "tap", "long_press", "swipe", "scroll")
# The figures of `Scores`, in order.
FIGURES = ("action", "type", "text", "tap", "swipe", "partial", "complete")
_TYPES = {
    "type": "TYPE",
    "back": "PRESS_BACK",
    "home": "PRESS_HOME",
    "answer": "STATUS_TASK_COMPLETE",
}


class Box(NamedTuple):
    """An element on the screen by its left top corner and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """One step: the recorded and the predicted action (None: unreadable), the screen's boxes."""

    gold: Action
    predicted: Action | None
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores as shares of steps and episodes; None if there is no step or episode of the kind.

    `action` is the share of all steps that match, and `type` the share with equal types. `text` is
    the share of recorded TYPE steps in which one typed text contains the other. `tap` and `swipe`
    are the shares of recorded taps and swipes that match. `partial` is the mean over episodes of
    the share of matched steps, and `complete` the share of episodes with all steps matched.
    """

    episodes: int
    steps: int
    action: float | None
    type: float | None
    text: float | None
    tap: float | None
    swipe: float | None
    partial: float | None
    complete: float | None


def boxes(positions: Iterable[float | Sequence[float]]) -> tuple[Box, ...]:
    """Parses the boxes of `image/ui_annotations_positions`.

    Each box is y, x, height and width, in one flat list or in lists of four.

    Raises ValueError if the count of numbers is not a multiple of four.
    """
    flat = list(chain.from_iterable([p] if isinstance(p, int | float) else p for p in positions))
    if len(flat) % 4:
        raise ValueError(
            f"{len(flat)} numbers are not a list of boxes; each box has y, x, height and width"
        )
    return tuple(
        Box(x, y, width, height)
        for y, x, height, width in (flat[i : i + 4] for i in range(0, len(flat), 4))
    )


def action_type(action: Action) -> str:
    """Returns the data set's name for the kind of action.

    It is DUAL_POINT for all gestures, and the upper-case kind for kinds that the data set lacks.
    """
    if action.kind in _GESTURES or action.point is not None:
        return "DUAL_POINT"
    if action.kind == "press":
        return f"PRESS_{(action.value or action.text).strip().upper()}"
    if action.kind == "stop":
        impossible = "impossible" in f"{action.value} {action.text}".casefold()
        return "STATUS_TASK_IMPOSSIBLE" if impossible else "STATUS_TASK_COMPLETE"
    return _TYPES.get(action.kind, action.kind.upper())


def gesture(action: Action) -> Literal["tap", "swipe"] | None:
    """Returns `tap` if touch and lift are at most 0.04 apart, else `swipe`.

    Returns None if the action is not a gesture, or its position is unknown.
    """
    if action_type(action) != "DUAL_POINT" or (ends := _ends(action)) is None:
        return None
    return "tap" if _within(dist(*ends), TAP_DISTANCE) else "swipe"


def match(first: Action, second: Action, boxes: Iterable[Box] = ()) -> bool:
    """Returns whether two actions match.

    Typed text is ignored. Swipes match along the same axis, whatever their direction. Taps match
    when they are close, or when one enlarged box contains both; without boxes only the distance
    counts. A gesture without a position matches nothing.
    """
    types = action_type(first), action_type(second)
    if types != ("DUAL_POINT", "DUAL_POINT"):
        return types[0] == types[1]
    ends, others = _ends(first), _ends(second)
    if ends is None or others is None or gesture(first) != gesture(second):
        return False
    if gesture(first) == "swipe":
        return _main_axis(ends) == _main_axis(others)
    return _within(dist(ends[0], others[0]), SAME_PLACE) or any(
        _inside(ends[0], box) and _inside(others[0], box) for box in map(enlarged, boxes)
    )


def enlarged(box: Box) -> Box:
    """Returns the box enlarged to 2.4 times its height and width around its centre.

    Its corner is clipped to the screen, and its size to 1.
    """
    grown_x, grown_y = _GROWTH * box.width, _GROWTH * box.height
    return Box(
        max(0.0, box.x - grown_x / 2),
        max(0.0, box.y - grown_y / 2),
        min(1.0, box.width + grown_x),
        min(1.0, box.height + grown_y),
    )


def scores(episodes: Iterable[Iterable[Prediction]]) -> Scores:
    """Returns the scores of a set of episodes.

    Episodes without steps are skipped. A prediction of None matches nothing.
    """
    total = [sum(column) for column in zip(*map(_counts, episodes), strict=True)] or [0.0] * (
        2 * len(FIGURES)
    )
    found = [hits / of if of else None for hits, of in zip(total[::2], total[1::2], strict=True)]
    return Scores(
        episodes=int(total[-1]), steps=int(total[1]), **dict(zip(FIGURES, found, strict=True))
    )


def _counts(episode: Iterable[Prediction]) -> list[float]:
    """Returns numerator and denominator of each figure; the last two are of whole episodes."""
    matches: dict[str, list[float]] = {name: [] for name in FIGURES}
    for step in episode:
        gold, predicted = step.gold, step.predicted
        matched = predicted is not None and match(gold, predicted, step.boxes)
        matches["action"].append(matched)
        matches["type"].append(
            predicted is not None and action_type(gold) == action_type(predicted)
        )
        if kind := gesture(gold):
            matches[kind].append(matched)
        if action_type(gold) == "TYPE":
            matches["text"].append(
                predicted is not None and matched and _same_text(gold, predicted)
            )
    if every := matches["action"]:
        matches["partial"].append(sum(every) / len(every))
        matches["complete"].append(all(every))
    return [
        number for values in matches.values() for number in (float(sum(values)), float(len(values)))
    ]


@dataclass(frozen=True, kw_only=True)
class ActionMatching:
    """The match of predicted and recorded actions: `Scores` with 95 % intervals that resample
    tasks.

    Episodes without either a recording or a prediction are excluded from all figures, as are
    predictions that ended with an error. A recorded step without a prediction matches nothing;
    predictions beyond the last recorded step are ignored. `without_boxes` counts compared episodes
    whose taps match only by distance.
    """

    episodes: int
    steps: int
    figures: tuple[Figure, ...]
    not_predicted: int = 0
    not_recorded: int = 0
    broken_off: int = 0
    unpredicted_steps: int = 0
    further_predictions: int = 0
    without_boxes: int = 0
    clusters: int


def match_actions(
    predicted: Iterable[Trajectory | BadLine], recorded: Iterable[Trajectory | BadLine]
) -> ActionMatching:
    """Compares the actions of trajectories with those of the recorded trajectories with the same
    ids.

    The boxes of a recorded trajectory are in its `metadata["boxes"]`, one list of [x, y, width,
    height] for each step, as written by `prill convert aitw`. Invalid lines are skipped. Raises
    UsageError if nothing can be compared, if two trajectories have the same id, or if boxes are
    invalid.
    """
    gold: dict[str, tuple[str, list[Prediction], bool]] = {}
    for item in recorded:
        if isinstance(item, Trajectory):
            if item.id in gold:
                raise UsageError(f"two recorded trajectories have the id {item.id!r}")
            seen = _recorded_boxes(item)
            steps = [
                Prediction(step.action, None, seen[i] if seen else ())
                for i, step in enumerate(item.steps)
            ]
            gold[item.id] = make_task(item), steps, not seen
    counts = {
        "not_recorded": 0,
        "broken_off": 0,
        "unpredicted_steps": 0,
        "further_predictions": 0,
        "without_boxes": 0,
    }
    clusters: list[tuple[bool, str]] = []
    rows: list[list[float]] = []
    known: set[str] = set()
    for item in predicted:
        if not isinstance(item, Trajectory):
            continue
        if item.id in known:
            raise UsageError(
                f"two predicted trajectories have the id {item.id!r}; evaluate one agent at a time"
            )
        known.add(item.id)
        if item.id not in gold or item.error is not None:
            counts["broken_off" if item.id in gold else "not_recorded"] += 1
            continue
        task, steps, bare = gold[item.id]
        predictions = [step.action for step in item.steps]
        counts["unpredicted_steps"] += max(0, len(steps) - len(predictions))
        counts["further_predictions"] += max(0, len(predictions) - len(steps))
        counts["without_boxes"] += bare
        pairs = [
            replace(step, predicted=predictions[i] if i < len(predictions) else None)
            for i, step in enumerate(steps)
        ]
        clusters.append(cluster(item.id, {item.id: task}))
        rows.append(_counts(pairs))
    total = [sum(column) for column in zip(*rows, strict=True)]
    if not total or not total[1]:
        raise UsageError(
            "no recorded step has a prediction; predictions need the ids of the recorded "
            "trajectories"
        )
    return ActionMatching(
        episodes=int(total[-1]),
        steps=int(total[1]),
        figures=shares(FIGURES, sum_clusters(clusters, rows)),
        not_predicted=len(gold.keys() - known),
        clusters=len(set(clusters)),
        **counts,
    )


def _recorded_boxes(item: Trajectory) -> list[tuple[Box, ...]]:
    """Returns the boxes of each step; empty if the trajectory has none. Raises UsageError."""
    boxes: Any = item.metadata.get("boxes")
    if boxes is None:
        return []
    try:
        found = [tuple(Box(*map(float, box)) for box in step) for step in boxes]
    except (TypeError, ValueError):
        found = []
    if len(found) != len(item.steps):
        raise UsageError(
            f"{item.id}: metadata.boxes: expected a list of [x, y, width, height] for each of "
            f"{len(item.steps)} steps"
        )
    return found


def _ends(action: Action) -> tuple[Point, Point] | None:
    """Returns the touch and lift points; a swipe with only a direction is the canonical swipe."""
    if action.point is None:
        return (
            AUTO_UI_SWIPES.get((action.value or "").casefold())
            if action.kind in ("swipe", "scroll")
            else None
        )
    return action.point, action.end_point or action.point


def _main_axis(ends: tuple[Point, Point]) -> Literal["x", "y"]:
    (x, y), (to_x, to_y) = ends
    return "x" if abs(to_x - x) > abs(to_y - y) else "y"


def _within(distance: float, limit: float) -> bool:
    # Tolerate rounding: .50 to .64 is a distance of exactly .14 in decimal, but slightly more in
    # binary.
    return distance <= limit + 1e-9


def _inside(point: Point, box: Box) -> bool:
    return box.x <= point[0] <= box.x + box.width and box.y <= point[1] <= box.y + box.height


def _same_text(gold: Action, predicted: Action) -> bool:
    texts = [(action.value or "").casefold() for action in (gold, predicted)]
    return texts[0] in texts[1] or texts[1] in texts[0]

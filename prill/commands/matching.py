"""`prill agree --metric aitw`: predicted actions against recorded ones; and how figures with intervals are printed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from prill.errors import UsageError
from prill.evaluators.meta.agreement import Figure
from prill.evaluators.meta.aitw import ActionMatching, match_actions
from prill.evaluators.metrics import DRAWS, FEW_CLUSTERS, method_of
from prill.store import encode, read_trajectories

# Options that are about verdicts and labels.
_OF_VERDICTS = ("trajectories", "by", "source", "truth", "steps", "against", "corrections", "disagreements")
_NAMES = {
    "action": "action matches",
    "type": "action type equal",
    "text": "typed text, of recorded TYPE",
    "tap": "of recorded taps",
    "swipe": "of recorded swipes",
    "partial": "partial match, mean",
    "complete": "complete match",
}


def matching(args: argparse.Namespace) -> int:
    """Prints how predicted actions match recorded ones; 0. Raises UsageError when there is nothing to compare."""
    if given := [name for name in _OF_VERDICTS if getattr(args, name, None) not in (None, False, [], "majority")]:
        raise UsageError(f"--{given[0]} is about verdicts; with --metric aitw both files are trajectories")
    result = match_actions(read_trajectories(args.verdicts), read_trajectories(args.labels))
    print(encode(result).decode().rstrip() if args.json else "\n".join(_lines(result)))
    return 0


def _lines(result: ActionMatching) -> Iterator[str]:
    yield f"Action matching (Android in the Wild): {result.steps} recorded steps of {result.episodes} episodes"
    yield ""
    yield f"{'':<29}{'value':>7}   95 % interval"
    for figure in result.figures:
        yield figure_row(figure, _NAMES[figure.name])
    yield ""
    yield from about_intervals(result.figures, result.clusters, "task")
    told = {
        "recorded episodes without prediction, in no figure": result.not_predicted,
        "predicted episodes that were not recorded, in no figure": result.not_recorded,
        "predictions that broke off, in no figure": result.broken_off,
        "recorded steps without prediction, counted as no match": result.unpredicted_steps,
        "predictions beyond the last recorded step, passed over": result.further_predictions,
        "episodes without boxes, whose taps match by distance alone": result.without_boxes,
    }
    yield from (f"{count} {what}" for what, count in told.items() if count)


def figure_row(figure: Figure, name: str | None = None) -> str:
    """A line of a table of figures: value and interval."""
    title = name or figure.name
    if figure.undefined:
        return f"{title:<29}{'-':>7}   undefined"
    star = " *" if figure.interval == "wilson" else ""
    both = None if figure.low is None or figure.high is None else (figure.low, figure.high)
    return f"{title:<29}{figure.value:>7.3f}   {interval(both)}{star}"


def interval(ends: tuple[float, float] | None) -> str:
    """Both ends in words."""
    return "-" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def about_intervals(figures: Sequence[Figure], clusters: int, clustered_by: str) -> Iterator[str]:
    """How the intervals of a table were found."""
    units = "tasks" if clustered_by == "task" else "trajectories"
    few = method_of(clusters) == "t"
    how = f"t, leaving out one of {clusters} {units} at a time" if few else f"bootstrap over {clusters} {units}, {DRAWS} draws"
    marks = "; * Wilson, as it is the same in every draw" if any(figure.interval == "wilson" for figure in figures) else ""
    yield f"Intervals: {how}{marks}"
    if few:
        yield f"Warning: fewer than {FEW_CLUSTERS} {units}; figures of so few say little, whatever their intervals"

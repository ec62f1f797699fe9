"""`prill agree --metric aitw`: predicted actions against recorded ones."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from prill.errors import UsageError
from prill.evaluators.meta.aitw import ActionMatching, match_actions
from prill.evaluators.meta.figure import about_intervals, figure_row
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
    result = match_actions(*(read_trajectories(file, on_error="skip") for file in (args.verdicts, args.labels)))
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

"""What commands that judge say of a run's tally, in words and as JSON."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from prill.scoring import Tally


def figures(tally: Tally) -> dict[str, Any]:
    """The figures of a run, for JSON."""
    return {
        "read": tally.read,
        "skipped": tally.skipped,
        "success": tally.succeeded,
        "failure": tally.failed,
        "unscored": dict(tally.unscored),
        "usage": msgspec.to_builtins(tally.usage),
    }


def say_counts(tally: Tally, output: str) -> None:
    """Says on stderr how many verdicts of which kind there are, and why some are none."""
    unscored = sum(tally.unscored.values())
    counts = f"{tally.succeeded} success, {tally.failed} failure, {unscored} unscored, {tally.skipped} already there"
    lines = [f"{counts} -> {output}"]
    if unscored:
        lines += ["unscored: " + ", ".join(f"{reason} {count}" for reason, count in tally.unscored.most_common())]
        lines += [f"  {problem}" for problem in tally.problems[:10]]
    if unscored > 10:
        lines += [f"  … and {unscored - 10} more, with their reasons, in {output}"]
    for line in lines:
        print(line, file=sys.stderr)

"""Measures the cost of preparing evidence for judges: `python benchmarks/evidence.py FILE`, with
a trajectory file.

For each judge: how many trajectories it would make a call for, and calls, images and prompt tokens
for each of these, as `prill score --dry-run` guesses them. To compare two versions, run it with
each of them on PYTHONPATH.
"""

from __future__ import annotations

import sys
from typing import Any

import prill

PLANS: dict[str, dict[str, Any]] = {
    "vlm": {},
    "vlm, frames=1": {"frames": 1},
    "aer-v": {},
    "modular": {"captioner": "text"},
    "modular, captions": {"captioner": "given"},
    "steps": {"captioner": "text"},
    "webjudge": {"captioner": "text"},
    "webjudge, captions": {"captioner": "given"},
    "rubric": {"captioner": "text"},
}


def main() -> None:
    trajectories = prill.read_trajectories(sys.argv[1], on_error="skip")
    print(
        f"{'judge':<20}{'judged':>8}{'calls':>8}{'images':>8}{'prompt tokens':>15}   (means of "
        "those judged)"
    )
    for name, options in PLANS.items():
        judge: Any = prill.judge(name.split(",")[0], model="m", **options)
        plans = [plan for trajectory in trajectories if (plan := judge.estimate(trajectory)).calls]
        calls, images, tokens = (
            sum(getattr(plan, part) for plan in plans) / max(1, len(plans))
            for part in ("calls", "images", "prompt_tokens")
        )
        print(f"{name:<20}{len(plans):>8}{calls:>8.2f}{images:>8.2f}{tokens:>15.0f}")


if __name__ == "__main__":
    main()

"""What judges are shown, and what that costs: `python benchmarks/evidence.py FILE [--labels FILE] [--judge modular …]`.

For each judge: how many trajectories it would make a call for, images and prompt tokens a trajectory (as `prill score
--dry-run` guesses them). With labels, judges by text are asked, too, with the embedded model: a very small one, so the
figures tell whether verdicts moved, not how good a judge is. To compare two versions, run it with each on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from time import process_time

import prill
from prill.evaluators.meta.agreement import agreement
from prill.store import read_labels
from prill.types import Trajectory, Verdict

PLANS: dict[str, dict[str, object]] = {
    "vlm": {},
    "vlm, frames=1": {"frames": 1},
    "vlm, paper": {"preset": "paper"},
    "modular": {"captioner": "text"},
    "modular, captions": {"captioner": "given"},
    "steps": {"captioner": "text"},
    "webjudge": {"captioner": "text"},
    "rubric": {"captioner": "text"},
}


def plans(trajectories: Sequence[Trajectory]) -> None:
    print(f"{'judge':<20}{'judged':>8}{'calls':>8}{'images':>8}{'prompt tokens':>15}   a trajectory that is judged")
    for name, options in PLANS.items():
        judge = prill.judge(name.split(",")[0], model="m", **options)
        usage = [judge.estimate(trajectory) for trajectory in trajectories]  # type: ignore[attr-defined]
        made = [one for one in usage if one.calls]
        count = max(1, len(made))
        calls, images, tokens = (sum(getattr(one, part) for one in made) for part in ("calls", "images", "prompt_tokens"))
        print(f"{name:<20}{len(made):>8}{calls / count:>8.2f}{images / count:>8.2f}{tokens / count:>15.0f}")


async def judged(trajectories: Sequence[Trajectory], name: str) -> list[Verdict]:
    judge = prill.judge(name, model="embedded", captioner="text")
    return [await judge(trajectory) for trajectory in trajectories]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="trajectories")
    parser.add_argument("--labels")
    parser.add_argument("--judge", nargs="*", default=["modular"])
    args = parser.parse_args()
    trajectories = [row for row in prill.read_trajectories(args.file) if isinstance(row, Trajectory)]
    plans(trajectories)
    for name in args.judge if args.labels else ():
        start = process_time()
        verdicts = asyncio.run(judged(trajectories, name))
        table = agreement(verdicts, list(read_labels(args.labels)))
        print(f"\n{name}, embedded model, {process_time() - start:.0f} s of CPU")
        print("verdicts:", dict(Counter(verdict.unscored or str(verdict.success) for verdict in verdicts)))
        print(table)


if __name__ == "__main__":
    main()

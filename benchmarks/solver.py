"""Which tasks of MiniWoB++ the programs of tests.support.programmatic solve: episodes by task, and
by the papers' lists.

Run:   PYTHONPATH=. python benchmarks/solver.py [--seeds 5] [--first-seed 0] [--staged] [--tasks
NAME,NAME] Needs: Chromium, playwright, miniwob.
45: SteP (arXiv 2310.03720). 43: structured reflection (arXiv 2310.08740). 64: Synapse (arXiv
2306.07863), seen and unseen. An episode counts as solved when the page's own reward is above 0.
Every failure is told with its goal on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.loop import run_episode
from prill.papers.bench.papers import list_tasks, paper_names, read_paper
from tests.support.programmatic.policy import Programmatic

LISTS = {
    paper.list_name: list_tasks(paper)
    for paper in map(read_paper, paper_names("miniwob"))
    if paper.list_name
}


async def play(names: Sequence[str], seeds: range, *, staged: bool) -> dict[str, int]:
    """How many episodes of each task are solved; told as they come, for a browser can take its
    time.
    """
    solved = dict.fromkeys(names, 0)
    with tempfile.TemporaryDirectory() as images:
        environment = MiniWoB(Path(images), text="html", timeout=600.0)
        try:
            for name in names:
                for seed in seeds:
                    task = await environment.task(name, seed)
                    trajectory = await run_episode(
                        Programmatic(staged=staged), environment, task, id=f"{name}-{seed}"
                    )
                    label = await environment.grade(trajectory)
                    solved[name] += bool(label.success)
                    if not label.success:
                        last = trajectory.steps[-1] if trajectory.steps else None
                        reason = trajectory.error or (last and last.thought) or label.note
                        print(f"{name}, seed {seed}: {task.goal!r}: {reason}", file=sys.stderr)
                print(f"{name:30} {solved[name]:>3} / {len(seeds)}", flush=True)
        finally:
            await environment.close()
    return solved


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="episodes of each task (default 5)")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="where the seeds begin (default 0)"
    )
    parser.add_argument(
        "--staged", action="store_true", help="carry out a whole plan before asking for the next"
    )
    parser.add_argument(
        "--tasks", help="only these, with commas between (default: all of the three lists)"
    )
    args = parser.parse_args()
    wanted = (
        args.tasks.split(",")
        if args.tasks
        else sorted({task for tasks in LISTS.values() for task in tasks})
    )
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    solved = asyncio.run(play(wanted, seeds, staged=args.staged))
    for name, tasks in LISTS.items():
        played = [task for task in tasks if task in solved]
        if not played:
            continue
        every = sum(solved[task] == len(seeds) for task in played)
        most = sum(2 * solved[task] > len(seeds) for task in played)
        episodes = sum(solved[task] for task in played)
        print(
            f"list of {name}: {len(played)} tasks played, {every} solved with every seed, {most} "
            f"with most seeds; episodes {episodes} / {len(played) * len(seeds)}"
        )


if __name__ == "__main__":
    main()

"""Success after each attempt of structured reflection on MiniWoB++, with a planner that errs on purpose, beside the paper's figures:
`python benchmarks/structured_reflection.py OUT [--tasks 13] [--seeds 5] [--slips 0,1] [--misjudged 1]`.

No model is needed: `prill.testing.programmatic.structured` plans and reflects by program. Figures are counts, so a busy machine
changes none of them; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prill.emulators.browser.chromium import Chromium
from prill.emulators.miniwob.environment import MiniWoB
from prill.emulators.pool import Pool
from prill.policies.structured_reflection.actions import clicked, line_of
from prill.policies.structured_reflection.agent import REPLAYED, StructuredReflection, StructuredSpec, planning_calls
from prill.policies.structured_reflection.memory import Rules, memory_of
from prill.protocols import Learner
from prill.refine.outcomes import Results
from prill.refine.reflexion import Challenge, Play, Stage, play_again
from prill.refine.retries import RetrySpec
from prill.store import read_trajectories
from prill.testing.programmatic.structured import StructuredPlanner
from prill.types import Task, Trajectory

N_SCREEN = (
    "click-collapsible-2,click-menu-2,click-pie,click-tab-2,click-tab-2-hard,email-inbox,email-inbox-nl-turk,"
    "email-inbox-forward-nl,email-inbox-forward-nl-turk,navigate-tree,search-engine,social-media,use-autocomplete"
).split(",")


def challenge(name: str, seed: int, slips: Sequence[int], misjudged: int, spec: StructuredSpec) -> Challenge[MiniWoB]:
    """One task and seed; its planner remembers between attempts where it slipped."""
    planner = StructuredPlanner(slips, misjudged=misjudged)

    async def task(environment: MiniWoB) -> Task:
        return await environment.task(name, seed)

    def learner(lessons: Sequence[str], number: int) -> Learner:
        return StructuredReflection(planner, spec, lessons=lessons)

    return Challenge(name=f"{name}-s{seed}", id=lambda number: f"{name}-s{seed}-a{number}", task=task, learner=learner)


async def played(out: Path, challenges: Sequence[Challenge[Any]], attempts: int, browser: Chromium) -> Results:
    """Every challenge, as often as it takes."""
    environment = MiniWoB(out / "images", browser=browser, text="html", boxes=True)
    play: Play[Any] = Play(oracle=lambda one, attempt: one.grade(attempt))

    def show(stage: Stage) -> None:
        print(f"\r{stage.move} attempt {stage.attempt + 1}: {stage.done}/{stage.total}   ", end="", flush=True)

    pool: Pool[Any] = Pool([environment])
    try:
        return await play_again(pool, challenges, None, out, RetrySpec(attempts=attempts), play=play, progress=show)
    finally:
        await environment.close()


def recorded(out: Path) -> list[Trajectory]:
    """The attempts in the order in which they were played."""
    return [item for item in read_trajectories(out / "trajectories.jsonl") if isinstance(item, Trajectory)]


def repeats(attempt: Trajectory) -> int:
    """How many clicks were on an element that the lessons of this attempt rule out at that step."""
    memory = memory_of(attempt.metadata.get("lessons", ()), Rules(target=clicked))
    lines = [line_of(step.action) for step in attempt.steps if step.action.kind == "click"]
    return sum(clicked(line) in memory.hidden(place) for place, line in enumerate(lines))


def main() -> None:
    """Plays, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--slips", default="0,1")
    parser.add_argument("--misjudged", type=int, default=0)
    parser.add_argument("--attempts", type=int, default=5)
    args = parser.parse_args()
    slips = [int(part) for part in args.slips.split(",") if part]
    every = [challenge(n, 1000 + s, slips, args.misjudged, StructuredSpec()) for n in N_SCREEN for s in range(args.seeds)]

    async def run() -> Results:
        browser = Chromium()
        try:
            return await played(args.out, every, args.attempts, browser)
        finally:
            await browser.close()

    results = asyncio.run(run())
    print()
    for task in results.tasks:
        print(task.name, task.ended, [a.truth for a in task.attempts], [a.problem for a in task.attempts if a.problem])
    attempts = recorded(args.out)
    print("repeats", sum(map(repeats, attempts)), "calls", sum(map(planning_calls, attempts)))
    print("replayed", sum(step.thought == REPLAYED for one in attempts for step in one.steps))


if __name__ == "__main__":
    main()

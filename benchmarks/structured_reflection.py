"""Structured reflection on the 13 n-screen tasks of MiniWoB++, with a planner that errs on purpose,
beside the paper's figures:
`PYTHONPATH=. python benchmarks/structured_reflection.py OUT [--seeds 3] [--slips 0,1] [--misjudged 1]`.

No model is needed: `tests.support.programmatic.structured` plans and reflects by program. The
figures are counts, so a busy machine changes none of them. Give each setting a folder of its own.
"""  # noqa: E501

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import ttest_rel

from prill.emulators.browser.chromium import Chromium
from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.record import Pool
from prill.io.retries import ReflexionResults
from prill.io.store import iter_trajectories
from prill.papers.bench import read_paper
from prill.papers.structured_reflection.actions import clicked, format_line
from prill.papers.structured_reflection.agent import (
    REPLAYED,
    StructuredReflection,
    StructuredSpec,
    planning_calls,
)
from prill.papers.structured_reflection.memory import build_memory
from prill.papers.structured_reflection.screen import read_screen
from prill.protocols import Learner
from prill.refine.reflexion import PlaySettings, ReflexionProgress, run_reflexion
from prill.refine.retries import Challenge, RetrySpec
from prill.types import Task, Trajectory
from tests.support.papers.trials import category_means, completion, solved_by, within
from tests.support.programmatic.structured import StructuredPlanner

CATEGORY = "n-screen-n-step"


def challenge(
    name: str, seed: int, slips: Sequence[int], misjudged: int, spec: StructuredSpec
) -> Challenge[MiniWoB]:
    """One task and seed; its planner remembers between attempts where it slipped."""
    planner = StructuredPlanner(slips, misjudged=misjudged)

    async def task(environment: MiniWoB) -> Task:
        return await environment.task(name, seed)

    def learner(lessons: Sequence[str], number: int) -> Learner:
        return StructuredReflection(planner, spec, lessons=lessons)

    return Challenge(
        name=f"{name}-s{seed}",
        id=lambda number: f"{name}-s{seed}-a{number}",
        task=task,
        learner=learner,
    )


async def played(
    out: Path, challenges: Sequence[Challenge[Any]], attempts: int, browser: Chromium
) -> ReflexionResults:
    """Every challenge, as often as it takes."""
    environment = MiniWoB(out / "images", browser=browser, text="html", boxes=True)
    play: PlaySettings[Any] = PlaySettings(oracle=lambda one, attempt: one.grade(attempt))

    def show(stage: ReflexionProgress) -> None:
        print(
            f"\r{stage.move} attempt {stage.attempt + 1}: {stage.done}/{stage.total}   ",
            end="",
            file=sys.stderr,
            flush=True,
        )

    pool: Pool[Any] = Pool([environment])
    try:
        return await run_reflexion(
            pool, challenges, None, out, RetrySpec(attempts=attempts), play=play, progress=show
        )
    finally:
        await environment.close()


def recorded(out: Path) -> dict[str, Trajectory]:
    """Returns the attempts by id."""
    return {item.id: item for item in iter_trajectories(out / "trajectories.jsonl")}


def repeats(attempt: Trajectory) -> int:
    """How many clicks of an attempt were on an element that its lessons rule out at that step."""
    memory = build_memory(attempt.metadata.get("lessons", ()))
    steps = [step for step in attempt.steps if not step.action.is_final]
    return sum(
        step.action.kind == "click"
        and clicked(format_line(step.action))
        in read_screen(step.observation.text).numbers(memory.hidden(place))
        for place, step in enumerate(steps)
    )


def departs(attempt: Trajectory) -> bool:
    """Whether the actions before the step of its newest lesson are others than those of the attempt
    before, or were planned.
    """
    memory = build_memory(attempt.metadata.get("lessons", ()))
    steps = attempt.steps[: len(memory.prefix)]
    return tuple(format_line(step.action) for step in steps) != memory.prefix or any(
        step.thought != REPLAYED for step in steps
    )


def tables(results: ReflexionResults, attempts: dict[str, Trajectory]) -> Iterator[str]:
    """Formats the results as Markdown."""
    solved, published = solved_by(results.tasks), read_paper("structured-reflection")
    paper = {
        name: [100 * share for share in published.tasks[name]]
        for name in published.categories[CATEGORY]
    }
    shares = {
        most: completion(solved, most, lambda name: name.rpartition("-s")[0])
        for most in range(1, results.attempts + 1)
    }
    yield f"| task | {' | '.join(f'T={most}' for most in shares)} | the paper's T=1, 3, 5 |"
    yield "| :--- |" + " ---: |" * len(shares) + " :--- |"
    for name, figures in paper.items():
        ours = " | ".join(f"{by[name]:.0%}" if name in by else "-" for by in shares.values())
        yield f"| {name} | {ours} | {', '.join(f'{share:.0f}' for share in figures)} |"
    means = [category_means(by, {"mean": paper})["mean"] for by in shares.values()]
    theirs = [sum(figures) / len(paper) for figures in zip(*paper.values(), strict=True)]
    yield (
        f"| mean | {' | '.join(f'{mean:.1%}' for mean in means)} | "
        f"{', '.join(f'{mean:.1f}' for mean in theirs)} |"
    )
    first, last = within(solved, 1), within(solved, results.attempts)
    gained = sum(last[name] and not first[name] for name in solved)
    test = ttest_rel([last[name] for name in solved], [first[name] for name in solved])
    yield (
        f"\nfirst against last: {gained} gained, 0 lost of {len(solved)}; paired t "
        f"{test.statistic:.1f}, p = {test.pvalue:.1g}; McNemar, one tail, p = {0.5**gained:.1g}"
    )
    later = [attempt for attempt in attempts.values() if "lessons" in attempt.metadata]
    actions = sum(
        not step.action.is_final for attempt in attempts.values() for step in attempt.steps
    )
    yield (
        f"{len(attempts)} attempts, {actions} actions, "
        f"{sum(map(planning_calls, attempts.values()))} planning calls"
    )
    yield (
        f"clicks on what was ruled out: {sum(map(repeats, attempts.values()))}; later attempts "
        "that left the repeated actions: " + (f"{sum(map(departs, later))} of {len(later)}")
    )


def main() -> None:
    """Plays the episodes, and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument(
        "--seeds", type=int, default=3, help="seeds 1000, 1001, … (default 3; the paper: 25)"
    )
    parser.add_argument(
        "--slips", default="0,1", help="the steps, from 0, at which plans go wrong (default 0,1)"
    )
    parser.add_argument(
        "--misjudged",
        type=int,
        default=1,
        help="first reflections of a step that are wrong (default 1)",
    )
    parser.add_argument("--attempts", type=int, default=5, help="attempts at a task (default 5)")
    args = parser.parse_args()
    slips = [int(part) for part in args.slips.split(",") if part]
    every = [
        challenge(name, 1000 + seed, slips, args.misjudged, StructuredSpec())
        for name in read_paper("structured-reflection").categories[CATEGORY]
        for seed in range(args.seeds)
    ]

    async def run() -> ReflexionResults:
        browser = Chromium()
        try:
            return await played(args.out, every, args.attempts, browser)
        finally:
            await browser.close()

    results = asyncio.run(run())
    print("", file=sys.stderr)
    print(*tables(results, recorded(args.out)), sep="\n")


if __name__ == "__main__":
    main()

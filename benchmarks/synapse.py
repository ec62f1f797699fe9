"""What wrong verdicts cost an agent that learns by exemplars: success of Synapse against its
judge's precision.

    PYTHONPATH=. python benchmarks/synapse.py LOG             the table: memories from runs of which
    a share is wrongly accepted PYTHONPATH=. python benchmarks/synapse.py LOG --svg FILE  besides,
    the same as a picture

Every episode is a line of LOG, so the same command goes on where it was stopped. Needs the extra
`web` and the MiniWoB++ pages, and no language model: the agent asks `ExemplarFollower`, which does
what the most similar exemplar did, so a wrong exemplar misleads it as fully as anything can.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np
from tqdm import tqdm

from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.loop import run_episode
from prill.evaluators.metrics import intervals, wilson
from prill.papers.embedders import TfidfEmbedder
from prill.papers.synapse.agent import Synapse, SynapseSpec
from prill.papers.synapse.growth import grow
from prill.papers.synapse.memory import ExemplarMemory
from prill.protocols import Form, LanguageModel, Message, Reply
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Verdict
from prill.ui.report.lines import PlotLine, PlotPoint, line_chart
from tests.support.programmatic.synapse import ExemplarFollower

JUDGE = EvaluatorInfo(name="benchmark", version="1")
# Tasks whose solutions have one length, so that a run is an exemplar for other seeds, and of which
# no two are alike.
GROWN = (
    "click-button", "click-link", "click-tab", "focus-text-2", "enter-password", "enter-text-dynamic", "read-table",  # noqa: E501
    "simple-algebra", "grid-coordinate", "text-transform",
)  # fmt: skip
# trajectories accepted of each task; episodes of each, every one with a memory redrawn
OF_TASK, ROUNDS = 5, 6
LEVELS = (1.0, 0.8, 0.6, 0.4, 0.2)


class Episode(msgspec.Struct, frozen=True):
    """One line of the log: an episode, and the memory that it was played with; `of` are the tasks
    that this was grown from.
    """

    level: float
    round: int
    task: str
    success: bool
    added: int
    wrong: int
    of: str = ",".join(GROWN)


class Erring:
    """Does what the most similar exemplar did, but on another element of the same kind, or without
    the last call.
    """

    name = "erring"

    def __init__(self) -> None:
        self._follower = ExemplarFollower()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """The calls, spoilt; code for a page as it should be."""
        reply = await self._follower.complete(messages)
        return (
            replace(reply, text=spoilt(reply.text, str(messages[-1].parts[0])))
            if messages[0].role == "system"
            else reply
        )


def spoilt(block: str, page: str) -> str:
    """The block with its only call on another element, or without its last call."""
    code = block.splitlines()[1:-1]
    if len(code) > 1:
        return "\n".join(["```", *code[:-1], "```"])
    if match := re.search(r"//(\w+)\[text\(\)='(.+?)'", block):
        found = re.findall(rf"<{match[1]}[^>]*>([^<>]+)<", page)
        if wrong := [one for one in found if one.strip() and one != match[2]]:
            return block.replace(match[2], wrong[0])
    return re.sub(r"\d(?=['),])", lambda digit: str((int(digit[0]) + 1) % 3), block, count=1)


async def played(
    environment: MiniWoB,
    task: str,
    seed: int,
    model: LanguageModel,
    memory: ExemplarMemory,
    spec: SynapseSpec,
) -> tuple[Trajectory, LabelRecord]:
    """One episode, and what the page says of it."""
    of = await environment.task(task, seed)
    run = await run_episode(
        Synapse(model, spec, opened=memory), environment, of, id=of.id, agent="synapse"
    )
    return run, await environment.grade(run)


def verdict(run: Trajectory) -> Verdict:
    """Returns a judge's verdict that the run is a success."""
    return Verdict(id=run.id, success=True, score=1.0, evaluator=JUDGE)


async def attempts(environment: MiniWoB, task: str, *, wrong: bool) -> list[Trajectory]:
    """Runs of the task that did well, or did not."""
    found = list[Trajectory]()
    shipped = ExemplarMemory.load(None, TfidfEmbedder())
    for seed in range(2000, 2040):
        model: LanguageModel = Erring() if wrong else ExemplarFollower()
        run, label = await played(
            environment, task, seed, model, shipped, SynapseSpec(retrieval=False)
        )
        if label.success is not wrong:
            found.append(replace(run, id=f"{run.id}{' wrong' if wrong else ''}"))
        if len(found) == OF_TASK:
            return found
    raise SystemExit(f"{task}: not enough {'failures' if wrong else 'successes'}")


class Runs(NamedTuple):
    """The trajectories of a task that a judge may accept."""

    right: Sequence[Trajectory]
    wrong: Sequence[Trajectory]

    def drawn(self, level: float, random: Random) -> list[Trajectory]:
        """As many as are accepted, of which this share did well."""
        wrong = round(OF_TASK * (1 - level))
        return [*random.sample(self.wrong, wrong), *random.sample(self.right, OF_TASK - wrong)]


async def play(log: Path, tasks: Sequence[str], rounds: int) -> None:
    """Plays what the log does not have yet, and appends to it."""
    keep_whole_lines(log)
    of = ",".join(tasks)
    done = {(one.level, one.round, one.task) for one in read(log) if one.of == of}
    left = [
        (level, number)
        for number in range(rounds)
        for level in LEVELS
        if any((level, number, t) not in done for t in tasks)
    ]
    if not left:
        return
    with (
        tempfile.TemporaryDirectory() as images,
        log.open("a") as lines,
        tqdm(total=len(left), unit="memory") as bar,
    ):
        environment = MiniWoB(Path(images), text="html", timeout=600)
        try:
            runs = {
                task: Runs(
                    await attempts(environment, task, wrong=False),
                    await attempts(environment, task, wrong=True),
                )
                for task in tasks
            }
            abstractions = ExemplarMemory.load(None, TfidfEmbedder()).abstractions
            for level, number in left:
                random = Random(number)
                kept = [run for found in runs.values() for run in found.drawn(level, random)]
                # of two that are as like the present task, the model takes the last
                random.shuffle(kept)
                labels = {run.id: not run.id.endswith(" wrong") for run in kept}
                verdicts = {run.id: verdict(run) for run in kept}
                grown = await grow(
                    ExemplarMemory([], abstractions, embedder=TfidfEmbedder()),
                    kept,
                    verdicts,
                    labels=labels,
                )
                for task in tasks:
                    if (level, number, task) in done:
                        continue
                    _, label = await played(
                        environment, task, number, ExemplarFollower(), grown.memory, SynapseSpec()
                    )
                    one = Episode(
                        level,
                        number,
                        task,
                        bool(label.success),
                        len(grown.added),
                        grown.wrong or 0,
                        of,
                    )
                    lines.write(msgspec.json.encode(one).decode() + "\n")
                    lines.flush()
                bar.update()
        finally:
            await environment.close()


def keep_whole_lines(log: Path) -> None:
    """Takes off a last line that was cut: the next one would be written onto it."""
    if log.is_file() and not (there := log.read_bytes()).endswith(b"\n"):
        log.write_bytes(there[: there.rfind(b"\n") + 1])


def read(log: Path) -> list[Episode]:
    """The episodes of the log; a last line that was cut is none."""
    lines = log.read_bytes().splitlines(keepends=True) if log.is_file() else []
    return [msgspec.json.decode(line, type=Episode) for line in lines if line.endswith(b"\n")]


def table(episodes: Sequence[Episode]) -> list[PlotPoint]:
    """Prints a line for each precision of the judge."""
    print(
        "| judge's precision | exemplars of a memory, of them wrong | success of the agent | 95 % "
        "|\n|---|---|---|---|"
    )
    points = list[PlotPoint]()
    for level in sorted({one.level for one in episodes}, reverse=True):
        here = [one for one in episodes if one.level == level]
        points.append(point(level, here))
        added, wrong = (
            sum(values) / len(here)
            for values in ((one.added for one in here), (one.wrong for one in here))
        )
        print(f"| {level:.1f} | {added:.1f}, {wrong:.1f} | {points[-1].words} |")
    return points


def point(level: float, episodes: Sequence[Episode]) -> PlotPoint:
    """How many episodes went well, as a point of the picture; a dot for each task."""
    of_task = [
        [one.success for one in episodes if one.task == task]
        for task in dict.fromkeys(one.task for one in episodes)
    ]
    total, count = sum(map(sum, of_task)), len(episodes)
    low, high = interval(of_task)
    words = f"{total} of {count} ({total / count:.2f}) | {low:.2f} to {high:.2f}"
    return PlotPoint(
        level, total / count, low, high, words, [(level, sum(good) / len(good)) for good in of_task]
    )


def interval(of_task: Sequence[Sequence[bool]]) -> tuple[float, float]:
    """The 95 % interval of the share that went well, when tasks are redrawn with all their
    episodes.
    """
    rows = np.array([(sum(good), len(good)) for good in of_task])
    low, high = intervals(rows, lambda sums: sums[:, :1] / sums[:, 1:], (0.0,))
    if low[0] < high[0]:
        return float(low[0]), float(high[0])
    # Tasks that are all alike leave nothing to vary: each counts as one trial.
    return wilson(rows[:, 0].sum() / rows[:, 1].sum(), len(rows))


def main() -> None:
    """Reads the options, plays the remaining episodes, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", type=Path, help="file of episodes, made or gone on with")
    parser.add_argument(
        "--svg", metavar="FILE", type=Path, help="draw success against precision into this file"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        help=f"episodes of each task at each precision (default {ROUNDS})",
    )
    parser.add_argument("--tasks", default=",".join(GROWN), help="which, with commas between")
    args = parser.parse_args()
    tasks = args.tasks.split(",")
    asyncio.run(play(args.log, tasks, args.rounds))
    points = table(
        [one for one in read(args.log) if one.of == ",".join(tasks) and one.round < args.rounds]
    )
    if args.svg:
        line = PlotLine("success of the agent; a dot is one task", points)
        args.svg.write_text(
            line_chart(
                "Success against the judge's precision",
                "share of accepted runs that did well",
                [line],
            )
        )


if __name__ == "__main__":
    main()

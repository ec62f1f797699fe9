"""What wrong verdicts cost an agent that learns by exemplars: success of Synapse against its judge's precision.

    python benchmarks/synapse.py             the table: memories grown from trajectories of which a share is wrongly accepted
    python benchmarks/synapse.py --svg FILE  besides, the same as a picture
    python benchmarks/synapse.py --ship DIR  plays the solutions below and writes the exemplars that come with prill

Needs the extra `web` and the MiniWoB++ pages, and no language model: the agent asks `ExemplarFollower`, which does what the
most similar exemplar did, so a wrong exemplar misleads it as fully as anything can.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from prill.emulators.miniwob.environment import MiniWoB
from prill.evaluators.metrics import wilson
from prill.loop import rollout
from prill.policies.embedders import TfidfEmbedder
from prill.policies.synapse.agent import Synapse, SynapseSpec
from prill.policies.synapse.growth import exemplar_of, grow
from prill.policies.synapse.memory import Exemplar, Memory, Turn
from prill.protocols import Form, LanguageModel, Message, Reply
from prill.report.lines import Line, Point, line_chart
from prill.testing.programmatic.synapse import ExemplarFollower
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Usage, Verdict

JUDGE = EvaluatorInfo(name="benchmark", version="1")
GROWN = ("click-button", "click-link", "click-tab", "focus-text-2", "enter-password")
OF_TASK, ROUNDS = 5, 8  # trajectories accepted of each task; episodes of each, every one with a memory drawn anew
SHIPPED = 3  # exemplars of a task that come with prill; one more is only a key
LEVELS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)


def _text(pattern: str, code: str) -> Callable[[str], str]:
    """Code with the groups of the goal in their places."""

    def solve(goal: str) -> str:
        match = re.search(pattern, goal)
        if match is None:
            raise LookupError(f"{goal!r} is no goal of this task")
        return code.format(*match.groups())

    return solve


def _submit(code: str) -> str:
    return f"{code}\nagent.click_xpath(\"//button[text()='Submit']\")"


def _typed(place: str, text: str) -> str:
    return f'agent.click_xpath("{place}")\nagent.type("{text}")'


BY_TEXT = "agent.click_xpath(\"//{tag}[text()='{{0}}']\")"
# How each task is solved, by the words of its goal; in turns where there are several.
SOLUTIONS: dict[str, Sequence[Callable[[str], str]]] = {
    "click-button": [_text(r'Click on the "(.+)" button', BY_TEXT.format(tag="button"))],
    "click-link": [_text(r'Click on the link "(.+)"', BY_TEXT.format(tag="span"))],
    "click-tab": [_text(r"Click on (Tab #\d)", BY_TEXT.format(tag="a"))],
    "focus-text": [_text("Focus into the textbox", "agent.click_xpath(\"//*[@id='tt']\")")],
    "focus-text-2": [_text(r"Focus into the (\d)\w\w input", "agent.click_xpath(\"//*[@id='tt{0}']\")")],
    "click-button-sequence": [
        _text(
            "button ONE, then click button TWO",
            "agent.click_xpath(\"//button[text()='ONE']\")\nagent.click_xpath(\"//button[text()='TWO']\")",
        )
    ],
    "click-dialog": [_text("Close the dialog box", "agent.click_xpath(\"//button[@title='Close']\")")],
    "click-dialog-2": [_text(r'labeled "(OK|Cancel)"', BY_TEXT.format(tag="button"))],
    "click-collapsible": [
        _text("Expand the section below and click submit", _submit("agent.click_xpath(\"//*[@id='area']/h3\")"))
    ],
    "enter-password": [
        _text(
            'password "(.+)" into both',
            _submit(_typed("//*[@id='password']", "{0}") + "\n" + _typed("//*[@id='verify']", "{0}")),
        )
    ],
    "enter-text-dynamic": [_text('Enter "(.+)" into the text field', _submit(_typed("//*[@id='tt']", "{0}")))],
    "find-word": [_text('The word to type is "(.+)"', _submit(_typed("//*[@id='answer-input']", "{0}")))],
    "use-autocomplete": [
        _text('starts with "([^"]+)"', _typed("//*[@id='tags']", "{0}")),
        _text('The item to choose is "(.+)"', _submit("agent.click_xpath(\"//div[text()='{0}']\")")),
    ],
}


class Solver:
    """Writes the solution of a task; where code for a page is asked for, that of the prompt's example. `wrong` does other."""

    name = "by hand"

    def __init__(self, task: str, goal: str, *, wrong: bool = False) -> None:
        self.task, self.goal, self.wrong = task, goal, wrong
        self._follower, self._turn = ExemplarFollower(), 0

    async def complete(
        self, messages: Sequence[Message], *, form: Form | None = None, max_tokens: int = 1024, prompt: str = ""
    ) -> Reply:
        """The calls of the present turn."""
        if messages[0].role != "system":
            return await self._follower.complete(messages)
        page = str(messages[-1].parts[0])
        turns = SOLUTIONS[self.task]
        try:
            code = turns[min(self._turn, len(turns) - 1)](f"{self.goal} {page}")
        except LookupError:  # a goal of another form
            return Reply("There is nothing to do.", Usage(calls=1), {})
        self._turn += 1
        return Reply(f"```\n{spoilt(code, page) if self.wrong else code}\n```", Usage(calls=1), {})


def spoilt(code: str, page: str) -> str:
    """The code with its only call on another element of the same kind, or without its last call."""
    lines = code.splitlines()
    if len(lines) > 1:
        return "\n".join(lines[:-1])
    if match := re.search(r"//(\w+)\[text\(\)='(.+)'\]", code):
        others = [one for one in re.findall(rf"<{match[1]}[^>]*>([^<]+)<", page) if one.strip() and one != match[2]]
        if others:
            return code.replace(match[2], others[0])
    return re.sub(r"(?<=tt)\d", lambda digit: str(int(digit[0]) % 3 + 1), code)


def empty_memory(task: str) -> Memory:
    """A memory that says of the task only how its pages are put into few words."""
    shipped = Memory.load(None, TfidfEmbedder())
    way = shipped.abstractions.get(task)
    blank = Exemplar(task, "Task", "", (Turn("pass", "", "" if way else None),) * len(SOLUTIONS[task]))
    return Memory([blank], shipped.abstractions, embedder=TfidfEmbedder())


async def played(
    environment: MiniWoB, task: str, seed: int, model: Callable[[str], LanguageModel], memory: Memory, spec: SynapseSpec
) -> tuple[Trajectory, LabelRecord]:
    """One episode, and what the page says of it."""
    of = await environment.task(task, seed)
    run = await rollout(Synapse(model(of.goal), spec, opened=memory), environment, of, id=of.id, agent="synapse")
    return run, await environment.grade(run)


async def ship(environment: MiniWoB, folder: Path) -> None:
    """Writes the exemplars that come with prill: three solutions of each task that the page rewards, and one more key."""
    found = list[Exemplar]()
    for task in SOLUTIONS:
        seen = list[Exemplar]()
        for seed in range(1000, 1020):
            memory, spec = empty_memory(task), SynapseSpec(retrieval=False)
            run, label = await played(environment, task, seed, lambda goal, t=task: Solver(t, goal), memory, spec)  # type: ignore[misc]
            if not label.success:
                print(f"{run.id}: {run.task.goal!r}: {label.note}, {run.error}", file=sys.stderr)
                continue
            one = exemplar_of(run, "oracle")
            # Stop when there is enough that differs.
            if all(one.steps[0].action != other.steps[0].action for other in seen) or len(SOLUTIONS[task]) > 1 or seed > 1006:
                seen.append(one)
            if len(seen) == SHIPPED + 1:
                break
        found += [one if i < SHIPPED else key_of(one) for i, one in enumerate(seen)]
        print(f"{task}: {len(seen)}", file=sys.stderr)
    await Memory(found, embedder=TfidfEmbedder()).save(folder)


def key_of(exemplar: Exemplar) -> Exemplar:
    """The exemplar as a key alone."""
    return Exemplar(exemplar.name, exemplar.key, provenance=exemplar.provenance, source=exemplar.source)


def verdict(run: Trajectory) -> Verdict:
    """What a judge says that takes the run for a success."""
    return Verdict(id=run.id, success=True, score=1.0, evaluator=JUDGE)


async def attempts(environment: MiniWoB, task: str, *, wrong: bool) -> list[Trajectory]:
    """Runs of the task that did well, or did not."""
    found = list[Trajectory]()
    for seed in range(2000, 2040):
        run, label = await played(
            environment,
            task,
            seed,
            lambda goal: Solver(task, goal, wrong=wrong),
            empty_memory(task),
            SynapseSpec(retrieval=False),
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


async def table(environment: MiniWoB, tasks: Sequence[str], rounds: int) -> list[Point]:
    """Prints a line for each precision of the judge."""
    runs = {
        task: Runs(await attempts(environment, task, wrong=False), await attempts(environment, task, wrong=True))
        for task in tasks
    }
    print("| judge's precision | exemplars of a memory, of them wrong | success of the agent | 95 % |\n|---|---|---|---|")
    points = list[Point]()
    for level in LEVELS:
        good, added, wrong = dict.fromkeys(tasks, 0), 0, 0
        for number in range(rounds):
            random = Random(number)
            kept = [run for found in runs.values() for run in found.drawn(level, random)]
            random.shuffle(kept)  # of two that are as like the present task, the model takes the last
            labels = {run.id: not run.id.endswith(" wrong") for run in kept}
            verdicts = {run.id: verdict(run) for run in kept}
            grown = await grow(Memory([], embedder=TfidfEmbedder()), kept, verdicts, labels=labels)
            added, wrong = added + len(grown.added), wrong + (grown.wrong or 0)
            for task in tasks:
                _, label = await played(environment, task, number, lambda goal: ExemplarFollower(), grown.memory, SynapseSpec())
                good[task] += bool(label.success)
        points.append(point(level, list(good.values()), rounds))
        print(f"| {level:.1f} | {added / rounds:.0f}, {wrong / rounds:.0f} | {points[-1].words} |", flush=True)
    return points


def point(level: float, good: Sequence[int], rounds: int) -> Point:
    """How many episodes of each task went well, as a point of the picture; a dot for each task."""
    total, episodes = sum(good), rounds * len(good)
    low, high = wilson(total / episodes, episodes)
    words = f"{total} of {episodes} ({total / episodes:.2f}) | {low:.2f} to {high:.2f}"
    return Point(level, total / episodes, low, high, words, [(level, one / rounds) for one in good])


async def main() -> None:
    """Reads the options and prints, or writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ship", metavar="DIR", type=Path, help="write the exemplars into this folder instead")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="draw success against precision into this file")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"episodes of each task at each precision (default {ROUNDS})"
    )
    parser.add_argument("--tasks", default=",".join(GROWN), help="which, with commas between")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as images:
        environment = MiniWoB(Path(images), text="html", timeout=600)
        try:
            if args.ship:
                await ship(environment, args.ship)
                return
            points = await table(environment, args.tasks.split(","), args.rounds)
        finally:
            await environment.close()
    if args.svg:
        line = Line("success of the agent; a dot is one task", points)
        args.svg.write_text(line_chart("Success against the judge's precision", "share of accepted runs that did well", [line]))


if __name__ == "__main__":
    asyncio.run(main())

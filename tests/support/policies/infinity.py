"""Scripted policies for WebArena-Infinity's applications, and for the small one of ours.

A line of `infinity_solutions.toml` is `click ELEMENT`, or `type ELEMENT := TEXT`. An element is the
start of its line in the state's text; `A >> B` is the first B below a line that contains A.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from prill.actions.webarena import parse_action
from prill.protocols import Message
from prill.testing import ScriptedModel
from prill.types import Observation, Step, Task
from tests.support.emulators.infinity_checkout import ROOT

SOLUTIONS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("infinity_solutions.toml").read_text("utf-8")
)


def another(name: str) -> str:
    """Another task of the same application and set with a solution; the same, if there is none."""
    app, _, kind = name.split("/")
    same = [one for one in SOLUTIONS if one.startswith(f"{app}/") and one.endswith(f"/{kind}")]
    return same[(same.index(name) + 1) % len(same)]


def number(element: str, text: str) -> str:
    """The number of an element in the text of a state. Raises LookupError."""
    *anchors, start = (part.strip() for part in element.split(">>"))
    lines = text.splitlines()
    for anchor in anchors:
        lines = lines[next((at for at, line in enumerate(lines) if anchor in line), len(lines)) :]
    found = [match for line in lines if (match := re.match(r"\s*\[(\w+)\] (.*)", line))]
    for match in found:
        if match[2].startswith(start):
            return match[1]
    # text in a part that can be clicked belongs to its line; the shortest one is the innermost
    text = start.partition("StaticText ")[2].strip("'")
    parts = [match for match in found if match[2].startswith("generic") and text in match[2]]
    if text and parts:
        return min(parts, key=lambda match: len(match[2]))[1]
    raise LookupError(f"no element {element!r}")


class Scripted:
    """Plays a task's solution; with `wrong`, that of another task."""

    def __init__(self, *, wrong: bool = False) -> None:
        self.wrong = wrong

    def reset(self, task: Task) -> None:
        self.lines = iter(SOLUTIONS[another(task.id) if self.wrong else task.id])

    async def act(self, observation: Observation) -> Step:
        return Step(observation, parse_action(self.words(observation.text or "")))

    def words(self, text: str) -> str:
        line = next(self.lines, None)
        if line is None:
            return "stop []"
        kind, _, rest = line.partition(" ")
        element, _, value = rest.partition(" := ")
        return f"{kind} [{number(element, text)}]" + (f" [{value}] [0]" if value else "")


class Stops:
    """Only stops."""

    def reset(self, task: Task) -> None:
        pass

    async def act(self, observation: Observation) -> Step:
        return Step(observation, parse_action("stop [done]"))


class Model(ScriptedModel):
    """Answers `react`, Reflexion and judges. It plays another task's solution until a lesson is in
    the prompt, and accepts an attempt that acted on each element of the task's own solution.
    """

    def __init__(self, name: str = "scripted") -> None:
        super().__init__(self._answer, name=name)
        self._plays: dict[str, Scripted] = {}
        self._goals = {
            task["instruction"]: f"{file.parent.name}/{task['id']}/real"
            for file in ROOT.glob("apps/*/real-tasks.json")
            for task in json.loads(file.read_text("utf-8"))
        }

    def _answer(self, messages: Sequence[Message]) -> str:
        system, *parts = [part for m in messages for part in m.parts if isinstance(part, str)]
        text = "\n".join(parts)
        name = next(name for goal, name in self._goals.items() if goal in text)
        if system.startswith("You help an agent"):
            return "Play the solution of the task that was set."
        if "PREVIOUS ACTION" in text:
            turn = str(messages[-1].parts[-1])
            return f"In summary, the next action I will perform is ```{self._act(name, turn)}```"
        elements = [line.split(" := ")[0].split(" ", 1)[1] for line in SOLUTIONS.get(name, ["- ?"])]
        done = all(f"at [{line.split('>>')[-1].strip()}" in text for line in elements)
        status = "success" if done else "failure"
        return f'{{"thoughts": "by the script", "status": "{status}"}}'

    def _act(self, name: str, text: str) -> str:
        if name not in SOLUTIONS:
            return "stop []"
        if text.rstrip().endswith("None"):
            self._plays[name] = play = Scripted(wrong="MEMORY" not in text)
            play.reset(Task(goal="", id=name))
        try:
            return self._plays[name].words(text)
        except LookupError:
            return "stop [N/A]"

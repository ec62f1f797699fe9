"""Agents that are language models by script: they fail, follow their first lesson, and are led astray by a second one; and
judges of every kind of error."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prill.actions.webarena import parse_action, write_action
from prill.policies.react import React
from prill.protocols import Message
from prill.testing import ScriptedModel
from prill.testing.shop import shop_configs, shop_solutions
from prill.testing.shop.play import line_of
from prill.types import EvaluatorInfo, Trajectory, Verdict

LESSON = "I went the wrong way. Next time I go the right way."
_INTENTS = {
    intent: int(number)
    for number, intent in re.findall(r'"task_id": (\d+).*?"intent": "(.*?)",\n', shop_configs().decode(), re.DOTALL)
}
_at: dict[str, int] = {}


def say(messages: Sequence[Message]) -> str:
    """Reflects, or acts: right with exactly one lesson in mind."""
    system, user = str(messages[0].parts[0]), str(messages[-1].parts[0])
    if "do better at its next attempt" in system:
        return LESSON if "TRIAL 0:" not in user else "Go elsewhere."
    goal = user.partition("OBJECTIVE: ")[2].partition("\n")[0]
    memory = user.partition("MEMORY:")[2].partition("PREVIOUS ACTION")[0]
    right = LESSON in memory and "elsewhere" not in memory
    number = _INTENTS.get(goal)
    return f"So I do. ```{_click(goal, user, right) if number is None else _on_shop(number, goal, user, right)}```"


def _click(goal: str, user: str, right: bool) -> str:
    """MiniWoB++: the element that the goal quotes, or another one."""
    word = goal.partition('"')[2].partition('"')[0]
    page = user.partition("URL:")[0]
    elements = re.findall(r"^\s*\[(\d+)\] (.*)", page, re.MULTILINE)
    named = [n for n, words in elements if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", words)]
    others = [n for n, words in elements if n not in named]
    return f"click [{(named if right else others)[-1]}]"


def _on_shop(number: int, goal: str, user: str, right: bool) -> str:
    """The shop: the next line of the play for this task."""
    if user.endswith("PREVIOUS ACTION:\nNone"):
        _at[goal] = 0
    solution = shop_solutions()[number]
    action = parse_action((solution.right if right else solution.wrong)[_at[goal]])
    if action.target is not None:
        line = line_of(action.target, user)
        if line is None:
            return "scroll [down]"
        _at[goal] += 1
        return str(write_action(action, line[1 : line.index("]")]))
    _at[goal] += 1
    return str(write_action(action))


class Actor(React):
    """The actor by that script, as `--policy file.py:Actor` makes it."""

    def __init__(self) -> None:
        super().__init__(ScriptedModel(say))


class Judge:
    """Knows by the lessons that an attempt was made with how it went, and errs as it is told to."""

    def __init__(self, kind: str = "perfect") -> None:
        self.kind = kind
        self.info = EvaluatorInfo("scripted", "1", params={"kind": kind})

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """None are looked at."""
        return ()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """The verdict."""
        right = trajectory.metadata["attempt"] == 1
        if self.kind == "unscored" and trajectory.metadata["seed"] % 2:
            return Verdict(id=trajectory.id, unscored="timeout", reason="no answer in time", evaluator=self.info)
        success = {"false-negative": False, "false-positive": True}.get(self.kind, right)
        score = 0.4 if self.kind == "false-negative" and right else float(success)
        return Verdict(id=trajectory.id, success=success, score=score, reason="so it looks", evaluator=self.info)

"""CogAgent as a policy: the 18B model (arXiv 2312.08914), the agent of arXiv 2404.06474, and the 9B model of December 2024.

Both were trained on one form of question, so these prompts are theirs. Any model with images can be asked, but only these
answer in the form that is read here.
"""

from __future__ import annotations

import random
from typing import Literal

from prill.agents.grounded import SwipeUp, operation_of, read_cogagent_18b
from prill.agents.grounded_calls import read_cogagent_9b
from prill.errors import NoEvidence, UsageError
from prill.prompts import load_prompt
from prill.protocols import Image, LanguageModel, Message
from prill.types import Observation, Platform, Step, Task

Generation = Literal["18b", "9b"]


class CogAgent:
    """Decides from the screenshot alone.

    generation  "18b" is asked for the steps with grounding and sees no history; "9b" is told its earlier operations
    swipe_up    what a swipe up of the 18B model means on iOS; see `prill.agents.grounded.read_cogagent_18b`
    seed        draws left or right for it; with the same task and seed the draws are the same
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        generation: Generation = "9b",
        swipe_up: SwipeUp | None = None,
        seed: int = 0,
        max_tokens: int = 1024,
    ) -> None:
        if generation not in ("18b", "9b"):
            raise UsageError(f"unknown generation {generation!r}; choose 18b or 9b")
        self.model = model
        self.generation = generation
        self.swipe_up = swipe_up
        self.seed = seed
        self.max_tokens = max_tokens
        self._task = Task(goal="")
        self._done: list[tuple[str, str]] = []
        self._draw = random.Random(seed)

    def reset(self, task: Task) -> None:
        """Begin a new episode."""
        self._task = task
        self._done = []
        self._draw = random.Random(f"{self.seed} {task.id} {task.goal}")

    async def act(self, observation: Observation) -> Step:
        """The next step. Raises NoEvidence without a screenshot, and whatever `Unscored` error the model raises."""
        if observation.screenshot is None:
            raise NoEvidence("cogagent looks at screenshots, and this state has none")
        prompt = load_prompt("prill.agents", f"cogagent_{self.generation}")
        values = {"goal": self._task.goal}
        if self.generation == "9b":
            lines = (f"\n{number}. {operation}\t{said}" for number, (operation, said) in enumerate(self._done))
            values |= {"history": "".join(lines), "platform": _machine(self._task.platform)}
        question = Message("user", (Image(observation.screenshot), prompt.fill(values)["user"]))
        reply = await self.model.complete((question,), max_tokens=self.max_tokens, prompt=prompt.hash)
        thought = _before_operation(reply.text)
        if self.generation == "18b":
            action = read_cogagent_18b(reply.text, self._task.platform, swipe_up=self.swipe_up, draw=self._draw)
        else:
            action = read_cogagent_9b(reply.text)
            self._done.append((" ".join(action.text.split()), _sentence(thought)))
        return Step(observation, action, thought or None)


def _machine(platform: Platform) -> str:
    """The 9B model's word for it: Mobile, WIN or Mac."""
    return "Mobile" if platform in ("android", "ios") else "WIN"


def _before_operation(reply: str) -> str:
    operation = operation_of(reply)
    before = reply.strip().removesuffix(operation) if operation != reply.strip() else reply
    return before.strip().removesuffix(":").removesuffix("Grounded Operation").strip()


def _sentence(thought: str) -> str:
    return " ".join(thought.rpartition("Action:")[2].split())

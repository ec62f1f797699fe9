"""A reward function for reinforcement learning. It takes episodes and returns numbers, or None for
an episode without a verdict.

Run: OPENAI_BASE_URL=http://127.0.0.1:8000/v1 .venv/bin/python examples/reward.py MODEL
(`python -m prill.testing.endpoint.server --port 8000` starts a mock endpoint.)
"""

import asyncio
import sys
from collections.abc import Sequence

import prill
from prill import Action, Observation, Step, Task, Trajectory


class Reward:
    """Returns 1 for success, 0 for failure, and None for an unscored episode. Leave an unscored
    episode out of the batch; it is not a failure.
    """

    def __init__(self, model: str) -> None:
        self.judge = prill.judge("modular", model=model, captioner="text", concurrency=64)

    async def __call__(self, episodes: Sequence[Trajectory]) -> list[float | None]:
        verdicts = await asyncio.gather(*(self.judge(episode) for episode in episodes))
        return [None if verdict.success is None else float(verdict.success) for verdict in verdicts]


def episode(number: int, *, seen: str | None) -> Trajectory:
    step = Step(Observation(text="a shop"), Action("click", 'click button "Buy"'))
    task = Task(goal=f"Buy product {number}", platform="web")
    return Trajectory(id=str(number), task=task, steps=(step,), final=Observation(text=seen))


if __name__ == "__main__":
    reward = Reward(sys.argv[1])
    batch = [
        episode(0, seen="Order placed. truth=success"),
        episode(1, seen="Your cart. truth=failure"),
        episode(2, seen=None),
    ]
    print(asyncio.run(reward(batch)))
    print(asyncio.run(reward(batch)))  # a new event loop for each call, as in some trainers

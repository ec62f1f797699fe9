"""Rewards for ART's groups of trajectories, computed after each rollout.

groups = await art.gather_trajectory_groups(…, after_each=group_scorer(prill.reward("vlm",
model="gpt-4o")))
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from prill.refine.rewards.chat import carried
from prill.refine.rewards.reward import Reward

if TYPE_CHECKING:
    from art import TrajectoryGroup

MIN_GROUP = 2  # an advantage needs another trajectory of the group to compare with


def group_scorer(
    reward: Reward,
    *,
    column: str | None = None,
    root: str | os.PathLike[str] | None = None,
    ranked: bool = False,
) -> Callable[[TrajectoryGroup], Awaitable[TrajectoryGroup | None]]:
    """Makes a function for ART's `after_each` that rewards the trajectories of a group.

    A trajectory without a verdict leaves the group, whose metrics count it as `unscored`. A group
    of fewer than two is dropped.

    Args:
        reward: The reward.
        column: The metadata key of the trajectory (see `from_value`). None: judge the messages.
        root: The folder that paths are relative to, as in `from_value`.
        ranked: Reward the trajectories by their rank in the group (`Reward.ranked`).

    Returns:
        The coroutine function. It returns the group, or None to drop it.
    """

    async def score(group: Any) -> Any:
        items = [
            await asyncio.to_thread(
                carried, one.metadata, column, one.messages(), root=root, place=f"trajectory {i}"
            )
            for i, one in enumerate(group.trajectories)
        ]
        scored = []
        results = await (reward.ranked if ranked else reward.results)(items)
        for one, result in zip(group.trajectories, results, strict=True):
            if result.reward is None:
                one.log(f"prill: unscored, {result.problem}")
                continue
            one.reward = result.reward
            one.metrics.update({f"prill/{name}": value for name, value in result.numbers.items()})
            if result.turn_rewards is not None:  # metadata holds no lists
                one.metadata["prill/turn_rewards"] = json.dumps(result.turn_rewards)
            scored.append(one)
        group.metrics["prill/unscored"] = sum(bool(result.problem) for result in results)
        group.trajectories = scored
        return group if len(scored) >= MIN_GROUP else None

    return score

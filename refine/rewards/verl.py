"""A reward function for verl, which loads it from a file of your own.

    import prill
    from prill.refine.rewards import make_compute_score
    compute_score = make_compute_score(prill.reward("vlm", model="gpt-4o"))

`reward.custom_reward_function.path` names that file. Use the reward manager `naive`, because
`rate_limited` turns every error and timeout into a reward of 0.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from prill.errors import InputError
from prill.io.store import Item
from prill.refine.rewards.chat import chat_trajectory
from prill.refine.rewards.reward import Reward
from prill.refine.rewards.serialization import COLUMN, as_item, from_value, get_column, single_step
from prill.types import Trajectory

# verl's `num_turns` of a single answer: the prompt and the reply.
_SINGLE = 2
ComputeScore = Callable[..., Coroutine[Any, Any, dict[str, float]]]


def make_compute_score(
    reward: Reward,
    *,
    key: str | None = COLUMN,
    goal: str = "question",
    messages: str = "messages",
    root: str | os.PathLike[str] | None = None,
) -> ComputeScore:
    """Makes verl's `compute_score` from a reward.

    verl cannot leave a sample out. Without a verdict, the function raises, which ends the training;
    with `on_unscored="value"` it returns that number, and `unscored` is 1.

    Args:
        reward: The reward.
        key: The key of the trajectory in `extra_info` (see `from_value`), which the data set or the
            `extra_fields` of an agent loop set. None: judge the conversation at `messages`; without
            one, the completion, if it is a single reply. The text of several turns does not tell
            what the agent did from what it claims, so it has no verdict (`input`).
        goal: The key of the goal in `extra_info`, if `key` is None.
        messages: The key of the conversation in `extra_info`, as an agent loop sets it in its
            `extra_fields`, if `key` is None.
        root: The folder that paths are relative to, as in `from_value`.

    Returns:
        The coroutine function. It returns the reward as `score`, and numbers for verl's logs with
        constant keys.
    """
    reward = reward.raising()

    # verl checks for a coroutine function; it would run an object with an async __call__ in a
    # thread.
    async def compute_score(
        data_source: str = "",
        solution_str: str = "",
        ground_truth: object = None,
        extra_info: Mapping[str, Any] | None = None,
        **settings: object,
    ) -> dict[str, float]:
        item = await asyncio.to_thread(item_in, solution_str, extra_info or {})
        result = await reward.result(item)
        assert result.reward is not None  # it raises instead
        return {"score": result.reward, **result.numbers}

    def item_in(solution: str, extra: Mapping[str, Any]) -> Item:
        place = f"extra_info {extra.get('index', '')}".rstrip()
        if key is not None:
            return from_value(get_column(extra, key), root=root, place=place)
        return as_item(lambda: judged(solution, extra), place)

    def judged(solution: str, extra: Mapping[str, Any]) -> Trajectory:
        if (talk := extra.get(messages)) is not None:
            return chat_trajectory(list(talk), goal=extra.get(goal))
        if (turns := extra.get("num_turns")) is not None and turns > _SINGLE:
            raise InputError(
                f"a conversation of {turns} turns came as one text; set extra_fields[{messages!r}] "
                "to its messages in the agent loop"
            )
        return single_step(str(get_column(extra, goal)), solution)

    return compute_score

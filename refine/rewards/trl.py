"""Reward functions for TRL's GRPO trainers and ms-swift.

reward = prill.reward("vlm", model="gpt-4o")
trainer = GRPOTrainer(model, reward_funcs=[TRLReward(reward)], …)
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from prill.errors import UsageError
from prill.io.store import Item
from prill.refine.rewards.chat import judged_completion
from prill.refine.rewards.reward import Reward, RewardResult
from prill.refine.rewards.serialization import COLUMN, as_item, from_value, get_column

_log = logging.getLogger("prill.rewards")


class TRLReward:
    """A judge as a reward function for TRL's GRPO. An unscored sample gets None, which TRL leaves
    out of its group's baseline.

    It judges the `trajectory` of each environment, if the trainer passes environments with that
    attribute; or else the batch's column, which the rollout fills. With `column` None it judges the
    prompt and the completion: an answer, or a conversation with tool calls and their outputs
    (`judged_completion`). It can be pickled and sent to another process.

    Args:
        reward: The reward.
        column: The column of the batch with the trajectories (see `from_value`). None: the
            completions are judged.
        ranked: Reward the attempts of each goal by their rank (`Reward.ranked`).
        images: The column with the prompt's images.
        root: The folder that paths are relative to, as in `from_value`.
        name: The function's name in the trainer's logs.
    """

    def __init__(
        self,
        reward: Reward,
        *,
        column: str | None = COLUMN,
        images: str = "images",
        root: str | os.PathLike[str] | None = None,
        name: str = "judge",
        ranked: bool = False,
    ) -> None:
        self.reward, self.column, self.images, self.root = reward, column, images, root
        self.is_ranked = ranked
        self.__name__ = name  # trainers log by it

    async def __call__(
        self,
        completions: Sequence[Any],
        prompts: Sequence[Any] | None = None,
        completion_ids: object = None,
        *,
        environments: Sequence[Any] | None = None,
        log_metric: Callable[[str, float], object] | None = None,
        log_extra: Callable[[str, list[Any]], object] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Computes the rewards of a batch. Call it by keyword or, as ms-swift does, with the
        completions first.

        Logs the share of unscored completions, the judge's cost, its reasons, and the rewards of
        the turns if the judge gives them.

        Args:
            completions: The completions, one per sample.
            prompts: Their prompts. None: not given.
            completion_ids: Ignored.
            environments: The environments of the samples. None: there are none.
            log_metric: Logs a number. None: not logged.
            log_extra: Logs a column. None: not logged.
            **columns: The other columns of the batch.

        Returns:
            A number or None for each completion.

        Raises:
            UsageError: The column does not exist.
            EndpointError: The judge's model cannot be used at all.
        """
        items = await asyncio.to_thread(self._items, completions, prompts, environments, columns)
        judge = self.reward.ranked if self.is_ranked else self.reward.results
        results = await judge(items)
        self._tell(results, log_metric, log_extra)
        return [result.reward for result in results]

    def _items(
        self,
        completions: Sequence[Any],
        prompts: Sequence[Any] | None,
        environments: Sequence[Any] | None,
        columns: dict[str, Any],
    ) -> list[Item]:
        if environments and all(hasattr(environment, "trajectory") for environment in environments):
            values: Sequence[Any] = [environment.trajectory for environment in environments]
        elif self.column is not None:
            values = get_column(columns, self.column)
        else:
            return self._completed(completions, prompts, columns)
        if len(values) != len(completions):
            raise UsageError(f"got {len(completions)} completions, but {len(values)} trajectories")
        return [
            from_value(value, root=self.root, place=f"row {i}") for i, value in enumerate(values)
        ]

    def _completed(
        self, completions: Sequence[Any], prompts: Sequence[Any] | None, columns: dict[str, Any]
    ) -> list[Item]:
        # ms-swift has the whole conversation in a column, the completion at its end
        if prompts is None:
            prompts = [_without_reply(messages) for messages in get_column(columns, "messages")]
        pictures = columns.get(self.images) or columns.get("image") or [()] * len(completions)
        items: list[Item] = []
        for i, (prompt, completion, shown) in enumerate(
            zip(prompts, completions, pictures, strict=True)
        ):
            several = (
                shown if isinstance(shown, list | tuple) else [shown] if shown is not None else []
            )
            items.append(
                as_item(partial(judged_completion, prompt, completion, several), f"row {i}")
            )
        return items

    def _tell(
        self,
        results: Sequence[RewardResult],
        log_metric: Callable[[str, float], object] | None,
        log_extra: Callable[[str, list[Any]], object] | None,
    ) -> None:
        name, problems = self.__name__, [result.problem for result in results if result.problem]
        if log_metric is not None and results:
            log_metric(f"{name}/unscored", len(problems) / len(results))
            dollars = [result.verdict.usage.usd for result in results]
            if None not in dollars:
                log_metric(f"{name}/usd", sum(usd or 0.0 for usd in dollars))
        if log_extra is not None:
            log_extra(
                f"{name}_reason", [result.problem or result.verdict.reason for result in results]
            )
            if any(result.turn_rewards is not None for result in results):
                log_extra(f"{name}_turn_rewards", [result.turn_rewards for result in results])
        if problems:
            reasons = Counter(problem.partition(":")[0] for problem in problems)
            counts = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
            _log.warning(
                "%s: %d of %d unscored (%s); the first: %s",
                name,
                len(problems),
                len(results),
                counts,
                problems[0],
            )


def _without_reply(messages: Sequence[Any]) -> Sequence[Any]:
    return messages[:-1] if messages and messages[-1].get("role") == "assistant" else messages

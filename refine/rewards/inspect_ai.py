"""A scorer for Inspect that judges each sample's messages, or the trajectory in its metadata.

Task(dataset=…, solver=…, scorer=judge_scorer("vlm", model="gpt-4o"))
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.errors import MissingExtraError
from prill.refine.rewards.chat import carried
from prill.refine.rewards.loops import run_blocking
from prill.refine.rewards.reward import Reward, make_reward

if TYPE_CHECKING:
    from inspect_ai.scorer import Score, Scorer, Target
    from inspect_ai.solver import TaskState


def judge_scorer(
    judge: Reward | str | Mapping[str, Any] | Path,
    *,
    column: str | None = None,
    root: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Scorer:
    """Makes an Inspect scorer from a judge. Its metrics are the mean and its standard error.

    A sample without a verdict is `Score.unscored` with the reason. The metrics leave it out and
    count it.

    Args:
        judge: A reward, or an argument of `prill.reward`.
        column: The key of the sample's metadata with the trajectory (see `from_value`). None: judge
            the sample's messages.
        root: The folder that paths are relative to, as in `from_value`.
        **options: Options for `prill.reward`.

    Raises:
        MissingExtraError: inspect_ai is not installed.
        UsageError: The reward cannot be made.
    """
    try:
        from inspect_ai.scorer import mean, scorer, stderr
    except ModuleNotFoundError:
        raise MissingExtraError("inspect-ai") from None
    reward = judge if isinstance(judge, Reward) else make_reward(judge, **options)

    @scorer(metrics=[mean(), stderr()], name="prill")  # type: ignore[untyped-decorator,unused-ignore]
    def prill_scorer(
        judge: str = reward.judge.info.name, kind: str = str(reward.spec.kind)
    ) -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            return await _score(reward, state, column, root)

        return score

    made: Scorer = prill_scorer()
    return made


async def _score(
    reward: Reward, state: TaskState, column: str | None, root: str | os.PathLike[str] | None
) -> Score:
    from inspect_ai.scorer import Score

    messages = [_plain(message) for message in state.messages]
    place = f"sample {state.sample_id}"
    item = await _awaited(
        asyncio.to_thread, carried, state.metadata, column, messages, root=root, place=place
    )
    result = await _awaited(reward.result, item)
    answer = getattr(item, "answer", None)
    if result.reward is None:
        reason = result.problem.partition(":")[0]
        return Score.unscored(
            reason=reason, answer=answer, explanation=result.problem, metadata=result.numbers
        )
    return Score(
        value=result.reward,
        answer=answer,
        explanation=result.problem or result.verdict.reason,
        metadata={**result.numbers, "turn_rewards": result.turn_rewards},
    )


async def _awaited(function: Any, *given: Any, **named: Any) -> Any:
    """Awaits an async function, on prill's own asyncio loop if Inspect runs on trio."""
    import anyio
    import sniffio

    if sniffio.current_async_library() == "asyncio":
        return await function(*given, **named)
    return await anyio.to_thread.run_sync(lambda: run_blocking(function(*given, **named)))


def _plain(message: Any) -> dict[str, Any]:
    """Converts a message of Inspect to the chat format."""
    plain: dict[str, Any] = message.model_dump(exclude_none=True)
    content = plain.get("content")
    if isinstance(content, list):
        plain["reasoning_content"] = "\n".join(
            part.get("reasoning", "") for part in content if part["type"] == "reasoning"
        )
        plain["content"] = [
            {"type": "image_url", "image_url": part["image"]} if part["type"] == "image" else part
            for part in content
        ]
    return plain

"""Judges as reward functions, such as `prill.reward("vlm", model=…)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.refine.rewards.art import group_scorer
    from prill.refine.rewards.chat import chat_trajectory, judged_completion
    from prill.refine.rewards.gymnasium import judge_episodes
    from prill.refine.rewards.inspect_ai import judge_scorer
    from prill.refine.rewards.loops import run_blocking
    from prill.refine.rewards.openenv import judge_rubric
    from prill.refine.rewards.reward import (
        Reward,
        RewardConfig,
        RewardResult,
        RewardSpec,
        make_reward,
    )
    from prill.refine.rewards.serialization import (
        IndexedTrajectories,
        from_value,
        get_column,
        reference,
        single_step,
        to_json,
    )
    from prill.refine.rewards.trl import TRLReward
    from prill.refine.rewards.verl import make_compute_score

__all__ = [
    "IndexedTrajectories", "Reward", "RewardConfig", "RewardResult", "RewardSpec", "TRLReward",
    "chat_trajectory", "from_value", "get_column", "group_scorer", "judge_episodes", "judge_rubric",
    "judge_scorer", "judged_completion", "make_compute_score", "make_reward", "reference",
    "run_blocking", "single_step", "to_json",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)

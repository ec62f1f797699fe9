"""Judges as rewards for trainers. `prill.reward("vlm", model=…)` makes one by name; docs/rewards.md has every framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.refine.rewards.art import group_scorer
    from prill.refine.rewards.chat import chat_trajectory
    from prill.refine.rewards.gymnasium import judge_episodes
    from prill.refine.rewards.inspect_ai import judge_scorer
    from prill.refine.rewards.loops import run_blocking
    from prill.refine.rewards.openenv import judge_rubric
    from prill.refine.rewards.reward import Reward, RewardConfig, RewardResult, RewardSpec, make_reward
    from prill.refine.rewards.travel import IndexedTrajectories, column_of, item_of, pack, refer, single_step
    from prill.refine.rewards.trl import TRLReward
    from prill.refine.rewards.verl import compute_score_of
    from prill.refine.rewards.watch.live import Watch
    from prill.refine.rewards.watch.records import WatchRecord, read_watch
    from prill.refine.rewards.watch.signs import WatchReport
    from prill.refine.rewards.watch.spec import WatchSpec

__all__ = [
    "IndexedTrajectories",
    "Reward",
    "RewardConfig",
    "RewardResult",
    "RewardSpec",
    "TRLReward",
    "Watch",
    "WatchRecord",
    "WatchReport",
    "WatchSpec",
    "chat_trajectory",
    "column_of",
    "compute_score_of",
    "group_scorer",
    "item_of",
    "judge_episodes",
    "judge_rubric",
    "judge_scorer",
    "make_reward",
    "pack",
    "read_watch",
    "refer",
    "run_blocking",
    "single_step",
]
_HOMES = {
    "IndexedTrajectories": "travel",
    "Reward": "reward",
    "RewardConfig": "reward",
    "RewardResult": "reward",
    "RewardSpec": "reward",
    "TRLReward": "trl",
    "Watch": "watch.live",
    "WatchRecord": "watch.records",
    "WatchReport": "watch.signs",
    "WatchSpec": "watch.spec",
    "chat_trajectory": "chat",
    "column_of": "travel",
    "compute_score_of": "verl",
    "group_scorer": "art",
    "item_of": "travel",
    "judge_episodes": "gymnasium",
    "judge_rubric": "openenv",
    "judge_scorer": "inspect_ai",
    "make_reward": "reward",
    "pack": "travel",
    "read_watch": "watch.records",
    "refer": "travel",
    "run_blocking": "loops",
    "single_step": "travel",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

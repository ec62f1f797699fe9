"""Rollouts: plays a policy in an environment and records trajectories and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.runs.rollout.episodes import (
        EpisodePlan,
        EpisodesConfig,
        RolloutSession,
        record_session,
        session,
    )
    from prill.runs.rollout.run import (
        RolloutConfig,
        RolloutResult,
        plan_rollout,
        rollout,
        rollout_async,
    )

__all__ = [
    "EpisodePlan",
    "EpisodesConfig",
    "RolloutConfig",
    "RolloutResult",
    "RolloutSession",
    "plan_rollout",
    "record_session",
    "rollout",
    "rollout_async",
    "session",
]
__getattr__, __dir__ = lazily(__name__)

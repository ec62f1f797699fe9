"""Rollouts: plays a policy in an environment and records trajectories and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.episodes.episodes import (
        EpisodePlan,
        EpisodesConfig,
        RolloutSession,
        record_session,
        session,
    )
    from prill.episodes.run import RolloutConfig, RolloutResult, plan_rollout, rollout

__all__ = [
    "EpisodePlan", "EpisodesConfig", "RolloutConfig", "RolloutResult", "RolloutSession",
    "plan_rollout", "record_session", "rollout", "session",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)

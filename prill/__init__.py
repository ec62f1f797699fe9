"""prill judges what a digital agent did, and uses the judgement to make the agent better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.errors import EndpointError, EnvironmentFailure, InputError, NoEvidence, PrillError, Unscored, UsageError
from prill.lazy import lazily
from prill.types import Action, EvaluatorInfo, LabelRecord, Observation, Step, Task, Trajectory, Usage, Verdict

if TYPE_CHECKING:
    from prill.captioner.registry import CaptionerConfig, make_captioner
    from prill.emulators.airline.config import AirlineConfig
    from prill.emulators.android.config import AndroidConfig
    from prill.emulators.browser.config import WebConfig
    from prill.emulators.browsergym.config import BrowserGymConfig
    from prill.emulators.ios.config import IosConfig
    from prill.emulators.mind2web.config import Mind2WebConfig
    from prill.emulators.miniwob.config import MiniWobConfig
    from prill.emulators.own import OwnEnvironmentConfig
    from prill.emulators.registry import make_environment as environment
    from prill.emulators.settings import EnvironmentConfig
    from prill.emulators.webarena.config import WebArenaConfig
    from prill.evaluators.function import as_judge
    from prill.evaluators.meta.agreement import agreement
    from prill.evaluators.registry import JudgeConfig
    from prill.evaluators.registry import make_judge as judge
    from prill.files.shards import Shard
    from prill.hf_dataset import from_dataset, to_dataset
    from prill.loop import rollout
    from prill.models.registry import ModelConfig
    from prill.models.registry import make_model as model
    from prill.policies.registry import PolicyConfig
    from prill.policies.registry import make_policy as policy
    from prill.refine.rewards.reward import RewardConfig
    from prill.refine.rewards.reward import make_reward as reward
    from prill.runs.devices import DevicesConfig, devices, devices_async
    from prill.runs.papers import (
        ConversationsConfig,
        ExemplarsConfig,
        RankConfig,
        conversations,
        conversations_async,
        exemplars,
        exemplars_async,
        rank,
        rank_async,
    )
    from prill.runs.rollout.episodes import EpisodesConfig
    from prill.runs.rollout.run import RolloutConfig, plan_rollout, rollout_async
    from prill.runs.score import ScoreConfig, ScoreResult, score, score_async
    from prill.runs.serve import ServeConfig, serve, serve_async
    from prill.runs.watch import WatchConfig, watch
    from prill.scoring import score_files, score_stream
    from prill.store import BadLine, read_labels, read_trajectories, read_verdicts, write_labels, write_trajectories
    from prill.tables import table
    from prill.verdict_log import merge_verdicts

__version__ = "0.1.0"

__all__ = [
    "Action",
    "AirlineConfig",
    "AndroidConfig",
    "BadLine",
    "BrowserGymConfig",
    "CaptionerConfig",
    "ConversationsConfig",
    "DevicesConfig",
    "EndpointError",
    "EnvironmentConfig",
    "EnvironmentFailure",
    "EpisodesConfig",
    "EvaluatorInfo",
    "ExemplarsConfig",
    "InputError",
    "IosConfig",
    "JudgeConfig",
    "LabelRecord",
    "Mind2WebConfig",
    "MiniWobConfig",
    "ModelConfig",
    "NoEvidence",
    "Observation",
    "OwnEnvironmentConfig",
    "PolicyConfig",
    "PrillError",
    "RankConfig",
    "RewardConfig",
    "RolloutConfig",
    "ScoreConfig",
    "ScoreResult",
    "ServeConfig",
    "Shard",
    "Step",
    "Task",
    "Trajectory",
    "Unscored",
    "Usage",
    "UsageError",
    "Verdict",
    "WatchConfig",
    "WebArenaConfig",
    "WebConfig",
    "agreement",
    "as_judge",
    "conversations",
    "conversations_async",
    "devices",
    "devices_async",
    "environment",
    "exemplars",
    "exemplars_async",
    "from_dataset",
    "judge",
    "make_captioner",
    "merge_verdicts",
    "model",
    "plan_rollout",
    "policy",
    "rank",
    "rank_async",
    "read_labels",
    "read_trajectories",
    "read_verdicts",
    "reward",
    "rollout",
    "rollout_async",
    "score",
    "score_async",
    "score_files",
    "score_stream",
    "serve",
    "serve_async",
    "table",
    "to_dataset",
    "watch",
    "write_labels",
    "write_trajectories",
]
# What needs a decoder, a database or an event loop is loaded when it is first used: `import prill` stays instant.
_HOMES = {
    "AirlineConfig": "emulators.airline.config",
    "AndroidConfig": "emulators.android.config",
    "BadLine": "store",
    "BrowserGymConfig": "emulators.browsergym.config",
    "CaptionerConfig": "captioner.registry",
    "ConversationsConfig": "runs.papers",
    "DevicesConfig": "runs.devices",
    "EnvironmentConfig": "emulators.settings",
    "EpisodesConfig": "runs.rollout.episodes",
    "ExemplarsConfig": "runs.papers",
    "IosConfig": "emulators.ios.config",
    "JudgeConfig": "evaluators.registry",
    "Mind2WebConfig": "emulators.mind2web.config",
    "MiniWobConfig": "emulators.miniwob.config",
    "ModelConfig": "models.registry",
    "OwnEnvironmentConfig": "emulators.own",
    "PolicyConfig": "policies.registry",
    "RankConfig": "runs.papers",
    "RewardConfig": "refine.rewards.reward",
    "RolloutConfig": "runs.rollout.run",
    "ScoreConfig": "runs.score",
    "ScoreResult": "runs.score",
    "ServeConfig": "runs.serve",
    "Shard": "files.shards",
    "WatchConfig": "runs.watch",
    "WebArenaConfig": "emulators.webarena.config",
    "WebConfig": "emulators.browser.config",
    "agreement": "evaluators.meta.agreement:agreement",
    "as_judge": "evaluators.function",
    "conversations": "runs.papers",
    "conversations_async": "runs.papers",
    "devices": "runs.devices",
    "devices_async": "runs.devices",
    "environment": "emulators.registry:make_environment",
    "exemplars": "runs.papers",
    "exemplars_async": "runs.papers",
    "from_dataset": "hf_dataset",
    "judge": "evaluators.registry:make_judge",
    "make_captioner": "captioner.registry",
    "merge_verdicts": "verdict_log",
    "model": "models.registry:make_model",
    "plan_rollout": "runs.rollout.run",
    "policy": "policies.registry:make_policy",
    "rank": "runs.papers",
    "rank_async": "runs.papers",
    "read_labels": "store",
    "read_trajectories": "store",
    "read_verdicts": "store",
    "reward": "refine.rewards.reward:make_reward",
    "rollout": "loop",
    "rollout_async": "runs.rollout.run",
    "score": "runs.score",
    "score_async": "runs.score",
    "score_files": "scoring",
    "score_stream": "scoring",
    "serve": "runs.serve",
    "serve_async": "runs.serve",
    "table": "tables",
    "to_dataset": "hf_dataset",
    "watch": "runs.watch",
    "write_labels": "store",
    "write_trajectories": "store",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

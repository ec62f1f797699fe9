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
    from prill.loop import rollout
    from prill.models.registry import ModelConfig
    from prill.models.registry import make_model as model
    from prill.policies.registry import PolicyConfig
    from prill.policies.registry import make_policy as policy
    from prill.refine.reflector import LessonsConfig
    from prill.refine.retries import RetrySpec
    from prill.refine.rewards.reward import make_reward as reward
    from prill.runs.devices import DevicesConfig, devices, devices_async
    from prill.runs.filtered_bc import FilteredBCConfig, filtered_bc, filtered_bc_async
    from prill.runs.reflexion import ReflexionConfig, reflexion, reflexion_async
    from prill.runs.rollout.episodes import EpisodesConfig
    from prill.runs.rollout.run import RolloutConfig, plan_rollout, rollout_async
    from prill.runs.score import ScoreConfig
    from prill.runs.simulation import SimulationConfig, simulate_retries
    from prill.runs.sites import check_sites, check_sites_async
    from prill.scoring import score, score_files, score_stream
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
    "DevicesConfig",
    "EndpointError",
    "EnvironmentConfig",
    "EnvironmentFailure",
    "EpisodesConfig",
    "EvaluatorInfo",
    "FilteredBCConfig",
    "InputError",
    "IosConfig",
    "JudgeConfig",
    "LabelRecord",
    "LessonsConfig",
    "Mind2WebConfig",
    "MiniWobConfig",
    "ModelConfig",
    "NoEvidence",
    "Observation",
    "OwnEnvironmentConfig",
    "PolicyConfig",
    "PrillError",
    "ReflexionConfig",
    "RetrySpec",
    "RolloutConfig",
    "ScoreConfig",
    "Shard",
    "SimulationConfig",
    "Step",
    "Task",
    "Trajectory",
    "Unscored",
    "Usage",
    "UsageError",
    "Verdict",
    "WebArenaConfig",
    "WebConfig",
    "agreement",
    "as_judge",
    "check_sites",
    "check_sites_async",
    "devices",
    "devices_async",
    "environment",
    "filtered_bc",
    "filtered_bc_async",
    "judge",
    "make_captioner",
    "merge_verdicts",
    "model",
    "plan_rollout",
    "policy",
    "read_labels",
    "read_trajectories",
    "read_verdicts",
    "reflexion",
    "reflexion_async",
    "reward",
    "rollout",
    "rollout_async",
    "score",
    "score_files",
    "score_stream",
    "simulate_retries",
    "table",
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
    "DevicesConfig": "runs.devices",
    "EnvironmentConfig": "emulators.settings",
    "EpisodesConfig": "runs.rollout.episodes",
    "FilteredBCConfig": "runs.filtered_bc",
    "IosConfig": "emulators.ios.config",
    "JudgeConfig": "evaluators.registry",
    "LessonsConfig": "refine.reflector",
    "Mind2WebConfig": "emulators.mind2web.config",
    "MiniWobConfig": "emulators.miniwob.config",
    "ModelConfig": "models.registry",
    "OwnEnvironmentConfig": "emulators.own",
    "PolicyConfig": "policies.registry",
    "ReflexionConfig": "runs.reflexion",
    "RetrySpec": "refine.retries",
    "RolloutConfig": "runs.rollout.run",
    "ScoreConfig": "runs.score",
    "Shard": "files.shards",
    "SimulationConfig": "runs.simulation",
    "WebArenaConfig": "emulators.webarena.config",
    "WebConfig": "emulators.browser.config",
    "agreement": "evaluators.meta.agreement:agreement",
    "as_judge": "evaluators.function",
    "check_sites": "runs.sites",
    "check_sites_async": "runs.sites",
    "devices": "runs.devices",
    "devices_async": "runs.devices",
    "environment": "emulators.registry:make_environment",
    "filtered_bc": "runs.filtered_bc",
    "filtered_bc_async": "runs.filtered_bc",
    "judge": "evaluators.registry:make_judge",
    "make_captioner": "captioner.registry",
    "merge_verdicts": "verdict_log",
    "model": "models.registry:make_model",
    "plan_rollout": "runs.rollout.run",
    "policy": "policies.registry:make_policy",
    "read_labels": "store",
    "read_trajectories": "store",
    "read_verdicts": "store",
    "reflexion": "runs.reflexion",
    "reflexion_async": "runs.reflexion",
    "reward": "refine.rewards.reward:make_reward",
    "rollout": "loop",
    "rollout_async": "runs.rollout.run",
    "score": "scoring",
    "score_files": "scoring",
    "score_stream": "scoring",
    "simulate_retries": "runs.simulation",
    "table": "tables",
    "write_labels": "store",
    "write_trajectories": "store",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

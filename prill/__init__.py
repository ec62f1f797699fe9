"""prill judges what a digital agent did, and uses the judgement to make the agent better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.errors import EndpointError, EnvironmentFailure, InputError, NoEvidence, PrillError, Unscored, UsageError
from prill.lazy import lazily
from prill.types import Action, EvaluatorInfo, LabelRecord, Observation, Step, Task, Trajectory, Usage, Verdict

if TYPE_CHECKING:
    from prill.captioner.registry import CaptionerConfig, make_captioner
    from prill.datasets.formats import FormatConfig
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
    from prill.loop import run_episode
    from prill.models.registry import ModelConfig
    from prill.models.registry import make_model as model
    from prill.policies.registry import PolicyConfig
    from prill.policies.registry import make_policy as policy
    from prill.refine.rewards.reward import RewardConfig
    from prill.refine.rewards.reward import make_reward as reward
    from prill.runs.agree import AgreeConfig, AgreeResult, agree
    from prill.runs.annotate import AnnotateConfig, annotate, annotate_async
    from prill.runs.batch import (
        BatchCollectConfig,
        BatchSubmitConfig,
        BatchWriteConfig,
        batch_collect,
        batch_collect_async,
        batch_submit,
        batch_submit_async,
        batch_write,
        batch_write_async,
    )
    from prill.runs.caption import CaptionConfig, caption, caption_async
    from prill.runs.data import (
        AcceptConfig,
        CheckConfig,
        ConvertConfig,
        MergeConfig,
        TableConfig,
        accept,
        check,
        convert,
        merge,
        write_table,
    )
    from prill.runs.devices import DevicesConfig, devices, devices_async
    from prill.runs.filter import FilterConfig, TeacherConfig, filter
    from prill.runs.fitting import CalibrateConfig, CalibrateResult, FitConfig, FitResult, calibrate, fit
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
    from prill.runs.redteam import RedteamConfig, RedteamResult, redteam, redteam_async
    from prill.runs.report import ReportConfig, report
    from prill.runs.rollout.episodes import EpisodesConfig
    from prill.runs.rollout.run import RolloutConfig, plan_rollout, rollout, rollout_async
    from prill.runs.score import ScoreConfig, ScoreResult, score, score_async
    from prill.runs.serve import ServeConfig, serve, serve_async
    from prill.runs.show import JudgesConfig, ShowConfig, judges, show
    from prill.runs.train import (
        PresetConfig,
        TrainCaptionerConfig,
        TrainPlannerConfig,
        TrainPolicyConfig,
        TrainRankerConfig,
        train,
    )
    from prill.runs.watch import WatchConfig, watch
    from prill.scoring import score_files, score_stream
    from prill.store import BadLine, read_labels, read_trajectories, read_verdicts, write_labels, write_trajectories
    from prill.tables import table
    from prill.verdict_log import merge_verdicts

__version__ = "0.1.0"

__all__ = [
    "AcceptConfig",
    "Action",
    "AgreeConfig",
    "AgreeResult",
    "AirlineConfig",
    "AndroidConfig",
    "AnnotateConfig",
    "BadLine",
    "BatchCollectConfig",
    "BatchSubmitConfig",
    "BatchWriteConfig",
    "BrowserGymConfig",
    "CalibrateConfig",
    "CalibrateResult",
    "CaptionConfig",
    "CaptionerConfig",
    "CheckConfig",
    "ConversationsConfig",
    "ConvertConfig",
    "DevicesConfig",
    "EndpointError",
    "EnvironmentConfig",
    "EnvironmentFailure",
    "EpisodesConfig",
    "EvaluatorInfo",
    "ExemplarsConfig",
    "FilterConfig",
    "FitConfig",
    "FitResult",
    "FormatConfig",
    "InputError",
    "IosConfig",
    "JudgeConfig",
    "JudgesConfig",
    "LabelRecord",
    "MergeConfig",
    "Mind2WebConfig",
    "MiniWobConfig",
    "ModelConfig",
    "NoEvidence",
    "Observation",
    "OwnEnvironmentConfig",
    "PolicyConfig",
    "PresetConfig",
    "PrillError",
    "RankConfig",
    "RedteamConfig",
    "RedteamResult",
    "ReportConfig",
    "RewardConfig",
    "RolloutConfig",
    "ScoreConfig",
    "ScoreResult",
    "ServeConfig",
    "Shard",
    "ShowConfig",
    "Step",
    "TableConfig",
    "Task",
    "TeacherConfig",
    "TrainCaptionerConfig",
    "TrainPlannerConfig",
    "TrainPolicyConfig",
    "TrainRankerConfig",
    "Trajectory",
    "Unscored",
    "Usage",
    "UsageError",
    "Verdict",
    "WatchConfig",
    "WebArenaConfig",
    "WebConfig",
    "accept",
    "agree",
    "agreement",
    "annotate",
    "annotate_async",
    "as_judge",
    "batch_collect",
    "batch_collect_async",
    "batch_submit",
    "batch_submit_async",
    "batch_write",
    "batch_write_async",
    "calibrate",
    "caption",
    "caption_async",
    "check",
    "conversations",
    "conversations_async",
    "convert",
    "devices",
    "devices_async",
    "environment",
    "exemplars",
    "exemplars_async",
    "filter",
    "fit",
    "from_dataset",
    "judge",
    "judges",
    "make_captioner",
    "merge",
    "merge_verdicts",
    "model",
    "plan_rollout",
    "policy",
    "rank",
    "rank_async",
    "read_labels",
    "read_trajectories",
    "read_verdicts",
    "redteam",
    "redteam_async",
    "report",
    "reward",
    "rollout",
    "rollout_async",
    "run_episode",
    "score",
    "score_async",
    "score_files",
    "score_stream",
    "serve",
    "serve_async",
    "show",
    "table",
    "to_dataset",
    "train",
    "watch",
    "write_labels",
    "write_table",
    "write_trajectories",
]
# What needs a decoder, a database or an event loop is loaded when it is first used: `import prill` stays instant.
_HOMES = {
    "AcceptConfig": "runs.data",
    "AgreeConfig": "runs.agree",
    "AgreeResult": "runs.agree",
    "AirlineConfig": "emulators.airline.config",
    "AndroidConfig": "emulators.android.config",
    "AnnotateConfig": "runs.annotate",
    "BadLine": "store",
    "BatchCollectConfig": "runs.batch",
    "BatchSubmitConfig": "runs.batch",
    "BatchWriteConfig": "runs.batch",
    "BrowserGymConfig": "emulators.browsergym.config",
    "CalibrateConfig": "runs.fitting",
    "CalibrateResult": "runs.fitting",
    "CaptionConfig": "runs.caption",
    "CaptionerConfig": "captioner.registry",
    "CheckConfig": "runs.data",
    "ConversationsConfig": "runs.papers",
    "ConvertConfig": "runs.data",
    "DevicesConfig": "runs.devices",
    "EnvironmentConfig": "emulators.settings",
    "EpisodesConfig": "runs.rollout.episodes",
    "ExemplarsConfig": "runs.papers",
    "FilterConfig": "runs.filter",
    "FitConfig": "runs.fitting",
    "FitResult": "runs.fitting",
    "FormatConfig": "datasets.formats",
    "IosConfig": "emulators.ios.config",
    "JudgeConfig": "evaluators.registry",
    "JudgesConfig": "runs.show",
    "MergeConfig": "runs.data",
    "Mind2WebConfig": "emulators.mind2web.config",
    "MiniWobConfig": "emulators.miniwob.config",
    "ModelConfig": "models.registry",
    "OwnEnvironmentConfig": "emulators.own",
    "PolicyConfig": "policies.registry",
    "PresetConfig": "runs.train",
    "RankConfig": "runs.papers",
    "RedteamConfig": "runs.redteam",
    "RedteamResult": "runs.redteam",
    "ReportConfig": "runs.report",
    "RewardConfig": "refine.rewards.reward",
    "RolloutConfig": "runs.rollout.run",
    "ScoreConfig": "runs.score",
    "ScoreResult": "runs.score",
    "ServeConfig": "runs.serve",
    "Shard": "files.shards",
    "ShowConfig": "runs.show",
    "TableConfig": "runs.data",
    "TeacherConfig": "runs.filter",
    "TrainCaptionerConfig": "runs.train",
    "TrainPlannerConfig": "runs.train",
    "TrainPolicyConfig": "runs.train",
    "TrainRankerConfig": "runs.train",
    "WatchConfig": "runs.watch",
    "WebArenaConfig": "emulators.webarena.config",
    "WebConfig": "emulators.browser.config",
    "accept": "runs.data",
    "agree": "runs.agree",
    "agreement": "evaluators.meta.agreement:agreement",
    "annotate": "runs.annotate",
    "annotate_async": "runs.annotate",
    "as_judge": "evaluators.function",
    "batch_collect": "runs.batch",
    "batch_collect_async": "runs.batch",
    "batch_submit": "runs.batch",
    "batch_submit_async": "runs.batch",
    "batch_write": "runs.batch",
    "batch_write_async": "runs.batch",
    "calibrate": "runs.fitting",
    "caption": "runs.caption:caption",
    "caption_async": "runs.caption",
    "check": "runs.data",
    "conversations": "runs.papers",
    "conversations_async": "runs.papers",
    "convert": "runs.data",
    "devices": "runs.devices",
    "devices_async": "runs.devices",
    "environment": "emulators.registry:make_environment",
    "exemplars": "runs.papers",
    "exemplars_async": "runs.papers",
    "filter": "runs.filter:filter",
    "fit": "runs.fitting",
    "from_dataset": "hf_dataset",
    "judge": "evaluators.registry:make_judge",
    "judges": "runs.show",
    "make_captioner": "captioner.registry",
    "merge": "runs.data",
    "merge_verdicts": "verdict_log",
    "model": "models.registry:make_model",
    "plan_rollout": "runs.rollout.run",
    "policy": "policies.registry:make_policy",
    "rank": "runs.papers",
    "rank_async": "runs.papers",
    "read_labels": "store",
    "read_trajectories": "store",
    "read_verdicts": "store",
    "redteam": "runs.redteam",
    "redteam_async": "runs.redteam",
    "report": "runs.report",
    "reward": "refine.rewards.reward:make_reward",
    "rollout": "runs.rollout.run",
    "rollout_async": "runs.rollout.run",
    "run_episode": "loop",
    "score": "runs.score",
    "score_async": "runs.score",
    "score_files": "scoring",
    "score_stream": "scoring",
    "serve": "runs.serve",
    "serve_async": "runs.serve",
    "show": "runs.show",
    "table": "tables",
    "to_dataset": "hf_dataset",
    "train": "runs.train:train",
    "watch": "runs.watch",
    "write_labels": "store",
    "write_table": "runs.data",
    "write_trajectories": "store",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

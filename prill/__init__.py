"""prill evaluates digital-agent trajectories and uses the verdicts to improve agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.errors import (
    EndpointError,
    EnvironmentFailedError,
    InputError,
    NoEvidenceError,
    PrillError,
    UnparsableError,
    UnscoredError,
    UsageError,
)
from prill.lazy import lazily
from prill.types import (
    Action,
    EvaluatorInfo,
    LabelRecord,
    Observation,
    Step,
    Task,
    Trajectory,
    Usage,
    Verdict,
)

# `import prill` must be fast, so modules that need a decoder, a database or an event loop are
# imported on first use.
if TYPE_CHECKING:
    from prill.captioner.registry import CaptionerConfig, make_captioner
    from prill.datasets.formats import FormatConfig
    from prill.datasets.live import record
    from prill.emulators.android.config import AndroidConfig
    from prill.emulators.browser.config import WebConfig
    from prill.emulators.ios.config import IosConfig
    from prill.emulators.miniwob.environment import MiniWobConfig
    from prill.emulators.own import OwnEnvironmentConfig
    from prill.emulators.registry import make_environment as environment
    from prill.emulators.settings import EnvironmentConfig
    from prill.emulators.webarena.config import WebArenaConfig
    from prill.episodes.loop import run_episode
    from prill.evaluators.claim_check import check_claims
    from prill.evaluators.comparative import ComparisonSpec
    from prill.evaluators.failures import cluster_failures, find_cause
    from prill.evaluators.function import as_judge
    from prill.evaluators.meta.agreement import agreement
    from prill.evaluators.registry import JudgeConfig
    from prill.evaluators.registry import make_judge as judge
    from prill.io.hf_dataset import from_dataset, to_dataset
    from prill.io.shards import Shard
    from prill.io.store import (
        BadLine,
        read_labels,
        read_trajectories,
        read_verdicts,
        write_labels,
        write_trajectories,
    )
    from prill.io.tables import table
    from prill.io.verdict_log import merge_verdicts
    from prill.models.registry import ModelConfig
    from prill.models.registry import make_model as model
    from prill.policies.registry import PolicyConfig
    from prill.policies.registry import make_policy as policy
    from prill.refine.reflector import LessonsConfig
    from prill.refine.retries import RetrySpec
    from prill.refine.rewards.reward import RewardConfig
    from prill.refine.rewards.reward import make_reward as reward
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
        accept_async,
        check,
        check_async,
        convert,
        convert_async,
        merge,
        merge_async,
        write_table,
        write_table_async,
    )
    from prill.runs.devices import (
        DevicesConfig,
        SitesResult,
        check_sites,
        check_sites_async,
        devices,
        devices_async,
    )
    from prill.runs.export import ExportConfig, export, export_async
    from prill.runs.filter import FilterConfig, TeacherConfig, filter, filter_async
    from prill.runs.filtered_bc import (
        FilteredBCConfig,
        FilteredBCResult,
        filtered_bc,
        filtered_bc_async,
        plan_filtered_bc,
    )
    from prill.runs.reflexion import (
        ReflexionConfig,
        ReflexionResult,
        plan_reflexion,
        reflexion,
        reflexion_async,
    )
    from prill.runs.report import ReportConfig, report, report_async
    from prill.runs.rollout.episodes import EpisodesConfig
    from prill.runs.rollout.run import (
        RolloutConfig,
        RolloutResult,
        plan_rollout,
        rollout,
        rollout_async,
    )
    from prill.runs.score import ScoreConfig, ScoreResult, score, score_async
    from prill.runs.serve import ServeConfig, serve, serve_async
    from prill.runs.show import JudgesConfig, ShowConfig, judges, judges_async, show, show_async
    from prill.runs.simulation import (
        SimulationConfig,
        SimulationResult,
        simulate_retries,
        simulate_retries_async,
    )
    from prill.runs.train import (
        PresetConfig,
        TrainCaptionerConfig,
        TrainPolicyConfig,
        train,
        train_async,
    )
    from prill.runs.train_judge import TrainJudgeConfig
    from prill.runs.trust.agree import AgreeConfig, AgreeResult, agree, agree_async
    from prill.runs.trust.best import BestConfig, BestResult, best, best_async
    from prill.runs.trust.compare import CompareConfig, CompareResult, compare, compare_async
    from prill.runs.trust.failures import (
        FailuresConfig,
        FailuresResult,
        failures,
        failures_async,
    )
    from prill.runs.trust.fitting import (
        CalibrateConfig,
        CalibrateResult,
        FitConfig,
        FitResult,
        calibrate,
        calibrate_async,
        fit,
        fit_async,
    )
    from prill.runs.trust.protocols import (
        ProtocolsConfig,
        ProtocolsResult,
        compare_protocols,
        compare_protocols_async,
    )
    from prill.runs.trust.rate import RateConfig, RateResult, rate, rate_async
    from prill.runs.trust.redteam import RedteamConfig, RedteamResult, redteam, redteam_async
    from prill.runs.view import ViewConfig, ViewResult, view, view_async
    from prill.runs.watch import WatchConfig, watch, watch_async
    from prill.scoring.scorer import score_files, score_stream

__version__ = "0.1.0a1"

__all__ = [
    "AcceptConfig",
    "Action",
    "AgreeConfig",
    "AgreeResult",
    "AndroidConfig",
    "AnnotateConfig",
    "BadLine",
    "BatchCollectConfig",
    "BatchSubmitConfig",
    "BatchWriteConfig",
    "BestConfig",
    "BestResult",
    "CalibrateConfig",
    "CalibrateResult",
    "CaptionConfig",
    "CaptionerConfig",
    "CheckConfig",
    "CompareConfig",
    "CompareResult",
    "ComparisonSpec",
    "ConvertConfig",
    "DevicesConfig",
    "EndpointError",
    "EnvironmentConfig",
    "EnvironmentFailedError",
    "EpisodesConfig",
    "EvaluatorInfo",
    "ExportConfig",
    "FailuresConfig",
    "FailuresResult",
    "FilterConfig",
    "FilteredBCConfig",
    "FilteredBCResult",
    "FitConfig",
    "FitResult",
    "FormatConfig",
    "InputError",
    "IosConfig",
    "JudgeConfig",
    "JudgesConfig",
    "LabelRecord",
    "LessonsConfig",
    "MergeConfig",
    "MiniWobConfig",
    "ModelConfig",
    "NoEvidenceError",
    "Observation",
    "OwnEnvironmentConfig",
    "PolicyConfig",
    "PresetConfig",
    "PrillError",
    "ProtocolsConfig",
    "ProtocolsResult",
    "RateConfig",
    "RateResult",
    "RedteamConfig",
    "RedteamResult",
    "ReflexionConfig",
    "ReflexionResult",
    "ReportConfig",
    "RetrySpec",
    "RewardConfig",
    "RolloutConfig",
    "RolloutResult",
    "ScoreConfig",
    "ScoreResult",
    "ServeConfig",
    "Shard",
    "ShowConfig",
    "SimulationConfig",
    "SimulationResult",
    "SitesResult",
    "Step",
    "TableConfig",
    "Task",
    "TeacherConfig",
    "TrainCaptionerConfig",
    "TrainJudgeConfig",
    "TrainPolicyConfig",
    "Trajectory",
    "UnparsableError",
    "UnscoredError",
    "Usage",
    "UsageError",
    "Verdict",
    "ViewConfig",
    "ViewResult",
    "WatchConfig",
    "WebArenaConfig",
    "WebConfig",
    "accept",
    "accept_async",
    "agree",
    "agree_async",
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
    "best",
    "best_async",
    "calibrate",
    "calibrate_async",
    "caption",
    "caption_async",
    "check",
    "check_async",
    "check_claims",
    "check_sites",
    "check_sites_async",
    "cluster_failures",
    "compare",
    "compare_async",
    "compare_protocols",
    "compare_protocols_async",
    "convert",
    "convert_async",
    "devices",
    "devices_async",
    "environment",
    "export",
    "export_async",
    "failures",
    "failures_async",
    "filter",
    "filter_async",
    "filtered_bc",
    "filtered_bc_async",
    "find_cause",
    "fit",
    "fit_async",
    "from_dataset",
    "judge",
    "judges",
    "judges_async",
    "make_captioner",
    "merge",
    "merge_async",
    "merge_verdicts",
    "model",
    "plan_filtered_bc",
    "plan_reflexion",
    "plan_rollout",
    "policy",
    "rate",
    "rate_async",
    "read_labels",
    "read_trajectories",
    "read_verdicts",
    "record",
    "redteam",
    "redteam_async",
    "reflexion",
    "reflexion_async",
    "report",
    "report_async",
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
    "show_async",
    "simulate_retries",
    "simulate_retries_async",
    "table",
    "to_dataset",
    "train",
    "train_async",
    "view",
    "view_async",
    "watch",
    "watch_async",
    "write_labels",
    "write_table",
    "write_table_async",
    "write_trajectories",
]
__getattr__, __dir__ = lazily(__name__)

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
    from prill.captioner.caption import CaptionConfig, caption
    from prill.captioner.registry import CaptionerConfig, make_captioner
    from prill.datasets.data import CheckConfig, ConvertConfig, check, convert
    from prill.datasets.formats import FormatConfig
    from prill.datasets.inputs import iter_recordings as iter_trajectories
    from prill.datasets.inputs import read_trajectories
    from prill.datasets.table import TableConfig, TableResult, write_table
    from prill.emulators.android.environment import AndroidConfig
    from prill.emulators.browser.config import WebConfig
    from prill.emulators.browsergym.environment import BrowserGymConfig
    from prill.emulators.ios.environment import IosConfig
    from prill.emulators.miniwob.environment import MiniWobConfig
    from prill.emulators.own import OwnEnvironmentConfig
    from prill.emulators.registry import make_environment as environment
    from prill.emulators.settings import EnvironmentConfig
    from prill.emulators.webarena.config import WebArenaConfig
    from prill.emulators.webarena_infinity.config import WebArenaInfinityConfig
    from prill.episodes.devices import DevicesConfig, devices
    from prill.episodes.episodes import EpisodesConfig
    from prill.episodes.loop import run_episode
    from prill.episodes.run import RolloutConfig, RolloutResult, plan_rollout, rollout
    from prill.evaluators.agreement.agree import AgreeConfig, AgreeResult, agree
    from prill.evaluators.agreement.agreement import agreement
    from prill.evaluators.agreement.differences import CompareConfig, CompareResult, compare
    from prill.evaluators.agreement.rate import RateConfig, RateResult, rate
    from prill.evaluators.attacks.redteam import RedteamConfig, RedteamResult, redteam
    from prill.evaluators.fitted.fitting import (
        CalibrateConfig,
        CalibrateResult,
        FitConfig,
        FitResult,
        calibrate,
        fit,
    )
    from prill.evaluators.function import as_judge
    from prill.evaluators.registry import JudgeConfig, judge
    from prill.evaluators.scoring.batch import BatchConfig, BatchResult, batch
    from prill.evaluators.scoring.score import ScoreConfig, ScoreResult, score
    from prill.evaluators.scoring.scorer import score_files, score_stream
    from prill.io.hf_dataset import from_dataset, to_dataset
    from prill.io.shards import Shard
    from prill.io.store import (
        BadLine,
        read_labels,
        read_verdicts,
        write_labels,
        write_trajectories,
        write_verdicts,
    )
    from prill.io.tables import table
    from prill.models.registry import ModelConfig
    from prill.models.registry import make_model as model
    from prill.policies.registry import PolicyConfig
    from prill.policies.registry import make_policy as policy
    from prill.refine.demonstration import TeacherConfig
    from prill.refine.filter import FilterConfig, filter
    from prill.refine.filtered_bc.study import (
        FilteredBCConfig,
        FilteredBCResult,
        filtered_bc,
        plan_filtered_bc,
    )
    from prill.refine.reflector import LessonsConfig
    from prill.refine.reflexion import ReflexionConfig, ReflexionResult, plan_reflexion, reflexion
    from prill.refine.retries import RetrySpec
    from prill.refine.rewards.reward import RewardConfig
    from prill.refine.rewards.reward import make_reward as reward
    from prill.refine.rewards.service.serving import ServeConfig, serve, serve_async
    from prill.refine.training.judge import TrainJudgeConfig
    from prill.refine.training.train import (
        PresetConfig,
        TrainCaptionerConfig,
        TrainPolicyConfig,
        train,
    )
    from prill.ui.report.run import ReportConfig, report
    from prill.ui.show import JudgesConfig, ShowConfig, judges, show
    from prill.ui.view.run import ViewConfig, ViewResult, view

__version__ = "0.1.0a1"

__all__ = [
    "Action", "AgreeConfig", "AgreeResult", "AndroidConfig", "BadLine", "BatchConfig",
    "BatchResult", "BrowserGymConfig", "CalibrateConfig", "CalibrateResult", "CaptionConfig",
    "CaptionerConfig", "CheckConfig", "CompareConfig", "CompareResult", "ConvertConfig",
    "DevicesConfig", "EndpointError", "EnvironmentConfig", "EnvironmentFailedError",
    "EpisodesConfig", "EvaluatorInfo", "FilterConfig", "FilteredBCConfig", "FilteredBCResult",
    "FitConfig", "FitResult", "FormatConfig", "InputError", "IosConfig", "JudgeConfig",
    "JudgesConfig", "LabelRecord", "LessonsConfig", "MiniWobConfig", "ModelConfig",
    "NoEvidenceError", "Observation", "OwnEnvironmentConfig", "PolicyConfig", "PresetConfig",
    "PrillError", "RateConfig", "RateResult", "RedteamConfig", "RedteamResult", "ReflexionConfig",
    "ReflexionResult", "ReportConfig", "RetrySpec", "RewardConfig", "RolloutConfig",
    "RolloutResult", "ScoreConfig", "ScoreResult", "ServeConfig", "Shard", "ShowConfig", "Step",
    "TableConfig", "TableResult", "Task", "TeacherConfig", "TrainCaptionerConfig",
    "TrainJudgeConfig", "TrainPolicyConfig", "Trajectory", "UnparsableError", "UnscoredError",
    "Usage", "UsageError", "Verdict", "ViewConfig", "ViewResult", "WebArenaConfig",
    "WebArenaInfinityConfig", "WebConfig", "agree", "agreement", "as_judge", "batch", "calibrate",
    "caption", "check", "compare", "convert", "devices", "environment", "filter", "filtered_bc",
    "fit", "from_dataset", "iter_trajectories", "judge", "judges", "make_captioner", "model",
    "plan_filtered_bc", "plan_reflexion", "plan_rollout", "policy", "rate", "read_labels",
    "read_trajectories", "read_verdicts", "redteam", "reflexion", "report", "reward", "rollout",
    "run_episode", "score", "score_files", "score_stream", "serve", "serve_async", "show", "table",
    "to_dataset", "train", "view", "write_labels", "write_table", "write_trajectories",
    "write_verdicts",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)

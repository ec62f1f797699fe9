"""Trains a policy or captioner from rows, or a ranker or planner from recorded pages."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from prill.config.registry import Option, list_options
from prill.config.values import Config, PartConfig
from prill.errors import UsageError
from prill.refine.demonstration import Teacher
from prill.refine.training.preflight import Preflight, Say, parse_devices
from prill.refine.training.spec import DEFAULT_PRESETS, Trained, TrainSpec, training_spec
from prill.refine.training.train import check_training
from prill.refine.training.train import train as carry_out
from prill.refine.training.trainer import Progress
from prill.runs.base import asynchronous


class PresetConfig(PartConfig):
    """The settings of a training: a preset by name, or a TOML file, and overrides.

    `PresetConfig("small-text", rank=4)`; the options are the fields of `TrainSpec`.
    """

    __slots__ = ()
    kind = "preset"

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns all training settings as options, for any preset; unset options keep the preset's
        value.
        """
        settings = list_options(TrainSpec).items()
        return {
            name: replace(option, default=None, required=False)
            for name, option in settings
            if name != "trains"
        }

    @classmethod
    def names_with(cls, option: str) -> list[str]:
        """Returns nothing: every preset has every option."""
        return []


PresetLike = PresetConfig | str | Mapping[str, Any] | TrainSpec
PresetOption = Annotated[
    PresetLike,
    Meta(description="Settings to start from: the name of a preset, or a .toml file."),
]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    """Configuration of `prill train …`: train a model on rows; the same call resumes a training
    that was stopped.

    One of its kinds says what is trained: `TrainPolicyConfig`, `TrainCaptionerConfig`,
    `TrainJudgeConfig`, `TrainRankerConfig`, `TrainPlannerConfig`.
    """

    trains: ClassVar[Trained] = "policy"

    rows: Annotated[
        str | Path,
        Meta(
            description="Rows with prompt and completion (.jsonl), or gold trajectories of "
            "recorded pages."
        ),
    ]
    output: Annotated[
        str | Path,
        Meta(description="Output folder for the weights, the model card and checkpoints."),
    ]
    preset: PresetOption
    resume: Annotated[
        bool,
        Meta(
            description="Resume the training. Otherwise the folder is renamed to DIR.bak and a "
            "new one is started."
        ),
    ] = True
    gpus: Annotated[
        str | None,
        Meta(
            description="For a dry run: estimate for these GPUs, for example 8xH200, instead "
            "of this machine's."
        ),
    ] = None

    def spec(self) -> TrainSpec:
        """Returns the preset's settings with the overrides applied.

        Raises UsageError if a setting is unknown, or conflicts with another one.
        """
        if isinstance(self.preset, TrainSpec):
            if self.preset.trains != self.trains:
                raise UsageError(
                    f"preset: it trains a {self.preset.trains}, not a {self.trains}",
                    parameters=("preset",),
                )
            return self.preset
        preset = PresetConfig.read(self.preset, "preset")
        return training_spec(preset.name, trains=self.trains, **preset.options)

    @contextmanager
    def training_rows(self, *, planned: bool = False) -> Iterator[str | Path]:
        """Yields the file of rows, generated first if the configuration requires it.

        Args:
            planned: Whether this is a dry run; a generated file is then temporary.

        Yields:
            The file.
        """
        yield self.rows

    def trained(self, folder: Path) -> None:
        """Writes the files that accompany the weights, after training.

        Args:
            folder: The folder of the weights.
        """

    def fold_trainings(self, folder: Path) -> Sequence[TrainConfig]:
        """Returns trainings on parts of the runs, for out-of-fold figures; only a judge has them.

        Args:
            folder: The folder of the weights.

        Returns:
            The trainings, in the order of the folds.
        """
        return ()

    def folds_trained(self, folder: Path, say: Say) -> None:
        """Writes what the models of `fold_trainings` yield, once all are trained.

        Args:
            folder: The folder of the weights.
            say: Called with the phase, the current count, and the total.
        """

    @property
    def fold_count(self) -> int:
        """Returns the number of `fold_trainings`."""
        return 0

    def teacher(self) -> tuple[Teacher | None, dict[str, Any] | None]:
        """Returns the policy whose prompts the trained model answers, and its description for the
        record; only a planner has one.
        """
        return None, None


_POLICY, _CAPTIONER = (
    PresetConfig(DEFAULT_PRESETS["policy"]),
    PresetConfig(DEFAULT_PRESETS["captioner"]),
)


@dataclass(frozen=True, kw_only=True)
class TrainPolicyConfig(TrainConfig):
    """Configuration of `prill train policy`: a policy from the rows of a filter."""

    preset: PresetOption = _POLICY


@dataclass(frozen=True, kw_only=True)
class TrainCaptionerConfig(TrainConfig):
    """Configuration of `prill train captioner`: a captioner from rows of captions."""

    trains: ClassVar[Trained] = "captioner"
    preset: PresetOption = _CAPTIONER


@dataclass(frozen=True)
class TrainResult:
    """Result of a training.

    Attributes:
        trains: The type of model: a policy, a captioner, a judge, a ranker or a planner.
        folder: The folder of the weights.
        spec: All settings of the training.
    """

    trains: Trained
    folder: Path
    spec: TrainSpec

    def __str__(self) -> str:
        return f"{self.trains} -> {self.folder}"


def train(
    config: TrainConfig,
    *,
    progress: Callable[[Progress], object] = lambda progress: None,
    say: Say = lambda *_: None,
    stop: threading.Event | None = None,
) -> TrainResult:
    """Trains a model and returns when training has finished.

    The same call resumes from the last checkpoint.

    Args:
        config: The model, the rows and the settings.
        progress: Called after every step.
        say: Called with the phase of the preparation, the current count, and the total.
        stop: An event; once it is set, training ends after the current step, with a checkpoint.

    Returns:
        The type of model, and its folder.

    Raises:
        UsageError: The settings do not fit the model, the rows or this machine.
        InputError: A row or an image is broken.
        KeyboardInterrupt: The training was stopped; a checkpoint is in the folder.
    """
    spec = config.spec()
    if config.gpus is not None:
        raise UsageError(
            "gpus: only with a dry run; a training uses the GPUs that its processes are given",
            parameters=("gpus",),
        )
    teacher, taught = config.teacher()
    with config.training_rows() as rows:
        folder = carry_out(
            spec,
            rows,
            config.output,
            resume=config.resume,
            teacher=teacher,
            taught=taught,
            progress=progress,
            say=say,
            stop=stop,
        )
    writes = int(os.environ.get("RANK", "0")) == 0  # only one process does
    if writes:
        config.trained(folder)
    for part in config.fold_trainings(folder):
        train(part, progress=progress, say=say, stop=stop)
    if writes:
        config.folds_trained(folder, say)
    return TrainResult(spec.trains, folder, spec)


train_async = asynchronous(train)
"""Runs `train` in a thread, with the same parameters, for programs with an event loop."""


def plan_train(config: TrainConfig, *, say: Say = lambda *_: None) -> Preflight:
    """Checks rows, images, memory, disk and time, without training.

    Args:
        config: The training.
        say: Called with the phase, the current count, and the total.

    Returns:
        The results of the checks.

    Raises:
        UsageError: The settings do not fit the model, the rows or the devices.
        InputError: A row or an image is broken.
    """
    devices = parse_devices(config.gpus) if config.gpus else None
    with config.training_rows(planned=True) as rows:
        return check_training(
            config.spec(), rows, config.output, say, teacher=config.teacher()[0], devices=devices
        )

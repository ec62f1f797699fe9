"""Trains a policy or captioner from rows, or a ranker or planner from recorded pages."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

from msgspec import Meta

from prill.config.registry import Option, list_options, load_object
from prill.config.shared import GpusOption, ResumeOption
from prill.config.values import Config, PartConfig, plain
from prill.errors import UsageError
from prill.io.lines import is_stream
from prill.io.manifest import expect_unchanged, write_manifest
from prill.io.outputs import backup_path, expect_file, write_errors, write_output
from prill.models.local.trained import FORMAT, RECORD, read_record
from prill.models.replies import excerpt
from prill.refine.demonstration import Teacher
from prill.refine.training.checkpoints import (
    drop_torn,
    expect_room,
    expect_weights,
    last_checkpoint,
)
from prill.refine.training.preflight import (
    Devices,
    Preflight,
    Say,
    TrainingPlan,
    check_settings,
    parse_devices,
    plan_training,
)
from prill.refine.training.spec import DEFAULT_PRESETS, OF_PAGES, Trained, TrainSpec, training_spec
from prill.refine.training.swift import ENGINE_LOG, SwiftPlan, fit_swift, plan_swift
from prill.refine.training.trainer import Progress, TrainingWatch, make_trainer, stop_on_ctrl_c
from prill.running import Printed, as_run

# the weights are written here first and moved once all are complete
_SAVING = ".saving.part"
_CARD = "README.md"
_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
_ON_PAGES = "prill.papers.mind2web.training"
# The modules of other packages' recipes, imported on first use.
_RECIPES: Mapping[Trained, str] = {
    "judge": "prill.refine.training.judge:JudgeRecipe",
    "ranker": f"{_ON_PAGES}:RankerRecipe",
    "planner": f"{_ON_PAGES}:PlannerRecipe",
}


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
    resume: ResumeOption = True
    gpus: GpusOption = None

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
        """
        yield self.rows

    def trained(self, folder: Path) -> None:
        """Writes the files that accompany the weights, after training."""

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
class TrainResult(Printed):
    """Result of a training.

    Attributes:
        trains: The type of model: a policy, a captioner, a judge, a ranker or a planner.
        folder: The folder of the weights.
        spec: All settings of the training.
    """

    trains: Trained
    folder: Path
    spec: TrainSpec
    of_files = True

    def to_dict(self) -> dict[str, Any]:
        """Returns the type of model, its folder and all settings as a JSON object."""
        return {"trains": self.trains, "folder": str(self.folder), "spec": plain(self.spec)}

    def __str__(self) -> str:
        return f"{self.trains} -> {self.folder}"


@as_run(TrainConfig)
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
        folder = train_rows(
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
        facts = check_training(
            config.spec(), rows, config.output, say, teacher=config.teacher()[0], devices=devices
        )
    return replace(facts, folds=config.fold_count)


class RecipePlan(Protocol):
    """The inputs of a training, read and checked."""

    @property
    def facts(self) -> Preflight:
        """Estimates before the training."""
        ...

    @property
    def digests(self) -> Mapping[str, object]:
        """Hashes of the training data, to recognise it on resume."""
        ...


class Recipe:
    """The training procedure for one kind of model; this one is for a policy or captioner: rows of
    prompt and completion, trained by TRL. Plans come from the recipe's own `plan`.
    """

    caution: ClassVar[str] = "Rows that a judge let through carry that judge's errors."

    def plan(
        self,
        spec: TrainSpec,
        rows: str | os.PathLike[str],
        folder: Path,
        say: Say,
        *,
        teacher: Teacher | None,
        taught: Mapping[str, Any] | None,
        devices: Devices | None,
    ) -> TrainingPlan:
        """Reads and measures the data. Raises UsageError if the training would fail."""
        refuse_teacher(spec, teacher)
        return plan_training(spec, rows, folder, say, devices)

    def trainer(
        self,
        spec: TrainSpec,
        plan: Any,
        folder: Path,
        watch: TrainingWatch,
        *,
        on_gpu: bool,
        teacher: Teacher | None,
    ) -> Any:
        """Makes a transformers trainer for the plan, with the model loaded."""
        return make_trainer(spec, plan, folder, watch, on_gpu=on_gpu)

    def figures(self, trainer: Any, plan: Any, say: Say) -> dict[str, Any]:
        """Measures figures besides losses after the training; every process runs it."""
        return {}

    def title(self, spec: TrainSpec) -> str:
        """Returns the heading of the model card."""
        return (
            "A captioner: screens as text"
            if spec.trains == "captioner"
            else "A policy: what to do next"
        )

    def tags(self, spec: TrainSpec) -> str:
        """Returns the tags of the model card."""
        return "prill, sft, trl" + ", lora" * (spec.method != "full")

    def learnt_from(self, plan: Any) -> str:
        """Describes the training data and the rows left out."""
        facts = plan.facts
        return (
            f"on {facts.learnt:,} rows ({facts.pictures:,} pictures), with the loss on the "
            f"answers only. {facts.overlong:,} "
            f"rows were too long\nand left out; {facts.held_out:,} rows of other tasks were kept "
            "apart."
        )

    def table(self, figures: Mapping[str, Any]) -> str:
        """Formats further figures as a table of the model card; empty without any."""
        return ""


def recipe_for(trains: Trained) -> Recipe:
    """Returns the recipe for a kind of model."""
    return load_object(_RECIPES[trains])() if trains in _RECIPES else Recipe()


def refuse_teacher(spec: TrainSpec, teacher: Teacher | None) -> None:
    """Raises UsageError if a policy is given to a training that does not use one."""
    if teacher is not None:
        raise UsageError(
            f"policy: a {spec.trains} is trained without a policy; leave it out",
            parameters=("policy",),
        )


def train_rows(
    spec: TrainSpec,
    rows: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    resume: bool = True,
    teacher: Teacher | None = None,
    taught: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], object] = lambda progress: None,
    say: Say = lambda *_: None,
    stop: threading.Event | None = None,
) -> Path:
    """Trains a model. The same call resumes from the last checkpoint.

    Ctrl-C in the main thread, or `stop`, ends the training after a step, with a checkpoint.

    Args:
        spec: The training settings.
        rows: The training rows, with prompt and completion. A ranker and a planner learn from gold
            trajectories instead.
        output: The folder for checkpoints and the result.
        resume: Resume a training in the folder. False: rename the folder to `.bak` and start again.
        teacher: For a planner, the policy that will use it. None: for every other kind of model.
        taught: The description of `teacher`, for the record. None: none.
        progress: Called after each step.
        say: Called with the progress of reading the rows.
        stop: Setting this event ends the training. None: it runs to the end.

    Returns:
        The folder with the adapter (with method "full", the model) and its card.

    Raises:
        UsageError: The rows, images, settings or folder cannot be used for this training.
        EndpointError: The model cannot be used.
        KeyboardInterrupt: The training was stopped; the message names the checkpoint.
    """
    folder = Path(output)
    expect_file(folder, "a training")
    if is_stream(rows):
        raise UsageError(
            f"{rows}: expected a file, because rows are read again when a training resumes",
            parameters=("rows",),
        )
    watch = TrainingWatch(progress, stop or threading.Event())
    if spec.engine == "swift":
        return _by_swift(spec, rows, folder, watch, say, resume=resume)
    recipe, plan = _plan(spec, rows, folder, say, teacher, taught)
    about = _about(spec, plan)
    is_first = int(os.environ.get("RANK", "0")) == 0
    if is_first:
        _prepare(folder, about, resume)
    torch = import_module("torch")
    on_gpu = spec.device == "auto" and torch.cuda.is_available()
    import_module("accelerate").PartialState(cpu=not on_gpu).wait_for_everyone()
    if (read_record(folder) or {}).get("done"):
        return folder
    try:
        figures = _fit(spec, recipe, plan, folder, watch, say, teacher, on_gpu=on_gpu)
    finally:
        gc.collect()  # trainers are in reference cycles, which also hold the model
    if is_first:
        facts = plan.facts
        card = _card(
            spec,
            recipe,
            f"`prill train {spec.trains}`\n{recipe.learnt_from(plan)}",
            recipe.tags(spec),
            plan,
            {
                "parameters": f"{facts.trained:,} trained of {facts.parameters:,}",
                "steps": f"{figures['steps']:,} of {spec.batch} rows, {facts.epochs:.1f} times "
                "each row",
                "time of the last run": f"{figures['seconds']:,} s on {facts.processes} x "
                f"{facts.device}",
            },
            about["versions"],
            figures,
        )
        _finish(folder, card, {**about, "done": True, "figures": figures})
    return folder


def _finish(folder: Path, card: bytes, record: Mapping[str, Any]) -> None:
    """Writes the model card, and the record of the finished training with its files' hashes."""
    write_output(folder / _CARD, card)
    written = sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and path.suffix != ".md"
        and path.name[0] != "."
        and path.name not in (RECORD, ENGINE_LOG)
    )
    write_manifest(folder / RECORD, record, written)


def _by_swift(
    spec: TrainSpec,
    rows: str | os.PathLike[str],
    folder: Path,
    watch: TrainingWatch,
    say: Say,
    *,
    resume: bool,
) -> Path:
    """Runs `train` with the engine ms-swift."""
    plan = plan_swift(spec, rows, say)
    about = {
        "format": f"{FORMAT} 1",
        "done": False,
        "settings": spec.settings(),
        "data": plan.digests,
        "counts": {
            "rows": len(plan.rows.samples),
            "learnt": len(plan.learnt),
            "held_out": len(plan.held_out),
            "pictures": len(plan.rows.seen),
        },
        "processes": plan.processes,
        "versions": dict(plan.versions),
    }
    _prepare(folder, about, resume)
    if (read_record(folder) or {}).get("done"):
        return folder
    with stop_on_ctrl_c(watch.stop):
        figures = fit_swift(spec, plan, folder, watch)
    by = (
        f"ms-swift for `prill train {spec.trains}`\non {len(plan.learnt):,} rows "
        f"({len(plan.rows.seen):,} pictures), with the loss on the answers only; ms-swift leaves "
        f"out rows\nthat are too long. {len(plan.held_out):,} rows of other tasks were kept apart."
    )
    facts = {
        "steps": f"{figures['steps']:,} of {spec.batch} rows",
        "time of the last run": f"{figures['seconds']:,} s in {plan.processes} processes",
    }
    tags = f"prill, sft, ms-swift{', lora' * (spec.method != 'full')}"
    card = _card(spec, Recipe(), by, tags, plan, facts, plan.versions, figures)
    _finish(folder, card, {**about, "done": True, "figures": figures})
    return folder


def check_training(
    spec: TrainSpec,
    rows: str | os.PathLike[str],
    output: str | os.PathLike[str],
    say: Say = lambda *_: None,
    *,
    teacher: Teacher | None = None,
    devices: Devices | None = None,
) -> Preflight:
    """Checks a training without starting it or writing anything.

    Args:
        spec: As for `train`.
        rows: As for `train`.
        output: As for `train`.
        say: Called with the progress of reading the rows.
        teacher: As for `train`.
        devices: The GPUs to plan for. None: those of this machine.

    Returns:
        The estimates of the training.

    Raises:
        UsageError: `train` would raise it, or this training can only be planned for this machine.
        EndpointError: The model cannot be used.
    """
    if devices and spec.trains in OF_PAGES:
        raise UsageError(
            f"dry_run: a {spec.trains} can only be estimated for this machine", parameters=("gpus",)
        )
    return _plan(spec, rows, Path(output), say, teacher, None, devices)[1].facts


def _plan(
    spec: TrainSpec,
    rows: str | os.PathLike[str],
    folder: Path,
    say: Say,
    teacher: Teacher | None,
    taught: Mapping[str, Any] | None,
    devices: Devices | None = None,
) -> tuple[Recipe, RecipePlan]:
    if spec.engine == "swift":
        raise UsageError(
            "dry_run: a training by ms-swift cannot be estimated; leave it out",
            parameters=("engine",),
        )
    check_settings(spec)
    recipe = recipe_for(spec.trains)
    return recipe, recipe.plan(
        spec, rows, folder, say, teacher=teacher, taught=taught, devices=devices
    )


def _fit(
    spec: TrainSpec,
    recipe: Recipe,
    plan: RecipePlan,
    folder: Path,
    watch: TrainingWatch,
    say: Say,
    teacher: Teacher | None,
    *,
    on_gpu: bool,
) -> dict[str, Any]:
    """Trains from the last checkpoint to the end, writes the adapter, and returns the figures."""
    started = time.monotonic()
    with stop_on_ctrl_c(watch.stop), _memory_failures():
        trainer = recipe.trainer(spec, plan, folder, watch, on_gpu=on_gpu, teacher=teacher)
        last = last_checkpoint(folder)
        trainer.train(resume_from_checkpoint=str(last) if last else None)
        if trainer.state.global_step < trainer.state.max_steps:
            place = f"step {trainer.state.global_step} of {trainer.state.max_steps}"
            raise KeyboardInterrupt(f"stopped after {place}; the same call resumes from there")
        with expect_room(folder, folder):
            _save(
                trainer,
                folder,
                plan.facts.parameters if spec.method == "full" else plan.facts.trained,
            )
        figures = _figures(trainer, time.monotonic() - started) | recipe.figures(trainer, plan, say)
        trainer.accelerator.wait_for_everyone()
    return figures


def _save(trainer: Any, folder: Path, numbers: int) -> None:
    """Writes the weights, which must hold at least `numbers` parameters. The files are moved into
    place once all are complete.
    """
    first, saving = trainer.is_world_process_zero(), folder / _SAVING
    if first:
        shutil.rmtree(saving, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_fsdp_enabled:
        # With any other state dict type, transformers' save_model writes nothing.
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model(str(saving))
    trainer.accelerator.wait_for_everyone()
    if not first:
        return
    expect_weights(saving, numbers, folder)
    # PEFT's own model card
    for name in sorted(path.name for path in saving.iterdir() if path.name != _CARD):
        if (saving / name).is_dir():  # a folder of sharded weights that an earlier call left
            shutil.rmtree(folder / name, ignore_errors=True)
        (saving / name).replace(folder / name)
    shutil.rmtree(saving)


def _about(spec: TrainSpec, plan: RecipePlan) -> dict[str, Any]:
    """Returns the facts that identify this training, as JSON values."""
    facts = plan.facts
    return {
        "format": f"{FORMAT} 1",
        "done": False,
        "settings": spec.settings(),
        "data": plan.digests,
        "counts": {
            name: getattr(facts, name)
            for name in ("rows", "learnt", "held_out", "overlong", "pictures")
        },
        "parameters": {"all": facts.parameters, "trained": facts.trained},
        "processes": facts.processes,
        "versions": {package: version(package) for package in _PACKAGES},
    }


def _prepare(folder: Path, about: Mapping[str, Any], resume: bool) -> None:
    """Prepares the folder to start or resume. Raises UsageError for other or damaged files."""
    if resume:
        expect_unchanged(folder / RECORD, "start the training over")
    if folder.exists() and (
        not folder.is_dir()
        or not (os.path.lexists(folder / RECORD) or all(map(_is_part, folder.iterdir())))
    ):
        raise UsageError(
            f"{folder}: contains something that is not a training; choose another folder",
            parameters=("output",),
        )
    with write_errors(folder):
        if os.path.lexists(folder / RECORD) and not resume:
            folder.rename(backup_path(folder))
        folder.mkdir(parents=True, exist_ok=True)
    there = read_record(folder)
    if there is not None and (changed := _changed(there, about)):
        raise UsageError(
            f"{folder}: contains a training with other {changed}; choose another folder, or "
            "start over",
            parameters=("output", "resume"),
        )
    if there is None:
        write_manifest(folder / RECORD, about)
    if there is None or not there.get("done"):
        drop_torn(folder)


def _changed(there: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """Describes the differences between two trainings; empty if one may resume the other."""
    if there.get("data") != about["data"]:
        return (
            "rows or pictures" if "pictures" in about["data"] else "trajectories, or another policy"
        )
    new = {
        field.name: field.default for field in fields(TrainSpec)
    }  # defaults of settings that older records lack
    of_old, of_new = {**new, **there.get("settings", {})}, about["settings"]
    lasting = TrainSpec(**of_new).lasting()
    differing = [
        f"{name} ({of_old.get(name)} there, {now} here)"
        for name, now in lasting.items()
        if of_old.get(name) != now
    ]
    return f"settings: {', '.join(differing)}" if differing else ""


def _is_part(path: Path) -> bool:
    """Whether the file is incomplete output of a crashed run."""
    return path.name.startswith(".") and path.suffix == ".part"


def _figures(trainer: Any, seconds: float) -> dict[str, Any]:
    """Returns the training losses and the held-out losses by step."""
    log = trainer.state.log_history
    losses = [(row["step"], row["loss"]) for row in log if "loss" in row]
    held_out = [(row["step"], row["eval_loss"]) for row in log if "eval_loss" in row]
    return {
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "losses": losses,
        "held_out_losses": held_out,
    }


def _card(
    spec: TrainSpec,
    recipe: Recipe,
    by: str,
    tags: str,
    plan: RecipePlan | SwiftPlan,
    rows: Mapping[str, str],
    versions: Mapping[str, str],
    figures: Mapping[str, Any],
) -> bytes:
    """Builds the model card: data, settings and losses.

    `by` says what trained the model, and on which rows; `rows` are further rows of its first table.
    """
    adapter = spec.method != "full"
    rows = {
        **{f"{name}{', SHA-256' * (name != 'policy')}": f"`{value}`"
           for name, value in plan.digests.items()},
        **rows,
        "versions": ", ".join(f"{package} {number}" for package, number in versions.items()),
    }  # fmt: skip
    losses, held_out = (
        "\n".join(f"| {step} | {loss:.4f} |" for step, loss in several)
        for several in (_thinned(figures["losses"]), figures["held_out_losses"])
    )
    what = f"An adapter (LoRA, rank {spec.rank}, on {spec.targets})" if adapter else "All weights"
    return f"""---
base_model: {spec.model}
library_name: {"peft" if adapter else "transformers"}
tags: [{tags}]
---

# {recipe.title(spec)}

{what} of `{spec.model}`, trained by {by}

It does what its rows did, mistakes included. {recipe.caution}

| | |
|---|---|
{_table(rows)}

| step | loss |
|---|---|
{losses}

| step | loss on what was kept apart |
|---|---|
{held_out or "| - | none kept apart |"}
{recipe.table(figures)}
| setting | |
|---|---|
{_table(spec.settings())}
""".encode()


def _table(rows: Mapping[str, Any]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def _thinned(losses: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Returns at most 20 of the losses, including the first and the last."""
    if len(losses) <= 20:
        return losses
    return [losses[round(i * (len(losses) - 1) / 19)] for i in range(20)]


@contextmanager
def _memory_failures() -> Iterator[None]:
    """Turns an out-of-memory error into a UsageError with advice."""
    try:
        yield
    except import_module("torch").OutOfMemoryError as error:
        raise UsageError(
            "the training does not fit into the memory of the device: "
            f"{excerpt(str(error))}. Use fewer rows per forward pass, smaller images, "
            "gradient checkpointing, or method qlora",
            parameters=("micro_batch", "max_pixels", "gradient_checkpointing", "method"),
        ) from error

"""Training of an adapter or model on rows, resumable at any point."""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prill.errors import UsageError
from prill.io.checksums import CHECKSUMS, Checksums
from prill.io.lines import is_stream
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
from prill.refine.training.preflight import Devices, Preflight, Say, check_settings
from prill.refine.training.recipe import Recipe, RecipePlan, recipe_for
from prill.refine.training.spec import OF_PAGES, TrainSpec
from prill.refine.training.swift import ENGINE_LOG, SwiftPlan, fit_swift, plan_swift
from prill.refine.training.trainer import Progress, TrainingWatch, stop_on_ctrl_c

# the weights are written here first and moved once all are complete
_SAVING = ".saving.part"
_CARD = "README.md"
_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


def train(
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
    """Writes the model card, the record of the finished training, and checksums."""
    write_output(folder / _CARD, card)
    write_output(folder / RECORD, _json(record))
    written = sorted(
        path.name
        for path in folder.iterdir()
        if path.is_file() and path.suffix != ".md" and path.name[0] != "."
    )
    Checksums(folder).note(*(name for name in written if name not in (CHECKSUMS, ENGINE_LOG)))


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
        Checksums(folder).check()
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
        write_output(folder / RECORD, _json(about))
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


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


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

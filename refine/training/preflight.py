"""Checks of a training before it starts: rows, images, tokens, memory, disk, steps, time."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from inspect import signature
from pathlib import Path
from statistics import fmean
from typing import Any

from prill.config.registry import OptionError, nearest
from prill.errors import UsageError
from prill.models.local.torchvision import mend_torchvision
from prill.plans import duration
from prill.refine.training.samples import (
    Rows,
    Sample,
    TrainingData,
    balanced,
    check_pictures,
    encode,
    read_rows,
    split,
    texts,
)
from prill.refine.training.spec import OF_PAGES, TrainSpec
from prill.refine.training.weights import (
    KINDS_OF_TARGETS,
    Base,
    adapted,
    model_failures,
    need_packages,
    open_base,
    weights_dtype,
)
from prill.running import Printed

# Called with the name of a phase, its progress and its total.
Say = Callable[[str, int, int], object]
# Dense bfloat16 FLOP/s and bytes of memory by the vendors' data sheets, for the H100 and A100 those
# of the larger SXM boards; and the share of the FLOP/s that a training is expected to reach.
_GPUS = {
    "H200": (989e12, 141e9),
    "H100": (989e12, 80e9),
    "B200": (2250e12, 180e9),
    "A100": (312e12, 80e9),
    "L40S": (362e12, 48e9),
    "L4": (121e12, 24e9),
    "4090": (165e12, 24e9),
}
_SHARE = 0.35
# Bytes that a layer stores for its backward pass, per token and hidden unit (arXiv 2205.05198,
# equation 2, in 16 bits, without the attention map, which fused attention never stores); and the
# same with gradient checkpointing.
_KEPT, _KEPT_AGAIN = 34, 2
# Arguments of SFTConfig that settings of ours determine.
_SETTINGS = set(
    [
        "max_steps",
        "num_train_epochs",
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "gradient_accumulation_steps",
        "learning_rate",
        "lr_scheduler_type",
        "warmup_steps",
        "warmup_ratio",
        "weight_decay",
        "adam_beta1",
        "adam_beta2",
        "max_grad_norm",
        "seed",
        "logging_steps",
        "save_steps",
        "eval_strategy",
        "eval_steps",
        "report_to",
        "output_dir",
        "gradient_checkpointing",
        "bf16",
        "fp16",
        "use_cpu",
        "logging_first_step",
        "save_strategy",
        "prediction_loss_only",
        "disable_tqdm",
        "dataloader_pin_memory",
        "remove_unused_columns",
        "max_length",
        "dataloader_num_workers",
        "save_total_limit",
        "resume_from_checkpoint",
    ]
)
# tokens of a row for the estimate if the training has no limit: a page and a picture
_LONG_ROW = 4096
_WORKING = 1.1  # overhead of memory fragmentation and of the libraries


@dataclass(frozen=True, slots=True)
class Devices:
    """The GPUs of another machine that a training is planned for: a count and a name."""

    count: int
    name: str

    @property
    def memory(self) -> int:
        """The memory of each GPU in bytes."""
        return int(_GPUS[self.name][1])


def parse_devices(text: str) -> Devices:
    """Parses a text such as `8xH200`. Raises UsageError."""
    match = re.fullmatch(r"([1-9]\d{0,3})x(\w+)", text)
    if match is None or match[2] not in _GPUS:
        names = ", ".join(_GPUS)
        raise OptionError(
            f"gpus: expected a number and a name, for example 8xH200, got {text!r}; names: {names}",
            "gpus",
        )
    return Devices(int(match[1]), match[2])


@dataclass(frozen=True, kw_only=True)
class Preflight(Printed):
    """The estimates before a training. `seconds` is None on a device whose speed is unknown.

    `folds`: how many more trainings follow, each without a part of the runs.
    """

    rows: int
    learnt: int
    held_out: int
    overlong: int
    pictures: int
    longest: int
    mean_tokens: float
    limit: int | None
    answer_tokens: int
    parameters: int
    trained: int
    steps: int
    epochs: float
    micro_batch: int
    accumulation: int
    processes: int
    memory: int
    checkpoint: int
    disk_needed: int
    disk_free: int
    flops: float
    seconds: float | None
    device: str
    spec: TrainSpec
    folds: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as a JSON object."""
        names = [part.name for part in fields(self) if part.name not in ("spec", "folds")]
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        spec, pages = self.spec, self.spec.trains in OF_PAGES
        limit = "no limit known" if self.limit is None else f"limit {self.limit:,}"
        left_out = f", {self.overlong:,} too long and left out" if self.overlong else ""
        at_once = f"{self.accumulation} x {self.micro_batch} on each of {self.processes}"
        of_model = (
            f"{self.parameters / 1e6:,.1f} M parameters, {self.trained / 1e6:,.2f} M trained "
            f"({spec.method})"
        )
        answers = f"answers of up to {self.answer_tokens:,}"
        each = f"a checkpoint has {_size(self.checkpoint)}"
        lines = {
            "rows": f"{self.learnt:,} to learn from, {self.held_out:,} held out{left_out}",
            "pictures": "" if pages else f"{self.pictures:,}, all readable",
            "tokens": (
                f"{self.mean_tokens:,.0f} a row, at most {self.longest:,} ({limit}); {answers}"
            ),
            "model": f"{spec.model}: {of_model}",
            "steps": (
                f"{self.steps:,} of {spec.batch} rows ({at_once}), {self.epochs:.1f} times each row"
            ),
            "memory": f"about {_size(self.memory)} on each device",
            "disk": f"about {_size(self.disk_needed)}, of {_size(self.disk_free)} free; {each}",
            "work": f"{self.flops:.2e} floating point operations a step; {self._time()}",
            "folds": (
                f"{self.folds} more trainings, each without a part of the runs"
                if self.folds
                else ""
            ),
        }
        return "\n".join(f"{name:<9}{text}" for name, text in lines.items() if text)

    def _time(self) -> str:
        if self.seconds is None:
            return f"the time on {self.device} is not known"
        return f"roughly {duration(self.seconds)} on {self.device}"


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


@dataclass(frozen=True, slots=True)
class TrainingPlan(TrainingData):
    """The inputs of a training, read and checked."""

    base: Base
    facts: Preflight

    @property
    def has_pictures(self) -> bool:
        """Whether any row has an image."""
        return self.facts.pictures > 0


def plan_training(
    spec: TrainSpec,
    rows: str | os.PathLike[str],
    output: str | os.PathLike[str],
    say: Say = lambda *_: None,
    devices: Devices | None = None,
) -> TrainingPlan:
    """Reads and measures rows, images and model. Raises UsageError if the training would fail."""
    read = read_rows(rows, pictures=spec.trains == "captioner")
    base = open_base(spec)
    if not base.sees and (
        blind := next((sample for sample in read.samples if sample.images), None)
    ):
        raise UsageError(
            f"{rows}:{blind.line}: the row has an image, but {spec.model} does not accept "
            "images; use a vision model, or rows of text",
            parameters=("model",),
        )
    sizes, digest = check_pictures(read, lambda done: say("pictures", done, len(read.seen)))
    lengths = {sample.line: length for sample, length in _lengths(read.samples, base, sizes, say)}
    limit = min(filter(None, (spec.max_length, base.window)), default=None)
    fitting = [s for s in read.samples if limit is None or sum(lengths[s.line]) <= limit]
    _expect_fitting(spec, read, fitting, lengths, limit)
    learnt, held_out = split(fitting, spec.held_out)
    if spec.trains == "judge" and spec.balance:
        learnt = balanced(learnt, spec.seed)
    facts = estimate_run(
        spec,
        base,
        Path(output),
        [lengths[sample.line] for sample in learnt],
        rows=len(read.samples),
        learnt=len(learnt),
        held_out=len(held_out),
        overlong=len(read.samples) - len(fitting),
        pictures=len(read.seen),
        limit=limit,
        devices=devices,
    )
    return TrainingPlan(read, tuple(learnt), tuple(held_out), digest, base, facts)


def check_settings(spec: TrainSpec) -> None:
    """Checks settings without rows and weights. Raises UsageError, MissingExtraError."""
    need_packages(spec)
    _check_options(spec)
    batches(spec, _processes(), pictured=False)
    if spec.report_to not in ("none", "all"):
        mend_torchvision()
        utils = import_module("transformers.integrations.integration_utils")
        trackers = utils.get_available_reporting_integrations()
        if spec.report_to not in trackers:
            there = f"expected one of {', '.join(['none', *trackers])}"
            near = nearest(spec.report_to, trackers)
            raise OptionError(
                f"report_to: {spec.report_to!r} is not installed here{near}; {there}", "report_to"
            )
    if spec.targets not in KINDS_OF_TARGETS:
        try:
            re.compile(spec.targets)
        except re.error as error:
            raise OptionError(
                f"targets: {spec.targets!r} is not a regular expression: {error}", "targets"
            ) from None


def _check_options(spec: TrainSpec) -> None:
    """Checks the further options of TRL's trainer.

    Raises:
        OptionError: SFTConfig has no such argument, or another setting determines it.
    """
    if not spec.options:
        return
    mend_torchvision()
    known = signature(import_module("trl").SFTConfig).parameters
    for name in spec.options:
        if name not in known:
            raise OptionError(
                f"options: TRL's SFTConfig has no {name!r}{nearest(name, known)}", "options"
            )
        if name in _SETTINGS:
            raise OptionError(
                f"options: {name} is determined by the settings of the training; set those",
                "options",
            )


def _processes() -> int:
    """Returns the number of training processes that `accelerate launch` sets."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _expect_fitting(
    spec: TrainSpec,
    rows: Rows,
    fitting: Sequence[Sample],
    lengths: dict[int, tuple[int, int]],
    limit: int | None,
) -> None:
    lost = len(rows.samples) - len(fitting)
    if not lost or (spec.overlong == "drop" and fitting):
        return
    line, length = max(
        ((sample.line, sum(lengths[sample.line])) for sample in rows.samples),
        key=lambda pair: pair[1],
    )
    raise UsageError(
        f"{rows.path}:{line}: {lost} of {len(rows.samples)} rows are longer than {limit} "
        f"tokens, this one has {length}; images cannot be truncated, so raise max_length, "
        "lower max_pixels, or drop such rows",
        parameters=("max_length", "max_pixels", "overlong"),
    )


def _lengths(
    samples: Sequence[Sample], base: Base, sizes: dict[str, tuple[int, int]], say: Say
) -> list[tuple[Sample, tuple[int, int]]]:
    """Counts the tokens of each row's prompt and answer, without processing its images."""
    tokenizer, found = base.tokenizer, []
    for done, sample in enumerate(samples, 1):
        with model_failures(base.name):
            if sample.images:
                both = texts(sample, base.reader, sees=True)
                asked, said = (
                    len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in both
                )
                asked += _picture_tokens(base, [sizes[image] for image in sample.images]) - len(
                    sample.images
                )
            else:
                encoded = encode(sample, base.reader, sees=base.sees)
                said = sum(label != -100 for label in encoded.labels)
                asked = len(encoded.input_ids) - said
        found.append((sample, (asked, said)))
        say("rows", done, len(samples))
    return found


def _picture_tokens(base: Base, sizes: Sequence[tuple[int, int]]) -> int:
    counts = base.reader._get_num_multimodal_tokens(
        image_sizes=[(height, width) for width, height in sizes]
    )
    return sum(counts.num_image_tokens)


def estimate_run(
    spec: TrainSpec,
    base: Base,
    output: Path,
    lengths: Sequence[tuple[int, int]],
    *,
    rows: int,
    learnt: int,
    held_out: int,
    overlong: int,
    pictures: int = 0,
    limit: int | None,
    devices: Devices | None = None,
) -> Preflight:
    """Estimates a training from the token counts of all or some rows.

    With `devices`, the estimate is for those GPUs instead of this machine's; the disk is still this
    machine's.
    """
    torch = import_module("torch")
    processes = devices.count if devices else _processes()
    micro, accumulation = batches(spec, processes, pictures > 0)
    steps = spec.steps or math.ceil(spec.epochs * math.ceil(learnt / spec.batch))
    tokens = [sum(both) for both in lengths]
    on_gpu = devices is not None or (spec.device == "auto" and torch.cuda.is_available())
    outline = base.outline(spec)
    parameters = sum(weight.numel() for weight in outline.parameters())
    trained = parameters if spec.method == "full" else _adapter_size(outline, spec)
    checkpoint = trained * 12  # weights and AdamW's two moments, 4 bytes each
    again = on_gpu if spec.gradient_checkpointing is None else spec.gradient_checkpointing
    mean = fmean(tokens)
    # FLOPs per parameter and token: 2 for the forward pass, 2 for the gradients of activations, 2
    # for those of trained weights, and 2 more for a second forward pass with gradient
    # checkpointing.
    passes = 4 + 2 * (spec.method == "full") + 2 * again
    flops = passes * parameters * mean * spec.batch
    device, rate = (devices.name, _GPUS[devices.name][0] * _SHARE) if devices else _speed(on_gpu)
    memory = _memory(
        spec, base, parameters, trained, micro * max(tokens), on_gpu=on_gpu, again=again
    )
    shards = processes if _is_sharded(os.environ) else 1
    if on_gpu:
        capacity = devices.memory if devices else torch.cuda.get_device_properties(0).total_memory
        check_memory(spec, memory, capacity, shards=shards)
    folder = next(
        folder for folder in (output.absolute(), *output.absolute().parents) if folder.exists()
    )
    needed = checkpoint * (spec.keep_checkpoints + 1) + trained * 4
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"{output}: checkpoints need about {needed / 1000000000.0:.1f} GB, but only "
            f"{free / 1000000000.0:.1f} GB are free; choose another disk, or keep fewer of "
            "them",
            parameters=("output", "keep_checkpoints"),
        )
    return Preflight(
        rows=rows,
        learnt=learnt,
        held_out=held_out,
        overlong=overlong,
        pictures=pictures,
        longest=max(tokens),
        mean_tokens=mean,
        limit=limit,
        answer_tokens=max(said for _, said in lengths),
        parameters=parameters,
        trained=trained,
        steps=steps,
        epochs=steps / math.ceil(learnt / spec.batch),
        micro_batch=micro,
        accumulation=accumulation,
        processes=processes,
        memory=memory // shards,
        checkpoint=checkpoint,
        disk_needed=needed,
        disk_free=free,
        flops=flops,
        seconds=None if rate is None else steps * flops / rate / processes,
        device=device,
        spec=spec,
    )


def row_estimate(devices: Devices, spec: TrainSpec, base: Base, output: Path) -> str:
    """Describes the memory, disk and time of one training on one of the devices, estimated from its
    longest rows. Raises UsageError.
    """
    tokens = spec.max_length or min(_LONG_ROW, base.window or _LONG_ROW)
    one = Devices(1, devices.name)
    facts = estimate_run(
        spec, base, output, [(tokens, 1)],
        rows=1, learnt=spec.batch, held_out=0, overlong=0, pictures=1, limit=None, devices=one,
    )  # fmt: skip
    hours = (
        f"{facts.seconds / 3600:.1f} h"
        if facts.seconds is not None and spec.steps
        else "a duration that depends on the number of kept rows"
    )
    memory = f"about {facts.memory / 1e9:.1f} of {one.memory / 1e9:.0f} GB of one {one.name}"
    return (
        f"one training with rows of {tokens:,} tokens: {memory}, "
        f"{facts.disk_needed / 1e9:.1f} GB of disk, {hours}"
    )


def check_memory(spec: TrainSpec, needed: int, capacity: int, *, shards: int = 1) -> None:
    """Raises UsageError for a training that needs more than the memory of the device, in bytes.

    `needed` is without sharding; `shards` devices share weights, gradients and moments (FSDP,
    DeepSpeed ZeRO 3).
    """
    if needed / shards <= capacity:
        return
    each = f" on each of {shards} devices" if shards > 1 else ""
    advice = "train an adapter (method lora), or shard the weights over more devices with FSDP"
    if spec.method != "full":
        advice = (
            "use fewer rows per forward pass (micro_batch), smaller images (max_pixels), "
            "or 4-bit weights (method qlora)"
        )
    raise UsageError(
        f"the training needs about {needed / shards / 1000000000.0:.0f} GB{each}, but the "
        f"device has {capacity / 1000000000.0:.0f} GB; {advice}",
        parameters=("method", "micro_batch", "max_pixels"),
    )


def _is_sharded(environ: Mapping[str, str]) -> bool:
    """Whether `accelerate launch` was configured to shard the weights among devices."""
    return any(
        environ.get(f"ACCELERATE_USE_{name}", "").lower() in ("1", "true")
        for name in ("FSDP", "DEEPSPEED")
    )


def batches(spec: TrainSpec, processes: int, pictured: bool) -> tuple[int, int]:
    """Returns the micro-batch size of a process, and the gradient accumulation steps."""
    if spec.batch % processes:
        raise OptionError(
            f"batch: {spec.batch} rows cannot be divided evenly among {processes} processes",
            "batch",
        )
    share = spec.batch // processes
    micro = spec.micro_batch or (1 if pictured else share)
    if share % micro:
        raise OptionError(
            f"micro_batch: {micro} does not divide the {share} rows per batch of each process",
            "micro_batch",
        )
    return micro, share // micro


def _adapter_size(outline: Any, spec: TrainSpec) -> int:
    """Counts an adapter's parameters: rank times the inputs and outputs of each adapted layer."""
    return sum(
        spec.rank * (layer.in_features + layer.out_features)
        for layer in adapted(outline, spec.targets).values()
    )


def _memory(
    spec: TrainSpec,
    base: Base,
    parameters: int,
    trained: int,
    tokens: int,
    *,
    on_gpu: bool,
    again: bool,
) -> int:
    """Estimates the peak memory in bytes: weights, gradients, AdamW's moments, and the activations
    of one micro-batch.
    """
    torch = import_module("torch")
    size = 4 if weights_dtype(spec, on_gpu=on_gpu) == torch.float32 else 2
    # NF4 weights with their constants, and layers that stay in 16 bits
    weights = parameters * (0.6 if spec.method == "qlora" else size)
    text = base.config.get_text_config()
    layer = tokens * text.hidden_size * (4 if not on_gpu else 2) // 2
    kept = (
        text.num_hidden_layers * layer * _KEPT_AGAIN + layer * _KEPT
        if again
        else text.num_hidden_layers * layer * _KEPT
    )
    return int(
        (weights + trained * 12 + (trained * 4 if spec.method != "full" else 0) + kept) * _WORKING
    )


def _speed(on_gpu: bool) -> tuple[str, float | None]:
    """Returns the device's name and expected FLOP/s, on a CPU measured with a matrix product."""
    torch = import_module("torch")
    if on_gpu:
        name = torch.cuda.get_device_name(0)
        rate = next((rate for known, (rate, _) in _GPUS.items() if known in name), None)
        return name, None if rate is None else rate * _SHARE
    size, best = 1024, 0.0
    one = torch.ones(size, size)
    for _ in range(5):  # the fastest of five, since other processes may use the cores
        start = time.perf_counter()
        one @ one
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return "CPU", best * _SHARE

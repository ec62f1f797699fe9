"""Training by ms-swift in its own environment, for models such as CogAgent.

`swift sft` gets the rows in ms-swift's format and the settings as command-line options. The result
folder has the same layout as for TRL: the adapter, its record, and checkpoints from
which the same call resumes. Options and defaults are those of ms-swift 4.6 (docs,
Instruction/Command-line-parameters).
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from prill.config.registry import OptionError
from prill.errors import EndpointError, UsageError
from prill.io.outputs import write_errors, write_output
from prill.models import keeper
from prill.refine.formats import Swift
from prill.refine.training.checkpoints import CHECKPOINTS, last_checkpoint
from prill.refine.training.preflight import Say, batches
from prill.refine.training.samples import Sample, TrainingData, check_pictures, read_rows, split
from prill.refine.training.spec import TrainSpec
from prill.refine.training.trainer import Progress, TrainingWatch, common_arguments
from prill.refine.training.weights import ATTENTION, EYES, KINDS_OF_TARGETS

# The rows in ms-swift's format, deleted at the end.
LEARNT, HELD_OUT = f"{CHECKPOINTS}/learnt.jsonl", f"{CHECKPOINTS}/held-out.jsonl"
ENGINE_LOG = "swift.log"
_POLL = 0.2
_PACKAGES = ("ms-swift", "torch", "transformers", "peft", "trl", "accelerate")
_NEEDED = "give the Python interpreter of an environment with ms-swift (docs/how-to/cogagent.md)"
_MAX_START = 300.0  # time limit in seconds for an interpreter to report its versions
# Files of a checkpoint that are not needed to load the weights.
_OF_TRAINING = re.compile(
    r"(optimizer|scheduler|scaler|training_args|rng_state.*|global_step.*)\.\w+|(trainer_state|args|additional_config|files)\.json|"
    r"latest|README\.md|global_step\d+|zero_to_fp32\.py"
)


@dataclass(frozen=True, slots=True)
class SwiftPlan(TrainingData):
    """The inputs of a training by ms-swift."""

    python: str
    versions: Mapping[str, str]
    processes: int
    micro_batch: int
    accumulation: int
    steps: int


def plan_swift(
    spec: TrainSpec, rows: str | os.PathLike[str], say: Say = lambda *_: None
) -> SwiftPlan:
    """Reads rows and images, and checks the engine. Raises UsageError, OptionError."""
    if spec.trains not in ("policy", "captioner"):
        raise OptionError(
            f"engine: swift trains policies and captioners; a {spec.trains} is trained by trl",
            "engine",
        )
    if spec.method == "qlora":
        raise OptionError(
            "method: qlora needs engine trl; with ms-swift, set it in options (quant_bits = 4)",
            "method",
        )
    if spec.overlong == "error":
        raise OptionError(
            "overlong: ms-swift drops longer rows; use engine trl to count them, or set "
            "overlong to drop",
            "overlong",
        )
    python = _interpreter(spec.engine_python)
    versions = _versions(python)
    read = read_rows(rows, pictures=spec.trains == "captioner")
    _, digest = check_pictures(read, lambda done: say("pictures", done, len(read.seen)))
    learnt, held_out = split(read.samples, spec.held_out)
    processes = _processes()
    micro, accumulation = batches(spec, processes, pictured=bool(read.seen))
    steps = spec.steps or ceil(len(learnt) / spec.batch * spec.epochs)
    return SwiftPlan(
        read,
        tuple(learnt),
        tuple(held_out),
        digest,
        python,
        versions,
        processes,
        micro,
        accumulation,
        steps,
    )


def fit_swift(
    spec: TrainSpec, plan: SwiftPlan, folder: Path, watch: TrainingWatch
) -> dict[str, Any]:
    """Runs `swift sft` from the last checkpoint, copies the result into the folder, and returns the
    figures.

    Raises EndpointError with the last lines of output if it fails, KeyboardInterrupt if it was
    stopped.
    """
    started = time.monotonic()
    parts = {LEARNT: plan.learnt, HELD_OUT: plan.held_out}
    with write_errors(folder):
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
    for name, samples in parts.items():
        write_output(folder / name, swift_rows(samples))
    last = last_checkpoint(folder)
    command = [plan.python, "-m", "swift.cli.main", "sft", *swift_options(spec, plan, folder, last)]
    with write_errors(folder), (folder / ENGINE_LOG).open("ab") as log:
        start = log.tell()
        process = keeper.begin(command, log, _environment(spec))
    try:
        _follow(process, folder, plan.steps, watch)
    finally:
        assert process.stdin is not None
        process.stdin.close()  # the wrapper process then ends all child processes
        process.wait()
    made = folder / CHECKPOINTS / f"checkpoint-{plan.steps}"
    if watch.stop.is_set() and last_checkpoint(folder) != made:
        last = last_checkpoint(folder)
        resumed = (
            f"the same call resumes from {last.name}" if last else "no checkpoint was written yet"
        )
        raise KeyboardInterrupt(f"stopped; {resumed}")
    if process.returncode or last_checkpoint(folder) != made:
        raise EndpointError(
            f"ms-swift {plan.versions['ms-swift']} failed (status {process.returncode}; its "
            f"output is in {folder / ENGINE_LOG}){_last_output(folder / ENGINE_LOG, start)}"
        )
    _restore_weights(made, folder)
    for name in parts:
        (folder / name).unlink(missing_ok=True)
    losses, held_out = _logged(folder)
    return {
        "steps": plan.steps,
        "seconds": round(time.monotonic() - started, 1),
        "losses": losses,
        "held_out_losses": held_out,
    }


def swift_rows(samples: tuple[Sample, ...]) -> bytes:
    """Converts the rows to ms-swift's format, with absolute image paths."""
    form, lines = Swift(), []
    for sample in samples:
        row = {"prompt": list(sample.prompt), "completion": list(sample.completion)}
        images = (
            {"images": [os.path.abspath(image) for image in sample.images]} if sample.images else {}
        )
        lines.append(
            json.dumps(form.row("sft", {**row, **images}), ensure_ascii=False).encode() + b"\n"
        )
    return b"".join(lines)


def swift_options(spec: TrainSpec, plan: SwiftPlan, folder: Path, last: Path | None) -> list[str]:
    """Converts the settings to options of `swift sft`, without those that it decides by itself."""
    model = (
        str(Path(spec.model).expanduser().resolve())
        if Path(spec.model).expanduser().exists()
        else spec.model
    )
    options: dict[str, object] = {
        "model": model,
        "model_type": spec.model_type,
        "dataset": folder.resolve() / LEARNT,
        "val_dataset": folder.resolve() / HELD_OUT if plan.held_out else None,
        "split_dataset_ratio": 0,
        "output_dir": folder.resolve() / CHECKPOINTS,
        "add_version": False,
        "tuner_type": spec.method,
        **(_adapter(spec) if spec.method == "lora" else {}),
        "torch_dtype": None if spec.dtype == "auto" else spec.dtype,
        **common_arguments(spec, plan, evaluates=bool(plan.held_out)),
        "gradient_checkpointing": spec.gradient_checkpointing,
        "max_length": spec.max_length,
        "truncation_strategy": "delete",
        "max_pixels": spec.max_pixels,
        "save_total_limit": spec.keep_checkpoints,
        "dataloader_num_workers": spec.workers,
        "data_seed": spec.seed,
        "use_cpu": True if spec.device == "cpu" else None,
        "resume_from_checkpoint": last and last.resolve(),
    }
    if (
        spec.dtype == "float32"
    ):  # otherwise ms-swift uses 16-bit mixed precision over 32-bit weights
        options |= {"fp16": False, "bf16": False}
    words = []
    for name, value in {**options, **spec.options}.items():
        if value is not None:
            words += [f"--{name}", *map(_word, value if isinstance(value, list) else [value])]
    return words


def _word(value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _adapter(spec: TrainSpec) -> dict[str, object]:
    """Returns the options for the adapter's rank, scale and target layers."""
    rank = {"lora_rank": spec.rank, "lora_alpha": spec.scale, "lora_dropout": spec.dropout}
    if spec.targets not in KINDS_OF_TARGETS:
        return {**rank, "target_regex": spec.targets}
    if spec.targets == "attention":
        return {**rank, "target_regex": rf"(?!{EYES}$).*\.({'|'.join(ATTENTION)})"}
    frozen = spec.targets == "language"
    return {
        **rank,
        "target_modules": "all-linear",
        "freeze_llm": False,
        "freeze_vit": frozen,
        "freeze_aligner": frozen,
    }


def _interpreter(python: str | None) -> str:
    if python is None:
        if importlib.util.find_spec("swift") is not None:
            return sys.executable
        raise OptionError(f"engine_python: is missing; {_NEEDED}", "engine_python")
    found = shutil.which(Path(python).expanduser())
    if found is None:
        raise OptionError(
            f"engine_python: {python} is not a Python interpreter; {_NEEDED}", "engine_python"
        )
    return found


def _versions(python: str) -> dict[str, str]:
    """Reads the packages' versions there. Raises OptionError without ms-swift."""
    code = (
        "import json\nfrom importlib.metadata import PackageNotFoundError, version\nfound = {}\n"
        f"for name in {_PACKAGES!r}:\n    try:\n        found[name] = version(name)\n"
        "    except PackageNotFoundError:\n        pass\nprint(json.dumps(found))"
    )
    try:
        done = subprocess.run(
            [python, "-I", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=_MAX_START,
        )
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        raise OptionError(
            f"engine_python: {python} does not run as a Python interpreter", "engine_python"
        ) from None
    if "ms-swift" not in found:
        raise OptionError(
            f"engine_python: ms-swift is not installed in {python}; {_NEEDED}", "engine_python"
        )
    return found


def _processes() -> int:
    """Returns the number of processes that `swift` starts, from the variable that it reads."""
    number = os.environ.get("NPROC_PER_NODE", "1")
    if not number.isdecimal() or not int(number):
        raise UsageError(f"$NPROC_PER_NODE is {number!r}; expected the number of GPUs")
    return int(number)


def _environment(spec: TrainSpec) -> dict[str, str]:
    # Model names refer to the Hugging Face hub, as elsewhere in prill.
    there = {
        "USE_HF": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **os.environ,
        "PYTHONUNBUFFERED": "1",
    }
    return {**there, "CUDA_VISIBLE_DEVICES": ""} if spec.device == "cpu" else there


def _follow(
    process: subprocess.Popen[bytes], folder: Path, steps: int, watch: TrainingWatch
) -> None:
    """Reports each logged step until the process ends or `stop` is set."""
    told = 0
    while True:
        ended = process.poll() is not None
        for step, loss in _logged(folder)[0]:
            if step > told:
                told = step
                watch.progress(Progress(step, steps, loss))
        if ended or watch.stop.wait(_POLL):
            return


def _logged(folder: Path) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Reads the training and held-out losses by step; the later one of a repeated step."""
    learnt: dict[int, float] = {}
    held_out: dict[int, float] = {}
    for record in _records(folder / CHECKPOINTS / "logging.jsonl"):
        step = str(record.get("global_step/max_steps", "")).partition("/")[0]
        for name, losses in (("loss", learnt), ("eval_loss", held_out)):
            if step.isdecimal() and isinstance(loss := record.get(name), int | float):
                losses[int(step)] = float(loss)
    return sorted(learnt.items()), sorted(held_out.items())


def _records(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # an incomplete line
            continue
        if isinstance(record, dict):
            yield record


def _last_output(log: Path, start: int) -> str:
    with log.open("rb") as file:
        return keeper.last_output(keeper.last_lines(file, since=start))


def _restore_weights(checkpoint: Path, folder: Path) -> None:
    """Copies the files that load the adapter or model into the folder, each atomically."""
    with write_errors(folder):
        for path in sorted(checkpoint.iterdir()):
            if path.is_file() and not _OF_TRAINING.fullmatch(path.name):
                part = folder / f".{path.name}.part"
                shutil.copyfile(path, part)
                part.replace(folder / path.name)

"""`prill train`: a policy or a captioner from rows, as a LoRA adapter or in full; a ranker or planner from recorded pages."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from prill.commands.options import WideHelp, settings_of
from prill.commands.refine.filter import make_teacher
from prill.errors import UsageError
from prill.policies.registry import Fingerprinted
from prill.refine.demonstration import Teacher
from prill.refine.training.preflight import Preflight, Say, parse_devices
from prill.refine.training.spec import DEFAULT_PRESETS, OF_PAGES, Trained, TrainSpec, presets, training_spec
from prill.refine.training.train import check_training, train
from prill.refine.training.trainer import Progress
from prill.registry import Option, options_of

if TYPE_CHECKING:
    from tqdm import tqdm

_EXIT_DONE, _EXIT_INTERRUPTED = 0, 130
_METAVARS = {"str": "NAME", "float": "X"}
_GROUPS = {
    "engine": ("engine", "engine_python", "engine_options", "model_type"),
    "model": ("model", "method", "dtype", "device", "trust_remote_code"),
    "adapter": ("rank", "alpha", "dropout", "targets"),
    "optimiser": (
        "learning_rate", "schedule", "warmup", "weight_decay", "beta1", "beta2", "max_grad_norm", "batch", "micro_batch",
        "steps", "epochs", "gradient_checkpointing", "seed",
    ),
    "rows": ("max_length", "overlong", "max_pixels", "held_out", "negatives", "draws", "workers"),
    "checkpoints and logs": ("checkpoint_every", "keep_checkpoints", "log_every", "samples", "sample_tokens", "report_to"),
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options: each setting of a training has a flag of its name."""
    parser.formatter_class = WideHelp
    parser.usage = "prill train policy|captioner|ranker|planner ROWS -o DIR [--preset NAME|FILE.toml] [options]"
    parser.description = (
        "Trains a policy or a captioner on rows of prompt and completion; on gold trajectories of recorded pages (as prill\n"
        "convert mind2web writes them) a ranker of candidates, or a planner that answers a policy.\n"
        "The same command goes on where a run broke off.\n"
        "  prill train policy rows.jsonl -o adapter --preset small-text\n"
        "  prill train captioner data/rows.jsonl -o captioner --method lora --dry-run\n"
        "  prill train ranker train.jsonl -o ranker --held-out 0.1\n"
        "  prill train planner train.jsonl -o planner --policy self-map\n"
        "  accelerate launch --num_processes 8 -m prill train policy rows.jsonl -o adapter"
    )
    parser.epilog = "Exit codes: 0 trained, 2 it cannot be, 130 stopped by Ctrl-C with a checkpoint."
    parser.add_argument("trains", choices=get_args(Trained), metavar="policy|captioner|ranker|planner", help="what is trained")
    rows = "rows of `prill filter` or `prill caption --for-training`, .jsonl; for ranker and planner gold trajectories"
    parser.add_argument("rows", metavar="ROWS", help=rows)
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for the adapter, its card and checkpoints")
    names = ", ".join(presets())
    defaults = ", ".join(f"{preset} for a {trains}" for trains, preset in DEFAULT_PRESETS.items())
    parser.add_argument(
        "--preset", metavar="NAME|FILE.toml", help=f"settings to start from: {names}, or a file (default: {defaults})"
    )
    asker = "planner: the policy that will ask it, for its questions and answers (mindact, self-map, module:Object)"
    parser.add_argument("--policy", metavar="NAME", help=asker)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="planner: an option of that policy")
    parser.add_argument("--dry-run", action="store_true", help="look at rows, pictures, memory, disk and time, and do nothing")
    parser.add_argument("--gpus", metavar="NxNAME", help="--dry-run: for these GPUs, such as 8xH200, and not for this machine")
    parser.add_argument("--no-resume", action="store_true", help="begin anew; an old training becomes DIR.bak (.bak2, …)")
    parser.add_argument("--json", action="store_true", help="print what --dry-run found as JSON")
    options = options_of(TrainSpec)
    for title, group in _GROUPS.items():
        below = parser.add_argument_group(f"{title} (defaults: the preset's)")
        for name in group:
            _add(below, options[name])


def run(args: argparse.Namespace) -> int:
    """Trains, or says what that would be; see `configure` for the exit codes."""
    given = {name: value for group in _GROUPS.values() for name in group if (value := getattr(args, name)) is not None}
    spec = training_spec(args.preset, trains=args.trains, lax=True, **given)
    if args.gpus and not args.dry_run:
        raise UsageError("--gpus is for --dry-run; a training takes the GPUs that its processes are given")
    devices = parse_devices(args.gpus) if args.gpus else None
    teacher, taught = _teacher(args)
    with _quiet_libraries(), _bars() as (say, progress):
        if args.dry_run:
            facts = check_training(spec, args.rows, args.output, say, teacher=teacher, devices=devices)
        else:
            try:
                folder = train(
                    spec,
                    args.rows,
                    args.output,
                    resume=not args.no_resume,
                    teacher=teacher,
                    taught=taught,
                    progress=progress,
                    say=say,
                )
            except KeyboardInterrupt as stop:
                print(
                    f"\nprill train: {stop or 'stopped at once; the same command goes on from the last checkpoint'}",
                    file=sys.stderr,
                )
                return _EXIT_INTERRUPTED
    if not _is_first():
        return _EXIT_DONE
    if args.dry_run:
        print(json.dumps(asdict(facts)) if args.json else in_words(facts, spec))
    else:
        print(f"{spec.trains} -> {folder}", file=sys.stderr)
    return _EXIT_DONE


def _teacher(args: argparse.Namespace) -> tuple[Teacher | None, dict[str, Any] | None]:
    """The policy that a planner is to answer, and what goes on record of it."""
    if args.policy is None:
        if args.trains == "planner":
            raise UsageError("a planner learns to answer a policy; name it", parameters=("policy",))
        if args.set:
            raise UsageError("--set: is for options of a planner's --policy; settings of a training have flags of their own")
        return None, None
    if args.trains != "planner":
        raise UsageError(f"a {args.trains} learns without a policy; leave it out", parameters=("policy",))
    settings = settings_of(args.set)
    teacher = make_teacher(args.policy, settings)
    prompts = teacher.fingerprint("web") if isinstance(teacher, Fingerprinted) else None
    return teacher, {"name": args.policy, "options": settings, "prompts": prompts}


def in_words(facts: Preflight, spec: TrainSpec) -> str:
    """What is known beforehand, for people."""
    limit = "no limit known" if facts.limit is None else f"limit {facts.limit:,}"
    left_out = f", {facts.overlong:,} too long and left out" if facts.overlong else ""
    at_once = f"{facts.accumulation} x {facts.micro_batch} on each of {facts.processes}"
    of_model = f"{facts.parameters / 1e6:,.1f} M parameters, {facts.trained / 1e6:,.2f} M trained ({spec.method})"
    answers, each = f"answers of up to {facts.answer_tokens:,}", f"a checkpoint has {_size(facts.checkpoint)}"
    lines = {
        "rows": f"{facts.learnt:,} to learn from, {facts.held_out:,} kept apart{left_out}",
        **({} if spec.trains in OF_PAGES else {"pictures": f"{facts.pictures:,}, all readable"}),
        "tokens": f"{facts.mean_tokens:,.0f} a row, at most {facts.longest:,} ({limit}); {answers}",
        "model": f"{spec.model}: {of_model}",
        "steps": f"{facts.steps:,} of {spec.batch} rows ({at_once}), {facts.epochs:.1f} times each row",
        "memory": f"about {_size(facts.memory)} on each device",
        "disk": f"about {_size(facts.disk_needed)}, of {_size(facts.disk_free)} free; {each}",
        "work": f"{facts.flops:.2e} floating point operations a step; {_time(facts)}",
    }
    return "\n".join(f"{name:<9}{words}" for name, words in lines.items())


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _time(facts: Preflight) -> str:
    if facts.seconds is None:
        return f"the time on {facts.device} is not known"
    hours, minutes = divmod(round(facts.seconds / 60), 60)
    time = f"{hours} h {minutes:02} min" if hours else f"{minutes} min" if minutes else "less than a minute"
    return f"roughly {time} on {facts.device}"


def _add(group: argparse._ArgumentGroup, option: Option) -> None:
    flag, words = f"--{option.name.replace('_', '-')}", option.description.replace("%", "%%")
    if "bool" in option.type_name:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=words)
    else:
        metavar = option.type_name.replace(" ", "") if "|" in option.type_name else _METAVARS.get(option.type_name, "N")
        group.add_argument(flag, metavar=metavar, help=words)


def _is_first() -> bool:
    """Whether this is the process that speaks, of those that `accelerate launch` started."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def _bars() -> Iterator[tuple[Say, Any]]:
    """One bar on standard error at a time: looking at the rows, then training."""
    from prill.cli.showing import progress_bar

    shown: dict[str, tqdm[NoReturn]] = {}

    def bar_of(phase: str, total: int) -> tqdm[NoReturn]:
        if phase not in shown:
            for bar in shown.values():
                bar.close()
            shown[phase] = progress_bar(
                total=total, desc=phase, dynamic_ncols=True, file=sys.stderr, delay=0.5, disable=not _is_first()
            )
        return shown[phase]

    def say(phase: str, done: int, total: int) -> None:
        bar = bar_of(phase, total)
        bar.update(done - bar.n)

    def progress(now: Progress) -> None:
        bar = bar_of("steps", now.steps)
        if not bar.n:
            bar.initial = now.step - 1  # the rate counts what this run does
            bar.n = now.step - 1
        bar.set_postfix_str("" if now.loss is None else f"loss {now.loss:.4f}", refresh=False)
        bar.update(now.step - bar.n)

    try:
        yield say, progress
    finally:
        for bar in shown.values():
            bar.close()


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Without the bars and notices of the libraries below; what goes wrong is an error."""
    import warnings

    from prill.refine.training.weights import silence_libraries

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        silence_libraries()
        # Threads that wait actively for each other crawl where something else wants a core. Read when torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        yield

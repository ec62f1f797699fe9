"""Options that several commands share: who judges, which model answers, how much there is to go through.

The command line only fills descriptions: an option has the name that it has in Python and in judge files, and what is said of
it here is said once, by the judge or the model that has it.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prill.captioner.registry import CAPTIONERS, captioner_for
from prill.captioner.registry import make_captioner as captioner_of
from prill.errors import InputError, UsageError
from prill.evaluators.registry import AROUND, JUDGES, Around, judge_options, make_judge
from prill.files.kinds import trajectory_files
from prill.files.lines import is_stream, read_lines
from prill.files.outputs import is_stdout
from prill.files.spending import SPENDING, SpendingFile, spending_beside, spent_on_record
from prill.files.toml import parse_toml
from prill.models.ledger import Budget, spending_from
from prill.models.registry import make_model as model_of
from prill.models.registry import model_options
from prill.protocols import Captioner, Engine, Evaluator, LanguageModel
from prill.registry import Maker, Option, load_object, options_of
from prill.workers.engines import make_engine as engine_of
from prill.workers.ray_data import RaySpec

# Under each heading: the judge that tells what an option means, and its options. What is left out here, --set gives.
_OF_JUDGES = (
    ("judges that ask a model", "modular", ("captioner", "answer", "max_tokens")),
    ("vlm, modular and steps", "vlm", ("preset", "frames", "thoughts")),
    ("vlm and modular", "vlm", ("probability", "form")),
    ("steps", "steps", ("towards", "away")),
    ("webjudge and rubric", "webjudge", ("top_k",)),
    ("rubric", "rubric", ("rubrics",)),
    ("oracle", "oracle", ("labels", "source")),
)
_OF_VISION = ("ocr", "preset", "max_tokens", "prompt")
_METAVARS = {
    "api_key_env": "VAR",
    "base_url": "URL",
    "budget_usd": "X",
    "cache": "DIR",
    "calibration": "FILE",
    "canaries": "FILE",
    "canary_labels": "FILE",
    "captioner": "NAME",
    "gguf": "FILE",
    "host": "ADDRESS",
    "kind": "KIND",
    "labels": "FILE",
    "media_root": "DIR",
    "observations": "FILE",
    "prices": "FILE",
    "prompt": "FILE.md",
    "reference": "FILE",
    "rubrics": "FILE",
    "source": "S",
    "student": "FILE",
    "token_env": "VAR",
    "token_file": "FILE",
}
# Flags that the help leaves out, so that it stays a page: docs/judges.md and `prill judges NAME` have them, and docs/scale.md
# those of engines.
_UNLISTED = frozenset(
    {"away", "form", "image_detail", "image_format", "patience", "probability", "reasoning_effort", "towards"}
)
_OF_ENGINES = frozenset({"address", "cpus", "gpus", "workers"})
_OF_MODELS = (
    (
        "prill.models.client:OpenAIModel",
        ("base_url", "api_key_env", "timeout", "retries", "patience", "prices", "budget_usd", "cache"),
    ),
    ("prill.models.client:OpenAIModel", ("reasoning_effort", "image_detail", "image_format")),
    ("prill.models.embedded:EmbeddedModel", ("gguf",)),
)


def add_judge_options(parser: argparse.ArgumentParser, *, leave_out: tuple[str, ...] = (), required: bool = True) -> None:
    """The options that say who judges; `leave_out` are those whose flags mean something else in this command. Not `required`:
    a file may name the judge in place of the command line."""
    parser.formatter_class = WideHelp
    judge = parser.add_argument_group("judge (prill judges tells more of each)")
    names = ", ".join(JUDGES.entries)
    judge.add_argument(
        "--judge", dest="evaluator", required=required, metavar="NAME", help=f"{names}, FILE.toml, FILE.json, module:Object"
    )
    judge.add_argument(
        "--prompt", action="append", metavar="FILE.md", help="a prompt of your own in place of the judge's (or NAME=FILE.md)"
    )
    judge.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other option of the judge")
    for title, teller, options in _OF_JUDGES:
        group = parser.add_argument_group(title)
        of_teller = judge_options(teller)
        for name in options:
            if name not in leave_out:
                _add(group, of_teller[name], None if name == "answer" else _defaults(name))
            if name == "captioner":
                for flag in ("--captions", "--captioner-model"):  # the line above tells of them
                    group.add_argument(flag, help=argparse.SUPPRESS)
    offered = [name for _, _, names in _OF_JUDGES for name in names if name not in leave_out]
    parser.set_defaults(of_judge=(*offered, *AROUND))
    around = parser.add_argument_group("around any judge")
    for option in options_of(Around).values():
        _add(around, option)
    add_model_options(parser)


def add_label_options(parser: argparse._ActionsContainer) -> None:
    """The options that say which labels count where several people, or people and oracles, labelled the same."""
    parser.add_argument("--source", metavar="S", help="labels to use where there are several sources, such as human or oracle")
    parser.add_argument(
        "--truth",
        "--annotator",
        default="majority",
        metavar="RULE|NAME",
        help="what counts where annotators differ: majority (default; a tie is undecided), unanimous, first (line of the "
        "file), or the NAME of the one annotator whose labels count",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which model answers, and where."""
    group = parser.add_argument_group("model")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--model",
        metavar="M",
        help="model at the endpoint; embedded: a small one, here; local:DIR: weights, here; vllm:DIR or --serve DIR: by vLLM",
    )
    # The help of `--model` tells of it.
    which.add_argument("--serve", dest="model", type="vllm:{}".format, metavar="MODEL", help=argparse.SUPPRESS)
    for maker, names in _OF_MODELS:
        options = options_of(load_object(maker))
        for name in names:
            _add(group, options[name])


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which workers do it, where this machine alone is too slow."""
    parser.add_argument("--engine", metavar="ray", help="by workers of a cluster, or of this machine; docs/scale.md has more")
    add_options_of(parser.add_argument_group("engine"), RaySpec)


def make_engine(args: argparse.Namespace) -> Engine | None:
    """The engine that the options describe; None: this process. Raises UsageError."""
    given = options_given(args, RaySpec)
    if args.engine is None:
        if given:
            raise UsageError(f"{', '.join(given)}: options of an engine only", parameters=("engine",))
        return None
    return engine_of(args.engine, lax=True, **given)


def add_options_of(group: argparse._ArgumentGroup, maker: Maker, *, leave_out: tuple[str, ...] = ()) -> None:
    """A flag for each option of a maker; `options_given` has what was said."""
    for option in options_of(maker).values():
        if option.name not in leave_out:
            _add(group, option)


def options_given(args: argparse.Namespace, maker: Maker) -> dict[str, Any]:
    """The options of a maker that the words of the command line give."""
    return _options_set(args, options_of(maker))


def model_options_given(args: argparse.Namespace) -> dict[str, Any]:
    """The options of models that the words of the command line give, without the model's name."""
    return _options_set(args, [name for _, names in _OF_MODELS for name in names])


def says_of_judge(args: argparse.Namespace) -> bool:
    """Whether the words of the command line say which judge, or anything of it or of its model."""
    names = ("evaluator", "prompt", "set", "captions", "captioner_model", "model", *args.of_judge)
    return any(getattr(args, name, None) for name in names) or bool(model_options_given(args))


def settings_of(words: Iterable[str]) -> dict[str, Any]:
    """What `--set KEY=VALUE` gives, several times perhaps."""
    return dict(map(_setting, words))


def make_evaluator(args: argparse.Namespace) -> Evaluator:
    """The evaluator that the options describe. Raises UsageError."""
    of_judge = _options_set(args, args.of_judge)
    of_judge |= {key: value for key, value in map(_setting, args.set)}
    if args.prompt:
        of_judge["prompt"] = _prompts(args.prompt)
    of_model = _options_set(args, ("model", *(name for _, names in _OF_MODELS for name in names)))
    _describe_captioner(args, of_judge, of_model)
    defaults: dict[str, Any] = {"concurrency": args.concurrency}
    if args.evaluator.endswith((".toml", ".json")):
        # What a file leaves open: the model and the captioner of its judges.
        defaults |= of_model | {key: of_judge.pop(key) for key in ("captioner",) if key in of_judge}
        of_model = {}

    def captioner() -> str:
        if not args.trajectories:
            raise UsageError("--captioner is missing: no trajectory is here yet to choose it by; name text, ocr or given")
        name = captioner_for(args.trajectories)
        print(f"captioner: {name}, by what the first trajectory has", file=sys.stderr)
        return name

    return make_judge(args.evaluator, defaults=defaults, lax=True, choose_captioner=captioner, **of_judge, **of_model)


def _describe_captioner(args: argparse.Namespace, of_judge: dict[str, Any], of_model: Mapping[str, Any]) -> None:
    """Puts the captioner that `--captions` or `--captioner-model` describe into the options of the judge."""
    captioner = of_judge.get("captioner")
    if args.captions:
        if captioner or args.captioner_model:
            raise UsageError("--captions takes the place of --captioner and --captioner-model; give one of them")
        of_judge["captioner"] = {"name": "file", "path": args.captions}
    elif args.captioner_model:
        settings = {"concurrency": args.concurrency, **of_model, "model": args.captioner_model}
        names = {"model", *model_options(args.captioner_model)}
        of_judge["captioner"] = {"name": captioner or "vlm", **{key: settings[key] for key in settings if key in names}}
    elif captioner == "vlm":
        raise UsageError("--captioner vlm: say with --captioner-model which model looks at the screenshots")


def add_captioner_options(parser: argparse.ArgumentParser) -> None:
    """The options that say who captions."""
    parser.formatter_class = WideHelp
    group = parser.add_argument_group("captioner")
    names = ", ".join(name for name in CAPTIONERS.entries if name not in ("given", "text", "file"))
    group.add_argument("--captioner", default="vlm", metavar="NAME", help=f"{names}, module:Object (default vlm)")
    of_vision = options_of(CAPTIONERS.maker("vlm"))
    for name in _OF_VISION:
        _add(group, of_vision[name])
    group.add_argument("--max-pixels", metavar="N", help="larger screenshots are scaled down to it; it bounds image tokens")
    group.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any other option of it")
    add_model_options(parser)


def make_captioner(args: argparse.Namespace) -> Captioner:
    """The captioner that the options describe. Raises UsageError."""
    options = _options_set(args, _OF_VISION) | {key: value for key, value in map(_setting, args.set)}
    if "model" in options_of(CAPTIONERS.maker(args.captioner)):
        if not args.model:
            raise UsageError(f"--model is missing: captioner {args.captioner} asks one; name one that takes images")
        options["model"] = args.model
        options |= _options_set(args, ("max_pixels", *(name for _, names in _OF_MODELS for name in names)))
        if "concurrency" in model_options(args.model):
            options.setdefault("concurrency", args.concurrency)
    elif args.model:
        raise UsageError(f"--model: captioner {args.captioner} asks no model")
    return captioner_of(args.captioner, lax=True, **options)


def make_model(args: argparse.Namespace, name: str | None = None, given: Mapping[str, Any] | None = None) -> LanguageModel:
    """The model of `--model`, or another at the same place, with options that are `given` besides. Raises UsageError."""
    name = name or args.model
    if not name:
        raise UsageError("--model is missing: name a model at the endpoint, or `embedded`")
    options = _options_set(args, [option for _, group in _OF_MODELS for option in group])
    if "concurrency" in (names := model_options(name)):
        options["concurrency"] = args.concurrency
    if unknown := [f"--{option.replace('_', '-')}" for option in options if option not in names]:
        raise UsageError(f"model {name} has no option {', '.join(unknown)}")
    return model_of(name, lax=True, **{**options, **(given or {})})


@contextlib.contextmanager
def run_budget(
    args: argparse.Namespace,
    *,
    folder: str | Path | None = None,
    file: str | Path | None = None,
    begin_again: bool = False,
) -> Iterator[None]:
    """One budget for all models that are made inside: that of `--budget-usd`, which is of the run, however often it is begun.

    What the run spends is kept in a file of its `folder`, where it has one, without a budget, too; with a budget beside its
    output `file`. Raises UsageError.
    """
    usd, args.budget_usd = args.budget_usd, None
    try:
        limit = None if usd is None else float(usd)
        if limit is not None and not 0 <= limit < math.inf:
            raise ValueError
    except ValueError:
        raise UsageError(f"--budget-usd {usd}: give US dollars, 0 or more") from None
    if file is not None and (limit is None or is_stdout(file) or is_stream(file)):
        file = None
    if getattr(args, "dry_run", False):  # nothing is spent, and no file says so
        with spending_from(Budget(limit)) if limit is not None else contextlib.nullcontext():
            yield
        return
    if limit is None and folder is None:
        yield
        return
    record, spent = None, 0.0
    if folder is not None or file is not None:
        record, spent = _spending(Path(folder or file or ""), limit, begin_again=begin_again, is_folder=folder is not None)
    if limit is not None and spent:
        who = getattr(args, "command", "rollout")  # a study plays by the words of `prill rollout`
        print(f"prill {who}: ${spent:.4f} of the budget of ${limit:g} were spent before", file=sys.stderr)
    budget = Budget(limit, spent_usd=spent, record=record)
    try:
        with spending_from(budget):
            yield
    finally:
        budget.close()


def _spending(output: Path, limit: float | None, *, begin_again: bool, is_folder: bool) -> tuple[SpendingFile | None, float]:
    """The file with what a run has spent, and that; None where another process keeps it, and there is no limit."""
    record = SpendingFile(output / SPENDING if is_folder else spending_beside(output), needed=limit is not None)
    if record.path.parent.is_dir() and not record.lock():
        return None, 0.0
    try:
        if begin_again:
            record.clear()
        known = record.read()
    except UsageError:
        record.unlock()
        raise
    if limit is None or begin_again or (is_folder and known is not None):
        return record, known or 0.0
    # A folder that has no such file was recorded before there was one; beside a verdict file it is kept with a budget only.
    return record, max(known or 0.0, spent_on_record(sorted(output.glob("*.jsonl")) if is_folder else [output]))


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError("give a whole number of at least 1")
    return number


def open_folders(args: argparse.Namespace) -> None:
    """Puts the trajectory files of folders in the place of these, and says what else is in them."""
    args.trajectories = trajectory_files(
        args.trajectories, lambda words: print(f"prill {args.command}: {words}", file=sys.stderr)
    )


def expected(paths: Iterable[str], limit: int | None) -> int:
    """The number of lines of some files, at most `limit`. A damaged archive counts as far as it goes: the run reports it."""
    count = 0
    for path in paths:
        with contextlib.suppress(InputError):
            for _ in read_lines(path):
                count += 1
    return count if limit is None else min(count, limit)


class WideHelp(argparse.RawDescriptionHelpFormatter):
    """Help with a line an option, where the terminal is wide enough, and no empty line between groups."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=140)

    def format_help(self) -> str:
        """The help text."""
        usage, _, rest = super().format_help().partition("\n\n")
        return f"{usage}\n\n{re.sub(chr(10) * 2 + r'(?=[a-z])', chr(10), rest)}"


def _add(group: argparse._ArgumentGroup, option: Option, defaults: str | None = None) -> None:
    """The option as a flag; its value stays text, which the registry reads. `defaults`: in words, where judges differ."""
    words = option.description
    if option.name in _UNLISTED | _OF_ENGINES:
        words = argparse.SUPPRESS
    elif option.name == "captioner":
        names = {**dict.fromkeys(CAPTIONERS.entries, ""), "vlm": " (--captioner-model M)", "file": " (--captions FILE)"}
        words = ", ".join(name + more for name, more in names.items()) + ", module:Object (default: what fits)"
    elif defaults is not None and "default" not in words:
        words += f" (default {defaults})"
    elif not option.required and option.default not in (None, False) and "default" not in words:
        words += f" (default {_text_of(option.default)})"
    words = argparse.SUPPRESS if option.name in _UNLISTED | _OF_ENGINES else words
    flag = f"--{option.name.replace('_', '-')}"
    if option.type_name == "bool":
        kind: Any = argparse.BooleanOptionalAction if option.default is not False else "store_true"
        action = group.add_argument(flag, action=kind, default=None, help=words)
    else:
        metavar = _METAVARS.get(option.name) or (option.type_name.replace(" ", "") if "|" in option.type_name else "N")
        action = group.add_argument(flag, metavar=metavar, help=words.replace("%", "%%"))
    vars(action)["option"] = option  # what the flag sets, for tables that give it a value that is no text


def _defaults(name: str) -> str | None:
    """The default of an option in words, with the judges where it is another one; None where all have the same."""
    defaults = {judge: options[name].default for judge in JUDGES.entries if name in (options := judge_options(judge))}
    usual = next(iter(defaults.values()))
    others = [f"{judge} {_text_of(value)}" for judge, value in defaults.items() if value != usual]
    return "; ".join([_text_of(usual), ", ".join(others)]) if others else None


def _text_of(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _options_set(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name in names if (value := getattr(args, name, None)) is not None and name in vars(args)}


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text}: give KEY=VALUE")
    try:
        return key.strip().replace("-", "_"), parse_toml(f"value = {value}")["value"]
    except ValueError:
        return key.strip().replace("-", "_"), value


def _prompts(words: list[str]) -> str | Mapping[str, str]:
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    if bare := next((word for word in words if "=" not in word), None):
        raise UsageError(f"--prompt {bare}: with several prompts, say which each one replaces (NAME=FILE.md)")
    return dict(word.split("=", 1) for word in words)

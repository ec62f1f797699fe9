"""`prill filter`: from verdicts to the rows that a model is trained on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prill import __version__
from prill.commands.options import (
    WideHelp,
    add_label_options,
    add_options_of,
    expected,
    open_folders,
    options_given,
    settings_of,
)
from prill.commands.runs.plan import in_file
from prill.errors import UsageError
from prill.evaluators.fitted.calibration import read_calibration
from prill.evaluators.fitted.overlap import Overlap, fitted_caution, overlap_of, overlap_with
from prill.files.toml import read_table
from prill.labels.truth import gold_labels
from prill.policies.registry import POLICIES, Fingerprinted, make_policy
from prill.protocols import Demonstrator, Form, Message, Reply
from prill.refine.demonstration import PlainTeacher, Teacher
from prill.refine.export import Exported, ExportSpec, check_folder, export_rows, figures
from prill.refine.filter import Filtered, FilterSpec, filter_spec, filter_steps, require_steps
from prill.refine.report import summary_lines, true_precision
from prill.registry import options_of, read_options
from prill.runs.cautions import sha256_of
from prill.store import BadLine, Intake, encode, read_labels, read_verdicts
from prill.tables import printable
from prill.types import Trajectory

_EXIT_ALL, _EXIT_SOME = 0, 3
_MOST_PROBLEMS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.formatter_class = WideHelp
    parser.epilog = (
        "DIR gets a file for each kind of rows, manifest.json, and report.html: what was kept and lost, and why.\n"
        "Exit codes: 0 all read, 3 rows without some broken lines or images, 2 nothing is left or bad usage."
    )
    parser.add_argument(
        "trajectories", nargs="+", metavar="TRAJ", help="trajectory file (.jsonl, .jsonl.gz), folder of them, or -"
    )
    parser.add_argument("--verdicts", required=True, metavar="V", help="verdicts of one judge, as prill score writes them")
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="a new folder for the rows, or one of this command"
    )
    kept = parser.add_argument_group("what is kept")
    add_options_of(kept, FilterSpec)
    kept.add_argument(
        "--config", metavar="FILE", help="these options from TOML or JSON (or its table `filter`); flags come first"
    )
    written = parser.add_argument_group("what is written")
    what = f"sft (default), kto, dpo, or several: sft,kto. {options_of(ExportSpec)['rows'].description}"
    written.add_argument("--rows", default="sft", metavar="KINDS", help=what)
    add_options_of(written, ExportSpec, leave_out=("rows",))
    asked = parser.add_argument_group("what is asked in a row")
    learner = f"the policy that is to learn, for its prompts and language ({', '.join(_teachers())}, module:Object)"
    asked.add_argument("--policy", metavar="NAME", help=f"{learner}; default: a plain prompt of goal, history and state")
    asked.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of policy or plain prompt")
    parser.add_argument("--labels", metavar="L", help="label file: tells how many of the attempts kept truly succeeded")
    add_label_options(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Filters and writes the folder; see `configure` for the exit codes."""
    from prill.cli.showing import progress_bar

    open_folders(args)
    given = options_given(args, FilterSpec)
    spec = filter_spec({**_from_file(args.config), **given}, lax=True)
    export = {**options_given(args, ExportSpec), "rows": [kind.strip() for kind in args.rows.split(",")]}
    kinds = ExportSpec(**read_options(ExportSpec, export, "the rows", lax=True))
    teacher = make_teacher(args.policy, settings_of(args.set))
    folder = Path(args.output)
    check_folder(folder)
    truth = gold_labels(read_labels(args.labels), args.source, args.truth)[1] if args.labels else None
    broken: list[str] = []
    with closing(Intake(args.trajectories)) as intake:
        total = expected(args.trajectories, None)
        with progress_bar(total=total, unit="traj", dynamic_ncols=True, file=sys.stderr, delay=0.5) as bar:
            filtered = filter_steps(_good(intake, broken, bar.update), read_verdicts(args.verdicts), spec)
    require_steps(filtered)
    inputs = [*args.trajectories, args.verdicts, *filter(None, (args.labels, spec.calibration))]
    about = {
        "prill": __version__,
        "inputs": [{"path": str(path), "sha256": sha256_of(str(path))} for path in inputs],
        "filter": {key: str(value) if isinstance(value, Path) else value for key, value in asdict(spec).items()},
        "policy": _described(args, teacher, filtered),
    }
    with progress_bar(unit="row", dynamic_ncols=True, file=sys.stderr, delay=0.5) as bar:
        exported = export_rows(folder, filtered, teacher, kinds, about=about, truth=truth, progress=bar.update)
    fitted = overlap_of(read_verdicts(args.verdicts)) if truth is not None else None
    _tell(args, exported, truth, fitted)
    cautions = [fitted_caution("the judge", fitted)]
    if truth is not None and spec.calibration is not None:
        runs = {step.trajectory.id: step.trajectory for step in (*filtered.steps, *filtered.rejected)}
        labelled = (run for id, run in runs.items() if truth.get(id) is not None)
        known = read_calibration(spec.calibration).fitted_to
        cautions.append(fitted_caution("the calibration", overlap_with(known, labelled)))
    for caution in filter(None, cautions):
        print(f"prill filter: {caution}", file=sys.stderr)
    for problem in _shortened([*broken, *exported.problems]):
        print(f"prill filter: {printable(problem)}", file=sys.stderr)
    images = any(why == "missing or broken image" for why in exported.lost)
    return _EXIT_SOME if broken or images else _EXIT_ALL


def make_teacher(name: str | None, settings: Mapping[str, Any]) -> Teacher | None:
    """The policy that is to learn, by name; the plain prompt with such settings, or None, where none is named.

    No model is asked: where a policy needs one, it gets one that cannot answer. Raises UsageError for a policy that has no
    lessons to give.
    """
    if name is None:
        return PlainTeacher(**read_options(PlainTeacher, settings, "the plain prompt", lax=True)) if settings else None
    model = options_of(POLICIES.maker(name)).get("model")
    silent = {"model": _Silent()} if model is not None and model.required and "model" not in settings else {}
    policy = make_policy(name, lax=True, **silent, **settings)
    if not isinstance(policy, Demonstrator):
        raise UsageError(
            f"policy {name} cannot put recorded steps as lessons: it has no demonstrate(trajectory, index); those that do: "
            f"{', '.join(_teachers())}",
            parameters=("policy",),
        )
    return policy


class _Silent:
    """Stands where a policy wants a model that is never asked."""

    name = "none"

    async def complete(
        self, messages: Sequence[Message], *, form: Form | None = None, max_tokens: int = 1024, prompt: str = ""
    ) -> Reply:
        """Raises UsageError."""
        raise UsageError("rows are made without a model")


def _teachers() -> list[str]:
    return [name for name in POLICIES.entries if hasattr(POLICIES.maker(name), "demonstrate")]


def _from_file(path: str | None) -> dict[str, Any]:
    """The options of a file, or of its table `filter`."""
    if path is None:
        return {}
    table = read_table(path)
    options = table.get("filter", table)
    if not isinstance(options, dict):
        raise UsageError(f"{path}: expected a table of the filter's options")
    with in_file(path):
        filter_spec(options)  # here numbers are numbers: a file may not say "0.5"
    return options


def _described(args: argparse.Namespace, teacher: Teacher | None, filtered: Filtered) -> dict[str, Any]:
    platforms = sorted({step.trajectory.task.platform for step in (*filtered.steps, *filtered.rejected)})
    asker = teacher or PlainTeacher()
    prints = {platform: asker.fingerprint(platform) for platform in platforms} if isinstance(asker, Fingerprinted) else {}
    return {"name": args.policy or "plain", "options": settings_of(args.set), "prompts": prints}


def _good(intake: Intake, broken: list[str], progress: Any) -> Iterator[Trajectory]:
    for _, item in intake:
        progress()
        if isinstance(item, BadLine):
            broken.append(item.message)
        else:
            yield item


def _tell(
    args: argparse.Namespace, exported: Exported, truth: Mapping[str, bool | None] | None, fitted: Overlap | None
) -> None:
    filtered = exported.filtered
    if args.json:
        right = true_precision(filtered, truth) if truth is not None else None
        labelled = {} if right is None else {"labelled": right[1], "truly_successful": right[0], "fitted": fitted}
        print(encode({"output": args.output, "rows": exported.rows, **figures(filtered), **labelled}).decode().rstrip())
        return
    for line in summary_lines(filtered, truth):
        print(line)
    for why, count in sorted(figures(filtered)["steps_lost"].items(), key=lambda item: (-item[1], item[0])):
        print(f"  lost {count:>6,}  {why}")
    if filtered.elsewhere:
        print(f"{filtered.elsewhere:,} verdicts are of other trajectories", file=sys.stderr)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in exported.rows.items())
    print(f"{counts} rows -> {args.output}", file=sys.stderr)


def _shortened(problems: Sequence[str]) -> Iterator[str]:
    yield from problems[:_MOST_PROBLEMS]
    if len(problems) > _MOST_PROBLEMS:
        yield f"… and {len(problems) - _MOST_PROBLEMS} more"

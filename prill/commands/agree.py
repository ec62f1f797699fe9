"""`prill agree`: compare verdicts with labels."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prill.commands.agree_tables import Sections, counted, page
from prill.datasets.webarena_tasks import load_configs
from prill.errors import UsageError
from prill.evaluators.agreement import agreement_of
from prill.evaluators.annotators import annotator_agreement
from prill.evaluators.comparison import compare
from prill.evaluators.corrections import correct, load_corrections
from prill.evaluators.disagreements import Disagreement, disagreements
from prill.evaluators.folds import task_of
from prill.evaluators.metrics.webarena import SuccessRate, success_rates
from prill.evaluators.pairing import pair
from prill.evaluators.ranking import rank_agents
from prill.evaluators.slices import slice_value, slices
from prill.store import BadLine, encode, read_labels, read_trajectories, read_verdicts
from prill.types import LabelRecord


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("verdicts", metavar="VERDICTS", help="verdict file, as `prill score` writes it")
    parser.add_argument("labels", metavar="LABELS", help="label file")
    parser.add_argument(
        "--trajectories",
        metavar="TRAJ",
        help="the judged file: intervals then draw whole tasks instead of single trajectories, and agents are ranked",
    )
    parser.add_argument("--source", metavar="S", help="labels to use where there are several sources, such as human or oracle")
    parser.add_argument(
        "--by",
        metavar="KEY,…",
        type=lambda words: [word.strip() for word in words.split(",") if word.strip()],
        default=[],
        help="a table for each part as well: site, agent, platform, task, or a key of the trajectories' metadata",
    )
    parser.add_argument("--against", metavar="VERDICTS", help="another judge's verdicts, to compare with on the same labels")
    parser.add_argument(
        "--corrections",
        metavar="NAME",
        help="replace labels known to be wrong: webarena (14 tasks whose checker accepts wrong runs), or a TOML file",
    )
    parser.add_argument(
        "--disagreements", metavar="FILE", help="write to FILE, anew, what judge and labels differ on: JSON Lines"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """Prints the comparison; 0. Raises UsageError when there is nothing to compare."""
    if args.by and not args.trajectories:
        raise UsageError("--by needs --trajectories: the verdicts do not say where a trajectory belongs")
    inputs = [args.verdicts, args.labels, args.trajectories, args.against]
    if args.disagreements and any(path and os.path.realpath(path) == os.path.realpath(args.disagreements) for path in inputs):
        raise UsageError(f"--disagreements {args.disagreements} would overwrite an input")
    runs = _read_runs(args.trajectories, args.by) if args.trajectories else None
    tasks = None if runs is None else runs.tasks
    given = tuple(read_labels(args.labels))
    corrected = None
    if args.corrections:
        corrected = correct(given, load_corrections(args.corrections), runs.task_ids if runs else None)
    labels = corrected.labels if corrected else given
    pairing = pair(read_verdicts(args.verdicts), labels, args.source)
    found = agreement_of(pairing, tasks)
    compared = {p.verdict.id for p in pairing.pairs}
    differing = disagreements(pairing, runs.goals if runs else None)
    sections = Sections(
        corrections=corrected,
        webarena=_webarena(given, pairing.source, runs) if corrected and corrected.name == "webarena" else (),
        annotators=annotator_agreement([label for label in given if label.id in compared], pairing.source, tasks),
        slices={by: slices(pairing, by, runs.parts[by]) for by in args.by} if runs else {},
        ranking=rank_agents(pairing, runs.agents) if runs else None,
        against=compare(pairing, pair(read_verdicts(args.against), labels, pairing.source), tasks) if args.against else None,
    )
    if args.disagreements:
        _write(Path(args.disagreements), differing)
    if args.json:
        print(encode(_as_json(found, sections, differing)).decode().rstrip())
    else:
        print(page(found, sections, counted(differing) if args.disagreements else None, args.disagreements))
    return 0


@dataclass(frozen=True)
class _Runs:
    """What the trajectory file says of each id. `parts` has one map for each key of --by."""

    tasks: dict[str, str] = field(default_factory=dict)
    task_ids: dict[str, str] = field(default_factory=dict)
    goals: dict[str, str] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)


def _read_runs(path: str, keys: Iterable[str]) -> _Runs:
    runs = _Runs(parts={key: {} for key in keys})
    metadata: set[str] = set()
    for item in read_trajectories(path):
        if isinstance(item, BadLine):
            continue
        runs.tasks[item.id] = task_of(item)
        runs.goals[item.id] = item.task.goal
        if item.task.id:
            runs.task_ids[item.id] = item.task.id
        if item.agent:
            runs.agents[item.id] = item.agent
        metadata |= item.metadata.keys()
        for key, part in runs.parts.items():
            if (value := slice_value(item, key)) is not None:
                part[item.id] = value
    for key, part in runs.parts.items():
        if not part:
            keys = ", ".join(["site", "agent", "platform", "task", *sorted(metadata)[:20]])
            raise UsageError(f"--by {key}: no trajectory says so; there are: {keys}")
    return runs


def _webarena(labels: Iterable[LabelRecord], source: str, runs: _Runs | None) -> tuple[SuccessRate, ...]:
    try:
        configs = load_configs()
    except UsageError:  # the benchmark's task file is not installed: the rate is told without its parts
        configs = ()
    return success_rates(labels, runs.task_ids if runs else None, source=source, configs=configs)


def _write(path: Path, differing: Iterable[Disagreement]) -> None:
    try:
        path.write_bytes(b"".join(map(encode, differing)))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _as_json(found: object, sections: Sections, differing: tuple[Disagreement, ...]) -> Mapping[str, Any]:
    import msgspec

    extra = msgspec.to_builtins(sections)
    if extra["corrections"]:
        del extra["corrections"]["labels"]
    return {**msgspec.to_builtins(found), **extra, "disagreements": counted(differing)}

"""`prill exemplars`: from trajectories that a judge accepts to a memory of exemplars for the policy `synapse`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from prill.commands.options import add_label_options, expected, positive
from prill.errors import UsageError
from prill.evaluators.fitted.calibration import comparable, read_calibration
from prill.files.outputs import expect_place
from prill.labels.truth import gold_labels
from prill.policies.embedders import make_embedder
from prill.policies.synapse.growth import PER_TASK, Growth, grow
from prill.policies.synapse.memory import EXEMPLARS, Memory
from prill.store import BadLine, read_labels, read_trajectories, read_verdicts
from prill.tables import printable
from prill.types import Trajectory, Verdict

_EXIT_ALL, _EXIT_SOME = 0, 3
_MOST_PROBLEMS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = (
        "DIR is made, or extended if it is there already: what is in it stays. Pages must have been recorded as HTML "
        "(prill rollout miniwob --text html). Exit codes: 0 all read, 3 without some broken lines, 2 bad usage."
    )
    parser.add_argument("trajectories", nargs="+", metavar="TRAJ", help="trajectory file")
    parser.add_argument("--verdicts", required=True, metavar="V", help="verdicts of one judge, as prill score writes them")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the memory's folder")
    sure = parser.add_mutually_exclusive_group()
    sure.add_argument("--calibration", metavar="FILE", help="accept by its threshold; prill calibrate writes it")
    sure.add_argument("--threshold", type=_score, metavar="P", help="accept what has this score at least")
    parser.add_argument(
        "--embedder", default="tfidf", metavar="NAME", help="tfidf (default), minilm, local:DIR, or a model's name"
    )
    parser.add_argument("--embedder-url", metavar="URL", help="the endpoint of the embedder (default $OPENAI_BASE_URL)")
    parser.add_argument(
        "--per-task", type=positive, default=PER_TASK, metavar="N", help=f"most of one task (default {PER_TASK})"
    )
    parser.add_argument("--shipped", action="store_true", help="a new DIR begins with the exemplars that come with prill")
    parser.add_argument("--labels", metavar="L", help="label file: tells how many of the new exemplars are wrong")
    add_label_options(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Writes the memory and says what became of every trajectory."""
    from prill.cli.showing import progress_bar

    folder = Path(args.output)
    expect_place(folder, "a memory")
    memory = _memory(folder, args)
    verdicts, threshold = _verdicts(args)
    labels = gold_labels(read_labels(args.labels), args.source, args.truth)[1] if args.labels else None
    broken: list[str] = []
    with progress_bar(
        total=expected(args.trajectories, None), unit="traj", dynamic_ncols=True, file=sys.stderr, delay=0.5
    ) as bar:

        def good() -> Iterator[Trajectory]:
            for path in args.trajectories:
                for item in read_trajectories(path, on_error="yield"):
                    bar.update()
                    if isinstance(item, BadLine):
                        broken.append(item.message)
                    else:
                        yield item

        async def extend() -> Growth:
            growth = await grow(memory, good(), verdicts, threshold=threshold, per_task=args.per_task, labels=labels)
            await growth.memory.save(folder)
            return growth

        growth = asyncio.run(extend())
    print(json.dumps(figures(growth), indent=2) if args.json else page(growth, folder))
    problems = [*broken, *growth.problems]
    for problem in problems[:_MOST_PROBLEMS]:
        print(f"prill exemplars: {printable(problem)}", file=sys.stderr)
    if len(problems) > _MOST_PROBLEMS:
        print(f"prill exemplars: … and {len(problems) - _MOST_PROBLEMS} more", file=sys.stderr)
    return _EXIT_SOME if broken else _EXIT_ALL


def figures(growth: Growth) -> dict[str, object]:
    """What was added and left out, for JSON."""
    return {
        "added": len(growth.added),
        "exemplars": len([exemplar for exemplar in growth.memory.exemplars if exemplar.steps]),
        "left_out": dict(growth.left_out),
        "wrong": growth.wrong,
        "unlabelled": growth.unlabelled,
    }


def page(growth: Growth, folder: Path) -> str:
    """The same for a person."""
    tasks = {exemplar.name for exemplar in growth.memory.exemplars if exemplar.steps}
    held = sum(1 for exemplar in growth.memory.exemplars if exemplar.steps)
    lines = [f"added: {len(growth.added)}; {folder} holds {held} exemplars of {len(tasks)} tasks"]
    lines += [f"left out: {count} {why}" for why, count in growth.left_out.items()]
    if growth.wrong is not None:
        known = len(growth.added) - growth.unlabelled
        lines.append(f"by the labels, {growth.wrong} of {known} new exemplars are wrong; {growth.unlabelled} have no label")
    return "\n".join(lines)


def _score(text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    if not 0 <= score <= 1:
        raise argparse.ArgumentTypeError("give a score from 0 to 1")
    return score


def _memory(folder: Path, args: argparse.Namespace) -> Memory:
    embedder = make_embedder(args.embedder, base_url=args.embedder_url)
    if (folder / EXEMPLARS).is_file():
        if args.shipped:
            raise UsageError(f"{folder} is a memory already: only a new one can begin with what comes with prill")
        return Memory.load(folder, embedder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there and holds no {EXEMPLARS}: name a new folder, or one of this command")
    shipped = Memory.load(None, embedder)
    return shipped if args.shipped else Memory([], shipped.abstractions, embedder=embedder)


def _verdicts(args: argparse.Namespace) -> tuple[dict[str, Verdict], float | None]:
    """The verdicts by id, with calibrated scores where a calibration is given, and the threshold for them."""
    found = {verdict.id: verdict for verdict in read_verdicts(args.verdicts)}
    if len({comparable(verdict.evaluator) for verdict in found.values()}) > 1:
        raise UsageError(f"{args.verdicts}: these are verdicts of several judges; name a file of one")
    if args.calibration is None or not found:
        return found, args.threshold
    calibration = read_calibration(args.calibration)
    judge = next(iter(found.values())).evaluator
    if judge.params.get("calibration") == calibration.hash:
        return found, calibration.threshold
    if comparable(judge) != comparable(calibration.evaluator):
        raise UsageError(f"{args.calibration}: this calibration is of another judge, or of other settings of {judge.name}")
    mapped = {
        id: replace(verdict, score=calibration(float(verdict.success) if verdict.score is None else verdict.score))
        if verdict.success is not None
        else verdict
        for id, verdict in found.items()
    }
    return mapped, calibration.threshold

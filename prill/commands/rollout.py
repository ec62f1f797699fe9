"""`prill rollout`: record what a policy does in an environment, with labels from the environment beside it."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from prill.agents.miniwob_scripts import SCRIPTS
from prill.agents.scripted import BEHAVIOURS, Behaviour, ScriptedPolicy
from prill.errors import UsageError
from prill.record import Episode, Recorded, record

if TYPE_CHECKING:
    from tqdm import tqdm

    from prill.emulators.miniwob import MiniWoB


@dataclass(frozen=True)
class Row:
    """One line of a plan: which task, which seed, and how the scripted policy is to behave."""

    task: str
    seed: int
    behaviour: Behaviour = "solve"

    @property
    def id(self) -> str:
        """Names the episode without telling how it was meant to go."""
        return "miniwob-" + hashlib.sha256(f"{self.task} {self.seed} {self.behaviour}".encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Plan:
    """What a plan file holds: `episodes = [{task = "click-button", seed = 3, behaviour = "solve"}, …]`."""

    episodes: tuple[Row, ...]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = "Example: prill rollout miniwob --tasks click-link,enter-text --seeds 0-4 --behaviour solve -o runs/a"
    parser.add_argument("environment", choices=["miniwob"], help="miniwob: MiniWoB++ in the system's Chromium")
    parser.add_argument("--plan", metavar="TOML", help="file that lists the episodes; instead of the next three options")
    parser.add_argument("--tasks", metavar="A,B", help="task names, or all: those that the scripted policy knows")
    parser.add_argument("--seeds", default="0", metavar="0-4,7", help="seeds of each task (default 0)")
    parser.add_argument("--behaviour", default="solve", metavar="A,B", help=f"default solve; any of {', '.join(BEHAVIOURS)}")
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="folder to write to; a run is taken up where it ended"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="the first N episodes only")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Records; 0 when every episode has a label, 3 when some broke off, 130 when interrupted."""
    rows = (read_plan(Path(args.plan)) if args.plan else _from_options(args))[: args.limit]
    try:
        counts = asyncio.run(_record(rows, Path(args.output)))
    except KeyboardInterrupt:
        print("\nstopped; the same command takes up where this run ended", file=sys.stderr)
        return 130
    if args.json:
        print(json.dumps({**asdict(counts), "output": args.output}))
    shown = f"{counts.success} success, {counts.failure} failure, {counts.undecided} broke off, {counts.skipped} already there"
    print(f"{shown} -> {args.output}", file=sys.stderr)
    return 3 if counts.undecided else 0


def read_plan(path: Path) -> tuple[Row, ...]:
    """The rows of a plan file. Raises UsageError that names the place."""
    try:
        rows = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Plan).episodes
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    if len(set(rows)) < len(rows):
        raise UsageError(f"{path}: the same episode is listed twice: {next(row for row in rows if rows.count(row) > 1)}")
    return rows


def episodes(environment: MiniWoB, rows: Sequence[Row]) -> list[Episode]:
    """The rows as episodes of the scripted policy; how it was told to behave is noted with the label only."""
    return [
        Episode(
            id=row.id,
            task=partial(environment.task, row.task, row.seed),
            policy=ScriptedPolicy(row.behaviour),
            agent="scripted",
            note=row.behaviour,
        )
        for row in rows
    ]


async def record_rows(rows: Sequence[Row], out: Path, progress: Callable[[Recorded], None] | None = None) -> Recorded:
    """Records the rows into a folder, screenshots in `images` below it."""
    from prill.emulators.miniwob import MiniWoB

    # If the page ended the episodes, the agent would have the last word exactly in those that were not submitted.
    environment = MiniWoB(out / "images", announce_end=False)
    try:
        return await record(environment, episodes(environment, rows), out, progress=progress or (lambda recorded: None))
    finally:
        await environment.close()


async def _record(rows: Sequence[Row], out: Path) -> Recorded:
    from tqdm import tqdm

    with tqdm(total=len(rows), unit="episode", dynamic_ncols=True, file=sys.stderr, delay=0.2) as bar:
        return await record_rows(rows, out, partial(_show, bar))


def _show(bar: tqdm[NoReturn], recorded: Recorded) -> None:
    bar.initial = recorded.skipped
    bar.n = recorded.total
    bar.update(0)


def _from_options(args: argparse.Namespace) -> tuple[Row, ...]:
    if not args.tasks:
        raise UsageError("give --plan, or --tasks")
    tasks = list(SCRIPTS) if args.tasks == "all" else args.tasks.split(",")
    try:
        behaviours = msgspec.convert(args.behaviour.split(","), list[Behaviour])
    except msgspec.ValidationError:
        raise UsageError(f"--behaviour {args.behaviour!r}: choose from {', '.join(BEHAVIOURS)}") from None
    seeds = _seeds(args.seeds)
    return tuple(dict.fromkeys(Row(t, seed, behaviour) for t in tasks for seed in seeds for behaviour in behaviours))


def _seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise UsageError(f"--seeds {text!r}: expected numbers and ranges such as 0-4,7")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return seeds

"""`prill bench mind2web`: an agent on recorded steps, which are played as `prill rollout mind2web` plays them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from prill.bench.mind2web import PlayedTurn, RecordedBench, played_turn, recorded_bench, recorded_turns
from prill.bench.mind2web_tables import recorded_summary, write_recorded_bench
from prill.bench.papers import Paper, paper_names, read_paper
from prill.bench.tables import FIGURES, PICTURE, TABLES
from prill.commands.rollout import Session, add_episode_options, plan_episodes, record_session
from prill.commands.rollout.cases import Case, fingerprint
from prill.commands.rollout.mind2web import recorded_files
from prill.commands.runs.plan import add_dry_run, show_plan
from prill.errors import UsageError
from prill.files.kinds import TRAJECTORIES
from prill.files.outputs import check_output
from prill.pages.conversations import without_pages
from prill.record import Recorded
from prill.store import read_trajectories
from prill.types import Trajectory

_EPISODES = "episodes"


def options(parser: argparse.ArgumentParser, papers: Sequence[str]) -> None:
    """Declares the options: those of `prill rollout`, and whose figures stand beside."""
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="folder to write to; a run is taken up where it ended"
    )
    add_dry_run(parser)
    add_episode_options(parser, tasks="recorded turns by id, or all (default)")
    parser.add_argument(
        "--beside",
        metavar="NAME,FILE",
        help=f"whose figures stand beside: {', '.join(papers)}, or a file of your own in their form; none: nobody's",
    )


def run(args: argparse.Namespace) -> int:
    """Plays and writes the tables; 0 when every turn was played, 3 when some broke off, 130 when interrupted."""
    import asyncio

    folder = Path(args.output)
    papers = _papers(args)
    files = recorded_files(args.recordings)
    args.output = str(folder / _EPISODES)
    check_output(Path(args.output) / TRAJECTORIES, "trajectories", continued=True)
    if args.dry_run:
        return show_plan(args, asyncio.run(plan_episodes(args)).run_plan())
    run = _Run(args, files, papers)
    try:
        counts = asyncio.run(record_session(args, run.finish))
    except KeyboardInterrupt:
        print("\nstopped; the same command takes up where this run ended", file=sys.stderr)
        return 130
    bench = run.bench
    assert bench is not None
    write_recorded_bench(folder, bench)
    print(json.dumps(msgspec.to_builtins(bench, str_keys=True)) if args.json else recorded_summary(bench))
    places = ", ".join(str(folder / name) for name in (TABLES, FIGURES, PICTURE))
    print(f"-> {places}; the episodes are in {args.output}", file=sys.stderr)
    if counts.last_problem is not None:
        print(f"the last that broke off or could not begin: {counts.last_problem}", file=sys.stderr)
    if bench.missing or counts.lost:
        print("--retry-broken plays again what broke off; what could not begin is tried again anyway", file=sys.stderr)
    return 3 if bench.missing or counts.lost else 0


@dataclass
class _Run:
    """What the figures are made of, when everything was played."""

    args: argparse.Namespace
    files: dict[Path, str]
    papers: Sequence[Paper]
    bench: RecordedBench | None = field(default=None)

    def finish(self, made: Session, counts: Recorded) -> None:
        """The figures of this run's episodes: those of other runs in the folder have other ids."""
        rows = {made.id(row): row for row in made.rows}
        episodes = {item.id: item for item in _episodes(Path(self.args.output)) if item.id in rows}
        marking = made.setting.environments[0].spec.marking
        by_turn: dict[str, list[tuple[Case, Trajectory]]] = {}
        for id, episode in episodes.items():
            by_turn.setdefault(rows[id].task, []).append((rows[id], episode))
        played: list[PlayedTurn] = [
            played_turn(turn, episode, marking, seed=row.seed)
            for file, split in self.files.items()
            for turn in recorded_turns(file, split, broken=lambda problem: None)  # they could not begin
            for row, episode in by_turn.get(turn.id, ())
        ]
        settings = {
            "policy": made.plan.agent,
            "run": fingerprint(list(made.run)),
            "seeds": self.args.seeds,
            "lost": made.setting.environments[0].spec.lost,
        }
        self.bench = recorded_bench(
            played, self.papers, agent=made.plan.agent, marking=marking, settings=settings, not_begun=counts.lost
        )


def _episodes(folder: Path) -> Sequence[Trajectory]:
    """Pages are not needed any more."""
    path = folder / TRAJECTORIES
    return [without_pages(item) for item in read_trajectories(path, on_error="skip")] if path.exists() else []


def _papers(args: argparse.Namespace) -> list[Paper]:
    """Whose figures stand beside: those of the agent's paper, or all. Raises UsageError."""
    ready = [read_paper(name) for name in paper_names("mind2web")]
    if args.beside is None:
        return [paper for paper in ready if args.policy in paper.agents] or ready
    named = [read_paper(name.strip()) for name in args.beside.split(",") if args.beside != "none"]
    for paper in named:
        if paper.benchmark != "mind2web":
            raise UsageError(f"--beside: the figures of {paper.title} are about {paper.benchmark}, not about mind2web")
    return named

"""`prill bench`: an agent on the tasks of a benchmark, and tables of what it came to beside the figures of the papers."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from prill.bench.figures import Bench, bench_of, read_runs
from prill.bench.papers import Benchmark, Paper, paper_names, read_paper, tasks_of
from prill.bench.tables import FIGURES, PICTURE, TABLES, summary_text, write_bench
from prill.commands.options import make_model, positive
from prill.commands.refine import recorded
from prill.commands.refine.reflexion import challenge_of_case, learner_of_case, plan_retries, play_of, stage_bar
from prill.commands.rollout import KINDS, Session, add_episode_options, session
from prill.commands.rollout.cases import Case, fingerprint
from prill.commands.runs.plan import RunPlan, add_dry_run, show_plan
from prill.emulators.registry import ENVIRONMENTS
from prill.errors import UsageError
from prill.files.kinds import TRAJECTORIES
from prill.files.outputs import check_output, expect_place, expect_writable
from prill.protocols import Learner
from prill.refine.reflector import ReflectorSpec
from prill.refine.reflexion import check_again, play_again
from prill.refine.retries import RetrySpec
from prill.registry import read_options

EPISODES = "episodes"
_EXAMPLES = {
    "miniwob": "Example: prill bench miniwob --agent react --model M --tasks 43 --seeds 1000-1024 -o runs/bench",
    "webarena": "Example: prill bench webarena --shop --agent scripted -o runs/shop",
    "airline": "Example: prill bench airline --agent step --model M -o runs/airline",
    "mind2web": "Example: prill bench mind2web --data cross-task=test.jsonl --agent self-map --model M -o runs/m2w",
}
_SEEDS = "0-4"  # where neither the agent nor the list is a paper's


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options: those of `prill rollout`, the number of trials, and whose figures stand beside."""
    parser.epilog = _EXAMPLES["miniwob"]
    kinds = parser.add_subparsers(dest="environment", metavar="BENCHMARK", required=True)
    for name, example in _EXAMPLES.items():
        purpose = ENVIRONMENTS.entries[name].what
        sub = kinds.add_parser(name, help=purpose, description=purpose, epilog=example)
        _options(sub, name)
        KINDS[name].configure(sub.add_argument_group(name))


def _options(parser: argparse.ArgumentParser, name: str) -> None:
    papers = {paper: read_paper(paper) for paper in paper_names(cast(Benchmark, name))}
    if name == "mind2web":
        recorded.options(parser, tuple(papers))
        return
    lists = sorted(paper.list_name for paper in papers.values() if paper.list_name is not None)
    named = "numbers such as 0-9,44, or all (default)" if name == "webarena" else "names, or all (default)"
    named = f"names, all, or a paper's list: {', '.join(lists)}" if lists else named
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="folder to write to; a run is taken up where it ended"
    )
    add_dry_run(parser)
    what, who = add_episode_options(
        parser,
        tasks=named,
        seeds={"webarena": "default 0", "airline": "default 0-19"}.get(
            name, f"default: those of the agent's paper, or of the list's; else {_SEEDS}"
        ),
    )
    parser.set_defaults(seeds=None)
    what.add_argument(
        "--trials", type=positive, metavar="T", help="attempts at a task, while they fail (default: the agent's paper's, or 1)"
    )
    who.add_argument(
        "--reflector-model", metavar="M", help="the model that draws lessons between trials (default: the agent's)"
    )
    parser.add_argument(
        "--beside",
        metavar="NAME,FILE",
        help=f"whose figures stand beside: {', '.join(papers)}, or a file of your own in their form; none: nobody's",
    )


def run(args: argparse.Namespace) -> int:
    """Plays and writes the tables; 0 when every episode has an outcome, 3 when some have none, 130 when interrupted."""
    folder = Path(args.output)
    expect_place(args.output, "a folder")
    for name in (TABLES, FIGURES, PICTURE):
        expect_writable(folder / name)
    if args.policy is None:
        raise UsageError("--agent is missing: name a policy of prill's, or one of your own")
    if args.environment == "mind2web":
        return recorded.run(args)
    papers = _choose(args)
    args.output = str(folder / EPISODES)  # beside the tables, in the form of `prill reflexion`
    check_output(Path(args.output) / TRAJECTORIES, "trajectories", continued=True)
    try:
        bench = asyncio.run(_play(args, papers))
        if isinstance(bench, RunPlan):
            return show_plan(args, bench)
    except KeyboardInterrupt:
        print("\nstopped; the same command takes up where this run ended", file=sys.stderr)
        return 130
    write_bench(folder, bench)
    if args.json:
        print(json.dumps(msgspec.to_builtins(bench)))
    else:
        print(summary_text(bench))
    places = ", ".join(str(folder / name) for name in (TABLES, FIGURES, PICTURE))
    print(f"-> {places}; the episodes are in {args.output}", file=sys.stderr)
    if bench.missing.get("broke off") or bench.missing.get("could not begin"):
        print("--retry-broken plays again what broke off; what could not begin is tried again anyway", file=sys.stderr)
    return 3 if bench.missing else 0


def _choose(args: argparse.Namespace) -> list[Paper]:
    """Whose figures stand beside; fills in tasks, seeds and trials where they were not given. Raises UsageError."""
    benchmark: Benchmark = args.environment
    ready = [read_paper(name) for name in paper_names(benchmark)]
    followed = [paper for paper in ready if args.policy in paper.agents]
    if args.tasks is None:
        args.tasks = "all" if benchmark != "miniwob" else next((p.list_name for p in followed if p.list_name), None)
        if args.tasks is None:
            lists = ", ".join(paper.list_name for paper in ready if paper.list_name is not None)
            raise UsageError(f"--tasks is missing: {args.policy} is no paper's agent, so name a list ({lists}), tasks, or all")
    listed = [paper for paper in ready if paper.list_name == args.tasks]
    if listed:
        args.tasks = ",".join(tasks_of(listed[0]))
    # The desk has as many scenarios as the paper played, whoever plays them.
    source = next(iter([*followed, *listed, *(ready if benchmark == "airline" else [])]), None)
    args.seeds = args.seeds or (source.seeds if source else None) or ("0" if benchmark == "webarena" else _SEEDS)
    args.trials = args.trials or (followed[0].trials if followed else 1)
    if args.trials == 1 and args.reflector_model:
        raise UsageError("--reflector-model: with one trial there is no lesson to draw; give --trials")
    if args.beside is not None:
        return [_beside(name.strip(), benchmark) for name in args.beside.split(",") if args.beside != "none"]
    if benchmark == "webarena":  # figures of other tasks are none to compare with
        return [] if args.shop or args.configs else ready
    return [paper for paper in ready if paper in followed or paper in listed] or ready


def _beside(name: str, benchmark: Benchmark) -> Paper:
    paper = read_paper(name)
    if paper.benchmark != benchmark:
        raise UsageError(f"--beside {name}: its figures are about {paper.benchmark}, not about {benchmark}")
    return paper


async def _play(args: argparse.Namespace, papers: Sequence[Paper]) -> Bench | RunPlan:
    """Plays through the one recorder, and gives the figures of what was played."""
    out = Path(args.output)
    async with session(args) as made:
        model = make_model(args, args.reflector_model) if args.reflector_model else None
        # With one trial nothing is learnt between trials, so any policy will do.
        make = partial(learner_of_case if args.trials > 1 else _player, made, model, ReflectorSpec())
        if args.trials > 1 and made.rows:
            make(made.rows[0], (), 0)  # an agent that takes no lessons is told so before anything is played
        settings = {"policy": made.plan.agent, "environment": args.environment, "run": fingerprint(list(made.run))}
        lessons = {"lessons": {**asdict(ReflectorSpec()), "model": args.reflector_model}} if args.trials > 1 else {}
        challenges = [challenge_of_case(made, make, row) for row in made.rows]
        # As the papers count: so many trials, whatever was learnt.
        retries = RetrySpec(**read_options(RetrySpec, {"attempts": args.trials, "stop_on_repeat": False}, "the trials"))
        run: dict[str, Any] = {"play": play_of(made, args), "settings": settings | lessons}
        if args.dry_run:
            check_again(made.pool, challenges, None, out, retries, **run)
            return plan_retries(made, args, None, args.trials, asks=args.trials > 1)
        with stage_bar() as show:
            await play_again(made.pool, challenges, None, out, retries, **run, retry_broken=args.retry_broken, progress=show)
        return bench_of(
            read_runs(out, made.setting.sites),
            papers,
            benchmark=args.environment,
            agent=made.plan.agent,
            trials=args.trials,
            settings={**settings, "seeds": args.seeds, "max_steps": args.max_steps},
        )


def _player(made: Session, model: object, asked: object, row: Case, lessons: Sequence[str], number: int) -> Learner:
    return cast(Learner, made.plan.make(row))

"""`prill serve`: a judge as an HTTP reward service, for trainers and for everybody else."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

from prill.commands.options import (
    add_judge_options,
    add_options_of,
    make_evaluator,
    options_given,
    positive,
    run_budget,
    says_of_judge,
)
from prill.errors import UsageError
from prill.refine.rewards import Reward, RewardSpec, WatchSpec, make_reward
from prill.refine.rewards.watch.live import make_watch
from prill.registry import read_options
from prill.service import ServiceSpec, serve, service_table
from prill.service.server import LastResort

_EXIT_ENDED = 0
_EXIT_SECONDS = 5.0  # that threads of a judge may take to end


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.usage = "prill serve [SERVICE.toml | --judge NAME] [options]"
    parser.description = (
        "Serves a judge over HTTP: rewards for OpenRLHF (/get_reward), slime (/rm) and NeMo-Gym (/verify), verdicts for\n"
        "everybody (/v1/score), a page to look at (/), metrics (/metrics). What has no verdict never becomes a reward.\n"
        "  prill serve --judge vlm --model gpt-4o\n"
        "  prill serve service.toml --host 0.0.0.0 --token-env PRILL_TOKEN"
    )
    parser.epilog = (
        "Ends on Ctrl-C or TERM when every request that was accepted is answered, or after --grace seconds; a second one "
        "ends it at once. Exit codes: 0 ended, 1 had to be forced, 2 bad usage."
    )
    parser.add_argument(
        "service", nargs="?", metavar="SERVICE.toml", help="file with these options, and under [reward] the judge with its own"
    )
    parser.add_argument("--concurrency", type=positive, default=16, metavar="N", help="most calls at once (default 16)")
    parser.add_argument("--json", action="store_true", help="print the address as JSON")
    add_options_of(parser.add_argument_group("service"), ServiceSpec)
    add_options_of(parser.add_argument_group("reward"), RewardSpec)
    add_options_of(parser.add_argument_group("reward watch (`prill watch` shows the observations)"), WatchSpec)
    add_judge_options(parser, required=False)
    parser.set_defaults(trajectories=())


def run(args: argparse.Namespace) -> int:
    """Serves until a signal comes. Raises UsageError before it listens."""
    reward, spec, concurrency = _of_file(args) if args.service else _of_options(args)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("prill.service")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    serve(reward, spec, concurrency=concurrency, announce=lambda url: _announce(url, args.json), ending=_ending)
    LastResort().end_within(_EXIT_SECONDS, _EXIT_ENDED)
    return _EXIT_ENDED


def _of_options(args: argparse.Namespace) -> tuple[Reward, ServiceSpec, int | None]:
    if not args.evaluator:
        raise UsageError("name a judge with --judge, or a file with the whole service")
    spec = ServiceSpec(**read_options(ServiceSpec, options_given(args, ServiceSpec), "the service", lax=True))
    worth = RewardSpec(**read_options(RewardSpec, options_given(args, RewardSpec), "a reward", lax=True))
    looks_on = _watch_of(args)
    with run_budget(args):
        judge = make_evaluator(args)
    return Reward(judge, worth, make_watch(judge, WatchSpec(**looks_on) if looks_on else None)), spec, args.concurrency


def _watch_of(args: argparse.Namespace) -> dict[str, Any]:
    return read_options(WatchSpec, options_given(args, WatchSpec), "a watch", lax=True)


def _of_file(args: argparse.Namespace) -> tuple[Reward, ServiceSpec, int | None]:
    """What the file says; the options of the service and of the watch on the command line go before it."""
    if says_of_judge(args) or options_given(args, RewardSpec):
        raise UsageError(f"{args.service} says which judge and which reward; leave those options out, or the file")
    spec, reward = service_table(
        args.service, **read_options(ServiceSpec, options_given(args, ServiceSpec), "the service", lax=True)
    )
    if looks_on := _watch_of(args):
        there = reward.get("watch", {})
        reward["watch"] = {**there, **looks_on} if isinstance(there, Mapping) else there
    defaults = {"concurrency": args.concurrency}
    return make_reward(reward, defaults=defaults), spec, None


def _announce(url: str, as_json: bool) -> None:
    print(json.dumps({"url": url}) if as_json else f"serving on {url}; end with Ctrl-C", flush=True)


def _ending() -> None:
    print("prill serve: ending; requests inside are answered, a second Ctrl-C drops them", file=sys.stderr)

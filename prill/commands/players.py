"""From command-line words to the policies that `prill rollout` lets play."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from prill.commands.cases import Case
from prill.commands.models import make_model
from prill.errors import UsageError
from prill.protocols import Policy
from prill.store import read_trajectories
from prill.types import Platform, Trajectory


@dataclass(frozen=True)
class Player:
    """Who plays: what the records call it, what makes the policy of one episode, and what tells it from others.

    `plays` are the tasks that it can do; None: any.
    """

    agent: str
    make: Callable[[Case], Policy]
    settings: dict[str, Any] = field(default_factory=dict)
    plays: frozenset[str] | None = None


@dataclass(frozen=True)
class PolicyKind:
    """One name for `--policy`."""

    purpose: str
    make: Callable[[argparse.Namespace, Platform], Player]


def make_player(args: argparse.Namespace, platform: Platform) -> Player:
    """The policy of `--policy`. Raises UsageError."""
    if args.policy is None:
        raise UsageError(f"--policy is missing: choose from {', '.join(POLICIES)}")
    return POLICIES[args.policy].make(args, platform)


def _scripted(args: argparse.Namespace, platform: Platform) -> Player:
    if args.environment == "webarena":
        return _plays(args)
    from prill.agents.miniwob_scripts import SCRIPTS
    from prill.agents.scripted import ScriptedPolicy

    if args.environment != "miniwob":
        raise UsageError("the scripted policy knows MiniWoB++ and the local shop only; choose another --policy")
    return Player("scripted", lambda case: ScriptedPolicy(case.behaviour or "solve"), plays=frozenset(SCRIPTS))


def _plays(args: argparse.Namespace) -> Player:
    from prill.fakes.shop import Play, shop_solutions

    if not args.shop:
        raise UsageError("the scripted policy knows the tasks of the local shop only: add --shop, or choose another --policy")
    solutions = {str(number): solution for number, solution in shop_solutions().items()}

    def make(case: Case) -> Policy:
        if case.behaviour not in ("solve", "wrong-target"):
            raise UsageError(f"--behaviour {case.behaviour}: on the shop there are solve and wrong-target")
        solution = solutions[case.task]
        return Play(solution.right if case.behaviour == "solve" else solution.wrong)

    return Player("scripted", make, plays=frozenset(solutions))


def _react(args: argparse.Namespace, platform: Platform) -> Player:
    from prill.agents.react import React
    from prill.agents.react_messages import Variant

    model = make_model(args)
    variant = Variant(reasoning=not args.direct)
    return Player(f"react/{model.name}", lambda case: React(model, variant=variant), _asked(args, direct=args.direct))


def _cogagent(args: argparse.Namespace, platform: Platform) -> Player:
    from prill.agents.cogagent import CogAgent

    model = make_model(args)
    make = partial(CogAgent, model, generation=args.generation)
    return Player(f"cogagent/{model.name}", lambda case: make(seed=case.seed), _asked(args, generation=args.generation))


def _autoui(args: argparse.Namespace, platform: Platform) -> Player:
    from prill.agents.autoui import AutoUI

    model = make_model(args)
    return Player(f"autoui/{model.name}", lambda case: AutoUI(model), _asked(args))


def _replay(args: argparse.Namespace, platform: Platform) -> Player:
    from prill.agents.replay import HumanReplay

    if not args.replay:
        raise UsageError("--policy replay needs --replay FILE")
    recorded = [item for item in read_trajectories(args.replay) if isinstance(item, Trajectory)]
    content = hashlib.sha256(Path(args.replay).read_bytes()).hexdigest()
    return Player("replay", lambda case: HumanReplay(recorded), {"replay": content})


def _asked(args: argparse.Namespace, **settings: str | bool) -> dict[str, str | bool | None]:
    return {"model": args.model, **settings}


POLICIES = {
    "react": PolicyKind("a model thinks and acts on the page's text, as in WebArena", _react),
    "cogagent": PolicyKind("CogAgent, on screenshots", _cogagent),
    "autoui": PolicyKind("Auto-UI, on screenshots", _autoui),
    "replay": PolicyKind("the actions of recorded trajectories again", _replay),
    "scripted": PolicyKind("MiniWoB++ and the local shop by script, well or badly on purpose", _scripted),
}

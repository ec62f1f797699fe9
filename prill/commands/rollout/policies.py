"""From command-line words to the policies that `prill rollout` lets play."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from prill.commands.options import make_model
from prill.commands.rollout.cases import Case
from prill.errors import UsageError
from prill.models.prompts import load_prompt
from prill.protocols import LanguageModel, Policy, SampledModel
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
    from prill.policies.scripted.policy import ScriptedPolicy
    from prill.policies.scripted.scripts import SCRIPTS

    if args.environment != "miniwob":
        raise UsageError("the scripted policy knows MiniWoB++ and the local shop only; choose another --policy")
    return Player("scripted", lambda case: ScriptedPolicy(case.behaviour or "solve"), plays=frozenset(SCRIPTS))


def _plays(args: argparse.Namespace) -> Player:
    from prill.testing.shop import Play, shop_solutions

    if not args.shop:
        raise UsageError("the scripted policy knows the tasks of the local shop only: add --shop, or choose another --policy")
    solutions = {str(number): solution for number, solution in shop_solutions().items()}

    wanted = set((args.behaviour or "solve").split(","))
    if other := wanted - {"solve", "wrong-target"}:
        raise UsageError(f"--behaviour {', '.join(sorted(other))}: on the shop there are solve and wrong-target")

    def make(case: Case) -> Policy:
        solution = solutions[case.task]
        return Play(solution.right if case.behaviour == "solve" else solution.wrong)

    return Player("scripted", make, plays=frozenset(solutions))


def _react(args: argparse.Namespace, platform: Platform) -> Player:
    from prill.policies.react import React, Variant

    if args.environment == "miniwob" and args.text == "html":
        raise UsageError("react names elements by the numbers of their lines: leave out --text html")
    model = make_model(args)
    variant = Variant(reasoning=not args.direct, sites=_sites(args))
    make = partial(React, variant=variant, max_tokens=args.max_tokens or 384)
    settings = _asked(args, variant.hash(platform), direct=args.direct, sites=variant.sites)
    return Player(f"react/{model.name}", lambda case: make(_drawn(args, model, case)), settings)


def _sites(args: argparse.Namespace) -> str:
    """WebArena's sites by the names that agents know them by; its home page lists them, and the passwords."""
    if args.environment != "webarena" or args.shop:
        return ""
    from prill.emulators.webarena.sites import PUBLIC, Sites

    known = Sites.from_environment().addresses
    names = {"HOMEPAGE": "a list of all sites, with passwords at http://homepage.com/password.html"}
    return ", ".join(f"http://{host} ({names.get(name, name.lower())})" for name, host in PUBLIC.items() if name in known)


def _cogagent(args: argparse.Namespace, platform: Platform) -> Player:
    from prill.policies.cogagent import CogAgent

    model = make_model(args)
    make = partial(CogAgent, generation=args.generation, max_tokens=args.max_tokens or 1024)
    settings = _asked(args, load_prompt("prill.policies", f"cogagent_{args.generation}").hash)
    return Player(f"cogagent/{model.name}", lambda case: make(_drawn(args, model, case), seed=case.seed), settings)


def _autoui(args: argparse.Namespace, platform: Platform) -> Player:
    from prill.policies.autoui import AutoUI

    model = make_model(args)
    make = partial(AutoUI, max_tokens=args.max_tokens or 512)
    settings = _asked(args, load_prompt("prill.policies", "auto_ui").hash)
    return Player(f"autoui/{model.name}", lambda case: make(_drawn(args, model, case)), settings)


def _replay(args: argparse.Namespace, platform: Platform) -> Player:
    from prill.policies.replay import HumanReplay

    if not args.replay:
        raise UsageError("--policy replay needs --replay FILE")
    recorded = [item for item in read_trajectories(args.replay) if isinstance(item, Trajectory)]
    content = hashlib.sha256(Path(args.replay).read_bytes()).hexdigest()
    return Player("replay", lambda case: HumanReplay(recorded), {"replay": content})


def _asked(args: argparse.Namespace, prompt: str, **settings: str | bool) -> dict[str, Any]:
    return {"model": args.model, "prompt": prompt, "max_tokens": args.max_tokens, "temperature": args.temperature, **settings}


def _drawn(args: argparse.Namespace, model: LanguageModel, case: Case) -> LanguageModel:
    """The model at `--temperature`: the same case draws the same where the endpoint heeds seeds, another attempt otherwise."""
    if not args.temperature:
        return model
    if not isinstance(model, SampledModel):
        raise UsageError(f"--temperature: {model.name} answers at temperature 0 only")
    return model.sampled(args.temperature, 1000 * case.seed + case.attempt)


POLICIES = {
    "react": PolicyKind("a model thinks and acts on the page's text, as in WebArena", _react),
    "cogagent": PolicyKind("CogAgent, on screenshots", _cogagent),
    "autoui": PolicyKind("Auto-UI, on screenshots", _autoui),
    "replay": PolicyKind("the actions of recorded trajectories again", _replay),
    "scripted": PolicyKind("MiniWoB++ and the local shop by script, well or badly on purpose", _scripted),
}

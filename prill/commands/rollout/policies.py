"""From command-line words to the policies that `prill rollout` lets play, and the words that set options."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prill.commands.options import make_model
from prill.commands.rollout.cases import Case
from prill.emulators.registry import ENVIRONMENTS
from prill.errors import UsageError
from prill.models.registry import model_options
from prill.pages.steps import Marking
from prill.policies.registry import POLICIES, Fingerprinted, asks_a_model, make_policy, policies_with
from prill.protocols import LanguageModel, Policy, SampledModel
from prill.registry import Maker, OptionError, nearest, options_of
from prill.store import read_trajectories
from prill.types import Platform

# Flags that fill an option of the policy; a policy without that option refuses the flag.
FLAGS = {
    "--direct": "reasoning",
    "--max-tokens": "max_tokens",
    "--generation": "generation",
    "--replay": "trajectories",
    "--behaviour": "behaviour",
    "--model": "model",
    "--temperature": "model",
}
# What the command fills in by itself.
_FILLED = ("model", "images", "browser", "hooks", "phone", "virtual_device")


@dataclass(frozen=True)
class PolicyPlan:
    """Who plays: what the records call it, what makes the policy of one episode, and what tells it from others.

    `plays` are the tasks that it can do; None: any. `page_text` is how it reads a page where the environment has several ways,
    `marking` how its paper marks recorded steps. `asks_model`: calls are made for its steps.
    """

    agent: str
    make: Callable[[Case], Policy]
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    plays: frozenset[str] | None = None
    page_text: str | None = None
    marking: Marking | None = None
    asks_model: bool = False


@dataclass(frozen=True)
class Assigned:
    """What `--set` says of the policy, of its model, and of the environment."""

    policy: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)


def read_assigned(args: argparse.Namespace) -> Assigned:
    """Each KEY=VALUE for the one of policy and environment that has such an option; `policy.` or `environment.` says which.

    `model.` is an option of the model that the policy asks: `model.adapter=DIR`. Raises UsageError for a key that nothing has,
    or several things.
    """
    makers = {"policy": POLICIES.maker(args.policy), "environment": ENVIRONMENTS.maker(args.environment)}
    options = {kind: [name for name in options_of(maker) if name not in _FILLED] for kind, maker in makers.items()}
    if args.policy == "scripted":  # how it behaves is a matter of the episode
        options["policy"] = []
    options["model"] = list(model_options(args.model)) if asks_a_model(makers["policy"]) else []
    assigned: dict[str, dict[str, Any]] = {"policy": {}, "environment": {}, "model": {}}
    for words in args.set or ():
        name, equals, value = words.partition("=")
        if not equals:
            raise UsageError(f"--set {words}: expected KEY=VALUE")
        kind, _, key = name.rpartition(".")
        # What the model has is named in full: a time limit, say, is the environment's unless that is said.
        kinds = [one for one in options if key in options[one] and kind in ((one,) if one == "model" else ("", one))]
        if not kinds:
            raise _unknown(name, key, args, options)
        if len(kinds) > 1:
            raise UsageError(f"--set {name}: policy and environment have it; say policy.{key} or environment.{key}")
        assigned[kinds[0]][key] = _value(words, value)
    return Assigned(**assigned)


def plan_policy(args: argparse.Namespace, platform: Platform, assigned: Assigned) -> PolicyPlan:
    """The policy of `--policy`. Raises UsageError, also for options that it does not have."""
    maker = POLICIES.maker(args.policy)
    _refuse_foreign(args, maker)
    if args.policy == "scripted" and args.environment == "airline":
        return _plan_airline(args)
    if args.policy == "scripted" and args.environment != "miniwob":
        return _plan_shop(args)
    model = make_model(args, given=assigned.model) if _asks_model(args, maker) else None
    options = {**_flag_options(args, platform), **assigned.policy}
    # A policy that draws by itself draws anew for each seed and attempt.
    drawn = [name for name in ("seed", "attempt") if name in options_of(maker) and name not in options]

    def make(case: Case) -> Policy:
        of_case: dict[str, Any] = {name: getattr(case, name) for name in drawn}
        if case.behaviour is not None:
            of_case["behaviour"] = case.behaviour
        asked = {} if model is None else {"model": _drawn(args, model, case)}
        return make_policy(args.policy, lax=True, **options, **of_case, **asked)

    try:
        policy = make(Case(""))
    except OptionError as error:
        raise UsageError(f"{error}{_help(error.option, maker)}") from None
    if (args.workers or 1) > 1 and make(Case("")) is policy:
        raise UsageError(f"{args.policy} is one policy, and every worker needs one of its own: name a class")
    name = args.policy.rpartition(":")[2]
    fingerprint = {key: value for key, value in options.items() if key != "trajectories"}
    if model is not None:
        own = options_of(maker).get("temperature")  # a policy that draws by itself has a default of its own
        temperature = options.get("temperature", own.default) if own else args.temperature or 0.0
        fingerprint |= {"model": args.model, "temperature": temperature, **_of_model(assigned.model)}
    if isinstance(policy, Fingerprinted):
        fingerprint["asked"] = policy.fingerprint(platform)
        fingerprint.pop("adapter", None)  # its weights are in that; where they lie may change
    agent = name if model is None else f"{name}/{model.name}"
    plays, page_text = getattr(policy, "plays", None), getattr(policy, "page_text", None)
    return PolicyPlan(agent, make, fingerprint, plays, page_text, _marking(policy), model is not None)


def _marking(policy: Policy) -> Marking | None:
    """What the policy says, or what goes with the form of its answers; None where it says nothing."""
    form = getattr(getattr(policy, "spec", None), "form", None)
    said: Marking | None = getattr(policy, "marking", None)
    return said or (Marking("multi-choice") if form == "choice" else None)


def _of_model(assigned: Mapping[str, Any]) -> dict[str, Any]:
    """What `--set` said of the model, as records tell runs apart; an adapter by its weights, for where they lie may change."""
    found = {f"model.{key}": value for key, value in assigned.items()}
    if (adapter := assigned.get("adapter")) is not None:
        from prill.models.local.choices import weights_hash

        found["model.adapter"] = weights_hash(adapter)
    return found


def _plan_shop(args: argparse.Namespace) -> PolicyPlan:
    """The scripts of the local shop's tasks."""
    if args.environment != "webarena":
        raise UsageError("the scripted policy knows MiniWoB++, the airline and the local shop only; choose another --policy")
    from prill.emulators.shop import Play, shop_solutions

    if not args.shop:
        raise UsageError("the scripted policy knows the tasks of the local shop only: add --shop, or choose another --policy")
    solutions = {str(number): solution for number, solution in shop_solutions().items()}
    if other := set((args.behaviour or "solve").split(",")) - {"solve", "wrong-target"}:
        raise UsageError(f"--behaviour {', '.join(sorted(other))}: on the shop there are solve and wrong-target")

    def make(case: Case) -> Policy:
        solution = solutions[case.task]
        return Play(solution.right if case.behaviour == "solve" else solution.wrong)

    return PolicyPlan("scripted", make, plays=frozenset(solutions))


def _plan_airline(args: argparse.Namespace) -> PolicyPlan:
    """The scripts of the airline's scenarios."""
    from prill.emulators.airline.desk import solution
    from prill.emulators.shop import Play

    if other := set((args.behaviour or "solve").split(",")) - {"solve"}:
        raise UsageError(f"--behaviour {', '.join(sorted(other))}: at the airline there is solve")
    if args.elsewhere:
        raise UsageError("the scripted policy knows the scenarios of this process only: leave out --elsewhere")

    def make(case: Case) -> Policy:
        return Play(solution(f"TASK_{case.task.replace('-', '_').upper()}", case.seed))

    return PolicyPlan("scripted", make)


def _refuse_foreign(args: argparse.Namespace, maker: Maker) -> None:
    """Raises UsageError for a flag of other policies, and names those."""
    for flag, option in FLAGS.items():
        if getattr(args, flag[2:].replace("-", "_")) is None or option in options_of(maker):
            continue
        raise UsageError(
            f"{flag}: the policy {args.policy} has no such option; those that have it: {', '.join(policies_with(option))}"
        )


def _flag_options(args: argparse.Namespace, platform: Platform) -> dict[str, Any]:
    options: dict[str, Any] = {}
    own = options_of(POLICIES.maker(args.policy))
    if args.temperature is not None and "temperature" in own:
        options["temperature"] = args.temperature
    if args.model is not None and "model" in own and not asks_a_model(POLICIES.maker(args.policy)):
        options["model"] = args.model
    if args.direct:
        options["reasoning"] = False
    if args.max_tokens is not None:
        options["max_tokens"] = args.max_tokens
    if args.generation is not None:
        options["generation"] = args.generation
    if args.replay is not None:
        options["trajectories"] = list(read_trajectories(args.replay, on_error="skip"))
    if args.policy == "react":
        if args.environment == "miniwob" and args.text == "html":
            raise UsageError("react names elements by the numbers of their lines: leave out --text html")
        options["sites"] = _sites(args)
    return options


def _sites(args: argparse.Namespace) -> str:
    """WebArena's sites by the names that agents know them by; its home page lists them, and the passwords."""
    if args.environment != "webarena" or args.shop:
        return ""
    from prill.emulators.webarena.sites import PUBLIC, Sites

    addresses = Sites.from_environment().addresses
    names = {"HOMEPAGE": "a list of all sites, with passwords at http://homepage.com/password.html"}
    return ", ".join(f"http://{host} ({names.get(name, name.lower())})" for name, host in PUBLIC.items() if name in addresses)


def _asks_model(args: argparse.Namespace, maker: Maker) -> bool:
    return asks_a_model(maker) and (options_of(maker)["model"].required or args.model is not None)


def _drawn(args: argparse.Namespace, model: LanguageModel | None, case: Case) -> LanguageModel | None:
    """The model at `--temperature`: the same case draws the same where the endpoint heeds seeds, another attempt otherwise."""
    if not args.temperature or model is None:
        return model
    if not isinstance(model, SampledModel):
        raise UsageError(f"--temperature: {model.name} answers at temperature 0 only")
    return model.sampled(args.temperature, 1000 * case.seed + case.attempt)


def _unknown(name: str, key: str, args: argparse.Namespace, options: Mapping[str, list[str]]) -> UsageError:
    message = f"--set {name}: neither the policy {args.policy} nor the environment {args.environment} has such an option"
    if others := policies_with(key):
        return UsageError(f"{message}; policies that have it: {', '.join(others)}")
    return UsageError(f"{message}{nearest(key, [*options['policy'], *options['environment']])}")


def _value(words: str, value: str) -> Any:
    """Lists and tables are written as JSON; all else is text, which is read as what the option asks for."""
    if not value.startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise UsageError(f"--set {words}: this is no JSON") from None


def _help(option: str, maker: Maker) -> str:
    """Which words on the command line give the option."""
    flag = next((flag for flag, name in FLAGS.items() if name == option), None)
    if option not in options_of(maker):
        return ""
    return f"; to give it: {flag}" if flag else f"; to give it: --set {option}=…"

"""`prill refine`: an agent learns from its own attempts, as far as a judge finds them good."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from prill.commands.options import run_budget
from prill.commands.rollout import EpisodePlan, arguments, plan_episodes, play
from prill.commands.rollout.cases import numbers
from prill.commands.runs.plan import RunPlan, add_dry_run, in_file, listed, show_plan, times, together
from prill.errors import UsageError
from prill.files.outputs import expect_place
from prill.models.registry import model_options
from prill.policies.registry import POLICIES, asks_a_model, make_policy
from prill.protocols import Demonstrator, Evaluator
from prill.refine.filtered_bc import (
    PLAYED,
    Audience,
    Study,
    Table,
    check_folder,
    check_parts,
    check_ungraded,
    read_study,
    run_study,
)
from prill.refine.results import BASE, BY_ROUND, RESULTS, STUDY, TABLES, results_text, write_results
from prill.refine.training.preflight import Devices, check_settings, foretold, parse_devices
from prill.refine.training.spec import TrainSpec
from prill.refine.training.weights import Base, open_base
from prill.registry import OptionError, options_of

if TYPE_CHECKING:
    from tqdm import tqdm

    from prill.scoring import Tally


_LATER = (
    "nobody grades what is done in {0}, so there are no figures until people label each folder `evaluation` of the study "
    "(prill annotate FOLDER/trajectories.jsonl -o FOLDER/labels.jsonl, then: prill refine filtered-bc {1} -o {2} --tables-only)"
)
_LONG_ROW = 4096  # tokens of a row that memory is planned for where the training has no limit: a page and a picture


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = "Example: prill refine filtered-bc examples/filtered_bc/miniwob.toml -o runs/bc --seeds 0,1,2"
    ways = parser.add_subparsers(dest="way", metavar="WAY", required=True)
    purpose = "filtered behavioural cloning: play, judge, filter, train, play on what was held out; in rounds"
    sub = ways.add_parser("filtered-bc", help=purpose, description=purpose, epilog=parser.epilog)
    sub.add_argument("config", metavar="CONFIG", help="what to do: a TOML or JSON file (docs/filtered-bc.md)")
    sub.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="folder to write to; a study is taken up where it ended"
    )
    sub.add_argument("--seeds", default="0", metavar="0,1,2", help="training seeds, each a study of its own (default 0)")
    add_dry_run(sub)
    sub.add_argument("--gpus", metavar="NxNAME", help="--dry-run: for these GPUs, such as 8xH200, and not for this machine")
    sub.add_argument("--tables-only", action="store_true", help="train nothing: the tables of what is there")
    sub.add_argument("--budget-usd", metavar="X", help="US dollars for all models of the study together: no call beyond")
    sub.add_argument("--json", action="store_true", help="print the figures as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Runs the study; 0, 3 when an arm had nothing to learn from, 130 when interrupted."""
    expect_place(args.output, "a study")
    out, study = Path(args.output), read_study(Path(args.config))
    seeds = numbers(args.seeds, "--seeds")
    if args.gpus and not args.dry_run:
        raise UsageError("--gpus is for --dry-run; a study takes the GPUs that it finds")
    devices = parse_devices(args.gpus) if args.gpus else None
    if args.dry_run and args.tables_only:
        raise UsageError("--dry-run: there is nothing to foresee of tables; leave out --tables-only")
    if not args.tables_only:
        try:
            with run_budget(args, folder=out), _shown() as audience:
                with in_file(args.config):
                    world, judges, plans = prepare(study, out)
                    spec, trained = study.training_of(0), None
                    check_settings(spec)
                    if not (args.dry_run and spec.model == "embedded"):  # its weights would be unpacked, to be read
                        base = open_base(spec)
                        trained = _training_on(devices, spec, base, out) if devices else None
                if study.annotated:
                    where = plans["evaluation"].environment
                    print(f"prill refine: {_LATER.format(where, args.config, args.output)}", file=sys.stderr)
                if args.dry_run:
                    plan = plan_study(study, out, seeds, plans, judges)
                    return show_plan(args, replace(plan, work=(*plan.work, trained)) if trained else plan)
                run_study(study, world, out, seeds, audience)
        except KeyboardInterrupt:
            print("\nstopped; the same command takes up where this study ended", file=sys.stderr)
            return 130
    elif not (out / STUDY).is_file():
        raise UsageError(f"{out}: holds no study yet")
    elif not (out / BASE / "evaluation" / PLAYED).is_file():
        raise UsageError(f"{out}: the untrained policy's evaluation is not finished, and there is no table without it")
    results = write_results(out)
    print(json.dumps(msgspec.to_builtins(results)) if args.json else results_text(results))
    print(f"-> {out / TABLES}, {out / RESULTS}, {out / BY_ROUND}", file=sys.stderr)
    return 3 if any(judge["ended"] for judge in results.judges) else 0


def _training_on(devices: Devices, spec: TrainSpec, base: Base, out: Path) -> str:
    """What one training takes on such a GPU, by its longest rows; each GPU has a process of its own. Raises UsageError."""
    tokens = spec.max_length or min(_LONG_ROW, base.window or _LONG_ROW)
    one = Devices(1, devices.name)
    facts = foretold(
        spec, base, out, [(tokens, 1)], rows=1, learnt=spec.batch, held_out=0, overlong=0, pictures=1, limit=None, devices=one
    )
    hours = f"{facts.seconds / 3600:.1f} h" if facts.seconds is not None and spec.steps else "hours by the rows that are kept"
    memory = f"about {facts.memory / 1e9:.1f} of {one.memory / 1e9:.0f} GB of one {one.name}"
    return (
        f"a training with rows of {tokens:,} tokens: {memory}, {facts.disk_needed / 1e9:.1f} GB of disk, {hours}; "
        f"{devices.count} GPUs share the arms and seeds"
    )


def prepare(study: Study, out: Path) -> tuple[Rollouts, tuple[Evaluator, ...], dict[str, EpisodePlan]]:
    """Makes every part of a study that plays or judges, so that whatever is wrong is said before hours of play: what plays,
    the judge of each arm, and what each table would play. Nothing is written. Raises UsageError."""
    world = Rollouts(study)
    judges = check_parts(study)
    check_folder(study, out)
    plans = asyncio.run(world.check(out))
    if not all(plan.graded for plan in plans.values()):
        check_ungraded(study)
    return world, judges, plans


def plan_study(
    study: Study, out: Path, seeds: Sequence[int], plans: Mapping[str, EpisodePlan], judges: Sequence[Evaluator]
) -> RunPlan:
    """What the study would do; stages that are done are counted as they are planned."""
    attempts = [plan for name, plan in plans.items() if name != "evaluation"]
    evaluation = plans["evaluation"]
    lines = len(seeds) * len(study.arms)
    # Rounds after the first play what the policy itself plays, each arm and seed its own.
    own = [plan for plan, kind in zip(attempts, study.attempts, strict=True) if "policy" not in kind]
    later = lines * (study.rounds - 1)
    trainings = lines * study.rounds
    played = sum(plan.todo for plan in attempts) + later * sum(plan.episodes for plan in own)
    evaluated = evaluation.todo + trainings * evaluation.episodes
    base = sum(plan.episodes for plan in attempts)
    of_arms, of_evaluation = judges[: len(study.arms)], judges[len(study.arms) :]
    judged = [(judge, base + len(seeds) * (study.rounds - 1) * sum(plan.episodes for plan in own)) for judge in of_arms]
    judged += [(judge, (1 + trainings) * evaluation.episodes) for judge in of_evaluation]
    spec = study.training_of(0)
    steps = f"{spec.steps} steps" if spec.steps else f"{spec.epochs:g} epochs of what is kept"
    arms = listed([judge.info.name for judge in of_arms])
    usages = [
        *(plan.all_usage for plan in plans.values()),
        times(together(plan.usage for plan in own), later),
        times(evaluation.usage, trainings * evaluation.episodes),
        *(times(evaluation.recorded.judging(judge), count) for judge, count in judged),
    ]
    return RunPlan(
        work=(
            *(f"{name}: {plan.line()}" for name, plan in plans.items()),
            f"arms: {len(study.arms)}, judged by {arms}; at most {sum(count for _, count in judged)} verdicts",
            f"rounds: {study.rounds}; training seeds: {len(seeds)}",
            f"train {trainings} times from {spec.model} ({spec.method}), {steps} of {spec.batch} rows",
            f"in all: at most {played} attempts and {evaluated} episodes of evaluation",
            f"would be written to {out}",
        ),
        counts={
            "attempts": played,
            "evaluation": evaluated,
            "verdicts": sum(count for _, count in judged),
            "trainings": trainings,
        },
        usage=together(usages),
        most=True,
    )


class Rollouts:
    """Plays as `prill rollout` does: the tables of episodes hold its options, and any environment and policy will do.

    The policy has to be one that can be taught, and to have an option `adapter`, or to ask a model that has one (`local:DIR`,
    `vllm:MODEL`). Attempts may be another policy's (`policy = "scripted"`): then it learns from those, and no later round plays
    them again. Raises UsageError.
    """

    def __init__(self, study: Study) -> None:
        options = dict(study.policy)
        name = options.pop("name", None)
        if not isinstance(name, str) or not name:
            raise UsageError("policy.name is missing: name the policy")
        self._name = name
        maker = POLICIES.maker(self._name)
        own, model = options_of(maker), options.get("model")
        asked = set(model_options(model)) - own.keys() if asks_a_model(maker) else set()
        if "adapter" not in own and "adapter" not in asked:
            what = f"asks {model}, which takes no adapter" if asks_a_model(maker) and model else "has no option `adapter`"
            raise UsageError(
                f"the policy {self._name} {what}: it cannot play what was trained; a policy that asks a model can with "
                "local:DIR or vllm:MODEL"
            )
        self._options = options
        self._of_model = asked
        try:
            policy = make_policy(self._name, **options)
        except OptionError as error:
            raise UsageError(f"policy.{error}") from None
        if not isinstance(policy, Demonstrator):
            raise UsageError(f"the policy {self._name} cannot be taught: it has no demonstrate(trajectory, index)")
        self._teacher = policy
        if "policy" in study.evaluation or "policy" in study.episodes:
            raise UsageError("evaluation.policy: only attempts may be another policy's")
        if study.rounds > 1 and all("policy" in kind for kind in study.attempts):
            raise UsageError(
                "rounds: all attempts are another policy's, so a later round has nothing new to learn from; set it to 1, "
                "or add attempts of the policy itself"
            )
        self._tables = [*zip(_places(study), study.attempts, strict=True), ("evaluation", study.held_out)]
        for name, table in (("episodes", study.episodes), *self._tables):
            environment = {**study.episodes, **table}.get("environment")
            if not isinstance(environment, str):
                raise UsageError("episodes.environment is missing: name the environment")
            self._read(Path("-"), {**table, "environment": environment}, None, place=f"{name}.")
        self._study = study

    async def check(self, out: Path) -> dict[str, EpisodePlan]:
        """Makes what plays each kind of episodes, and plays none; what each table would play. Raises UsageError."""
        plans: dict[str, EpisodePlan] = {}
        for name, table in self._tables:
            folder = out / "base" / ("evaluation" if name == "evaluation" else "attempts")
            try:
                args = self._read(folder, {**self._study.episodes, **table}, None)
                args.dry_run = True
                plans[name] = await plan_episodes(args)
            except UsageError as error:
                raise UsageError(f"episodes and {name}: {error}") from None
        if not plans["evaluation"].graded and self._study.grader is None and not self._study.annotated:
            where = plans["evaluation"].environment
            raise UsageError(
                f"evaluation: nobody grades what is done in {where}, so there would be no figure at all; name a judge whose "
                "verdicts are to be the figures (judge = …), or say annotated = true and label the evaluations afterwards "
                "(prill annotate, then --tables-only)"
            )
        return plans

    def teacher(self) -> Demonstrator:
        """The policy without an adapter: what it asks does not hang on it."""
        return self._teacher

    def play(self, out: Path, episodes: Table, adapter: Path | None, earlier: int) -> None:
        """Records the episodes; those that broke off are played once more."""
        if earlier and "policy" in episodes:
            return  # it has learnt nothing since, and would do the same again
        recorded = play(self._arguments(out, episodes, adapter, earlier))
        if (recorded.broken or recorded.lost) and recorded.budget is None:
            recorded = play(self._arguments(out, episodes, adapter, earlier))
        if recorded.budget is not None:
            raise UsageError(f"{out}: {recorded.budget}", parameters=("budget_usd",))

    def _arguments(self, out: Path, episodes: Table, adapter: Path | None, earlier: int = 0) -> argparse.Namespace:
        """Those of `prill rollout`. Attempts are counted on from those of earlier rounds: each draws otherwise."""
        args = self._read(out, episodes, adapter)
        args.first_play = earlier * args.plays
        return args

    def _read(self, out: Path, episodes: Table, adapter: Path | None, *, place: str = "episodes.") -> argparse.Namespace:
        episodes = dict(episodes)
        environment, player = episodes.pop("environment"), episodes.pop("policy", None)
        policy = {**self._options, **({} if adapter is None else {"adapter": str(adapter.resolve())})}
        if not isinstance(player, str | None):
            raise UsageError(f"{place}policy: expected a text, got {player!r}")
        words = [environment, "--output", str(out), "--policy", player or self._name, "--retry-broken"]
        if player is not None:
            policy = {}
        elif odd := {"model", "serve"} & episodes.keys():
            raise UsageError(f"{place}{min(odd)}: the policy of a study has one model: name it under policy")
        if (model := policy.pop("model", None)) is not None:
            words += ["--model", str(model)]
        for key, value in policy.items():
            whose = "model" if key in self._of_model else "policy"
            words += ["--set", f"{whose}.{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return arguments(words, episodes, place=place)


def _places(study: Study) -> list[str]:
    """The tables of attempts as messages name them."""
    return ["attempts"] if len(study.attempts) == 1 else [f"attempts[{index}]" for index in range(len(study.attempts))]


@contextmanager
def _shown() -> Iterator[Audience]:
    """Stages in words, and a bar for what takes long, on standard error."""
    from prill.cli.showing import progress_bar
    from prill.refine.training.trainer import Progress
    from prill.refine.training.weights import silence_libraries

    bars: dict[str, tqdm[NoReturn]] = {}

    def bar_of(name: str, total: int | None) -> tqdm[NoReturn]:
        if name not in bars:
            close()
            bars[name] = progress_bar(total=total, desc=name, dynamic_ncols=True, file=sys.stderr, delay=0.5)
        return bars[name]

    def close() -> None:
        for bar in bars.values():
            bar.close()
        bars.clear()

    def say(words: str) -> None:
        close()
        print(words, file=sys.stderr)

    def judged(tally: Tally) -> None:
        bar = bar_of("judging", None)
        bar.update(tally.made + tally.skipped - bar.n)

    def read(phase: str, done: int, total: int) -> None:
        bar = bar_of(phase, total)
        bar.update(done - bar.n)

    def trained(now: Progress) -> None:
        bar = bar_of("training", now.steps)
        bar.set_postfix_str("" if now.loss is None else f"loss {now.loss:.3f}", refresh=False)
        bar.update(now.step - bar.n)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what goes wrong is an error
        silence_libraries()
        try:
            yield Audience(say, judged, read, trained)
        finally:
            close()

"""Filtered behavioural cloning: an agent learns from those of its attempts that a judge accepts."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.config.registry import OptionError, list_options, nearest
from prill.config.toml import parse_toml
from prill.config.values import config_options, get_name, merged, plain
from prill.emulators.settings import EnvironmentConfig
from prill.emulators.task_source import join_names, numbers
from prill.episodes.record import RecordTally
from prill.errors import UsageError
from prill.io.outputs import expect_file
from prill.io.tables import data_frame
from prill.models.options import BudgetOption
from prill.models.registry import asks_a_model, model_options
from prill.policies.registry import POLICIES, PolicyConfig, PolicyLike, make_policy
from prill.protocols import Demonstrator, Evaluator
from prill.refine.filtered_bc import (
    PLAYED,
    Audience,
    Study,
    Table,
    check_folder,
    check_parts,
    check_ungraded,
    run_study,
)
from prill.refine.results import BASE, BY_ROUND, STUDY, StudyResults, results_text, write_results
from prill.refine.training.preflight import Devices, check_settings, estimate_run, parse_devices
from prill.refine.training.spec import TrainSpec
from prill.refine.training.weights import Base, open_base
from prill.runs.base import asynchronous, run_budget, run_outside_loop
from prill.runs.plan import RunPlan, listed, times, total_usage
from prill.runs.rollout.episodes import EpisodePlan, RolloutSession, record_session
from prill.runs.rollout.run import RolloutConfig, rollout_session

log = logging.getLogger("prill.runs")
_LATER = (
    "{0} has no oracle, so there are no results until people have labelled each folder "
    "`evaluation` of the study (prill annotate FOLDER/trajectories.jsonl -o "
    "FOLDER/labels.jsonl, then the same study with tables_only)"
)
_AUDIENCE = Audience(say=log.info)
# tokens of a row for the memory estimate if the training has no limit: a page and a picture
_LONG_ROW = 4096
# Options of the whole study, which episode tables must not set.
_NOT_OF_EPISODES = frozenset({"output", "budget_usd", "model", "first_play"})


@dataclass(frozen=True, kw_only=True)
class FilteredBCConfig(Study):
    """Configuration of `prill refine filtered-bc`: play, judge, filter, train, and evaluate on
    held-out tasks, in rounds.

    The tables of episodes have the fields of a rollout and of its environment.
    """

    policy: Annotated[PolicyLike, Meta(description="Policy to improve.")]
    output: Annotated[
        str | Path, Meta(description="Output folder. An interrupted study resumes there.")
    ]
    seeds: Annotated[
        int | str | Sequence[int],
        Meta(description="Training seeds. Each seed is a study of its own."),
    ] = "0"
    budget_usd: BudgetOption = None
    tables_only: Annotated[
        bool, Meta(description="Only write tables of the results so far, without training.")
    ] = False
    gpus: Annotated[
        str | None,
        Meta(description="Estimate for these GPUs, for example 8xH200, instead of this machine's."),
    ] = None

    def check(self) -> None:
        """Validates every table.

        Raises:
            UsageError: A table is invalid; the message names its key.
        """
        super().check()
        object.__setattr__(self, "seeds", join_names(self.seeds))
        self.training_seeds()

    def training_seeds(self) -> list[int]:
        """Returns the training seeds, in order.

        Raises:
            UsageError: A seed is neither a number nor a range.
        """
        return numbers(str(self.seeds), "seeds")


@dataclass(frozen=True)
class FilteredBCResult:
    """Result of a study.

    Args:
        results: Success rates with intervals, comparisons of arms, precision and recall of each
            judge, and successes by task.
        output: The folder with everything that was recorded, judged and trained.
    """

    results: StudyResults
    output: str

    @property
    def all_learnt(self) -> bool:
        """Returns whether every arm had training rows."""
        return not any(judge["ended"] for judge in self.results.judges)

    def to_pandas(self) -> Any:
        """Returns a row for each arm, training seed and round: successes of n, with their
        interval.
        """
        names = ("arm", "seed", "round", "successes", "n", "unlabelled")
        rows = [
            {
                **{name: getattr(score, name) for name in names},
                "low": score.interval[0],
                "high": score.interval[1],
            }
            for score in self.results.scores
        ]
        return data_frame(rows)

    def __str__(self) -> str:
        return results_text(self.results)

    def _repr_html_(self) -> str:
        return (Path(self.output) / BY_ROUND).read_text(encoding="utf-8")


def filtered_bc(config: FilteredBCConfig, *, audience: Audience = _AUDIENCE) -> FilteredBCResult:
    """Runs a study of filtered behavioural cloning; the same call resumes one that was stopped.

    Several processes may run the same study at the same time: each skips the work that another one
    is doing.

    Args:
        config: The episodes, the policy, the judges and filters to compare, and the training.
        audience: Receives progress reports.

    Returns:
        The results of everything that is finished; the folder holds tables and charts.

    Raises:
        UsageError: The configuration is invalid, or the folder holds another study.
        EndpointError: The model's endpoint accepts no call.
        EnvironmentFailedError: The environment cannot start an episode.
    """
    return run_outside_loop(lambda: _filtered_bc(config, audience))


filtered_bc_async = asynchronous(filtered_bc)
"""Runs `filtered_bc` in a thread, with the same parameters, for programs with an event loop."""


def _filtered_bc(config: FilteredBCConfig, audience: Audience) -> FilteredBCResult:
    expect_file(config.output, "a study")
    if config.gpus:
        raise UsageError(
            "gpus: only with a dry run; a study uses the GPUs that it finds", parameters=("gpus",)
        )
    out = Path(config.output)
    if not config.tables_only:
        with run_budget(config.budget_usd, folder=out):
            world, _, _ = prepare(config, out)
            _base(config.make_training(0))
            run_study(config, world, out, config.training_seeds(), audience)
    elif not (out / STUDY).is_file():
        raise UsageError(f"{out}: contains no study yet")
    elif not (out / BASE / "evaluation" / PLAYED).is_file():
        raise UsageError(
            f"{out}: the evaluation of the untrained policy is not finished; tables need it"
        )
    return FilteredBCResult(write_results(out), str(out))


def plan_filtered_bc(config: FilteredBCConfig) -> RunPlan:
    """Plans a study: makes every part, but plays, calls and writes nothing.

    Args:
        config: The study; its `gpus` are the GPUs to plan for.

    Returns:
        The most the study would do, with calls and cost where they are known.

    Raises:
        UsageError: The configuration is invalid.
    """
    return run_outside_loop(lambda: _plan(config))


def _plan(config: FilteredBCConfig) -> RunPlan:
    expect_file(config.output, "a study")
    if config.tables_only:
        raise UsageError("tables_only: not available in a dry run", parameters=("tables_only",))
    out, spec = Path(config.output), config.make_training(0)
    with run_budget(config.budget_usd, folder=out, planned=True):
        _, judges, plans = prepare(config, out)
        base, devices = _base(spec), parse_devices(config.gpus) if config.gpus else None
        more = (_training_on(devices, spec, base, out),) if base and devices else ()
        plan = plan_study(config, out, config.training_seeds(), plans, judges)
    return replace(plan, work=(*plan.work, *more))


def _base(spec: TrainSpec) -> Base | None:
    """Returns the base model to train.

    The result is None for the embedded model, because reading its size would require unpacking the
    weights. Raises UsageError.
    """
    try:
        check_settings(spec)
        return None if spec.model == "embedded" else open_base(spec)
    except UsageError as error:
        raise UsageError(f"training: {error}", parameters=error.parameters) from None


def _training_on(devices: Devices, spec: TrainSpec, base: Base, out: Path) -> str:
    """Returns a line with the memory, disk and time that one training needs, estimated from its
    longest rows.

    Each GPU runs a process of its own. Raises UsageError.
    """
    tokens = spec.max_length or min(_LONG_ROW, base.window or _LONG_ROW)
    one = Devices(1, devices.name)
    facts = estimate_run(
        spec,
        base,
        out,
        [(tokens, 1)],
        rows=1,
        learnt=spec.batch,
        held_out=0,
        overlong=0,
        pictures=1,
        limit=None,
        devices=one,
    )
    hours = (
        f"{facts.seconds / 3600:.1f} h"
        if facts.seconds is not None and spec.steps
        else "a duration that depends on the number of kept rows"
    )
    memory = f"about {facts.memory / 1e9:.1f} of {one.memory / 1e9:.0f} GB of one {one.name}"
    return (
        f"one training with rows of {tokens:,} tokens: {memory}, "
        f"{facts.disk_needed / 1000000000.0:.1f} GB of disk, {hours}; arms and seeds share "
        f"{devices.count} GPUs"
    )


def prepare(
    study: Study, out: Path
) -> tuple[Rollouts, tuple[Evaluator, ...], dict[str, EpisodePlan]]:
    """Makes every part of a study that plays or judges, so that errors appear before any episode.

    Returns the episode player, the judge of each arm, and the plan of each episode table; nothing
    is written to the study's folder. Raises UsageError that names the key of a part that cannot be
    made.
    """
    world = Rollouts(study)
    judges = check_parts(study)
    check_folder(study, out)
    plans = asyncio.run(world.check(out))
    if not all(plan.graded for plan in plans.values()):
        check_ungraded(study)
    if study.annotated:
        log.warning(_LATER.format(plans["evaluation"].environment))
    return world, judges, plans


def plan_study(
    study: Study,
    out: Path,
    seeds: Sequence[int],
    plans: Mapping[str, EpisodePlan],
    judges: Sequence[Evaluator],
) -> RunPlan:
    """Plans the study, including finished stages."""
    attempts = [plan for name, plan in plans.items() if name != "evaluation"]
    evaluation = plans["evaluation"]
    lines = len(seeds) * len(study.arms)
    # Rounds after the first play the trained policy, separately for each arm and seed.
    own = [
        plan
        for plan, kind in zip(attempts, study.kinds, strict=True)
        if not _uses_other_policy(study, kind)
    ]
    later = lines * (study.rounds - 1)
    trainings = lines * study.rounds
    played = sum(plan.todo for plan in attempts) + later * sum(plan.episodes for plan in own)
    evaluated = evaluation.todo + trainings * evaluation.episodes
    base = sum(plan.episodes for plan in attempts)
    of_arms, of_evaluation = judges[: len(study.arms)], judges[len(study.arms) :]
    judged = [
        (judge, base + len(seeds) * (study.rounds - 1) * sum(plan.episodes for plan in own))
        for judge in of_arms
    ]
    judged += [(judge, (1 + trainings) * evaluation.episodes) for judge in of_evaluation]
    spec = study.make_training(0)
    steps = f"{spec.steps} steps" if spec.steps else f"{spec.epochs:g} epochs over the kept rows"
    arms = listed([judge.info.name for judge in of_arms])
    usages = [
        *(plan.all_usage for plan in plans.values()),
        times(total_usage(plan.usage for plan in own), later),
        times(evaluation.usage, trainings * evaluation.episodes),
        *(times(evaluation.recorded.judging(judge), count) for judge, count in judged),
    ]
    return RunPlan(
        work=(
            *(f"{name}: {plan.line()}" for name, plan in plans.items()),
            f"arms: {len(study.arms)}, judged by {arms}; at most "
            f"{sum(count for _, count in judged)} verdicts",
            f"rounds: {study.rounds}; training seeds: {len(seeds)}",
            f"train {trainings} times from {spec.model} ({spec.method}), {steps} of {spec.batch} "
            "rows",
            f"in total: at most {played} attempts and {evaluated} evaluation episodes",
            f"would be written to {out}",
        ),
        counts={
            "attempts": played,
            "evaluation": evaluated,
            "verdicts": sum(count for _, count in judged),
            "trainings": trainings,
        },
        usage=total_usage(usages),
        most=True,
    )


class Rollouts:
    """Plays episodes as `prill rollout` does, in any environment and with any policy.

    The policy must support `demonstrate` and have an option `adapter`, or use a model that has one
    (`local:DIR`, `vllm:MODEL`). Attempts may be another policy's (`policy = "scripted"`): the
    policy then learns from those, and later rounds do not replay them.

    Args:
        study: The study, whose tables are validated.

    Raises:
        UsageError: A table or the policy is invalid.
    """

    def __init__(self, study: Study) -> None:
        self._study = study
        self._taught = PolicyConfig.read(study.policy, "policy")
        self._expect_adapters()
        try:
            teacher = make_policy(self._taught)
        except OptionError as error:
            raise OptionError(f"policy.{error}", error.option) from None
        if not isinstance(teacher, Demonstrator):
            raise UsageError(
                f"policy: {self._taught.name} cannot be trained: it has no "
                "demonstrate(trajectory, index)"
            )
        self._teacher = teacher
        for name in ("evaluation", "episodes"):
            if _uses_other_policy(study, getattr(study, name)):
                raise UsageError(f"{name}.policy: only attempts may use another policy")
        if study.rounds > 1 and all(_uses_other_policy(study, kind) for kind in study.kinds):
            raise UsageError(
                "rounds: all attempts are made by another policy, so later rounds have "
                "nothing new to learn from; set rounds to 1, or add attempts of the policy "
                "itself"
            )
        keys = (
            ["attempts"]
            if len(study.kinds) == 1
            else [f"attempts[{index}]" for index in range(len(study.kinds))]
        )
        self._tables = [*zip(keys, study.kinds, strict=True), ("evaluation", study.held_out)]
        for name, table in (("episodes", study.episodes), *self._tables):
            environment = {**study.episodes, **table}.get("environment")
            if not isinstance(get_name(plain(environment)), str):
                raise UsageError("episodes.environment is missing; name the environment")
            self._read(Path("-"), merged({"environment": environment}, table), place=name)

    def _expect_adapters(self) -> None:
        name, model = self._taught.name, self._taught.options.get("model")
        maker = POLICIES.maker(name)
        own = list_options(maker)
        model_names = set(model_options(model)) - own.keys() if asks_a_model(maker) else set()
        if "adapter" not in own and "adapter" not in model_names:
            what = (
                f"calls {get_name(model)}, which cannot load an adapter"
                if asks_a_model(maker) and model
                else "has no option `adapter`"
            )
            raise UsageError(
                f"policy: {name} {what}, so it cannot play the trained model; use a policy "
                "that calls a model, with local:DIR or vllm:MODEL"
            )

    async def check(self, out: Path) -> dict[str, EpisodePlan]:
        """Plans each table of episodes; makes every part and plays nothing.

        Args:
            out: The folder of the study.

        Raises:
            UsageError: A table is invalid, or the evaluation has neither oracle, judge nor
                annotators.
        """
        plans: dict[str, EpisodePlan] = {}
        for name, table in self._tables:
            folder = out / "base" / ("evaluation" if name == "evaluation" else "attempts")
            try:
                episodes = self.episodes(folder, merged(self._study.episodes, table))
                async with episodes.session(planned=True) as made:
                    plans[name] = EpisodePlan.of(made)
            except UsageError as error:
                raise UsageError(f"episodes and {name}: {error}") from None
        if (
            not plans["evaluation"].graded
            and self._study.grader is None
            and not self._study.annotated
        ):
            where = plans["evaluation"].environment
            raise UsageError(
                f"evaluation: {where} has no oracle, so there would be no results; either "
                "name a judge (judge = …), or set annotated = true and label the "
                "evaluations afterwards (prill annotate, then the same study with "
                "tables_only)"
            )
        return plans

    def teacher(self) -> Demonstrator:
        """Returns the policy without an adapter, which does not affect its prompts."""
        return self._teacher

    def play(self, out: Path, episodes: Table, adapter: Path | None, earlier: int) -> None:
        """Records the episodes in a folder; those that ended with an error are played once more.

        `adapter`: as for `episodes`.
        """
        if earlier and _uses_other_policy(self._study, episodes):
            return  # nothing was trained since: the episodes would be the same
        kind = self.episodes(out, episodes, adapter, earlier)
        recorded = asyncio.run(kind.record())
        if (recorded.broken or recorded.lost) and recorded.budget is None:
            recorded = asyncio.run(kind.record())
        if recorded.budget is not None:
            raise UsageError(f"{out}: {recorded.budget}", parameters=("budget_usd",))

    def episodes(
        self, out: Path, episodes: Table, adapter: Path | None = None, earlier: int = 0
    ) -> Episodes:
        """Makes the rollout of a table.

        Attempt numbers continue from earlier rounds, so that sampling differs.

        Args:
            out: The output folder.
            episodes: The table of episodes.
            adapter: The trained adapter; None: the untrained policy.
            earlier: The number of earlier rounds that played this table for training data.

        Raises:
            UsageError: The table has an invalid key or value.
        """
        return self._read(out, episodes, adapter, earlier)

    def _read(
        self,
        out: Path,
        episodes: Table,
        adapter: Path | None = None,
        earlier: int = 0,
        place: str = "episodes",
    ) -> Episodes:
        table, player, environment = _parted(episodes, place)
        texts: dict[str, Any] = {}
        if not _uses_other_policy(self._study, episodes):
            options = {**self._taught.options, **player}
            own = list_options(POLICIES.maker(self._taught.name))
            texts = {
                key if key in own else f"model.{key}": _text(options[key])
                for key in options
                if key not in ("model", "name")
            }
            more = {} if adapter is None else {"adapter": str(adapter.resolve())}
            player = {**_values(options), "name": self._taught.name, **more}
        where = {
            key: _text(value)
            for key, value in environment.items()
            if isinstance(value, _OptionText)
        }
        given = {
            **table,
            "environment": _values(environment),
            "policy": player,
            "output": str(out),
            "retry_broken": True,
        }
        try:
            config = RolloutConfig.read(given, place)
        except UsageError as error:
            raise (
                error if str(error).startswith(place) else UsageError(f"{place}: {error}")
            ) from None
        return Episodes(
            config.copy_with(first_play=earlier * config.attempts) if earlier else config,
            texts,
            where,
        )


@dataclass(frozen=True)
class Episodes:
    """A rollout of a study.

    Args:
        config: The rollout.
        policy: The policy options that the study sets, as text, because episode ids contain them as
            text.
        environment: The environment options that are set by `set`.
    """

    config: RolloutConfig
    policy: Mapping[str, Any]
    environment: Mapping[str, Any]

    @asynccontextmanager
    async def session(self, *, planned: bool = False) -> AsyncIterator[RolloutSession]:
        """Prepares the episodes. Raises UsageError."""
        async with rollout_session(self.config, planned=planned) as made:
            where, policy = (dict(part) for part in (made.run[1], made.run[4]))  # type: ignore[call-overload]
            run = [
                made.run[0],
                {**where, **self.environment},
                *made.run[2:4],
                {**policy, **self.policy},
                *made.run[5:],
            ]
            yield replace(made, run=run)

    async def record(self) -> RecordTally:
        """Plays the episodes that are not recorded yet.

        Raises UsageError, EndpointError, EnvironmentFailedError.
        """
        async with self.session() as made:
            return await record_session(made)


class _OptionText(str):
    """An option value from `set` in an older file: text that the option's type parses."""

    __slots__ = ()


def _uses_other_policy(study: Study, table: Table) -> bool:
    """Returns whether episodes are played by a policy other than the one that is trained."""
    player = get_name(plain(table.get("policy")))
    return player is not None and player != study.taught.get("name")


def _parted(episodes: Table, place: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Splits a table of episodes into rollout options, policy options and environment options.
    Raises OptionError.
    """
    table = {str(key).replace("-", "_"): value for key, value in plain(episodes).items()}
    environment, policy = (
        _described(table.pop(name, None), f"{place}.{name}") for name in ("environment", "policy")
    )
    names, fields = (
        EnvironmentConfig.options_named(environment["name"]),
        config_options(RolloutConfig),
    )
    settings = table.pop("set", ())
    for setting in settings if isinstance(settings, list | tuple) else [settings]:
        _set(setting, names, environment, policy, f"{place}.set")
    for key in list(table):
        if key in names and key not in fields:
            environment[key] = table.pop(key)
        elif key == "model":
            raise OptionError(
                f"{place}.model: all episodes of a study use one model; name it under policy", key
            )
        elif key not in fields or key in _NOT_OF_EPISODES:
            known = sorted({*names, *fields} - _NOT_OF_EPISODES)
            raise OptionError(
                f"{place}.{key}: unknown option{nearest(key, known)}; expected one of "
                f"{', '.join(known)}",
                key,
            )
    return table, policy, environment


def _described(part: Any, place: str) -> dict[str, Any]:
    if not isinstance(part, str | Mapping | None):
        raise OptionError(f"{place}: expected a name or a table, got {part!r}", place)
    return {} if part is None else {"name": part} if isinstance(part, str) else dict(part)


def _set(
    setting: Any,
    names: Mapping[str, object],
    environment: dict[str, Any],
    policy: dict[str, Any],
    place: str,
) -> None:
    """Applies a KEY=VALUE entry of an older file to its table. Raises OptionError."""
    name, equals, value = str(setting).partition("=")
    if not equals:
        raise OptionError(f"{place}: expected KEY=VALUE, got {setting!r}", "set")
    kind, _, key = name.strip().replace("-", "_").rpartition(".")
    if kind not in ("", "policy", "environment", "model"):
        raise OptionError(
            f"{place}: {name}: expected policy.KEY, environment.KEY or model.KEY", "set"
        )
    of_environment = kind == "environment" or (not kind and key in names)
    (environment if of_environment else policy)[key] = _OptionText(value)


def _values(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _parsed(value) if isinstance(value, _OptionText) else value
        for key, value in options.items()
    }


def _parsed(text: str) -> Any:
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return str(text)


def _text(value: Any) -> Any:
    """Returns an option as text, the form that a study's episode ids contain.

    An option given by `set` keeps its original text.
    """
    if isinstance(value, list | dict):
        return value
    return (
        json.dumps(value)
        if not isinstance(value, str)
        else _parsed(value)
        if value[:1] in ("[", "{")
        else str(value)
    )

"""Prepares a rollout: environments, policy and episodes."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from prill.actions.early_stop import EarlyStop
from prill.config.values import Config, config_options
from prill.emulators.settings import (
    EnvironmentConfig,
    EnvironmentLike,
    Playing,
    Setting,
    as_text,
)
from prill.emulators.task_source import fingerprint, join_names, numbers
from prill.episodes.cases import Case, cases, read_plan
from prill.episodes.policies import PolicyPlan, plan_policy, shared_model
from prill.episodes.record import Episode, Pool, RecordTally, record
from prill.errors import UsageError
from prill.models.budget import run_budget
from prill.models.devices import used_together
from prill.models.options import BudgetOption
from prill.models.registry import ModelLike
from prill.plans import EarlierAttempts, RunPlan, recorded_in, times
from prill.policies.registry import (
    POLICIES,
    PolicyLike,
)
from prill.policies.scripted.policy import BEHAVIOURS, Behaviour
from prill.types import TEMPLATE, Usage

PolicyOption = Annotated[
    PolicyLike | None,
    Meta(
        description="Policy of the agent: a name, module:Object or file.py:Object (rollout's "
        "default in miniwob: scripted)."
    ),
]
_MAX_WORKERS = 1000  # environments in one process; more exhaust memory or file descriptors


@dataclass(frozen=True, kw_only=True)
class EpisodesConfig(Config):
    """The episodes to play: environment, tasks, seeds and limits."""

    environment: Annotated[
        EnvironmentLike,
        Meta(
            description="Environment, with its tasks and options: a name, module:Object or "
            "file.py:Object."
        ),
    ]
    model: Annotated[
        ModelLike | None,
        Meta(description="Model that the policy calls, unless the policy's options name another."),
    ] = None
    seeds: Annotated[
        int | str | Sequence[int] | None,
        Meta(
            description="Seeds of each task, if it has any, for example 0-4,7 (default: 0, or "
            "the paper's in a bench)."
        ),
    ] = None
    limit: Annotated[int | None, Meta(ge=1, description="Run only the first N episodes.")] = None
    workers: Annotated[
        int | None, Meta(ge=1, description="Concurrent episodes (default: 1, or one per device).")
    ] = None
    max_steps: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Maximum number of actions per episode (default: from the agent's "
            "paper, else the environment's).",
        ),
    ] = None
    episode_timeout: Annotated[
        float, Meta(gt=0, description="Maximum duration of an episode, in seconds.")
    ] = 600.0
    early_stop: Annotated[
        bool | None,
        Meta(
            description="Stop an agent that repeats itself (default: yes, except for "
            "agents of papers that have no such rule)."
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Meta(
            ge=0,
            le=5,
            description="Sampling temperature; seed and attempt vary the samples (default: 0; "
            "for `step` 0.3).",
        ),
    ] = None
    retry_broken: Annotated[bool, Meta(description="Repeat episodes that ended with an error.")] = (
        False
    )
    budget_usd: BudgetOption = None

    def check(self) -> None:
        """Normalises the seeds to one text."""
        if self.seeds is not None:
            object.__setattr__(self, "seeds", join_names(self.seeds))
        _ = self.seed_numbers

    @property
    def seed_numbers(self) -> list[int]:
        """Returns the seeds. Raises UsageError for a text that is not of numbers."""
        return numbers(str(self.seeds or "0"), "seeds")

    @property
    def place(self) -> EnvironmentConfig:
        """Returns the environment's configuration."""
        return cast(EnvironmentConfig, self.environment)


@dataclass(frozen=True)
class RolloutSession:
    """The environment, policy and episodes of a configuration.

    Args:
        config: The configuration.
        output: The folder of the run.
        environment: The environment's name.
        setting: The environments with their tasks and oracle.
        pool: The pool from which episodes borrow environments.
        plan: The policy.
        rows: The episodes.
        early_stop: The rule that stops an agent that repeats itself; None: no rule.
        max_steps: The maximum number of actions per episode.
        settings: The values in force of settings that the agent's paper specifies, and the episode
            limits.
        run: A key that distinguishes this run from others in the same folder; it is part of episode
            ids.
    """

    config: EpisodesConfig
    output: Path
    environment: str
    setting: Setting[Any]
    pool: Pool[Any]
    plan: PolicyPlan
    rows: Sequence[Case]
    early_stop: EarlyStop | None
    max_steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    run: Sequence[object] = field(default=())

    def id(self, row: Case) -> str:
        """Returns the id of an episode.

        Returns:
            The id: the same for the same case under the same settings.
        """
        return row.id(
            self.environment, fingerprint([*self.run, self.setting.contents.get(row.task)])
        )

    def model(self, other: ModelLike | None = None) -> Any:
        """Makes a model with the run's settings.

        Args:
            other: A model's name, description or instance; None: the run's own model.

        Raises:
            UsageError: No model is named, or an option is not an option of the model.
        """
        return shared_model(self.config.model, other, _calls(self.config))


@asynccontextmanager
async def session(
    config: EpisodesConfig,
    output: str | Path,
    *,
    policy: PolicyLike | None = None,
    attempts: int = 1,
    first_play: int = 0,
    plan: str | Path | None = None,
    behaviour: str | None = None,
    planned: bool = False,
) -> AsyncIterator[RolloutSession]:
    """Context manager that makes the parts of a configuration and closes them; all models share one
    budget.

    Args:
        config: The episodes.
        output: The run folder, for screenshots and the amount spent.
        policy: The policy. None: the environment's usual one.
        attempts: The number of attempts at each task and seed.
        first_play: The number of the first attempt.
        plan: A file that lists the episodes of the scripted policy, instead of tasks and seeds.
        behaviour: The scripted policy's behaviours, separated by commas.
        planned: Whether this is a dry run, which plays nothing and writes no file.

    Returns:
        The session, open while the block runs.

    Raises:
        UsageError: The configuration is invalid.
    """
    with run_budget(config.budget_usd, folder=output, planned=planned):
        environment, workers = config.place, config.workers or 1
        policy = environment.usual_policy if policy is None else policy
        if workers > _MAX_WORKERS:
            raise UsageError(
                f"workers {workers}: too many, because each needs an environment of its "
                f"own; use at most {_MAX_WORKERS}",
                parameters=("workers",),
            )
        if policy is None:
            names = ", ".join(POLICIES.names())
            raise UsageError(
                f"policy is missing; choose from {names}, or give a policy of your own",
                parameters=("policy",),
            )
        behaviours = tuple(part.strip() for part in (behaviour or "").split(",") if part.strip())
        with used_together():  # an oracle may call a model while other episodes are played
            who = plan_policy(
                policy,
                environment,
                model=config.model,
                temperature=config.temperature,
                workers=workers,
                concurrency=_calls(config),
                behaviours=behaviours,
            )
            listed = _listed_cases(plan, who)
            environment = _as_usual(environment, who.usual)
            setting = environment.setting(
                Playing(
                    images=Path(output) / "images",
                    workers=config.workers,
                    seeds=config.seed_numbers,
                    attempts=attempts,
                    scripted=who.name == "scripted",
                    listed=listed is not None,
                    published=who.published,
                    page_text=who.page_text,
                    marking=who.marking,
                    model=lambda other: shared_model(config.model, other, _calls(config)),
                )
            )
        pool = Pool(setting.environments, patience=setting.patience)
        max_steps = config.max_steps or who.usual.get("max_steps") or environment.usual_steps
        wanted = (
            who.usual.get("early_stop", True) if config.early_stop is None else config.early_stop
        )
        stops = environment.stops_early and wanted and who.name not in ("scripted", "replay")
        early_stop = EarlyStop() if stops else None
        try:
            plays = range(first_play, first_play + attempts)
            rows = (
                listed
                if listed is not None
                else _cases(config, who, setting.tasks, plays, behaviours)
            )
            run = [
                environment.name,
                setting.fingerprint,
                who.name,
                who.agent,
                who.fingerprint,
                max_steps,
                early_stop,
            ]
            yield RolloutSession(
                config,
                Path(output),
                environment.name,
                setting,
                pool,
                who,
                rows[: config.limit],
                early_stop,
                max_steps,
                _in_force(
                    environment,
                    who.usual,
                    {"max_steps": max_steps, "early_stop": early_stop is not None},
                ),
                run,
            )
        finally:
            try:
                await pool.close()
            finally:
                await setting.close()


def _as_usual(environment: EnvironmentConfig, usual: Mapping[str, Any]) -> EnvironmentConfig:
    """Returns the environment with its paper's settings where the configuration sets none."""
    own = config_options(type(environment))
    open_ones = {
        key: value
        for key, value in usual.items()
        if key in own and getattr(environment, key) is None
    }
    return environment.copy_with(**open_ones) if open_ones else environment


def _in_force(
    environment: EnvironmentConfig, usual: Mapping[str, Any], limits: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the values in force of the settings that a paper specifies, as text or as raw
    values.
    """
    own = config_options(type(environment))
    in_force = {
        key: getattr(environment, key) if key in own else value
        for key, value in usual.items()
        if key not in limits
    }
    return {**limits, **in_force}


def _calls(config: EpisodesConfig) -> int:
    # an episode requests one action at a time, so this never limits devices
    return max(config.workers or 1, 16)


def _listed_cases(plan: str | Path | None, who: PolicyPlan) -> tuple[Case, ...] | None:
    """Returns the episodes of a plan file; empty without one."""
    if plan is None:
        return None
    if who.name != "scripted":
        raise UsageError(
            "plan: lists episodes of the scripted policy; use the policy `scripted`",
            parameters=("plan", "policy"),
        )
    return read_plan(plan)


def _cases(
    config: EpisodesConfig,
    who: PolicyPlan,
    tasks: Sequence[str],
    plays: Sequence[int],
    names: tuple[str, ...],
) -> tuple[Case, ...]:
    behaviours: Sequence[Behaviour | None] = (None,)
    if who.name == "scripted":
        try:
            behaviours = msgspec.convert(names or ("solve",), list[Behaviour])
        except msgspec.ValidationError:
            raise UsageError(
                f"behaviour {','.join(names)!r}: expected {', '.join(BEHAVIOURS)}",
                parameters=("behaviour",),
            ) from None
    elif names:
        raise UsageError(
            "behaviour: only for the policy `scripted`", parameters=("behaviour", "policy")
        )
    able = [task for task in tasks if who.plays is None or task in who.plays]
    if len(able) < len(tasks) and getattr(config.place, "tasks", None) != "all":
        missing = ", ".join(task for task in tasks if task not in able)
        raise UsageError(
            f"policy {who.name} cannot play {missing}; it can play "
            f"{', '.join(sorted(who.plays or ()))}"
        )
    return cases(able, config.seed_numbers, plays, behaviours)


@dataclass(frozen=True, kw_only=True)
class EpisodePlan:
    """The episodes of a session, as far as they are known before they are played.

    Args:
        episodes: The number of episodes.
        tasks: The number of tasks.
        done: The number of episodes already recorded.
        attempts: The maximum number of attempts per episode.
        agent: The agent's name.
        environment: The environment's name.
        max_steps: The maximum number of actions per episode.
        timeout: The maximum seconds per episode.
        workers: The number of concurrent episodes.
        usage: The model usage of an episode; None: unknown.
        recorded: The attempts recorded in the folder.
        graded: Whether the environment has an oracle.
        settings: The settings of the agent's paper that are in force.
    """

    episodes: int
    tasks: int
    done: int
    attempts: int
    agent: str
    environment: str
    max_steps: int
    timeout: float
    workers: int
    usage: Usage | None
    recorded: EarlierAttempts
    graded: bool
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, made: RolloutSession, attempts: int = 1) -> EpisodePlan:
        """Returns the plan of a session.

        Args:
            made: The session.
            attempts: The maximum number of attempts per episode.

        Raises:
            UsageError: The folder holds something else.
        """
        recorded = recorded_in(made.output)
        there = recorded.ids - (recorded.broken if made.config.retry_broken else frozenset())
        return cls(
            episodes=len(made.rows),
            tasks=len({row.task for row in made.rows}),
            done=sum(made.id(row) in there for row in made.rows),
            attempts=attempts,
            agent=made.plan.agent,
            environment=made.environment,
            max_steps=made.max_steps,
            timeout=made.config.episode_timeout,
            workers=made.pool.size,
            usage=recorded.usage if made.plan.asks_model else Usage(),
            recorded=recorded,
            graded=made.setting.oracle is not None,
            settings=made.settings if made.plan.usual else {},
        )

    @property
    def todo(self) -> int:
        """Returns the maximum number of episodes left to play."""
        return self.episodes * self.attempts - self.done

    @property
    def all_usage(self) -> Usage | None:
        """Returns the total model usage."""
        return times(self.usage, self.todo)

    @property
    def most_seconds(self) -> float:
        """Returns the longest possible duration in seconds, by the time limit of an episode."""
        return math.ceil(self.todo / self.workers) * self.timeout

    def line(self) -> str:
        """Returns the plan as one line."""
        often = f", up to {self.attempts} times each" if self.attempts > 1 else ""
        done = f", {self.done} done" if self.done else ""
        what = f"{self.episodes} episodes of {self.tasks} tasks{often}{done}"
        usual = {key: value for key, value in self.settings.items() if key != "max_steps"}
        shown = f", {settings_text(usual)}" if usual else ""
        return (
            f"play {what}, in {self.environment} by {self.agent}; at most {self.max_steps} "
            f"actions each{shown}"
        )

    def run_plan(self) -> RunPlan:
        """Returns the plan of a run that only plays these episodes."""
        counts = {
            "episodes": self.episodes,
            "tasks": self.tasks,
            "done": self.done,
            "max_steps": self.max_steps,
        }
        return RunPlan(
            work=(self.line(),),
            counts=counts,
            usage=self.all_usage,
            most_seconds=self.most_seconds,
        )


def settings_text(settings: Mapping[str, Any]) -> str:
    """Formats settings as text: `early_stop off, viewport 1920x1080`."""
    return ", ".join(
        f"{key} {('on' if value else 'off') if isinstance(value, bool) else as_text(value)}"
        for key, value in settings.items()
    )


async def record_session(
    made: RolloutSession,
    *,
    progress: Callable[[RecordTally], None] = lambda recorded: None,
) -> RecordTally:
    """Plays and records the episodes of a session.

    Args:
        made: The session, which stays open.
        progress: Called after every episode.
    """
    return await record(
        made.pool,
        _episodes(made),
        made.output,
        oracle=made.setting.oracle,
        max_steps=made.max_steps,
        timeout=made.config.episode_timeout,
        early_stop=made.early_stop,
        retry_broken=made.config.retry_broken,
        progress=progress,
    )


def _episodes(made: RolloutSession) -> list[Episode[Any]]:
    return [
        Episode(
            id=made.id(row),
            task=partial(made.setting.task, name=row.task, seed=row.seed),
            policy=partial(made.plan.make, row),
            agent=made.plan.agent,
            # The script's behaviour is recorded with the label only.
            note=row.behaviour,
            metadata={}
            if row.behaviour
            else {"seed": row.seed, "attempt": row.attempt, **template_from_case(made, row)},
            needs=made.setting.needs.get(row.task, frozenset()),
        )
        for row in made.rows
    ]


def template_from_case(made: RolloutSession, row: Case) -> dict[str, int]:
    """Returns the template of the task, if the benchmark has templates (WebArena)."""
    number = made.setting.templates.get(row.task)
    return {} if number is None else {TEMPLATE: number}

"""What plays the episodes of a study: what `prill rollout` can play, or a world of the user's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from prill.config.registry import OptionError, list_options, nearest
from prill.config.values import config_options, get_name, merged
from prill.emulators.settings import EnvironmentConfig
from prill.episodes.episodes import EpisodePlan, record_session
from prill.episodes.record import RecordTally
from prill.episodes.run import RolloutConfig, rollout_session
from prill.errors import UsageError
from prill.models.registry import asks_a_model, model_options
from prill.policies.registry import POLICIES, PolicyConfig, make_policy
from prill.protocols import Demonstrator
from prill.refine.demonstration import Teacher

Table = Mapping[str, Any]
# Options of the whole study, which episode tables must not set.
_NOT_OF_EPISODES = frozenset({"output", "budget_usd", "model"})


class StudyEnvironment(Protocol):
    """The environment of a study: plays episodes and supplies the policy to train."""

    def play(self, out: Path, episodes: Table, adapter: Path | None, earlier: int) -> None:
        """Plays episodes with the adapter and records them into a folder
        (`prill.episodes.run_folder`). Resumes an unfinished recording.

        `earlier` is the number of rounds that already played these episodes for training; it
        changes what is sampled at random.
        """
        ...

    def teacher(self) -> Teacher:
        """Returns the policy as a builder of training examples."""
        ...


class Rollouts:
    """Plays episodes as `prill rollout` does, in any environment and with any policy.

    The policy must support `demonstrate` and have an option `adapter`, or use a model that has one
    (`local:MODEL`, `vllm:MODEL`). Attempts may be another policy's (`policy = "scripted"`): the
    policy then learns from those, and later rounds do not replay them.

    Args:
        policy: The policy to train.
        shared: The table of all episodes.
        kinds: The tables of attempts.
        held_out: The table of the evaluation.
        rounds: The number of rounds.

    Raises:
        UsageError: A table or the policy is invalid.
    """

    def __init__(
        self,
        policy: PolicyConfig,
        shared: Table,
        kinds: Sequence[Table],
        held_out: Table,
        rounds: int = 1,
    ) -> None:
        self._policy, self._shared = policy, shared
        self._teacher = _trainable(policy)
        for name, table in (("evaluation", held_out), ("episodes", shared)):
            if plays_otherwise(policy.name, table):
                raise UsageError(f"{name}.policy: only attempts may use another policy")
        if rounds > 1 and all(plays_otherwise(policy.name, kind) for kind in kinds):
            raise UsageError(
                "rounds: all attempts are made by another policy, so later rounds have "
                "nothing new to learn from; set rounds to 1, or add attempts of the policy "
                "itself"
            )
        named = [f"attempts[{index}]" for index in range(len(kinds))]
        keys = named if len(kinds) > 1 else ["attempts"]
        self._tables = {**dict(zip(keys, kinds, strict=True)), "evaluation": held_out}
        for name, table in {"episodes": shared, **self._tables}.items():
            environment = {**shared, **table}.get("environment")
            if not isinstance(get_name(environment), str):
                raise UsageError("episodes.environment is missing; name the environment")
            self.episodes(Path("-"), merged({"environment": environment}, table), place=name)

    def plans(self, out: Path, *, graded: bool = False) -> dict[str, EpisodePlan]:
        """Plans each table of episodes; makes every part and plays nothing.

        Args:
            out: The folder of the study.
            graded: Whether a judge or people grade the evaluation.

        Raises:
            UsageError: A table is invalid, or nobody grades the evaluation.
        """

        async def plan(config: RolloutConfig) -> EpisodePlan:
            async with rollout_session(config, planned=True) as made:
                return EpisodePlan.of(made)

        plans: dict[str, EpisodePlan] = {}
        for name, table in self._tables.items():
            folder = out / "base" / ("evaluation" if name == "evaluation" else "attempts")
            try:
                config = self.episodes(folder, merged(self._shared, table))
                plans[name] = asyncio.run(plan(config))
            except UsageError as error:
                raise UsageError(f"episodes and {name}: {error}") from None
        if not plans["evaluation"].graded and not graded:
            raise UsageError(
                f"evaluation: {plans['evaluation'].environment} has no oracle, so there would be "
                "no results; either name a judge (judge = …), or set annotated = true and label "
                "the evaluations afterwards (prill annotate, then the same study with "
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
        if earlier and plays_otherwise(self._policy.name, episodes):
            return  # nothing was trained since: the episodes would be the same
        config = self.episodes(out, episodes, adapter)
        # attempts are numbered from those of earlier rounds, so that sampling differs
        first_play = earlier * config.attempts
        recorded = asyncio.run(_record(config, first_play))
        if (recorded.broken or recorded.lost) and recorded.budget is None:
            recorded = asyncio.run(_record(config, first_play))
        if recorded.budget is not None:
            raise UsageError(f"{out}: {recorded.budget}", parameters=("budget_usd",))

    def episodes(
        self,
        out: Path,
        episodes: Table,
        adapter: Path | None = None,
        place: str = "episodes",
    ) -> RolloutConfig:
        """Makes the rollout of a table.

        Args:
            out: The output folder.
            episodes: The table of episodes.
            adapter: The trained adapter; None: the untrained policy.
            place: The name of the table in errors.

        Raises:
            UsageError: The table has an invalid key or value.
        """
        table, player, environment = _parted(episodes, place)
        if not plays_otherwise(self._policy.name, episodes):
            player = {**self._policy.options, **player, "name": self._policy.name}
            if adapter is not None:
                player["adapter"] = str(adapter.resolve())
        table |= {"environment": environment, "policy": player, "output": str(out)}
        try:
            return RolloutConfig.read({**table, "retry_broken": True}, place)
        except UsageError as error:
            if str(error).startswith(place):
                raise
            raise UsageError(f"{place}: {error}") from None


async def _record(config: RolloutConfig, first_play: int) -> RecordTally:
    """Plays the episodes that are not recorded yet."""
    async with rollout_session(config, first_play=first_play) as made:
        return await record_session(made)


def plays_otherwise(policy: str, table: Table) -> bool:
    """Returns whether episodes are played by a policy other than the one that is trained."""
    player = table.get("policy")
    return (player.get("name") if isinstance(player, Mapping) else player) not in (None, policy)


def _trainable(policy: PolicyConfig) -> Demonstrator:
    """Makes the policy to train. Raises UsageError if it cannot be trained or load an adapter."""
    name, model = policy.name, policy.options.get("model")
    maker = POLICIES.maker(name)
    of_model = set(model_options(model)) if asks_a_model(maker) else set[str]()
    if "adapter" not in of_model.union(list_options(maker)):
        what = (
            f"calls {get_name(model)}, which cannot load an adapter"
            if asks_a_model(maker) and model
            else "has no option `adapter`"
        )
        raise UsageError(
            f"policy: {name} {what}, so it cannot play the trained model; use a policy "
            "that calls a model, with local:MODEL or vllm:MODEL"
        )
    try:
        made = make_policy(policy)
    except OptionError as error:
        raise OptionError(f"policy.{error}", error.option) from None
    if not isinstance(made, Demonstrator):
        raise UsageError(
            f"policy: {name} cannot be trained: it has no demonstrate(trajectory, index)"
        )
    return made


def _parted(episodes: Table, place: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Splits a table of episodes into rollout options, policy options and environment options.
    Raises OptionError.
    """
    table = {str(key).replace("-", "_"): value for key, value in episodes.items()}
    parts = []
    for name in ("environment", "policy"):
        part = table.pop(name, None)
        if not isinstance(part, str | Mapping | None):
            where = f"{place}.{name}"
            raise OptionError(f"{where}: expected a name or a table, got {part!r}", where)
        parts.append({"name": part} if isinstance(part, str) else dict(part or {}))
    environment, policy = parts
    names, fields = (
        EnvironmentConfig.options_named(environment["name"]),
        config_options(RolloutConfig),
    )
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

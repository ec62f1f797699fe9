"""A judge's verdict as a reward: scores, penalties, and the value for unscored.

    reward = prill.reward("vlm", model="gpt-4o", kind="score", length_penalty=0.01)
    await reward(trajectory)          # 0.87, or None: no verdict, so no reward
    await reward.result(trajectory)   # the same with the verdict, and the parts of the number

The adapters for trainers use this class. docs/how-to/rewards.md says what each trainer gets in each
case.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from prill.config.registry import OptionError, load_object, nearest
from prill.config.toml import read_table
from prill.config.values import Config, config_options
from prill.errors import MissingExtraError, NoEvidenceError, UnscoredError, UsageError
from prill.evaluators.registry import JudgeLike, JudgeOption, make_judge
from prill.io.store import BadLine, Item
from prill.protocols import Evaluator, RewardFunction
from prill.types import Trajectory, UnscoredReason, Verdict

_T = TypeVar("_T")
COST = "cost_usd"  # the metadata key of the agent's own cost
_ERRORS: dict[str, type[UnscoredError]] = {
    kind.code: kind for kind in UnscoredError.__subclasses__()
}


def success(trajectory: Trajectory, verdict: Verdict) -> float:
    """Returns 1 for success, 0 for failure."""
    return float(bool(verdict.success))


def score(trajectory: Trajectory, verdict: Verdict) -> float:
    """Returns the probability of success. Raises UsageError if the judge gives no score."""
    if verdict.score is None:
        raise UsageError(
            f"the judge {verdict.evaluator.name} gives no score; use the reward `success`, "
            "or another judge"
        )
    return verdict.score


KINDS: dict[str, str] = {
    "success": "1 for success, 0 for failure",
    "score": "the judge's probability of success",
    "steps": "the rewards of the steps, each times `discount` for every step before it, added up",
}


@dataclass(frozen=True, kw_only=True)
class RewardSpec(Config):
    """Options of a reward, the same in Python and next to the judge's in a TOML or JSON table.

    Penalties are subtracted whatever the verdict. The agent's cost is `cost_usd` in the
    trajectory's metadata. The judge `rubric` reports unrequested changes.

    Raises:
        UsageError: The kind is not known, a number is not finite, or `value` does not fit
            `on_unscored`.
    """

    kind: Annotated[
        str | RewardFunction,
        Meta(
            description=f"Kind of reward: {', '.join(KINDS)}, or module:function of "
            "(trajectory, verdict)."
        ),
    ] = "success"
    discount: Annotated[
        float,
        Meta(gt=0, le=1, description="For kind steps: discount factor of later steps."),
    ] = 1.0
    length_penalty: Annotated[float, Meta(ge=0, description="Penalty per step.")] = 0.0
    cost_penalty: Annotated[
        float, Meta(ge=0, description="Penalty per US dollar that the agent spent.")
    ] = 0.0
    side_effect_penalty: Annotated[
        float, Meta(ge=0, description="Penalty per unrequested change.")
    ] = 0.0
    on_unscored: Annotated[
        Literal["abstain", "raise", "value"],
        Meta(
            description="Result for an unscored trajectory: no reward, an error, or the number "
            "`value`."
        ),
    ] = "abstain"
    value: Annotated[
        float | None,
        Meta(description="Reward of an unscored trajectory with on_unscored = value."),
    ] = None
    judge_timeout: Annotated[
        float | None,
        Meta(
            gt=0,
            description="Maximum number of seconds of a judgement; a longer one is unscored "
            "(default: the judge's own limits).",
        ),
    ] = None

    def check(self) -> None:
        """Checks options that depend on each other."""
        if not (isinstance(self.kind, str) or callable(self.kind)):
            raise UsageError(
                f"kind is {self.kind!r}; expected {', '.join(KINDS)}, module:function, or a "
                "function"
            )
        if isinstance(self.kind, str) and self.kind not in KINDS and ":" not in self.kind:
            suggestion = nearest(self.kind, KINDS)
            raise UsageError(
                f"unknown kind of reward {self.kind!r}{suggestion}; expected one of "
                f"{', '.join(KINDS)}, or module:function"
            )
        if (self.value is None) == (self.on_unscored == "value"):
            raise UsageError("value: required with on_unscored = value, and only then")
        numbers = (
            self.discount,
            self.length_penalty,
            self.cost_penalty,
            self.side_effect_penalty,
            self.value or 0.0,
        )
        if not all(math.isfinite(number) for number in numbers):
            raise UsageError("the numbers of a reward must be finite")


@dataclass(frozen=True, slots=True)
class RewardResult:
    """One reward, with its verdict.

    Args:
        reward: The reward. None: there is none.
        verdict: The verdict.
        parts: The terms of the reward, always with the same keys: `judge` is the value of the
            verdict, and each penalty is a number of 0 or less. Without a reward all are 0.
        problem: Why there is no verdict, also if `on_unscored` replaces it by a number.
    """

    reward: float | None
    verdict: Verdict
    parts: Mapping[str, float]
    problem: str = ""

    @property
    def turn_rewards(self) -> tuple[float, ...] | None:
        """The rewards of the trajectory's steps, for trainers that reward turns; None where the
        judge gives none.
        """
        return None if self.problem else self.verdict.rewards

    @property
    def numbers(self) -> dict[str, float]:
        """The reward's numbers for logs, with constant keys; all count only if `unscored` is 0."""
        verdict = self.verdict
        known = {"success": float(verdict.success or False), "judge_score": verdict.score or 0.0}
        return {**self.parts, **known, "unscored": float(bool(self.problem))}


_PENALTIES = ("length_penalty", "cost_penalty", "side_effect_penalty")
_NO_PARTS = dict.fromkeys(("judge", *_PENALTIES), 0.0)


class Reward:
    """A reward function from a trajectory to a number or None.

    It can be used from several event loops, also concurrently; connections belong to the running
    loop. It can be pickled before and after a call if its judge can; judges made by name can.

    Args:
        judge: The judge.
        spec: The options of the reward. None: the defaults.
    """

    def __init__(self, judge: Evaluator, spec: RewardSpec | None = None) -> None:
        self.judge, self.spec = judge, spec or RewardSpec()
        _ = self._worth  # a missing function raises here, not after the first verdict

    def __reduce__(self) -> tuple[type[Reward], tuple[Evaluator, RewardSpec]]:
        return type(self), (self.judge, self.spec)

    def raising(self) -> Reward:
        """The same reward for frameworks that accept numbers only: it raises, or returns `value`,
        instead of None.
        """
        spec = (
            replace(self.spec, on_unscored="raise")
            if self.spec.on_unscored == "abstain"
            else self.spec
        )
        return Reward(self.judge, spec)

    async def __call__(self, trajectory: Item) -> float | None:
        """Computes the reward of a trajectory.

        Args:
            trajectory: The trajectory, or a broken line.

        Returns:
            The reward; None where there is none.

        Raises:
            UsageError: The judge's settings are unusable; the whole run should stop.
            EndpointError: The judge's model cannot be used at all; the whole run should stop.
            UnscoredError: There is no verdict, under `on_unscored="raise"`; the class says why.
        """
        return (await self.result(trajectory)).reward

    async def result(self, trajectory: Item) -> RewardResult:
        """Computes the reward of a trajectory, with its verdict and its parts.

        Args:
            trajectory: The trajectory. A broken line is unscored with `input`.

        Raises:
            UsageError: The judge's settings are unusable; the whole run should stop.
            EndpointError: The judge's model cannot be used at all; the whole run should stop.
            UnscoredError: There is no verdict, under `on_unscored="raise"`; the class says why.
        """
        verdict = await self._verdict(trajectory)
        if verdict.unscored is not None or isinstance(trajectory, BadLine):
            return self._without(verdict, verdict.unscored or "input", verdict.reason)
        try:
            parts = self._parts(trajectory, verdict)
        except NoEvidenceError as nothing:
            return self._without(verdict, nothing.code, str(nothing))
        reward = math.fsum(parts.values())
        if not math.isfinite(reward):
            raise UsageError(
                f"the reward of {trajectory.id!r} is {reward}, because its penalties are too large"
            )
        return RewardResult(reward, verdict, parts)

    def unscored(self, trajectory: Item, reason: UnscoredReason, words: str) -> RewardResult:
        """Returns the result of a trajectory that was not judged, for example after a timeout.

        Args:
            trajectory: The trajectory.
            reason: Why there is no verdict.
            words: The reason in words.

        Returns:
            The same as `result` for an unscored verdict with this reason.
        """
        return self._without(
            Verdict(id=trajectory.id, unscored=reason, reason=words, evaluator=self.judge.info),
            reason,
            words,
        )

    async def results(self, trajectories: Sequence[Item]) -> list[RewardResult]:
        """Computes the rewards of a batch concurrently; the judge's model limits the number of
        calls.

        Returns:
            The results, in the same order.

        Raises:
            UsageError: As in `result`. The first error cancels the rest.
            EndpointError: As in `result`.
            UnscoredError: As in `result`.
        """
        return await at_once([self.result(trajectory) for trajectory in trajectories])

    def batch(self, trajectories: Sequence[Item]) -> list[RewardResult]:
        """Computes the rewards of a batch as `results` does, for code without an event loop."""
        from prill.refine.rewards.loops import run_blocking

        return run_blocking(self.results(trajectories))

    async def ranked(self, attempts: Sequence[Item]) -> list[RewardResult]:
        """Rewards attempts by how they compare with the others at the same goal.

        The part `judge` of a reward is the share of the other attempts that the judge finds less
        likely to be a success, and half of those that it finds as likely: 0 to 1, 0.5 on average.
        That is free of a judge's calibration. Penalties apply as usual.

        Args:
            attempts: The attempts, of one task or several.

        Returns:
            The results, in the same order. An attempt without a verdict, or without another one to
            compare with, has no reward.

        Raises:
            UsageError: As in `result`; or the judge gives no score.
            EndpointError: As in `result`.
            UnscoredError: As in `result`.
        """
        results = await self.results(attempts)
        groups: dict[str, list[tuple[int, float]]] = {}
        for place, (item, result) in enumerate(zip(attempts, results, strict=True)):
            if not result.problem and not isinstance(item, BadLine):
                groups.setdefault(item.task.goal, []).append((place, score(item, result.verdict)))
        for group in groups.values():
            for place, own in group:
                result = results[place]
                if len(group) == 1:
                    alone = "no other attempt at its goal has a verdict"
                    results[place] = self._without(result.verdict, "no_evidence", alone)
                    continue
                below = sum((other < own) + (other == own) / 2 for _, other in group) - 0.5
                parts = {**result.parts, "judge": below / (len(group) - 1)}
                results[place] = replace(result, reward=math.fsum(parts.values()), parts=parts)
        return results

    async def _verdict(self, trajectory: Item) -> Verdict:
        if isinstance(trajectory, BadLine):
            message = trajectory.message
            return Verdict(
                id=trajectory.id, unscored="input", reason=message, evaluator=self.judge.info
            )
        limit = self.spec.judge_timeout
        try:
            async with asyncio.timeout(limit) as bound:
                return await self.judge(trajectory)
        except TimeoutError:
            if not bound.expired():  # the judge's own
                raise
            return Verdict(
                id=trajectory.id,
                unscored="timeout",
                reason=f"the judge did not finish within {limit:g} s",
                evaluator=self.judge.info,
            )

    def _parts(self, trajectory: Trajectory, verdict: Verdict) -> dict[str, float]:
        """Computes the terms of the reward. Raises NoEvidenceError if there is no reward."""
        spec = self.spec
        worth: Any = self._worth(trajectory, verdict)  # a user's function may give anything
        if worth is None:
            raise NoEvidenceError(f"the reward function returned None for {trajectory.id!r}")
        if not isinstance(worth, Real) or not math.isfinite(float(worth)):
            raise UsageError(
                f"the reward function returned {worth!r} for {trajectory.id!r}; expected a "
                "finite number or None"
            )
        cost = _agent_cost(trajectory) if spec.cost_penalty else 0.0
        effects = _side_effects(verdict) if spec.side_effect_penalty else 0
        return {
            "judge": float(worth),
            "length_penalty": 0.0 - spec.length_penalty * len(trajectory.steps),
            "cost_penalty": 0.0 - spec.cost_penalty * cost,
            "side_effect_penalty": 0.0 - spec.side_effect_penalty * effects,
        }

    def _without(self, verdict: Verdict, reason: UnscoredReason, problem: str) -> RewardResult:
        problem = f"{reason}: {problem}"
        if self.spec.on_unscored == "raise":
            raise _ERRORS.get(reason, UnscoredError)(f"{verdict.id}: no reward, {problem}")
        return RewardResult(self.spec.value, verdict, dict(_NO_PARTS), problem)

    @cached_property
    def _worth(self) -> RewardFunction:
        kind = self.spec.kind
        if not isinstance(kind, str):
            return kind
        if kind in KINDS:
            known: dict[str, RewardFunction] = {
                "success": success,
                "score": score,
                "steps": self._discounted,
            }
            return known[kind]
        made = load_object(kind)
        made = made() if inspect.isclass(made) else made
        if not callable(made):
            raise UsageError(
                f"{kind}: a {type(made).__name__} is not a reward function, which maps "
                "(trajectory, verdict) to a number or None"
            )
        function: RewardFunction = made
        return function

    def _discounted(self, trajectory: Trajectory, verdict: Verdict) -> float:
        if verdict.rewards is None:
            name = verdict.evaluator.name
            raise UsageError(
                f"the judge {name} gives no rewards for steps; use the judge `steps`, or "
                "the reward `success`"
            )
        return math.fsum(reward * self.spec.discount**i for i, reward in enumerate(verdict.rewards))


def _agent_cost(trajectory: Trajectory) -> float:
    cost = trajectory.metadata.get(COST)
    if (
        isinstance(cost, bool)
        or not isinstance(cost, int | float)
        or not math.isfinite(cost)
        or cost < 0
    ):
        raise NoEvidenceError(
            f"metadata of {trajectory.id!r} does not contain the agent's cost; put it into "
            f"`{COST}`, in US dollars"
        )
    return float(cost)


def _side_effects(verdict: Verdict) -> int:
    # Only judges with criteria look for side effects; other findings do not report them.
    if verdict.findings is None or not verdict.findings.criteria:
        name = verdict.evaluator.name
        raise UsageError(
            f"the judge {name} does not look for side effects; use the judge `rubric`, or "
            "no penalty for them"
        )
    return len(verdict.findings.side_effects)


async def at_once(work: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Runs coroutines concurrently and returns their results in order. The first failure cancels
    the rest and is raised; errors that end the whole run take precedence.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failures:
        raise min(failures.exceptions, key=lambda error: isinstance(error, UnscoredError)) from None
    return [task.result() for task in tasks]


SPEC = tuple(config_options(RewardSpec))
# `name` in files that describe a judge, `evaluator` in older ones
_JUDGE_KEYS = ("judge", "name", "evaluator")


@dataclass(frozen=True, kw_only=True)
class RewardConfig(Config):
    """A reward with its judge: the table `[reward]` of a file, or a whole file.

    The judge is a table of its own, or a name with the judge's options next to it:

        judge = "modular"
        captioner = "text"
        kind = "score"
    """

    spec: RewardSpec = RewardSpec()
    judge: JudgeOption

    @classmethod
    def normalized(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """Converts both forms to a table with all of the judge's options under `judge`."""
        table = super().normalized(table)
        own = {
            key: table.pop(key)
            for key in list(table)
            if key in config_options(cls) and key != "judge"
        }
        given = [key for key in _JUDGE_KEYS if key in table]
        if not given or (given == ["judge"] and not isinstance(table["judge"], str)):
            return {**own, **table}  # the remaining keys are unknown options
        if len(given) > 1:
            raise OptionError(f"{given[1]}: the judge is already named by {given[0]}", given[1])
        name = table.pop(given[0])
        return {**own, "judge": {"name": name, **table} if table else name}


def make_reward(
    judge: str | os.PathLike[str] | JudgeLike | RewardConfig,
    *,
    choose_captioner: Callable[[], str] | None = None,
    **options: Any,
) -> Reward:
    """Makes a reward from a judge's name, description or file, with the options of the reward next
    to the judge's own.

    A judge's file may also hold the fields of `RewardSpec`.

    Args:
        judge: An argument of `prill.judge`, or the configuration of a reward.
        choose_captioner: As in `prill.judge`.
        **options: The reward's options (the fields of `RewardSpec`) and the judge's.

    Returns:
        The reward: `number = await reward(trajectory)`.

    Raises:
        OptionError: Neither the reward nor the judge has such an option, or it is of the wrong
            type.
        UsageError: The judge cannot be made.
        MissingExtraError: An optional package that the judge needs is not installed.
    """
    place = ""
    if isinstance(judge, str | os.PathLike) and (path := Path(judge)).suffix in (".toml", ".json"):
        judge, place = read_table(path), f"{path}: "
    own = {name: options.pop(name) for name in SPEC if name in options}
    try:
        if isinstance(judge, RewardConfig):
            config = judge.copy_with(**own)
        else:
            table = (
                RewardConfig.normalized(judge) if isinstance(judge, Mapping) else {"judge": judge}
            )
            config = RewardConfig.read({**table, **own})
        made = make_judge(config.judge, choose_captioner=choose_captioner, **options)
        return Reward(made, config.spec)
    except MissingExtraError:
        raise
    except OptionError as error:
        raise OptionError(f"{place}{error}", error.option) from None
    except UsageError as error:
        raise UsageError(f"{place}{error}", parameters=error.parameters) from None

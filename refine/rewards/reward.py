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
from prill.evaluators.claim_check import check_claims, unseen_claims
from prill.evaluators.registry import JudgeLike, JudgeOption, make_judge
from prill.io.store import BadLine, Item
from prill.protocols import Evaluator, RewardFunction
from prill.refine.rewards.watch.live import Watch, make_watch
from prill.refine.rewards.watch.spec import WatchSpec
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
    trajectory's metadata. The judge `rubric` reports unrequested changes. Claims count if they are
    `never_seen` or `contradicted`, with any judge.

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
    claim_penalty: Annotated[
        float,
        Meta(
            ge=0, description="Penalty per claim of the answer that the recording does not confirm."
        ),
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
            self.claim_penalty,
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
    def numbers(self) -> dict[str, float]:
        """The reward's numbers for logs, with constant keys; all count only if `unscored` is 0."""
        verdict = self.verdict
        known = {"success": float(verdict.success or False), "judge_score": verdict.score or 0.0}
        return {**self.parts, **known, "unscored": float(bool(self.problem))}


_PENALTIES = ("length_penalty", "cost_penalty", "side_effect_penalty", "claim_penalty")
_NO_PARTS = dict.fromkeys(("judge", *_PENALTIES), 0.0)


class Reward:
    """A reward function from a trajectory to a number or None.

    It can be used from several event loops, also concurrently; connections belong to the running
    loop. It can be pickled before and after a call if its judge can; judges made by name can.

    Args:
        judge: The judge.
        spec: The options of the reward. None: the defaults.
        watch: The monitor that records every verdict. None: none.
    """

    def __init__(
        self, judge: Evaluator, spec: RewardSpec | None = None, watch: Watch | None = None
    ) -> None:
        self.judge, self.spec, self.watch = judge, spec or RewardSpec(), watch
        _ = self._worth  # a missing function raises here, not after the first verdict

    def __reduce__(self) -> tuple[type[Reward], tuple[Evaluator, RewardSpec, Watch | None]]:
        return type(self), (self.judge, self.spec, self.watch)

    def raising(self) -> Reward:
        """The same reward for frameworks that accept numbers only: it raises, or returns `value`,
        instead of None.
        """
        spec = (
            replace(self.spec, on_unscored="raise")
            if self.spec.on_unscored == "abstain"
            else self.spec
        )
        return Reward(self.judge, spec, self.watch)

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

        Returns:
            The result.

        Raises:
            UsageError: The judge's settings are unusable; the whole run should stop.
            EndpointError: The judge's model cannot be used at all; the whole run should stop.
            UnscoredError: There is no verdict, under `on_unscored="raise"`; the class says why.
        """
        verdict = await self._verdict(trajectory)
        if self.watch is not None:
            self.watch.saw(trajectory, verdict)
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

        Args:
            trajectories: The trajectories.

        Returns:
            The results, in the same order.

        Raises:
            UsageError: As in `result`. The first error cancels the rest.
            EndpointError: As in `result`.
            UnscoredError: As in `result`.
        """
        return await at_once([self.result(trajectory) for trajectory in trajectories])

    async def _verdict(self, trajectory: Item) -> Verdict:
        if isinstance(trajectory, BadLine):
            message = trajectory.message
            return Verdict(
                id=trajectory.id, unscored="input", reason=message, evaluator=self.judge.info
            )
        return await self.judge(trajectory)

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
        unseen = len(unseen_claims(check_claims(trajectory))) if spec.claim_penalty else 0
        return {
            "judge": float(worth),
            "length_penalty": 0.0 - spec.length_penalty * len(trajectory.steps),
            "cost_penalty": 0.0 - spec.cost_penalty * cost,
            "side_effect_penalty": 0.0 - spec.side_effect_penalty * effects,
            "claim_penalty": 0.0 - spec.claim_penalty * unseen,
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
class RewardConfig(RewardSpec):
    """A reward with its judge: the table `[reward]` of a file, or a whole file.

    The judge is a table of its own, or a name with the judge's options next to it:

        judge = "modular"
        captioner = "text"
        kind = "score"
    """

    judge: JudgeOption
    watch: Annotated[
        WatchSpec | None, Meta(description="Monitors of the reward while it is used.")
    ] = None

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

    @property
    def spec(self) -> RewardSpec:
        """The options of the reward, without the judge."""
        return RewardSpec(**{name: getattr(self, name) for name in SPEC})


def make_reward(
    judge: str | os.PathLike[str] | JudgeLike | RewardConfig,
    *,
    choose_captioner: Callable[[], str] | None = None,
    watch: WatchSpec | Mapping[str, Any] | None = None,
    **options: Any,
) -> Reward:
    """Makes a reward from a judge's name, description or file, with the options of the reward next
    to the judge's own.

    A judge's file may also hold the fields of `RewardSpec`.

    Args:
        judge: An argument of `prill.judge`, or the configuration of a reward.
        choose_captioner: As in `prill.judge`.
        watch: Settings of the reward monitor; in a file, the table `watch`. None: those of the
            file, or else no monitor.
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
    own = {name: options.pop(name) for name in SPEC if name in options} | (
        {} if watch is None else {"watch": watch}
    )
    try:
        if isinstance(judge, RewardConfig):
            config = judge.copy_with(**own)
        else:
            table = (
                RewardConfig.normalized(judge) if isinstance(judge, Mapping) else {"judge": judge}
            )
            config = RewardConfig.read({**table, **own})
        made = make_judge(config.judge, choose_captioner=choose_captioner, **options)
        return Reward(made, config.spec, make_watch(made, config.watch))
    except MissingExtraError:
        raise
    except OptionError as error:
        raise OptionError(f"{place}{error}", error.option) from None
    except UsageError as error:
        raise UsageError(f"{place}{error}", parameters=error.parameters) from None

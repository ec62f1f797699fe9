"""Dry runs: what a run would do and cost, without calling a model or writing a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from prill.errors import InputError, UsageError
from prill.evaluators.combine import Cascade
from prill.io.kinds import TRAJECTORIES
from prill.io.shards import Shard
from prill.io.store import read_trajectories, read_verdicts
from prill.models.ledger import Price, find_price
from prill.protocols import Estimator, Evaluator, every_judge
from prill.scoring.scorer import plan_files
from prill.types import Trajectory, Usage

_SAMPLE = 200  # recorded attempts that an estimate is based on
NOTHING_RECORDED = "nothing is recorded there yet to estimate from"
# Name prefixes of models that run locally and cost nothing, as users write them and as models
# report them.
OF_ONES_OWN = ("local:", "local/", "vllm:", "vllm/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The plan of a command.

    `work` describes it in lines, `counts` as numbers.

    `usage` is the estimated model usage with its cost; None: unknown, for the reason in `unknown`.
    `most` says that the estimate is an upper bound. `seconds` is None if there is no basis for an
    estimate; no run takes longer than `most_seconds`.
    """

    work: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    usage: Usage | None = field(default_factory=Usage)
    unknown: str = NOTHING_RECORDED
    most: bool = False
    seconds: float | None = None
    most_seconds: float | None = None
    problems: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yields the plan as lines of text."""
        yield from self.work
        most = "at most " if self.most else ""
        if self.usage is None:
            yield f"calls and tokens: unknown ({self.unknown})"
            yield f"cost: unknown ({self.unknown})"
        elif not self.usage.calls:
            yield "0 calls: no model is called"
            yield "cost: $0.00"
        else:
            usage = self.usage
            tokens = (
                f"about {usage.prompt_tokens:,} prompt and {usage.completion_tokens:,} "
                "completion tokens"
            )
            yield f"{most}{usage.calls} calls, {tokens}, {usage.images} images"
            unknown = "unknown (no price for this model; give a price table)"
            yield f"cost: {unknown if usage.usd is None else f'about ${usage.usd:.2f}'}"
        if self.seconds is not None:
            yield f"time: {most}about {duration(self.seconds)}"
        elif self.most_seconds is not None:
            yield (
                f"time: unknown; at most {duration(self.most_seconds)}, by the limit of an episode"
            )
        else:
            yield "time: unknown"

    def table(self) -> dict[str, Any]:
        """Returns the plan as a JSON object; unknown values are null."""
        usage = (
            dict.fromkeys(Usage.__match_args__)
            if self.usage is None
            else msgspec.to_builtins(self.usage)
        )
        times = {"seconds": self.seconds, "most_seconds": self.most_seconds}
        return {**self.counts, **usage, **times}


def duration(seconds: float) -> str:
    """Formats a duration as text."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "a minute" if seconds else "no time"
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    return (
        f"{days} d {hours} h"
        if days
        else f"{hours} h {minutes:02} min"
        if hours
        else f"{minutes} min"
    )


def total_usage(parts: Iterable[Usage | None]) -> Usage | None:
    """Returns the sum of usages; None if one is unknown."""
    listed = list(parts)
    known = [part for part in listed if part is not None]
    return None if len(known) < len(listed) else sum(known, start=Usage())


def times(usage: Usage | None, count: float) -> Usage | None:
    """Returns the usage multiplied by a count."""
    if usage is None:
        return None if count else Usage()
    usd = None if usage.usd is None else usage.usd * count
    calls, images = round(usage.calls * count), round(usage.images * count)
    return Usage(
        calls,
        round(usage.prompt_tokens * count),
        round(usage.completion_tokens * count),
        images,
        usd,
    )


@dataclass(frozen=True, slots=True)
class EarlierAttempts:
    """The earlier attempts in a folder: ids, the ids of those with an error, and a sample for
    estimates.
    """

    ids: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    usages: tuple[Usage, ...] = ()
    sample: tuple[Trajectory, ...] = ()

    @property
    def usage(self) -> Usage | None:
        """Returns the mean model usage of an attempt; None without recorded attempts."""
        return times(sum(self.usages, start=Usage()), 1 / len(self.usages)) if self.usages else None

    def judging(self, judge: Evaluator | None) -> Usage | None:
        """Returns the mean model usage of a verdict over the sample; None if unknown."""
        if judge is None or not asks_models(judge):
            return Usage()
        if not isinstance(judge, Estimator) or not self.sample:
            return None
        try:
            total = sum((judge.estimate(trajectory) for trajectory in self.sample), start=Usage())
        except (InputError, UsageError):
            return None
        usd = compute_cost(total, judge.info.model)
        return times(replace(total, usd=usd), 1 / len(self.sample))


def recorded_in(folder: Path) -> EarlierAttempts:
    """Reads the attempts recorded in a folder; empty if the folder does not exist."""
    path = folder / TRAJECTORIES
    if not path.is_file() or not path.stat().st_size:
        return EarlierAttempts()
    ids, broken, usages, sample = set[str](), set[str](), list[Usage](), list[Trajectory]()
    for item in read_trajectories(path):
        if not isinstance(item, Trajectory):
            raise UsageError(f"{path}: {item.message}")
        ids.add(item.id)
        if item.error is not None:
            broken.add(item.id)
        elif len(sample) < _SAMPLE:
            sample.append(item)
            usages.append(msgspec.convert(item.metadata.get("usage", {}), Usage))
    return EarlierAttempts(frozenset(ids), frozenset(broken), tuple(usages), tuple(sample))


@dataclass(frozen=True, slots=True)
class JudgingPlan:
    """The plan for judging trajectory files.

    It counts the trajectories to judge and those done; `usage` is None if the judge cannot estimate
    it.
    """

    todo: int
    done: int
    usage: Usage | None
    most: bool
    problems: tuple[str, ...]

    def run_plan(self, *work: str, seconds: float | None = None, **counts: int) -> RunPlan:
        """Returns the plan of a run that judges these files and does further `work`."""
        broken = len(self.problems)
        line = f"{self.todo} trajectories to judge, {self.done} done, {broken} that cannot be used"
        return RunPlan(
            work=(line, *work),
            counts={"trajectories": self.todo, "done": self.done, "broken": broken, **counts},
            usage=self.usage,
            unknown="this judge cannot estimate its usage",
            most=self.most,
            seconds=seconds,
            problems=self.problems,
        )


def plan_judging(
    judge: Evaluator,
    trajectories: Sequence[str],
    *,
    estimate: Callable[[Trajectory], Usage] | None = None,
    limit: int | None = None,
    keys: Mapping[str, str] | None = None,
    shard: Shard | None = None,
    model: str | None = None,
    prices: str | None = None,
) -> JudgingPlan:
    """Plans the judging of trajectory files.

    Args:
        judge: The judge.
        trajectories: The trajectory files.
        estimate: Returns the usage of a verdict; None: as the judge estimates it, if it can.
        limit: Only read this many trajectories.
        keys: As in `prill.scoring.scorer.plan_files`.
        shard: The shard for this machine.
        model: The model name for the price lookup; None: the judge's model if it has exactly one.
        prices: The path of a price table.
    """
    if estimate is None and isinstance(judge, Estimator):
        estimate = judge.estimate
    plan = plan_files(judge, trajectories, estimate, limit, keys, shard)
    # A cascade cannot tell in advance which trajectories its first judge will decide.
    most = any(isinstance(part, Cascade) for part in every_judge(judge))
    usage, price = plan.usage, _price(judge, model, prices)
    usd = (
        price.usd(usage.prompt_tokens, usage.completion_tokens)
        if price
        else None
        if usage.calls
        else 0.0
    )
    known = replace(usage, usd=usd) if estimate or not asks_models(judge) else None
    return JudgingPlan(plan.trajectories, plan.done, known, most, plan.problems)


def _price(judge: Evaluator, model: str | None, prices: str | None) -> Price | None:
    """Returns the price of the named model, or of the judge's model if it has exactly one."""
    models = set(_split_models(judge.info.model)) if model is None else {model}
    if all(name.startswith(OF_ONES_OWN) for name in models):
        return Price(0.0, 0.0)
    return find_price(models.pop(), prices) if len(models) == 1 else None


def _split_models(names: str | None) -> list[str]:
    """Returns the model names on a judge's card, without calling options and fitted files."""
    found = (name.partition(" (")[0] for name in (names or "").split(" + "))
    return [name for name in found if not name.startswith("sha256:")]


def seconds_each(verdicts: str) -> float | None:
    """Returns the mean seconds of a verdict in the file; None if there are none."""
    took = [verdict.seconds for verdict in read_verdicts(verdicts) if verdict.success is not None]
    return fmean(took) if took else None


def asks_models(judge: Evaluator) -> bool:
    """Returns whether the judge calls a model; fitted judges list files as their models."""
    names = (part.info.model for part in every_judge(judge))
    return any(name is not None and not name.startswith("sha256:") for name in names)


def compute_cost(usage: Usage, models: str | None, price_table: str | None = None) -> float | None:
    """Returns the cost of the usage with the one model.

    The result is None if the model has no price, or if there are several models.
    """
    names = {name for name in _split_models(models) if name}
    if not usage.calls or (names and all(name.startswith(OF_ONES_OWN) for name in names)):
        return 0.0
    price = find_price(names.pop(), price_table) if len(names) == 1 else None
    return None if price is None else price.usd(usage.prompt_tokens, usage.completion_tokens)


def listed(names: Sequence[object]) -> str:
    """Joins names, each repeated one once with its count."""
    return ", ".join(
        f"{count} x {name}" if count > 1 else str(name) for name, count in Counter(names).items()
    )


@contextmanager
def in_file(path: str | Path) -> Iterator[None]:
    """Context manager that prefixes errors in settings with the file's path."""
    try:
        yield
    except UsageError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise UsageError(f"{path}: {error}", parameters=error.parameters) from error

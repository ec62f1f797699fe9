"""Dry runs: what a run would do and cost, without a call or a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from prill.types import EvaluatorInfo, Trajectory, Usage, Verdict

_SAMPLE = 200  # recorded attempts that an estimate goes by
NOTHING_RECORDED = "nothing is recorded there yet to go by"
# As a model is given, and as it calls itself: what runs here costs nothing.
OF_ONES_OWN = ("local:", "local/", "vllm:", "vllm/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What a command would do. `work` says it in a line each, `counts` as numbers.

    `usage` is what models would be asked for, with its cost; None: unknown, for the reason in
    `unknown`. `most` says that it may become less. `seconds` is None where there is nothing to go
    by; no run takes longer than `most_seconds`.
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
        """The plan in words."""
        yield from self.work
        most = "at most " if self.most else ""
        if self.usage is None:
            yield f"calls and tokens: unknown ({self.unknown})"
            yield f"cost: unknown ({self.unknown})"
        elif not self.usage.calls:
            yield "0 calls: no model is asked"
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
        """The plan as JSON has it; null is what is unknown."""
        usage = (
            dict.fromkeys(Usage.__match_args__)
            if self.usage is None
            else msgspec.to_builtins(self.usage)
        )
        times = {"seconds": self.seconds, "most_seconds": self.most_seconds}
        return {**self.counts, **usage, **times}


def duration(seconds: float) -> str:
    """A time in words."""
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


def together(parts: Iterable[Usage | None]) -> Usage | None:
    """All of it; None where a part is unknown."""
    listed = list(parts)
    known = [part for part in listed if part is not None]
    return None if len(known) < len(listed) else sum(known, start=Usage())


def times(usage: Usage | None, count: float) -> Usage | None:
    """So many times that."""
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
    """What a folder has of earlier attempts: ids, those that ended with an error, and a sample to
    estimate by.
    """

    ids: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    usages: tuple[Usage, ...] = ()
    sample: tuple[Trajectory, ...] = ()

    @property
    def usage(self) -> Usage | None:
        """What an attempt asked of models on average; None where none is on record."""
        return times(sum(self.usages, start=Usage()), 1 / len(self.usages)) if self.usages else None

    def judging(self, judge: Evaluator | None, price_table: str | None = None) -> Usage | None:
        """What a verdict asks of models on average, by attempts of the sample; None where that is
        unknown.
        """
        if judge is None or not asks_models(judge):
            return Usage()
        if not isinstance(judge, Estimator) or not self.sample:
            return None
        try:
            total = sum((judge.estimate(trajectory) for trajectory in self.sample), start=Usage())
        except (InputError, UsageError):
            return None
        usd = compute_cost(total, judge.info.model, price_table)
        return times(replace(total, usd=usd), 1 / len(self.sample))


def recorded_in(folder: Path) -> EarlierAttempts:
    """What is recorded in a folder; nothing where it is not there."""
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
    """What judging trajectory files would take: so many to do, and done; `usage` None where the
    judge cannot say.
    """

    todo: int
    done: int
    usage: Usage | None
    most: bool
    problems: tuple[str, ...]

    def run_plan(
        self, *work: str, seconds: float | None = None, usage_times: float = 1.0, **counts: int
    ) -> RunPlan:
        """The plan of a run that judges so, and does more `work`."""
        broken = len(self.problems)
        line = f"{self.todo} trajectories to judge, {self.done} done, {broken} that cannot be used"
        return RunPlan(
            work=(line, *work),
            counts={"trajectories": self.todo, "done": self.done, "broken": broken, **counts},
            usage=times(self.usage, usage_times),
            unknown="this judge cannot say beforehand what it needs",
            most=self.most,
            seconds=seconds,
            problems=self.problems,
        )


def plan_judging(
    judge: Evaluator,
    trajectories: Sequence[str],
    *,
    limit: int | None = None,
    keys: Mapping[str, str] | None = None,
    shard: Shard | None = None,
    model: str | None = None,
    prices: str | None = None,
) -> JudgingPlan:
    """The plan for judging trajectory files.

    Args:
        judge: Who judges.
        trajectories: The files.
        limit: Look at the first so many trajectories only.
        keys: As in `prill.scoring.scorer.plan_files`.
        shard: This machine's share.
        model: The name of the model by which the price is found; None: that of the judge where it
            has only one.
        prices: A price table.
    """
    estimator: Estimator = judge if isinstance(judge, Estimator) else _Unknown(judge)
    plan = plan_files(estimator, trajectories, limit, keys, shard)
    # A cascade cannot tell beforehand which trajectories its first judge will be sure of.
    most = any(isinstance(part, Cascade) for part in every_judge(judge))
    usage, price = plan.usage, _price(judge, model, prices)
    usd = (
        price.usd(usage.prompt_tokens, usage.completion_tokens)
        if price
        else None
        if usage.calls
        else 0.0
    )
    known = replace(usage, usd=usd) if estimator is judge or not asks_models(judge) else None
    return JudgingPlan(plan.trajectories, plan.done, known, most, plan.problems)


@dataclass(frozen=True)
class _Unknown:
    """A judge that cannot estimate, where its trajectories are counted all the same."""

    judge: Evaluator

    @property
    def info(self) -> EvaluatorInfo:
        return self.judge.info

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        return self.judge.screenshots(trajectory)

    def estimate(self, trajectory: Trajectory) -> Usage:
        return Usage()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        return await self.judge(trajectory)


def _price(judge: Evaluator, model: str | None, prices: str | None) -> Price | None:
    """The price of the model of that name, or of the judge's when it has only one."""
    models = set(_split_models(judge.info.model)) if model is None else {model}
    if all(name.startswith(OF_ONES_OWN) for name in models):
        return Price(0.0, 0.0)
    return find_price(models.pop(), prices) if len(models) == 1 else None


def _split_models(names: str | None) -> list[str]:
    """The models that a judge's card names, without how they are asked and without fitted files."""
    found = (name.partition(" (")[0] for name in (names or "").split(" + "))
    return [name for name in found if not name.startswith("sha256:")]


def seconds_each(verdicts: str) -> float | None:
    """How long a verdict took in that file, on average; None where there is none."""
    took = [verdict.seconds for verdict in read_verdicts(verdicts) if verdict.success is not None]
    return fmean(took) if took else None


def asks_models(judge: Evaluator) -> bool:
    """Whether a model is asked for verdicts of this judge; fitted judges name files as theirs."""
    names = (part.info.model for part in every_judge(judge))
    return any(name is not None and not name.startswith("sha256:") for name in names)


def compute_cost(usage: Usage, models: str | None, price_table: str | None = None) -> float | None:
    """What that costs with the one model that is asked; None where it has no price, or there are
    several.
    """
    names = {name for name in _split_models(models) if name}
    if not usage.calls or (names and all(name.startswith(OF_ONES_OWN) for name in names)):
        return 0.0
    price = find_price(names.pop(), price_table) if len(names) == 1 else None
    return None if price is None else price.usd(usage.prompt_tokens, usage.completion_tokens)


def listed(names: Sequence[object]) -> str:
    """What there is several times of, each once with its number."""
    return ", ".join(
        f"{count} x {name}" if count > 1 else str(name) for name, count in Counter(names).items()
    )


@contextmanager
def in_file(path: str | Path) -> Iterator[None]:
    """Within it, what is wrong with settings names the file they stand in."""
    try:
        yield
    except UsageError as error:
        if str(error).startswith(f"{path}: "):
            raise
        raise UsageError(f"{path}: {error}", parameters=error.parameters) from error

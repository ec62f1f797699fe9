"""Dry runs: what a run would do and cost, without calling a model or writing a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from prill.errors import InputError, UsageError
from prill.io.kinds import TRAJECTORIES
from prill.io.store import iter_trajectories
from prill.models.ledger import find_price
from prill.protocols import Estimator, Evaluator, every_judge
from prill.running import Printed, first_of
from prill.types import Trajectory, Usage

_SAMPLE = 200  # recorded attempts that an estimate is based on
NOTHING_RECORDED = "nothing is recorded there yet to estimate from"
# Name prefixes of models that run locally and cost nothing, as users write them and as models
# report them.
OF_ONES_OWN = ("local:", "local/", "vllm:", "vllm/")


@dataclass(frozen=True, kw_only=True)
class RunPlan(Printed):
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

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def notes(self) -> Iterator[str]:
        """Yields what could not be read."""
        return first_of(self.problems, 20)

    def _lines(self) -> Iterator[str]:
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

    def to_dict(self) -> dict[str, Any]:
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
    for item in iter_trajectories(path):
        if not isinstance(item, Trajectory):
            raise UsageError(f"{path}: {item.message}")
        ids.add(item.id)
        if item.error is not None:
            broken.add(item.id)
        elif len(sample) < _SAMPLE:
            sample.append(item)
            usages.append(msgspec.convert(item.metadata.get("usage", {}), Usage))
    return EarlierAttempts(frozenset(ids), frozenset(broken), tuple(usages), tuple(sample))


def _split_models(names: str | None) -> list[str]:
    """Returns the model names on a judge's card, without calling options and fitted files."""
    found = (name.partition(" (")[0] for name in (names or "").split(" + "))
    return [name for name in found if not name.startswith("sha256:")]


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

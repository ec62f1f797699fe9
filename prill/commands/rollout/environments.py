"""What `prill rollout` has to know of an environment, and environments of the user's own; see also web.py and phones.py."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, get_args

from prill.commands.rollout.cases import add_task_options, read_tasks, task_contents
from prill.emulators.registry import make_environment
from prill.errors import UsageError
from prill.protocols import Environment
from prill.types import LabelRecord, Platform, Task, Trajectory

E = TypeVar("E", bound=Environment)


async def nothing() -> None:
    """What a setting without anything shared has to close."""


@dataclass(frozen=True)
class Setting(Generic[E]):
    """Where a run plays: environments, one a worker; the names of its tasks, and what makes a task of a name and a seed.

    `oracle` labels an episode in the state its environment is in; `fingerprint` is what tells this setting from others, and
    `contents` what tells a task from another of the same name. An environment that fails to begin `patience` times in a row
    is taken for broken: in a browser it may well be the site that is down, so that is many. `leftovers` says why an episode may
    find what an earlier one changed; None: each begins in a fresh state. `templates` has the number of what a task was filled
    in, where there is one, and `sites` the site of a task, where tasks are on several. `needs` has what a task wants for itself
    while other workers play.
    """

    environments: Sequence[E]
    tasks: Sequence[str]
    task: Callable[..., Awaitable[Task]]
    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None = None
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    close: Callable[[], Awaitable[None]] = nothing
    contents: Mapping[str, object] = field(default_factory=dict)
    patience: int = 30
    leftovers: str | None = None
    templates: Mapping[str, int] = field(default_factory=dict)
    sites: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)


class MakeSetting(Protocol):
    """Makes the setting of a run: its options, the folder for screenshots, and what `--set` says of the environment."""

    def __call__(self, args: argparse.Namespace, images: Path, assigned: Mapping[str, Any], /) -> Setting[Any]:
        """Raises UsageError for options that do not go together."""
        ...


@dataclass(frozen=True)
class EnvironmentKind:
    """One environment of `prill rollout`. `policy` is the one that plays unless another is named.

    `stops_early`: an agent that repeats itself is stopped.
    """

    example: str
    platform: Platform
    max_steps: int
    configure: Callable[[argparse._ArgumentGroup], None]
    make: MakeSetting
    policy: str | None = None
    stops_early: bool = True


def task_setting(
    environments: Sequence[E],
    tasks: Mapping[str, Task],
    fingerprint: Mapping[str, Any],
    *,
    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None = None,
    close: Callable[[], Awaitable[None]] = nothing,
    patience: int = 30,
    leftovers: str | None = None,
) -> Setting[E]:
    """A setting whose tasks are known beforehand, by id; seeds make no difference to them."""

    async def task(environment: E, name: str, seed: int) -> Task:
        return tasks[name]

    return Setting(environments, list(tasks), task, oracle, fingerprint, close, task_contents(tasks), patience, leftovers)


def _own_options(group: argparse._ArgumentGroup) -> None:
    add_task_options(group, "whatever the environment makes of it")


def _own_setting(args: argparse.Namespace, images: Path, assigned: Mapping[str, Any]) -> Setting[Any]:
    environments: list[Any] = [
        make_environment(args.environment, images=images, lax=True, **assigned) for _ in range(args.workers or 1)
    ]
    if len({id(environment) for environment in environments}) < len(environments):
        raise UsageError(f"{args.environment} is one environment, and every worker needs one of its own: name a class")
    platform: Platform = getattr(environments[0], "platform", "other")
    if platform not in get_args(Platform):
        raise UsageError(f"{args.environment} has the platform {platform!r}; there are {', '.join(get_args(Platform))}")
    tasks = read_tasks(args, platform)
    oracle = _grade if hasattr(environments[0], "grade") else None
    leftovers = getattr(environments[0], "leftovers", None)
    return task_setting(environments, tasks, assigned, oracle=oracle, patience=3, leftovers=leftovers)


async def _grade(environment: Any, trajectory: Trajectory) -> LabelRecord:
    label: LabelRecord = await environment.grade(trajectory)
    return label


OWN = EnvironmentKind(
    "Example: prill rollout examples/own_environment.py:Counter --goal 'Count to 3' --policy examples/own_policy.py:Add -o out",
    "other",
    30,
    _own_options,
    _own_setting,
)

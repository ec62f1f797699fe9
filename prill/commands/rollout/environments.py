"""What `prill rollout` has to know of an environment; the environments themselves are in `web_stages` and `phone_stages`."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from prill.protocols import Environment
from prill.types import LabelRecord, Platform, Task, Trajectory

E = TypeVar("E", bound=Environment)


async def nothing() -> None:
    """What a stage without anything shared has to close."""


@dataclass(frozen=True)
class Stage(Generic[E]):
    """Where a run plays: environments, one a worker; the names of its tasks, and what makes a task of a name and a seed.

    `oracle` labels an episode in the state its environment is in; `settings` are what tells this stage from others, and
    `contents` what tells a task from another of the same name. An environment that fails to begin `patience` times in a row
    is taken for broken: in a browser it may well be the site that is down, so that is many.
    """

    environments: Sequence[E]
    tasks: Sequence[str]
    task: Callable[..., Awaitable[Task]]
    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    close: Callable[[], Awaitable[None]] = nothing
    contents: Mapping[str, object] = field(default_factory=dict)
    patience: int = 30


@dataclass(frozen=True)
class StageKind:
    """One environment of `prill rollout`. `policy` is the one that plays unless another is named."""

    purpose: str
    example: str
    platform: Platform
    max_steps: int
    configure: Callable[[argparse._ArgumentGroup], None]
    make: Callable[[argparse.Namespace, Path], Stage[Any]]
    policy: str | None = None

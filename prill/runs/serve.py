"""Serve a judge over HTTP, as rewards and as verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated

from msgspec import Meta

from prill.evaluators.registry import make_run_judge
from prill.models.registry import ModelLike
from prill.refine.rewards.reward import Reward, RewardConfig
from prill.refine.rewards.watch.live import make_watch
from prill.runs.base import run_budget
from prill.service import server
from prill.service.spec import ServiceSpec

_CALLS = 16  # at once, of a model that does not say otherwise


@dataclass(frozen=True, kw_only=True)
class ServeConfig(ServiceSpec):
    """What `prill serve` does: serve a reward over HTTP, for trainers, and the verdicts of its
    judge for everybody.
    """

    reward: Annotated[
        RewardConfig, Meta(description="the judge, what its verdicts are worth, and what looks on")
    ]
    model: Annotated[
        ModelLike | None, Meta(description="model that the judge asks, unless it names another")
    ] = None
    budget_usd: Annotated[
        float | None, Meta(ge=0, description="US dollars for all models together: no call beyond")
    ] = None
    concurrency: Annotated[
        int | None,
        Meta(
            ge=1,
            description="judgements at once (default: the calls of the judge's model, else "
            f"{_CALLS})",
        ),
    ] = None

    @property
    def service(self) -> ServiceSpec:
        """Where the service listens, and what it refuses."""
        return ServiceSpec(**{part.name: getattr(self, part.name) for part in fields(ServiceSpec)})


def make_served_reward(config: ServeConfig) -> Reward:
    """The reward that a service gives.

    Args:
        config: What is served.

    Returns:
        The reward, with what looks on.

    Raises:
        UsageError: The configuration does not describe a reward.
    """
    reward = config.reward
    with run_budget(config.budget_usd):
        judge = make_run_judge(
            reward.judge,
            model=config.model,
            concurrency=config.concurrency or _CALLS,
            path="reward.judge",
        )
    return Reward(judge, reward.spec, make_watch(judge, reward.watch))


def serve(
    config: ServeConfig,
    *,
    announce: Callable[[str], None] = server.say,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Serves until SIGINT or SIGTERM; what was accepted is answered before it returns.

    Args:
        config: What is served, and where.
        announce: Is told the address, without any token, once it is served (default: it is logged).
        ending: Called when the end begins.

    Raises:
        UsageError: The configuration cannot be carried out, or the port is taken.
        MissingExtraError: The packages of the extra `serve` are not installed.
    """
    server.serve(
        make_served_reward(config),
        config.service,
        concurrency=config.concurrency,
        announce=announce,
        ending=ending,
    )


async def serve_async(
    config: ServeConfig,
    *,
    stop: asyncio.Event | None = None,
    announce: Callable[[str], None] = server.say,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Serves until `stop` is set, or a signal comes: next to other work of an event loop.

    Args:
        config: What is served, and where.
        stop: Begins the end once it is set: what was accepted is answered.
        announce: Is told the address, without any token, once it is served (default: it is logged).
        ending: Called when the end begins.

    Raises:
        UsageError: The configuration cannot be carried out, or the port is taken.
        MissingExtraError: The packages of the extra `serve` are not installed.
    """
    await server.serve_async(
        await asyncio.to_thread(make_served_reward, config),
        config.service,
        concurrency=config.concurrency,
        announce=announce,
        ending=ending,
        stop=stop,
    )

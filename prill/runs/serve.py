"""Serves a judge over HTTP, as rewards and as verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated

from msgspec import Meta

from prill.evaluators.registry import make_run_judge
from prill.models.options import BudgetOption
from prill.refine.rewards.reward import Reward, RewardConfig
from prill.refine.rewards.watch.live import make_watch
from prill.runs.base import JudgeModelOption, run_budget
from prill.service import server
from prill.service.spec import ServiceSpec

_CALLS = 16  # concurrent calls of a model that sets no limit


@dataclass(frozen=True, kw_only=True)
class ServeConfig(ServiceSpec):
    """Configuration of `prill serve`: serve a reward and the verdicts of its judge over HTTP."""

    reward: Annotated[
        RewardConfig,
        Meta(description="Judge, how its verdicts become rewards, and the monitors of the reward."),
    ]
    model: JudgeModelOption = None
    budget_usd: BudgetOption = None
    concurrency: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Number of trajectories judged at once (default: the concurrency "
            f"of the judge's model, else {_CALLS}).",
        ),
    ] = None

    @property
    def service(self) -> ServiceSpec:
        """Returns the address and the limits of the service."""
        return ServiceSpec(**{part.name: getattr(self, part.name) for part in fields(ServiceSpec)})


def make_served_reward(config: ServeConfig) -> Reward:
    """Makes the reward that a service returns, with its monitors. Raises UsageError."""
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
    announce: Callable[[str], None] = server.log_address,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Serves until SIGINT or SIGTERM, and answers accepted requests before it returns.

    Args:
        config: The reward, the address and the limits.
        announce: Called with the address, without any token, once the service accepts requests
            (default: logs it).
        ending: Called when the shutdown begins.

    Raises:
        UsageError: The configuration is invalid, or the port is in use.
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
    announce: Callable[[str], None] = server.log_address,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Serves in a running event loop until `stop` is set or a signal arrives.

    Args:
        config: The reward, the address and the limits.
        stop: An event; setting it starts a shutdown that still answers accepted requests.
        announce: Called with the address, without any token, once the service accepts requests
            (default: logs it).
        ending: Called when the shutdown begins.

    Raises:
        UsageError: The configuration is invalid, or the port is in use.
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

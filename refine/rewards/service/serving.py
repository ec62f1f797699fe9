"""Serves a judge over HTTP, as rewards and as verdicts: the settings, and the server."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from prill.config.values import Config
from prill.errors import MissingExtraError
from prill.evaluators.registry import make_run_judge
from prill.logs import FOR_USERS
from prill.models.budget import JudgeModelOption, run_budget
from prill.models.options import BudgetOption
from prill.refine.rewards.reward import Reward, RewardConfig
from prill.refine.rewards.service.spec import ServiceSpec
from prill.served import listen

if TYPE_CHECKING:
    from prill.refine.rewards.service.app import Service

_log = logging.getLogger("prill.refine.rewards.service")
_CALLS = 16  # concurrent calls of a model that sets no limit
# longer than the connection pools of trainers' clients keep a connection, so that none is closed
# during a request
_KEEP_ALIVE = 75
_SERVICE = ServiceSpec()
_SEND_SECONDS = 1.0  # for the responses of requests that are dropped


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Config):
    """Configuration of `prill serve`: serve a reward and the verdicts of its judge over HTTP."""

    spec: ServiceSpec = _SERVICE
    reward: Annotated[
        RewardConfig,
        Meta(description="Judge, and how its verdicts become rewards."),
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


def log_address(url: str) -> None:
    """Logs the address of a service."""
    _log.info("serving on %s", url, extra=FOR_USERS)


def serve(
    config: ServeConfig,
    *,
    announce: Callable[[str], None] = log_address,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Serves until SIGINT or SIGTERM, and answers accepted requests before it returns.

    If a judge ignores its cancellation, the process ends instead. The parameters and errors are
    those of `serve_async`.
    """

    async def run() -> None:
        gc.freeze()  # modules stay loaded, so collections scan only objects of requests
        service = await _serve(config, announce, ending)
        if service.judgements.abandoned:
            # every request is answered, but an event loop waits for tasks and threads as it closes
            logging.shutdown()
            os._exit(0)

    asyncio.run(run())


async def serve_async(
    config: ServeConfig,
    *,
    stop: asyncio.Event | None = None,
    announce: Callable[[str], None] = log_address,
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
    await _serve(config, announce, ending, stop)


async def _serve(
    config: ServeConfig,
    announce: Callable[[str], None],
    ending: Callable[[], None],
    stop: asyncio.Event | None = None,
) -> Service:
    reward = await asyncio.to_thread(make_served_reward, config)
    return await serve_reward(
        reward,
        config.spec,
        concurrency=config.concurrency,
        announce=announce,
        ending=ending,
        stop=stop,
    )


def make_served_reward(config: ServeConfig) -> Reward:
    """Makes the reward that a service returns. Raises UsageError."""
    with run_budget(config.budget_usd):
        judge = make_run_judge(
            config.reward.judge,
            model=config.model,
            concurrency=config.concurrency or _CALLS,
            path="reward.judge",
        )
    return Reward(judge, config.reward.spec)


def make_service(
    reward: Reward, spec: ServiceSpec | None = None, *, concurrency: int | None = None
) -> Service:
    """Builds the HTTP service of a reward, without starting it.

    Args:
        reward: The reward. `on_unscored="raise"` becomes `"abstain"`, because the HTTP status
            reports the error.
        spec: The settings. None: the defaults.
        concurrency: The maximum number of concurrent judgements. None: the concurrency of the
            judge's model.

    Returns:
        The service; its `app` is an ASGI application.

    Raises:
        UsageError: The settings are incomplete.
        MissingExtraError: The packages of the extra `serve` are not installed.
    """
    try:
        from prill.refine.rewards.service.app import assemble
    except ImportError as missing:
        raise MissingExtraError(missing.name or "starlette", "serve") from None
    return assemble(reward, spec or ServiceSpec(), concurrency)


async def serve_reward(
    reward: Reward,
    spec: ServiceSpec | None = None,
    *,
    concurrency: int | None = None,
    announce: Callable[[str], None] = log_address,
    ending: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> Service:
    """Serves a reward until SIGINT or SIGTERM arrives or `stop` is set.

    From then on no connection is accepted; the call returns once all requests are answered. At the
    end of the grace period, or at a second signal, those that are left get 503. Judgements that
    ignore their cancellation are left running. The parameters and errors are those of
    `make_service` and `prill.serve_async`.

    Returns:
        The service, which has ended.
    """
    spec = spec or ServiceSpec()
    service = make_service(reward, spec, concurrency=concurrency)
    with listen(spec.host, spec.port) as listening:
        host, port = listening.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        server = make_server(service, spec, ending, lambda: announce(address))

        async def stopping(stop: asyncio.Event) -> None:
            await stop.wait()
            server.handle_exit(signal.SIGTERM, None)

        waiting = None if stop is None else asyncio.create_task(stopping(stop))
        try:
            await server.serve(sockets=[listening])
        finally:
            if waiting is not None:
                waiting.cancel()
            await service.judgements.cancel()
            if requests := server.server_state.tasks:  # which send their last words
                await asyncio.wait(requests, timeout=_SEND_SECONDS)
    return service


def make_server(
    service: Service,
    spec: ServiceSpec,
    ending: Callable[[], None] = lambda: None,
    started: Callable[[], None] = lambda: None,
) -> Any:
    """Makes the uvicorn server, which ends at the first signal once all requests are answered, and
    at the second at once.

    `started` is called when it runs and handles signals. Raises MissingExtraError.
    """
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError("uvicorn", "serve") from None

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started()  # now, because whoever knows the address may send a signal at once

        async def shutdown(self, sockets: Any = None) -> None:
            service.app.state.is_ending = True
            # a callback of the loop, because the terminal may be closed
            asyncio.get_running_loop().call_soon(ending)
            await super().shutdown(sockets)

        def handle_exit(self, sig: int, frame: object) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True
            if self.force_exit:
                for task in list(self.server_state.tasks):
                    task.get_loop().call_soon_threadsafe(task.cancel)

    return Server(
        uvicorn.Config(
            service.app,
            lifespan="off",
            log_config=None,
            access_log=False,  # its lines would contain the request URLs, including keys
            server_header=False,
            backlog=4096,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, int(spec.grace)),
        )
    )

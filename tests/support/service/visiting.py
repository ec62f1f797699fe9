"""A service in this process, and a client for it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("starlette", reason="prill serve is not installed: pip install '.[serve]'")
pytest.importorskip(
    "prometheus_client", reason="prill serve is not installed: pip install '.[serve]'"
)
httpx = pytest.importorskip("httpx", reason="httpx is not installed: pip install httpx")

from prill.protocols import Evaluator  # noqa: E402
from prill.refine.rewards import Reward, RewardSpec  # noqa: E402
from prill.service import Service, ServiceSpec, make_service  # noqa: E402

Visiting = Callable[..., AbstractAsyncContextManager[tuple[Any, Service]]]


@pytest.fixture
def visiting() -> Visiting:
    """Returns a context manager: `async with visiting(judge, request_timeout=1) as (client,
    service)` yields a client of a service with these settings.
    """

    @asynccontextmanager
    async def visit(
        judge: Evaluator,
        reward: RewardSpec | None = None,
        *,
        concurrency: int | None = None,
        **spec: Any,
    ) -> AsyncIterator[tuple[Any, Service]]:
        service = make_service(Reward(judge, reward), ServiceSpec(**spec), concurrency=concurrency)
        transport = httpx.ASGITransport(service.app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8700", timeout=60
        ) as client:
            yield client, service

    return visit


def answered(service: Service, path: str, status: int) -> float:
    """Returns how many requests to the path had this status."""
    return (
        service.metrics.registry.get_sample_value(
            "prill_requests_total", {"path": path, "status": str(status)}
        )
        or 0.0
    )


@pytest.fixture
def record() -> Callable[..., dict[str, Any]]:
    """Returns a factory of serialized trajectories whose goal determines the judge's verdict."""

    def make(goal: str = "success", id: str = "t", **more: Any) -> dict[str, Any]:
        step = {"observation": {"text": "a page"}, "action": {"kind": "click", "text": "click [1]"}}
        return {"id": id, "task": {"goal": goal}, "steps": [step], **more}

    return make

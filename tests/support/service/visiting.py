"""A service in this process, and a client for it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

for _package in ("starlette", "prometheus_client", "httpx"):
    pytest.importorskip(_package, reason="prill serve is not installed: pip install '.[serve]'")
import httpx  # noqa: E402

from prill.protocols import Evaluator  # noqa: E402
from prill.refine.rewards import Reward, RewardSpec  # noqa: E402
from prill.refine.rewards.service import Service, ServiceSpec, make_service  # noqa: E402

Visiting = Callable[..., AbstractAsyncContextManager[tuple[Any, Service]]]


@asynccontextmanager
async def visiting(
    judge: Evaluator,
    reward: RewardSpec | None = None,
    *,
    concurrency: int | None = None,
    **spec: Any,
) -> AsyncIterator[tuple[Any, Service]]:
    """Yields a client of a service with these settings, and the service."""
    service = make_service(Reward(judge, reward), ServiceSpec(**spec), concurrency=concurrency)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(service.app), base_url="http://127.0.0.1:8700", timeout=60
    ) as client:
        yield client, service


def run(goal: str = "success", id: str = "t", **more: Any) -> dict[str, Any]:
    """A serialized trajectory whose goal determines the judge's verdict."""
    step = {"observation": {"text": "a page"}, "action": {"kind": "click", "text": "click [1]"}}
    return {"id": id, "task": {"goal": goal}, "steps": [step], **more}


def item(goal: str = "success", id: str = "t", **more: Any) -> dict[str, Any]:
    return {"trajectory": run(goal, id, **more)}


def requests(label: Any) -> dict[str, Any]:
    """A request of each trainer's contract with this label, by path."""
    return {
        "/get_reward": {"query": ["asked answered"], "prompts": ["asked "], "labels": [label]},
        "/rm": {"prompt": "asked", "response": "answered", "label": label},
        "/verify": {
            "responses_create_params": {"input": "asked"},
            "response": {"output": []},
            "trajectory": label,
            "row": 7,
        },
    }


def counted(service: Service, name: str, **labels: str) -> float:
    """Returns the value of a metric."""
    return service.metrics.registry.get_sample_value(f"prill_{name}", labels) or 0.0

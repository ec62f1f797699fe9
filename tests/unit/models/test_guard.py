"""An endpoint that is gone for good ends the run after a bounded time, and one that only stumbles
does not.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from prill.errors import CallTimeoutError, EndpointGoneError, TransportError
from prill.models.client import OpenAIModel
from prill.models.flow_control import MIN_CALLS, CircuitBreaker
from tests.support.models.scripted_endpoint import GOOD, ScriptedEndpoint, failed, model
from tests.unit.models.test_client import status

pytestmark = pytest.mark.usefixtures("quick_retries")
HANGS = 60.0  # seconds: far longer than any limit here


def made(endpoint: ScriptedEndpoint, patience: float, **settings: Any) -> OpenAIModel:
    """A model whose endpoint may be silent for `patience` seconds."""
    asked = model(endpoint, **settings)
    asked.endpoint.patience = patience
    return asked


async def ask_until_it_ends(asked: OpenAIModel, count: int, at_once: int) -> list[str]:
    """What became of `count` calls, `at_once` at a time, as a run makes them: until one raises what
    ends it.
    """
    outcomes: list[str] = []
    calls = iter(range(count))

    async def work() -> None:
        for _ in calls:
            try:
                outcomes.append(await status(asked))
            except (CallTimeoutError, TransportError) as failure:
                outcomes.append(failure.code)

    async with asyncio.timeout(60):
        results = await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return outcomes


DEAD: dict[str, tuple[Any, dict[str, Any]]] = {
    "errors": (failed(502), {}),
    "hangs": (HANGS, {"timeout": 0.2}),
    "drops": ("drop", {}),
    "waits for years": (failed(429, retry_after="1000000000"), {}),
    "waits again and again": (failed(503, retry_after="0.05"), {}),
}


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("death", DEAD)
async def test_endpoint_gone_ends_the_run(
    endpoint: ScriptedEndpoint, death: str, at_once: int
) -> None:
    answer, settings = DEAD[death]
    endpoint.script = [GOOD] * 5 + [answer]
    asked = made(endpoint, 0.15, concurrency=at_once, **settings)
    with pytest.raises(EndpointGoneError, match="has not responded for") as caught:
        await ask_until_it_ends(asked, 5_000, at_once)
    count = re.search(r"\((\d+) calls failed", str(caught.value))
    assert count and int(count[1]) >= MIN_CALLS


async def test_few_calls_do_not_end_the_run(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [failed(502)]
    asked = made(endpoint, 0.01, retries=1)
    assert await ask_until_it_ends(asked, MIN_CALLS - 1, 1) == ["transport"] * (MIN_CALLS - 1)


async def test_one_answer_begins_a_new_count(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [*[*[failed(502)] * 4, GOOD] * 8]
    asked = made(endpoint, 0.000001, retries=0)
    assert (await ask_until_it_ends(asked, 40, 1)).count("success") == 8


async def test_endpoint_may_come_back(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [failed(502)]
    asked = made(endpoint, 0.05)
    with pytest.raises(EndpointGoneError):
        await ask_until_it_ends(asked, 5_000, 4)
    endpoint.script = [GOOD]
    assert await ask_until_it_ends(asked, 2, 1) == ["success"] * 2


async def test_waiting_calls_end_with_the_others(endpoint: ScriptedEndpoint) -> None:
    endpoint.script = [HANGS]
    asked = made(endpoint, 0.2, timeout=0.1, concurrency=MIN_CALLS)
    ends = await asyncio.wait_for(
        asyncio.gather(*(status(asked) for _ in range(40)), return_exceptions=True), 60
    )
    assert {type(end) for end in ends[MIN_CALLS:]} == {EndpointGoneError}


class Ticking:
    """An event loop's clock that moves when it is told to."""

    now = 0.0

    def time(self) -> float:
        return self.now


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ticking]:
    ticking = Ticking()
    monkeypatch.setattr("prill.models.flow_control._now", ticking.time)
    yield ticking


@pytest.mark.parametrize("timeout", [10.0, 60.0, 80.0, 100.0, 120.0, 160.0, 299.0, 300.0, 600.0])
async def test_hanging_one_by_one_ends_in_time(timeout: float, clock: Ticking) -> None:
    """The five calls that are needed fit into the patience and one attempt, however long that
    is.
    """
    guard = CircuitBreaker("there", 300.0, timeout)
    first, ended = None, None
    for _ in range(100):
        async with guard.call() as call:
            for _ in range(6):
                clock.now += guard.attempt_seconds()
                first = clock.now if first is None else first
                try:
                    guard.failed(call, "silence")
                except EndpointGoneError:
                    ended = clock.now
                    break
                if guard.gives_up(call, told_to_wait=False):
                    break
        if ended is not None:
            break
    assert first is not None and ended is not None
    assert 300.0 <= ended - first <= 300.0 + timeout + 1e-6

"""One judge at each imitated provider: the right verdicts, and few calls once the first answers have taught the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from prill.captioner.recorded import GivenCaption
from prill.errors import EndpointError
from prill.evaluators.outcome import CaptionJudge
from prill.models.client import OpenAIModel
from prill.testing.endpoint.faults import Faults
from prill.testing.endpoint.providers import PROVIDERS
from prill.testing.endpoint.replies import MockEndpoint
from prill.types import Action, Observation, Step, Task, Trajectory

RUNS = 100
# Where log-probabilities come in the documented form; elsewhere scores are 0 or 1.
SOFT = {"openai gpt-4o", "azure", "vllm", "vllm, 5 log-probabilities", "vllm, no system role", "llama.cpp"}
SOFT |= {"a proxy that cannot count", "vllm, reasoning parser"}


@asynccontextmanager
async def serving(faults: Faults) -> AsyncIterator[tuple[MockEndpoint, str]]:
    """The mock endpoint in this event loop, and its address."""
    endpoint = MockEndpoint(faults)
    runner = web.AppRunner(endpoint.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield endpoint, f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def run(number: int) -> Trajectory:
    state = Observation(caption=f"page {number} truth={'success' if number % 3 else 'failure'}")
    steps = (Step(state, Action("click", "click [1]")),)
    return Trajectory(id=str(number), task=Task(goal=f"do {number}", platform="web"), steps=steps, final=state)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_provider_gives_right_verdicts(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prill.models.transport.FIRST_WAIT", 0.01)
    if provider == "azure":
        monkeypatch.setattr("prill.models.transport._AZURE", ("127.0.0.1",))
    async with serving(PROVIDERS[provider]) as (endpoint, url):
        model = OpenAIModel("mock", base_url=f"{url}?api-version=1" if provider == "azure" else url, concurrency=4)
        judge = CaptionJudge(model, GivenCaption())
        verdicts = await asyncio.gather(*(judge(run(number)) for number in range(RUNS)))
    assert [(v.id, v.success) for v in verdicts] == [(str(n), bool(n % 3)) for n in range(RUNS)]
    assert {v.score in (0.0, 1.0) for v in verdicts} == {provider not in SOFT}
    assert endpoint.requests <= 1.2 * RUNS
    assert all(v.usage.prompt_tokens > 0 and v.usage.completion_tokens > 0 for v in verdicts)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        (Faults(no_credit=True), "quota is used up .HTTP 402: Insufficient credits"),
        (Faults(refuse_key=True), "refused the key in .OPENAI_API_KEY"),
        (Faults(api_key_header=True), "does not know this model or path"),
    ],
)
async def test_hopeless_provider_ends_the_run(faults: Faults, words: str) -> None:
    async with serving(faults) as (endpoint, url):
        with pytest.raises(EndpointError, match=words):
            await CaptionJudge(OpenAIModel("mock", base_url=url), GivenCaption())(run(1))
    assert endpoint.requests == 1

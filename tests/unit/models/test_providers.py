"""One judge at each imitated provider: the right verdicts, and few calls once the first answers
have taught the client.
"""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

import prill
from prill.captioner.recorded import GivenCaption
from prill.errors import EndpointError
from prill.evaluators.cautions import hard_scores
from prill.evaluators.judge import PageJudge
from prill.evaluators.scoring.scorer import Tally, score_stream
from prill.models.client import OpenAIModel
from prill.models.request import THINKING
from prill.protocols import Message, unsupported_params
from prill.testing.endpoint.faults import Faults
from prill.testing.endpoint.providers import PROVIDERS
from prill.testing.endpoint.server import serving
from tests.support.models.scripted_endpoint import FORM, GOOD, ScriptedEndpoint, failed, model, run

ASK = (Message("user", ("Did it work?",)),)
RUNS = 100
# Where log-probabilities come in the documented form, or a number is asked for; elsewhere scores
# are 0 or 1.
SOFT = {
    "openai gpt-4o", "azure", "vllm", "vllm, 5 log-probabilities", "vllm, no system role",
    "llama.cpp",
}  # fmt: skip
SOFT |= {
    "a proxy that cannot count",
    "vllm, reasoning parser",
    "vllm, thoughts in the content",
    "vllm, a window of 2,048",
}
SOFT |= {"vllm, 2 images", "llama.cpp, a window of 2,048", "a server that bounds nothing"}
HARD = (
    "all scores are 0 or 1: the model returns no log-probabilities, or is always certain"
    "; try probability = stated"
)
# What each server refuses of what it is first asked for, or does in place of an answer: what its
# row is there for.
_THINKS = {"no_temperature", "no_max_tokens", "no_logprobs"}
QUIRKS = {
    "openai o4-mini": _THINKS,
    "openai gpt-5": _THINKS,
    "gemini": {"no_logprobs"},
    "openrouter": {"broken_off", "error_inside"},
    "mistral": {"no_logprobs"},
    "together": {"no_json_schema"},
    "vllm, 5 log-probabilities": {"most_logprobs"},
    "vllm, no system role": {"no_system"},
    "vllm, 2 images": {"most_images"},
    "llama.cpp, a window of 2,048": {"context"},
    "a server that bounds nothing": {"no_bounds", "no_detail", "no_reasoning_effort"},
}
# How much longer than for an answer it is let think, after the first replies were cut.
THOUGHT = {
    "openai o4-mini": 1,
    "openai gpt-5": 1,
    "vllm, reasoning parser": 2,
    "vllm, thoughts in the content": 1,
}
# What the user asked for and is told that it was left out.
LEFT_OUT = {
    "a server that bounds nothing": [
        "mock does not accept reasoning effort = 'low'; it was left out",
        "mock does not accept image detail = 'low'; it was left out",
    ]
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_provider_gives_right_verdicts(
    provider: str, frames: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prill.models.transport.FIRST_WAIT", 0.01)
    if provider == "azure":
        monkeypatch.setattr("prill.models.transport._AZURE", ("127.0.0.1",))
    seeing, picky = "images" in provider, provider == "a server that bounds nothing"
    async with serving(PROVIDERS[provider]) as (endpoint, url):
        settings: dict[str, Any] = (
            {"reasoning_effort": "low", "image_detail": "low"} if picky else {}
        )
        base_url = f"{url}?api-version=1" if provider == "azure" else url
        asked = OpenAIModel("mock", base_url=base_url, concurrency=4, **settings)
        looks = prill.judge(
            "vlm", model=asked, frames=4, probability="stated" if picky else "token"
        )
        judge: PageJudge = (
            looks
            if seeing or picky
            else prill.judge("modular", model=asked, captioner=GivenCaption())
        )
        length = 20_000 if "window" in provider else 0
        runs = [run(number, length, frames if seeing or picky else ()) for number in range(RUNS)]
        verdicts = sorted(
            [verdict async for verdict in score_stream(runs, judge)],
            key=lambda verdict: int(verdict.id),
        )
    assert [(v.id, v.success) for v in verdicts] == [(str(n), bool(n % 3)) for n in range(RUNS)]
    assert {v.score in (0.0, 1.0) for v in verdicts} == {provider not in SOFT}
    assert endpoint.requests <= 1.2 * RUNS
    assert set(endpoint.outcomes) - {"ok"} == QUIRKS.get(provider, set())
    assert asked.capabilities.thinking == THINKING[THOUGHT.get(provider, 0)]
    assert all(v.usage.prompt_tokens > 0 and v.usage.completion_tokens > 0 for v in verdicts)
    tally = Tally()
    for verdict in verdicts:
        tally.add(verdict)
    assert hard_scores(judge, tally) == ([] if provider in SOFT else [HARD])
    assert unsupported_params(judge) == LEFT_OUT.get(provider, [])
    assert all(("[2 of 4 frames were shown" in v.reason) == seeing for v in verdicts)


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
            await prill.judge(
                "modular", model=OpenAIModel("mock", base_url=url), captioner=GivenCaption()
            )(run(1))
    assert endpoint.requests == 1


GEMINI_LIMIT = (
    "You exceeded your current quota, please check your plan and billing details. For more "
    "information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits. * "
    "Quota exceeded for metric: free_tier_requests, limit: 10"
)


@pytest.mark.parametrize(
    "answer",
    [
        failed(429, "You exceeded your current quota", "insufficient_quota"),
        failed(402, "Payment required"),
        failed(403, "Insufficient balance"),
        failed(400, "Your credit balance is too low to access the Anthropic API."),
        lambda body: web.json_response({"error": {"message": "Insufficient credits", "code": 402}}),
    ],
)
async def test_used_up_quota_ends_the_run(endpoint: ScriptedEndpoint, answer: Any) -> None:
    endpoint.script = [GOOD, answer]
    asked = model(endpoint)
    await asked.complete(ASK, form=FORM)
    with pytest.raises(EndpointError, match="quota is used up"):
        await asked.complete(ASK, form=FORM)
    assert len(endpoint.bodies) == 2


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize(
    "answer", [failed(429, GEMINI_LIMIT), failed(400, "page: insufficient balance"), failed(429)]
)
async def test_other_refusals_do_not_end_a_run(endpoint: ScriptedEndpoint, answer: Any) -> None:
    endpoint.script = [answer, GOOD]
    assert (await model(endpoint).complete(ASK, form=FORM)).fields["status"] == "success"

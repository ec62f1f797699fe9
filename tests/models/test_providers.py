"""One judge at each imitated provider: the right verdicts, and few calls once the first answers have taught the client."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.captioner.recorded import GivenCaption
from prill.commands.cautions import hard_scores
from prill.errors import EndpointError
from prill.evaluators.outcome import CaptionJudge, OutcomeJudge, VLMJudge
from prill.models.client import OpenAIModel
from prill.scoring import Tally, score_stream
from prill.testing.endpoint.faults import Faults
from prill.testing.endpoint.providers import PROVIDERS
from prill.testing.endpoint.server import serving

from .conftest import run

RUNS = 100
# Where log-probabilities come in the documented form; elsewhere scores are 0 or 1.
SOFT = {"openai gpt-4o", "azure", "vllm", "vllm, 5 log-probabilities", "vllm, no system role", "llama.cpp"}
SOFT |= {"a proxy that cannot count", "vllm, reasoning parser", "vllm, thoughts in the content", "vllm, a window of 2,048"}
SOFT |= {"vllm, 2 images", "llama.cpp, a window of 2,048", "a server that bounds nothing"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")


@pytest.fixture
def frames(tmp_path: Path) -> list[str]:
    """Four screenshots that differ."""
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for shade, path in enumerate(paths):
        Picture.new("RGB", (20, 10), (shade, 0, 0)).save(path)
    return [str(path) for path in paths]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_provider_gives_right_verdicts(provider: str, frames: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prill.models.transport.FIRST_WAIT", 0.01)
    if provider == "azure":
        monkeypatch.setattr("prill.models.transport._AZURE", ("127.0.0.1",))
    async with serving(PROVIDERS[provider]) as (endpoint, url):
        model = OpenAIModel("mock", base_url=f"{url}?api-version=1" if provider == "azure" else url, concurrency=4)
        seeing, long = "images" in provider, "window" in provider
        judge: OutcomeJudge = VLMJudge(model, frames=4) if seeing else CaptionJudge(model, GivenCaption())
        runs = [run(number, 20_000 if long else 0, frames if seeing else ()) for number in range(RUNS)]
        verdicts = sorted([verdict async for verdict in score_stream(runs, judge)], key=lambda verdict: int(verdict.id))
    assert [(v.id, v.success) for v in verdicts] == [(str(n), bool(n % 3)) for n in range(RUNS)]
    assert {v.score in (0.0, 1.0) for v in verdicts} == {provider not in SOFT}
    assert endpoint.requests <= 1.2 * RUNS
    assert all(v.usage.prompt_tokens > 0 and v.usage.completion_tokens > 0 for v in verdicts)
    tally = Tally()
    for verdict in verdicts:
        tally.add(verdict)
    told = " ".join(hard_scores(judge, tally))
    assert ("scores are 0 or 1: the model gives no log-probabilities" in told) == (provider not in SOFT)
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
            await CaptionJudge(OpenAIModel("mock", base_url=url), GivenCaption())(run(1))
    assert endpoint.requests == 1

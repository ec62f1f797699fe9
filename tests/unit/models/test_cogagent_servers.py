"""The policy `cogagent` at the servers of its authors, which read JPEG alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

from prill.episodes.loop import run_episode
from prill.errors import TransportError
from prill.models.client import OpenAIModel
from prill.policies.cogagent import CogAgent, Generation
from prill.protocols import Image, Message
from prill.testing import Faults
from prill.testing.endpoint.server import serving
from prill.testing.scripted import ReplayEnvironment
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.models.cogagent_servers import CogAgent9B, CogAgent18B

SERVERS: dict[Generation, type[CogAgent18B]] = {"18b": CogAgent18B, "9b": CogAgent9B}
TASK = Task(id="t", goal="Open mail", platform="android")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setattr("prill.models.transport.FIRST_WAIT", 0.01)


@pytest.fixture
def screen(tmp_path: Path) -> str:
    path = tmp_path / "screen.png"
    Picture.new("RGB", (90, 160), (0, 90, 200)).save(path)
    return str(path)


def model(url: str, **settings: Any) -> OpenAIModel:
    return OpenAIModel("cogagent", base_url=url, retries=1, **settings)


async def played(generation: Generation, screen: str, **settings: Any) -> tuple[Trajectory, Any]:
    seen = Observation(screenshot=screen)
    world = ReplayEnvironment(
        Trajectory(id="r", task=TASK, steps=(Step(seen, Action("wait")),) * 2, final=seen)
    )
    async with serving(Faults(), kind=SERVERS[generation]) as (endpoint, url):
        policy = CogAgent(model(url, **settings), generation=generation)
        return await run_episode(policy, world, TASK, id="a", max_steps=2), endpoint


@pytest.mark.parametrize("generation", SERVERS)
async def test_cogagent_plays_with_jpeg(generation: Generation, screen: str) -> None:
    trajectory, endpoint = await played(generation, screen, image_format="jpeg")
    assert trajectory.error is None, trajectory.error
    first, last = trajectory.steps
    assert (first.action.kind, first.action.point) == (
        "click",
        (0.5, 0.25) if generation == "18b" else (0.4, 0.62),
    )
    assert last.action.kind == ("click" if generation == "18b" else "stop"), (
        "the 9B model is told what it did"
    )
    assert endpoint.outcomes == {"ok": 2}


@pytest.mark.parametrize("generation", SERVERS)
async def test_png_says_what_to_do(generation: Generation, screen: str) -> None:
    trajectory, endpoint = await played(generation, screen)
    assert set(endpoint.outcomes) == {"crash"}
    assert trajectory.error is not None
    assert trajectory.error.endswith("only read JPEG: set image_format=jpeg")


async def test_9b_limit_counts_the_question(screen: str) -> None:
    ask = (Message("user", (Image(screen), "Task: x\nHistory steps: \n(Platform: Mobile)\n")),)
    async with serving(Faults(), kind=CogAgent9B) as (_, url):
        asked = model(url, image_format="jpeg")
        with pytest.raises(TransportError) as failure:
            await asked.complete(ask, max_tokens=1024)
        assert "JPEG" not in str(failure.value), "it was sent as such"
        assert "CLICK" in (await asked.complete(ask, max_tokens=4096)).text

"""A scripted OpenAI-compatible endpoint. Each request gets the next answer of a list."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from PIL import Image as Picture

from prill.models import transport
from prill.models.client import OpenAIModel
from prill.models.replies import ReplyFormat
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.models.machine import Machine
from tests.support.paths import ROOT

Answer = Callable[[dict[str, Any]], "web.StreamResponse | float"]


def said(text: str | None, finish: str = "stop", **message: Any) -> Answer:
    """Returns a normal answer of 10 + 5 tokens."""
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text, **message},
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return lambda body: web.json_response(
        {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}
    )


def failed(status: int, message: str = "no", code: str | None = None, **headers: str) -> Answer:
    """Returns an error in OpenAI's format."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda body: web.json_response(
        {"error": {"message": message, "code": code}}, status=status, headers=named
    )


FORM = ReplyFormat("thoughts", "status", ("success", "failure"))
GOOD = said('{"thoughts": "fine", "status": "success"}')


class ScriptedEndpoint:
    """Returns the answers in order and repeats the last one. A number is a delay in seconds."""

    def __init__(self) -> None:
        self.script: list[Answer | float | str] = [GOOD]
        self.bodies: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.keys: list[str | None] = []
        self.in_flight = self.peak = 0
        self.base_url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(json.loads(await request.read()))
        self.keys.append(request.headers.get("Authorization"))
        self.times.append(asyncio.get_running_loop().time())
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            if answer == "drop":
                assert request.transport is not None
                request.transport.abort()
                raise ConnectionResetError
            if isinstance(answer, float):
                await asyncio.sleep(answer)
                answer = GOOD
            assert callable(answer)
            response = answer(self.bodies[-1])
            assert isinstance(response, web.StreamResponse)
            return response
        finally:
            self.in_flight -= 1


@pytest.fixture
async def endpoint() -> AsyncIterator[ScriptedEndpoint]:
    scripted = ScriptedEndpoint()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", scripted.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    scripted.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield scripted
    await runner.cleanup()


def model(endpoint: ScriptedEndpoint, **settings: Any) -> OpenAIModel:
    """Returns a client of that endpoint."""
    return OpenAIModel("m", base_url=endpoint.base_url, **settings)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables waiting between retries, and removes keys from the environment."""
    monkeypatch.setattr(transport, "FIRST_WAIT", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def run(number: int, length: int = 0, frames: Sequence[str] = ()) -> Trajectory:
    """Returns a run of one click, or of one click between each two frames, with a final page of
    this length. It is a success unless 3 divides its number.
    """
    truth = f"truth={'success' if number % 3 else 'failure'}"
    words = (f"link 'item {number}' " * (length // 10))[:length]
    page = f"page {number} {truth} {words}"
    *before, last = [Observation(caption=page, screenshot=frame) for frame in frames] or [
        Observation(caption=page)
    ] * 2
    steps = tuple(Step(state, Action("click", f"click [{i}]")) for i, state in enumerate(before, 1))
    task = Task(goal=f"do {number} {truth if frames else ''}", platform="web")
    return Trajectory(id=str(number), task=task, steps=steps, final=last)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Returns a machine with a fake `vllm`."""
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return made


@pytest.fixture
def frames(tmp_path: Path) -> list[str]:
    """Returns four different screenshots."""
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for shade, path in enumerate(paths):
        Picture.new("RGB", (20, 10), (shade, 0, 0)).save(path)
    return [str(path) for path in paths]

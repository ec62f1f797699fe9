"""Recording agents as they run: browser-use by fakes with the fields of its own types, and a page
by a fake of Playwright's. The real ones are in tests/e2e/emulators/browser/test_recorded_page.py.
"""

from __future__ import annotations

import base64
import inspect
import io
import json
import logging
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import prill
from prill import Trajectory, UsageError, read_trajectories
from prill.datasets.live import Recording
from tests.support.paths import ROOT


def png(shade: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (64, 48), (shade, 0, 0)).save(data, "PNG")
    return data.getvalue()


@dataclass
class AgentOutput:
    """browser_use/agent/views.py."""

    action: list[dict[str, Any]]
    thinking: str = ""
    next_goal: str = "go on"

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return asdict(self)


@dataclass
class DOMRect:
    x: float
    y: float
    width: float
    height: float


@dataclass
class SnapshotNode:
    bounds: DOMRect


@dataclass
class AxNode:
    name: str


@dataclass
class Node:
    """EnhancedDOMTreeNode of browser_use/dom/views.py."""

    node_name: str
    attributes: dict[str, str]
    snapshot_node: SnapshotNode
    ax_node: AxNode


@dataclass
class DomState:
    """SerializedDOMState of browser_use/dom/views.py."""

    selector_map: dict[int, Node]
    text: str

    def llm_representation(self) -> str:
        return self.text


@dataclass
class BrowserState:
    """BrowserStateSummary of browser_use/browser/views.py."""

    url: str
    dom_state: DomState
    screenshot: str | None = None
    pixels_above: int = 0


@dataclass
class Item:
    """AgentHistory of browser_use/agent/views.py."""

    model_output: AgentOutput | None
    result: list[dict[str, Any]]
    state: dict[str, Any] = field(default_factory=lambda: {"url": "", "interacted_element": []})


@dataclass
class History:
    """AgentHistoryList of browser_use/agent/views.py."""

    history: list[Item]

    def model_dump(self) -> dict[str, Any]:
        return {"history": [asdict(item) for item in self.history]}


BUY = Node("BUTTON", {}, SnapshotNode(DOMRect(16, 12, 32, 24)), AxNode("Buy"))


def state(shade: int, text: str = "[4]<button>Buy</button>") -> BrowserState:
    shot = base64.b64encode(png(shade)).decode()
    return BrowserState("http://shop.test/", DomState({4: BUY}, text), shot)


CLICK = AgentOutput([{"click": {"index": 4}}, {"wait": {"seconds": 1}}], thinking="I buy it")
DONE = AgentOutput([{"done": {"text": "Bought.", "success": True}}])


def stored(folder: Path) -> list[Trajectory]:
    return list(read_trajectories(folder / "trajectories.jsonl"))


async def played(folder: Path, **settings: Any) -> Recording:
    """A run of two replies, of which the second action of the first was not carried out."""
    run = prill.record(folder, "Buy tea", **settings)
    await run.on_step(state(1), CLICK, 1)
    await run.on_step(state(2, "Thank you"), DONE, 2)
    done = {"is_done": True, "success": True, "judgement": {"verdict": False}}
    await run.on_done(History([Item(CLICK, [{"error": "covered"}]), Item(DONE, [done])]))
    return run


def test_callbacks_are_coroutine_functions_which_browser_use_awaits(tmp_path: Path) -> None:
    with prill.record(tmp_path, "g") as run:
        assert inspect.iscoroutinefunction(run.on_step)
        assert inspect.iscoroutinefunction(run.on_done)


@pytest.mark.asyncio
async def test_history_becomes_a_trajectory(tmp_path: Path) -> None:
    run = await played(tmp_path, id="tea-1")
    assert run.failures == 0
    [trajectory] = stored(tmp_path)
    first, last = trajectory.steps  # the wait was not carried out
    assert (first.action.kind, first.action.target) == ("click", "[4] button 'Buy'")
    assert first.thought == "I buy it\n\ngo on"
    assert first.observation.text == "[4]<button>Buy</button>"
    assert last.observation.text == "covered\n\nThank you"
    assert (trajectory.answer, trajectory.agent) == ("Bought.", "browser-use")
    shots = [Path(step.observation.screenshot or "") for step in trajectory.steps]
    assert [shot.read_bytes() for shot in shots] == [png(1), png(2)]


@pytest.mark.asyncio
async def test_success_is_a_claim_and_its_judge_nowhere(tmp_path: Path) -> None:
    await played(tmp_path)
    [trajectory] = stored(tmp_path)
    assert trajectory.metadata["claimed_success"] is True
    line = json.loads((tmp_path / "trajectories.jsonl").read_text())
    del line["metadata"]
    assert "success" not in json.dumps(line)
    assert "judgement" not in json.dumps(line)
    assert not (tmp_path / "labels.jsonl").exists()


@pytest.mark.asyncio
async def test_step_is_readable_before_it_is_carried_out(tmp_path: Path) -> None:
    run = prill.record(tmp_path, "Buy tea")
    await run.on_step(state(1), CLICK, 1)
    [partial] = (tmp_path / "partial").iterdir()
    line = json.loads(partial.read_text())
    assert [step["action"]["kind"] for step in line["steps"]] == ["click", "wait"]
    assert line["steps"][0]["action"]["point"] == [0.5, 0.5]
    run.close()
    assert [one.id for one in stored(tmp_path)] == [run.trajectory.id]


@pytest.mark.asyncio
async def test_equal_screenshots_are_one_file(tmp_path: Path) -> None:
    with prill.record(tmp_path, "g") as run:
        for number in range(3):
            await run.on_step(state(7), CLICK, number)
    assert len(list((tmp_path / "images").iterdir())) == 1


@pytest.mark.asyncio
async def test_nothing_is_written_twice(tmp_path: Path) -> None:
    run = await played(tmp_path, id="tea-1")
    await run.on_done(History([]))
    run.close()
    assert len(stored(tmp_path)) == 1
    with pytest.raises(UsageError, match="already contains a run 'tea-1'"):
        prill.record(tmp_path, "Buy tea", id="tea-1")


@pytest.mark.asyncio
async def test_runs_of_one_process_share_a_folder(tmp_path: Path) -> None:
    one, other = (prill.record(tmp_path, "g", id=id) for id in "ab")
    with pytest.raises(UsageError, match="already"):
        prill.record(tmp_path, "g", id="a")
    await one.on_step(state(1), CLICK, 1)
    one.close()
    await other.on_step(state(2), CLICK, 1)
    other.close()
    assert [one.id for one in stored(tmp_path)] == ["a", "b"]


@pytest.mark.asyncio
async def test_failures_are_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), prill.record(tmp_path, "g") as run:
        await run.on_step(object(), object(), 1)
        await run.on_step(state(1), CLICK, 2)
        await run.on_step(None, None, 3)
    assert run.failures == 2
    assert len([one for one in caplog.records if "the agent goes on" in one.message]) == 1
    assert len(stored(tmp_path)[0].steps) == 2


@pytest.mark.asyncio
async def test_unpaired_surrogates_lose_nothing(tmp_path: Path) -> None:
    with prill.record(tmp_path, "g \ud83d") as run:
        await run.on_step(
            state(1, "page \ud83d"), AgentOutput([{"click": {"index": 4}}], "\ude00"), 1
        )
    assert run.failures == 0
    assert len(stored(tmp_path)[0].steps) == 1


def test_what_cannot_be_recorded_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(prill.PrillError):
        prill.record(tmp_path, "g", metadata={"model": object()})
    prill.record(tmp_path, "g").close()  # and the folder is free again
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        prill.record(tmp_path / "file", "g")


def test_error_of_the_agent_is_on_record_without_its_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="secret"), prill.record(tmp_path, "g"):
        raise ValueError("secret")
    [trajectory] = stored(tmp_path)
    assert trajectory.error == "the run ended with ValueError"


def test_killed_run_is_kept_as_interrupted(tmp_path: Path) -> None:
    script = """
import asyncio, os, signal, sys
import prill
from tests.unit.datasets.test_live import CLICK, state
run = prill.record(sys.argv[1], "Buy tea", id="tea-1")
asyncio.run(run.on_step(state(1), CLICK, 1))
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    prill.record(tmp_path, "g").close()
    [interrupted] = read_trajectories(tmp_path / "interrupted.jsonl")
    assert interrupted.id.startswith("tea-1")
    assert len(interrupted.steps) == 2
    assert Path(interrupted.steps[0].observation.screenshot or "").read_bytes() == png(1)


class Locator:
    """Of a page without a body."""

    def aria_snapshot(self, *, timeout: float) -> str:
        raise TimeoutError("no body")

    def bounding_box(self, *, timeout: float) -> None:
        raise TimeoutError("not there")

    @property
    def first(self) -> Locator:
        return self


class Page:
    """A page of Playwright's sync API that cannot be looked at."""

    url, viewport_size = "http://shop.test/", None

    def __init__(self) -> None:
        self.looks, self.clicked = 0, ""

    def screenshot(self, *, scale: str, timeout: float) -> bytes:
        self.looks += 1
        raise RuntimeError("no screen")

    def locator(self, selector: str) -> Locator:
        return Locator()

    def click(self, selector: str) -> str:
        self.clicked += selector
        return "clicked"


def test_page_that_cannot_be_seen_is_used_all_the_same(tmp_path: Path) -> None:
    page = Page()
    with prill.record(tmp_path, "g") as run:
        seen = run.page(page)
        assert [seen.click("a") for _ in range(9)] == ["clicked"] * 9
    assert page.clicked == "a" * 9
    assert page.looks == 3  # then it is left alone: each look may take seconds
    assert run.failures == 6
    [trajectory] = stored(tmp_path)
    assert [step.action.target for step in trajectory.steps] == ["a"] * 9

"""Recording in a browser, killed with kill -9: nothing finished is lost or played twice, and no
Chromium stays behind.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prill.io.store import iter_trajectories, read_labels
from prill.types import Trajectory
from tests.support.killing import Family

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc"),
    pytest.mark.skipif(
        not shutil.which("chromium") and not shutil.which("chromium-headless-shell"),
        reason="no Chromium here",
    ),
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("playwright", "miniwob")),
        reason="not installed: prill[web]",
    ),
]
TASKS = "click-button,click-link,enter-text,login-user,click-option,enter-password"
KILLS = int(os.environ.get("PRILL_KILLS", "60")) if os.environ.get("PRILL_LONG") else 3
SEEDS = "0-2" if os.environ.get("PRILL_LONG") else "0-1"
WORDS = ("rollout", "miniwob", "--tasks", TASKS, "--seeds", SEEDS, "--workers", 2, "-o", "runs")


def lines(folder: Path, name: str = "trajectories.jsonl") -> bytes:
    """The whole lines of a file of the run."""
    path = folder / "runs" / name
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def recorded(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What was done in each episode and what came of it, with every screenshot there."""
    found: dict[str, tuple[Any, ...]] = {}
    truth = {label.id: label.success for label in read_labels(folder / "runs/labels.jsonl")}
    for item in iter_trajectories(folder / "runs/trajectories.jsonl"):
        assert isinstance(item, Trajectory) and item.id not in found
        seen = [
            state.screenshot
            for state in (*(step.observation for step in item.steps), item.final)
            if state
        ]
        assert all(path is None or Path(path).stat().st_size for path in seen)
        found[item.id] = (
            item.task,
            [step.action for step in item.steps],
            item.answer,
            item.error,
            truth[item.id],
        )
    assert truth.keys() == found.keys()
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, ...]]:
    """The same episodes of a run that nobody stopped."""
    folder = tmp_path_factory.mktemp("whole")
    run = Family(*WORDS, folder=folder)
    assert run.finish() == 0, run.said()
    return recorded(folder)


def moments(chance: random.Random, folder: Path, done: int) -> Callable[[Family], bool]:
    """A moment to kill at: the browser starts, an episode is under way, a step of it or a whole one
    is written.
    """
    part, begun = folder / "runs/partial", set(glob_names(folder / "runs/partial"))
    count = done + chance.randrange(1, 4)
    return chance.choice(
        [
            lambda run: any("type=renderer" in command for command in run.left().values()),
            lambda run: bool(set(glob_names(part)) - begun),
            lambda run: lines(folder, "labels.jsonl").count(b"\n") >= count,
            lambda run: lines(folder).count(b"\n") >= count,
        ]
    )


def glob_names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")] if folder.is_dir() else []


def test_killed_recording_resumes_to_the_same(
    tmp_path: Path, whole: dict[str, tuple[Any, ...]]
) -> None:
    chance, kept, kills = random.Random(5), b"", 0
    folder = tmp_path
    while kills < KILLS:
        run = Family(*WORDS, folder=folder)
        moment = moments(chance, folder, kept.count(b"\n"))
        if not run.wait_until(lambda run=run, moment=moment: moment(run)):
            assert run.process.returncode == 0, run.said()
            assert recorded(folder) == whole
            shutil.rmtree(folder / "runs")
            kept = b""
            continue
        run.kill()
        kills += 1
        assert run.gone(), "a browser outlived the command that started it"
        assert lines(folder).startswith(kept), "something already written was lost"
        kept = lines(folder)
    run = Family(*WORDS, folder=folder)
    assert run.finish() == 0, run.said()
    assert lines(folder).startswith(kept)
    assert recorded(folder) == whole
    assert run.gone() and not glob_names(folder / "runs/partial")

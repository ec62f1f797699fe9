"""The script of the committed MiniWoB++ sample plays the same runs again."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from prill.emulators.miniwob.environment import MiniWoB
from prill.io.store import iter_trajectories, read_labels
from prill.types import Trajectory
from tests.support.chromium import need_chromium
from tests.support.paths import ROOT

SAMPLE = ROOT / "datasets/samples/miniwob"


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("samples", ROOT / "benchmarks/samples.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "samples", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("task", "behaviours"),
    [
        ("choose-list", ("solve", "wrong-target", "look-first", "unsent", "corrected", "undone")),
        ("click-dialog-2", ("solve", "unsent")),
    ],
)
async def test_playing_again_gives_the_same(
    task: str, behaviours: tuple[str, ...], samples: ModuleType, tmp_path: Path
) -> None:
    need_chromium("miniwob")
    labels = {label.id: label for label in read_labels(SAMPLE / "labels.jsonl")}
    recorded = {
        (labels[run.id].note or "").partition(";")[0]: run
        for run in reversed(list(iter_trajectories(SAMPLE / "trajectories.jsonl")))
        if run.task.site == task
    }
    environment = MiniWoB(tmp_path / "images", announce_end=False)
    try:
        for behaviour in behaviours:
            before = recorded[behaviour]
            seed = int((before.task.start_url or "").rpartition("=")[2])
            again, label = await samples.episode(environment, task, seed, behaviour)
            assert label == labels[before.id]
            assert without_pictures(samples.by_page(again)) == without_pictures(before)
    finally:
        await environment.close()


def without_pictures(run: Trajectory) -> Trajectory:
    steps = tuple(
        replace(step, observation=replace(step.observation, screenshot=None)) for step in run.steps
    )
    return replace(run, steps=steps, final=run.final and replace(run.final, screenshot=None))

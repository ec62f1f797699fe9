"""The committed MiniWoB++ sample is whole, small, and does not tell its labels."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from prill.io.store import read_labels, read_trajectories
from prill.runs.rollout.cases import read_plan
from prill.types import LabelRecord, Trajectory
from tests.support.paths import ROOT

SAMPLE = ROOT / "datasets" / "samples" / "miniwob"
PLAN = read_plan(SAMPLE / "plan.toml")


@pytest.fixture(scope="module")
def trajectories() -> dict[str, Trajectory]:
    return by_id(SAMPLE)


@pytest.fixture(scope="module")
def labels() -> dict[str, LabelRecord]:
    return {label.id: label for label in read_labels(SAMPLE / "labels.jsonl")}


def by_id(folder: Path) -> dict[str, Trajectory]:
    read = list(read_trajectories(folder / "trajectories.jsonl", on_error="skip"))
    assert len({t.id for t in read}) == len(read)
    return {t.id: t for t in read}


def test_every_planned_episode_has_a_label(
    trajectories: dict[str, Trajectory], labels: dict[str, LabelRecord]
) -> None:
    assert [row.id("miniwob", "") for row in PLAN] == list(trajectories) == list(labels)
    assert len(PLAN) >= 66
    assert len({row.task for row in PLAN}) >= 12


def test_every_kind_of_failure_is_there(labels: dict[str, LabelRecord]) -> None:
    kinds = Counter((row.behaviour, labels[row.id("miniwob", "")].success) for row in PLAN)
    assert {behaviour for behaviour, success in kinds if success} == {"solve"}
    assert all(success is not None for _, success in kinds)
    assert all(
        kinds[kind, False] >= 6
        for kind in ("wrong-target", "stop-early", "no-submit", "false-claim")
    )
    assert 0.45 <= kinds["solve", True] / len(PLAN) <= 0.55


def test_every_picture_opens_and_is_used(trajectories: dict[str, Trajectory]) -> None:
    used = {Path(str(o.screenshot)) for t in trajectories.values() for o in t.observations}
    assert used == set((SAMPLE / "images").iterdir())
    for path in used:
        with Image.open(path) as picture:
            picture.load()
            assert (picture.format, picture.size) == ("WEBP", (320, 420))
        assert path.stat().st_size < 12_000
    adapter = SAMPLE / "judge/adapter.gguf"
    others = [path for path in SAMPLE.rglob("*") if path.is_file() and path != adapter]
    assert sum(path.stat().st_size for path in others) < 1_000_000
    assert adapter.stat().st_size < 5_000_000


def test_trajectory_tells_label_only_by_acts(trajectories: dict[str, Trajectory]) -> None:
    told = {
        (t.agent, json.dumps(t.metadata), t.error, t.steps[-1].action.kind, len(t.id))
        for t in trajectories.values()
    }
    assert told == {("scripted", '{"ended_by": "agent"}', None, "stop", 18)}
    text = (SAMPLE / "trajectories.jsonl").read_text()
    hints = (
        "reward",
        "oracle",
        "wrong-target",
        "stop-early",
        "no-submit",
        "false-claim",
        '"solve"',
        "success",
    )
    assert not [word for word in hints if word in text]


def test_answer_words_do_not_tell_success(
    trajectories: dict[str, Trajectory], labels: dict[str, LabelRecord]
) -> None:
    for opening, closing in (("Done. I ", ""), ("Done: ", ""), ("I ", "The task is complete.")):
        outcomes = {
            labels[t.id].success
            for t in trajectories.values()
            if t.answer and t.answer.startswith(opening) and t.answer.endswith(closing)
        }
        assert outcomes == {True, False}

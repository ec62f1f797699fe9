"""The committed MiniWoB++ sample is whole, small, and does not tell its labels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from prill.cli import main
from prill.io.checksums import CHECKSUMS
from prill.io.store import read_labels, read_trajectories
from prill.runs.rollout.cases import Case, read_plan
from prill.types import LabelRecord, Trajectory
from tests.chromium import need_chromium

SAMPLE = Path(__file__).parents[2] / "datasets" / "samples" / "miniwob"
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
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) < 1_000_000


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


def test_recording_again_gives_the_same(
    trajectories: dict[str, Trajectory], labels: dict[str, LabelRecord], tmp_path: Path
) -> None:
    need_chromium("miniwob")
    rows = PLAN[::14]
    assert len(rows) == 6
    assert played(rows[:4], tmp_path) == 4
    # The second run takes up the first, whose last line a crash has cut, before there was a record
    # of checksums.
    (tmp_path / "out" / CHECKSUMS).unlink()
    file = tmp_path / "out" / "trajectories.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    assert played(rows, tmp_path) == 3
    again, truths = (
        by_id(tmp_path / "out"),
        {label.id: label for label in read_labels(tmp_path / "out" / "labels.jsonl")},
    )
    # Ids follow the settings of a run, so the same episode is found by its task and by how the
    # agent behaved.
    samples = {(t.task.id, labels[t.id].note): t for t in trajectories.values()}
    assert [(t.task.site, (truths[t.id].note or "").split(";")[0]) for t in again.values()] == [
        (row.task, row.behaviour) for row in rows
    ]
    for trajectory in again.values():
        truth = truths[trajectory.id]
        sample = samples[trajectory.task.id, truth.note]
        assert replace(truth, id=sample.id) == labels[sample.id]
        assert without_pictures(trajectory) == without_pictures(sample)
        for here, there in zip(trajectory.observations, sample.observations, strict=True):
            assert difference(str(here.screenshot), str(there.screenshot)) < 8


def played(rows: Sequence[Case], folder: Path) -> int:
    """Records the rows by the command; gives how many it played."""
    plan = folder / "plan.toml"
    lines = (
        f'{{ task = "{row.task}", seed = {row.seed}, behaviour = "{row.behaviour}" }}'
        for row in rows
    )
    plan.write_text(f"episodes = [{', '.join(lines)}]")
    before = len(by_id(folder / "out")) if (folder / "out").exists() else 0
    assert main(["rollout", "miniwob", "--plan", str(plan), "-o", str(folder / "out")]) == 0
    return len(by_id(folder / "out")) - before


def without_pictures(trajectory: Trajectory) -> tuple[object, ...]:
    states = [(o.text, o.url, o.caption) for o in trajectory.observations]
    # The samples are older than points and dates.
    steps = [(replace(step.action, point=None), step.thought) for step in trajectory.steps]
    metadata = {name: value for name, value in trajectory.metadata.items() if name != "date"}
    return trajectory.task, trajectory.agent, states, steps, trajectory.answer, metadata


def difference(first: str, second: str) -> float:
    """Mean difference of the pixels, of 255: other versions of Chromium and of the fonts draw
    letters a little otherwise.
    """
    with Image.open(first) as a, Image.open(second) as b:
        assert a.size == b.size
        counts = ImageChops.difference(a.convert("L"), b.convert("L")).histogram()
        return sum(value * count for value, count in enumerate(counts)) / (a.width * a.height)

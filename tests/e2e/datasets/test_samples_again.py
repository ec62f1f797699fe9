"""The command records the committed MiniWoB++ sample again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageChops

from prill.cli import main
from prill.io.checksums import CHECKSUMS
from prill.io.store import read_labels
from prill.runs.rollout.cases import Case
from prill.types import LabelRecord, Trajectory
from tests.support.chromium import need_chromium
from tests.unit.datasets.test_samples import PLAN, by_id


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

"""`prill rollout airline` in a browser: the scripted policy, with progress in its labels."""

from __future__ import annotations

from pathlib import Path

from prill.episodes import rollout
from prill.io.store import iter_trajectories, read_labels
from prill.types import Trajectory
from tests.support.chromium import need_chromium
from tests.support.commands.as_config import config


def test_scripted_booking_has_its_progress(tmp_path: Path) -> None:
    need_chromium()
    words = [
        "airline",
        "--tasks",
        "find-booking",
        "--seeds",
        "6",
        "--policy",
        "scripted",
        "-o",
        str(tmp_path),
    ]
    played = rollout(config(*words)).counts
    assert (played.success, played.broken) == (1, 0)
    (label,), (episode,) = (
        read_labels(tmp_path / "labels.jsonl"),
        iter_trajectories(tmp_path / "trajectories.jsonl"),
    )
    assert label.note == "solve; progress 1.00"
    assert (
        isinstance(episode, Trajectory)
        and episode.task.start_url == "http://airline.example/?scenario=TASK_FIND_BOOKING-06"
    )
    # The same command finds that there is nothing left to do.
    assert rollout(config(*words)).counts.skipped == 1

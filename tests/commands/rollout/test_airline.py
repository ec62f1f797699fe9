"""`prill rollout airline`: a desk in this process by its name, played by the scripted policy, with
progress in its labels.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.io.store import read_labels, read_trajectories
from prill.runs.rollout import rollout
from prill.types import Trajectory
from tests.chromium import need_chromium
from tests.commands.as_config import config


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--tasks", "fly"), "there is no task fly; there are 5, such as find-booking"),
        (("--tasks", "all", "--seeds", "18-20"), "seeds: each task has scenarios 0 to 19"),
        (("--tasks", "all", "--behaviour", "wrong-target"), "at the airline there is solve"),
        (("--tasks", "all", "--elsewhere"), "leave out elsewhere"),
        (
            ("--tasks", "all", "--elsewhere", "--policy", "replay", "--replay", "NONE"),
            "AIRLINE is not set to an address",
        ),
    ],
)
def test_what_cannot_be_played_is_said(
    words: tuple[str, ...], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRLINE", raising=False)
    nothing = tmp_path / "nothing.jsonl"
    nothing.write_text("")
    policy = () if "--policy" in words else ("--policy", "scripted")
    given = [word.replace("NONE", str(nothing)) for word in (*words, *policy)]
    with pytest.raises(UsageError, match=problem):
        rollout(config("airline", "-o", str(tmp_path / "out"), *given))


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
        read_trajectories(tmp_path / "trajectories.jsonl"),
    )
    assert label.note == "solve; progress 1.00"
    assert (
        isinstance(episode, Trajectory)
        and episode.task.start_url == "http://airline.example/?scenario=TASK_FIND_BOOKING-06"
    )
    # The same command finds that there is nothing left to do.
    assert rollout(config(*words)).counts.skipped == 1

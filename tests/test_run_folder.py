"""The folder of a run: whole lines only, whatever stops the writing, and one clear error for what
cannot be written.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from prill.episodes.run_folder import RunFolder
from prill.errors import InputError, UsageError
from prill.io.store import read_labels, read_trajectories, write_labels
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory

from .records import as_killed, as_of_old


def episode(id: str, text: str = "", error: str | None = None) -> Trajectory:
    step = Step(Observation(text=text), Action("click"))
    return Trajectory(id=id, task=Task(goal="g"), steps=(step,), error=error)


def kept(folder: Path, file: str = "trajectories.jsonl") -> list[str]:
    return [item.id for item in read_trajectories(folder / file) if isinstance(item, Trajectory)]


def test_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunFolder(tmp_path) as folder:
        folder.keep(episode("a"), LabelRecord(id="a", success=True, source="oracle"))
        try:
            # No file may grow beyond this: what a full disk does to the last line.
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
            with pytest.raises(UsageError, match="cannot be written: "):
                folder.keep(
                    episode("b", "x" * 5000), LabelRecord(id="b", success=True, source="oracle")
                )
            with pytest.raises(UsageError, match="cannot be written: "):
                folder.note(episode("b", "x" * 5000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        folder.keep(episode("c"), LabelRecord(id="c", success=True, source="oracle"))
    assert kept(tmp_path) == ["a", "c"]
    with RunFolder(tmp_path):
        assert [label.id for label in read_labels(tmp_path / "labels.jsonl")] == ["a", "c"]


def test_unusable_folder_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="cannot be written: "):
            RunFolder(path)


@pytest.mark.parametrize("torn", [b'{"id": "b", "ta', b"x" * 200_000])
def test_torn_last_line_is_cut_off(torn: bytes, tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        folder.keep(episode("a"), None)
    path = tmp_path / "trajectories.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    as_killed(tmp_path)
    with RunFolder(tmp_path) as folder:
        assert ("a" in folder, "b" in folder, path.read_bytes()) == (True, False, whole)


def test_line_without_newline_stays(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        folder.keep(episode("a"), None)
        folder.keep(episode("b", "x" * 100_000), None)
    path = tmp_path / "trajectories.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.removesuffix(b"\n"))
    as_of_old(tmp_path)
    with RunFolder(tmp_path):
        assert path.read_bytes() == whole


def test_damaged_partial_record_is_named(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        folder.note(episode("a"))
    (path,) = (tmp_path / "partial").glob("*.json")
    path.write_bytes(b"")
    with pytest.raises(InputError, match=rf"{path.name}: .*delete it"):
        RunFolder(tmp_path)
    path.unlink()
    RunFolder(tmp_path).close()


def test_only_episodes_to_replay_leave(tmp_path: Path) -> None:
    with RunFolder(tmp_path) as folder:
        for id, error in (("a", "gone"), ("b", None), ("c", "gone")):
            folder.keep(episode(id, error=error), None)
    with RunFolder(tmp_path, again={"b", "c"}) as folder:
        assert [id in folder for id in "abc"] == [True, True, False]
    assert (kept(tmp_path), kept(tmp_path, "interrupted.jsonl")) == (["a", "b"], ["c~1"])


def test_what_people_said_is_never_dropped(tmp_path: Path) -> None:
    labels = [
        LabelRecord(id=id, success=True, source=source)
        for id in ("other", "again")
        for source in ("human", "oracle")
    ]
    write_labels(tmp_path / "labels.jsonl", labels)
    with RunFolder(tmp_path, again=["again"]):
        assert list(read_labels(tmp_path / "labels.jsonl")) == labels[:1]


def test_a_link_for_partial_leads_nowhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis.txt").write_text("all of it")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/partial").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="partial: is a link"):
        RunFolder(tmp_path / "run")
    assert (elsewhere / "thesis.txt").read_text() == "all of it"

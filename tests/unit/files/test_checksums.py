"""The record of what a run folder holds: whatever stops the writing, and whoever changes the
files.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from prill.cli import main
from prill.episodes.run_folder import RunFolder
from prill.errors import UsageError
from prill.io import checksums
from prill.io.checksums import CHECKSUMS, Checksums, expect_unchanged
from prill.io.outputs import write_output
from prill.io.store import read_labels, read_trajectories, write_labels
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory
from prill.ui.view.label_log import LabelLog


class Killed(BaseException):
    """As sudden as a kill."""


def play(folder: Path, ids: str, *, error: str | None = None, again: str = "") -> None:
    with RunFolder(folder, again=set(again)) as run:
        for id in ids:
            if id not in run:
                step = Step(Observation(text=id), Action("click"))
                run.note(Trajectory(id=id, task=Task(goal="g"), steps=(step,)))
                run.keep(
                    Trajectory(id=id, task=Task(goal="g"), steps=(step,), error=error), label(id)
                )


def label(id: str, source: str = "oracle", *, success: bool = True) -> LabelRecord:
    return LabelRecord(
        id=id, success=success, source=source, annotator="ann" if source == "human" else None
    )


def ids(folder: Path) -> list[str]:
    return [item.id for item in read_trajectories(folder)]


def stopping(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The process is gone after so many writes and renames; a write may leave half of its line."""
    writes = 0

    def dies() -> bool:
        nonlocal writes
        writes += 1
        return writes > after

    def append(file: int, data: bytes, real: Callable[[int, bytes], None]) -> None:
        if dies():
            real(file, data[: len(data) // 2])
            raise Killed
        real(file, data)

    def replace(
        path: Path, target: Path, real: Callable[[Path, Path], Path] = Path.replace
    ) -> Path:
        if dies():
            raise Killed
        return real(path, target)

    for module in ("prill.io.checksums", "prill.io.append_log"):
        real = __import__(module, fromlist=["_"]).append_whole
        monkeypatch.setattr(
            f"{module}.append_whole", lambda file, data, real=real: append(file, data, real)
        )
    monkeypatch.setattr(Path, "replace", replace)
    # a kill closes, and notes nothing
    monkeypatch.setattr(RunFolder, "close", lambda self: self._abandon())


@pytest.mark.parametrize("after", range(0, 45, 1))
def test_killed_at_any_write_the_run_goes_on(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path, "ab", error="the browser broke")
    with monkeypatch.context() as patched:
        stopping(patched, after)
        with contextlib.suppress(Killed):
            play(tmp_path, "abcd", again="ab")
    play(tmp_path, "abcd", again="ab")
    assert sorted(ids(tmp_path)) == ["a", "b", "c", "d"]
    assert {record.id for record in read_labels(tmp_path / "labels.jsonl")} == set("abcd")
    Checksums(tmp_path).check()


@pytest.mark.parametrize("name", ["trajectories.jsonl", "labels.jsonl", CHECKSUMS])
def test_link_in_the_place_of_a_file_is_named(name: str, tmp_path: Path) -> None:
    play(tmp_path / "run", "ab")
    shutil.copy(tmp_path / "run" / name, tmp_path / "same")
    (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / name).symlink_to(tmp_path / "same")
    with pytest.raises(UsageError, match=f"{name}: is a symbolic link"):
        RunFolder(tmp_path / "run")


def test_counts_of_what_is_gone_are_told(tmp_path: Path) -> None:
    play(tmp_path, "abcd")
    path = tmp_path / "labels.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    with pytest.raises(
        UsageError,
        match=r"labels.jsonl: has changed: it had 4 lines .* and now has 3 lines .*prill accept",
    ):
        list(read_labels(path))
    path.unlink()
    with pytest.raises(UsageError, match=r"labels.jsonl: is missing; it had 4 lines"):
        RunFolder(tmp_path)


def test_what_prill_itself_changes_is_no_damage(tmp_path: Path) -> None:
    play(tmp_path, "ab")
    path = tmp_path / "labels.jsonl"
    for success in (True, False):  # appended, then replaced
        with LabelLog(path, "ann") as log:
            log.put(label("a", "human", success=success))
            Checksums(tmp_path).check()
    with LabelLog(path, "ann") as log:
        log.remove("a")
    Checksums(tmp_path).check()
    write_labels(path, [label("a", success=False), label("b")])
    play(tmp_path, "abc")
    assert ids(tmp_path) == ["a", "b", "c"]


def test_changes_by_hand_are_accepted_by_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(tmp_path, "ab")
    path = tmp_path / "labels.jsonl"
    path.write_bytes(path.read_bytes().replace(b"true", b"false"))
    with pytest.raises(UsageError, match="labels.jsonl: has changed"):
        expect_unchanged(path)
    assert main(["accept", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert [record.success for record in read_labels(path)] == [False, False]
    assert main(["accept", str(tmp_path / "partial")]) == 2, "a folder without a record"


def test_folder_from_before_there_were_checksums_gets_them(tmp_path: Path) -> None:
    play(tmp_path, "ab")
    (tmp_path / CHECKSUMS).unlink()
    assert ids(tmp_path) == ["a", "b"]
    play(tmp_path, "abc")
    (tmp_path / "trajectories.jsonl").write_bytes(
        (tmp_path / "trajectories.jsonl").read_bytes().replace(b"g", b"h", 1)
    )
    with pytest.raises(UsageError, match=r"trajectories.jsonl: has changed"):
        ids(tmp_path)


def test_crash_between_record_and_rename_leaves_both_right(tmp_path: Path) -> None:
    path, part = tmp_path / "results.json", tmp_path / "part"
    write_output(path, b"old")
    Checksums(tmp_path).note(path.name)
    part.write_bytes(b"new")
    with pytest.raises(Killed), Checksums(tmp_path).replacing(path.name, part):
        raise Killed
    expect_unchanged(path)
    part.replace(path)
    expect_unchanged(path)
    path.write_bytes(b"else")
    with pytest.raises(UsageError, match=r"results.json: has changed"):
        expect_unchanged(path)


def test_recording_reads_no_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, "a")
    read: list[Path] = []

    class Counting(checksums._Contents):
        def __init__(self, path: Path, *sizes: object) -> None:
            read.append(path)
            super().__init__(path, *sizes)  # type: ignore[arg-type]

    monkeypatch.setattr(checksums, "_Contents", Counting)
    with RunFolder(tmp_path) as run:
        at_start = len(read)
        for number in range(20):
            run.keep(Trajectory(id=f"b{number}", task=Task(goal="g")), label(f"b{number}"))
    assert len(read) == at_start

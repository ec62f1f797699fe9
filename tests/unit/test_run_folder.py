"""The folder of a run: whole lines only, whatever stops the writing, and one clear error for what
cannot be written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from prill.episodes.run_folder import RunFolder, unlabelled_attempts
from prill.errors import InputError, UsageError
from prill.io import append_log
from prill.io.store import iter_trajectories, read_labels, write_labels
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory


def episode(id: str, text: str = "", error: str | None = None) -> Trajectory:
    step = Step(Observation(text=text), Action("click"))
    return Trajectory(id=id, task=Task(goal="g"), steps=(step,), error=error)


def kept(folder: Path, file: str = "trajectories.jsonl") -> list[str]:
    return [item.id for item in iter_trajectories(folder / file) if isinstance(item, Trajectory)]


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


class Killed(BaseException):
    """As sudden as a kill."""


def play(folder: Path, *, error: str | None = None, again: str = "", ids: str = "abcd") -> None:
    with RunFolder(folder, again=set(again)) as run:
        for id in ids:
            if id not in run:
                run.note(episode(id))
                label = LabelRecord(id=id, success=True, source="oracle")
                run.keep(episode(id, error=error), label)


def stopping(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The process is gone after so many writes and renames; a write may leave half of its line."""
    writes = iter(range(after))

    def append(file: int, data: bytes, real: Callable[[int, bytes], None]) -> None:
        if next(writes, None) is None:
            real(file, data[: len(data) // 2])
            raise Killed
        real(file, data)

    def replace(
        path: Path, target: Path, real: Callable[[Path, Path], Path] = Path.replace
    ) -> Path:
        if next(writes, None) is None:
            raise Killed
        return real(path, target)

    real = append_log.append_whole
    monkeypatch.setattr(append_log, "append_whole", lambda *given: append(*given, real))
    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(RunFolder, "close", RunFolder._abandon)  # a kill flushes nothing


@pytest.mark.parametrize("after", range(18))
def test_killed_at_any_write_the_run_goes_on(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path, ids="ab", error="the browser broke")
    with monkeypatch.context() as patched:
        stopping(patched, after)
        with contextlib.suppress(Killed):
            play(tmp_path, again="ab")
    play(tmp_path, again="ab")
    assert sorted(kept(tmp_path)) == ["a", "b", "c", "d"]
    assert {record.id for record in read_labels(tmp_path / "labels.jsonl")} == set("abcd")
    assert unlabelled_attempts(tmp_path) == set()

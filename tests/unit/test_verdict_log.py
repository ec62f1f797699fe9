"""The verdict file: append, repair, resume, replace."""

import fcntl
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from prill.errors import UsageError
from prill.io.store import encode, read_verdicts
from prill.io.verdict_log import VerdictLog
from prill.types import EvaluatorInfo, Verdict

INFO = EvaluatorInfo("vlm", "1", "m", "sha256:0", {"frames": 1, "list": [1]})


def verdict(
    id: str, success: bool | None = True, unscored: str | None = None, key: str = "k"
) -> Verdict:
    return Verdict(id=id, success=success, unscored=unscored, evaluator=INFO, key=key)  # type: ignore[arg-type]


def test_append_is_on_disk_before_close(tmp_path: Path) -> None:
    log = VerdictLog(tmp_path / "out/v.jsonl", INFO)
    log.append(verdict("a"))
    assert (tmp_path / "out/v.jsonl").read_bytes() == encode(verdict("a"))
    log.close()
    log.close()


@pytest.mark.parametrize("torn", [b'{"id":"b","succ', b"\xff\xfe", b"{"])
def test_torn_last_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(verdict("a")) + torn)
    with VerdictLog(path, INFO) as log:
        assert log.done("a", lambda: "k")
        log.append(verdict("b"))
    assert [v.id for v in read_verdicts(path)] == ["a", "b"]


def test_line_without_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(verdict("a")).rstrip())
    with VerdictLog(path, INFO) as log:
        log.append(verdict("b"))
    assert [v.id for v in read_verdicts(path)] == ["a", "b"]


def test_done_goes_by_key_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    rows = [
        verdict("a"),
        verdict("b", None, "timeout"),
        verdict("c", None, "budget"),
        verdict("d", None, "input"),
    ]
    path.write_bytes(b"".join(map(encode, rows)))
    with VerdictLog(path, INFO) as log:
        assert [log.done(id, lambda: "k") for id in "abcd"] == [True, True, False, False]
        assert not log.done("a", lambda: "other content")
    with VerdictLog(path, INFO, retry_unscored=True) as log:
        assert [log.done(id, lambda: "k") for id in "abcd"] == [True, False, False, False]


def test_new_verdict_replaces_the_old(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(verdict("a", None, "timeout")) + encode(verdict("b")))
    path.chmod(0o640)
    with VerdictLog(path, INFO, retry_unscored=True) as log:
        log.append(verdict("a"))
        assert len(list(read_verdicts(path))) == 3
    assert [(v.id, v.unscored) for v in read_verdicts(path)] == [("b", None), ("a", None)]
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_id_left_twice_by_crash_is_tidied(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(verdict("a", None, "timeout")) + encode(verdict("a")))
    with VerdictLog(path, INFO) as log:
        assert log.done("a", lambda: "k")
    assert [v.success for v in read_verdicts(path)] == [True]


def test_other_evaluators_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(verdict("a")))
    with pytest.raises(
        UsageError, match="contains verdicts of another judge.*model m there, n now"
    ):
        VerdictLog(path, EvaluatorInfo("vlm", "1", "n", "sha256:0", {"frames": 1, "list": [1]}))
    assert path.read_bytes() == encode(verdict("a"))


def test_no_resume_keeps_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(verdict("a")))
    with VerdictLog(path, EvaluatorInfo("other", "1"), resume=False) as log:
        assert not log.done("a", lambda: "k")
    assert (tmp_path / "v.jsonl.bak").read_bytes() == encode(verdict("a"))
    assert path.read_bytes() == b""


def test_trajectory_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_text('{"id": "a", "task": {"goal": "g"}}\n')
    with pytest.raises(UsageError, match=r"v\.jsonl:1: not a verdict"):
        VerdictLog(path, INFO)
    assert path.read_text() == '{"id": "a", "task": {"goal": "g"}}\n'


def test_foreign_line_is_no_torn_verdict(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    with pytest.raises(UsageError, match="not a verdict"):
        VerdictLog(path, INFO)
    assert path.read_text() == "my notes"


def test_second_writer_is_refused(tmp_path: Path) -> None:
    with VerdictLog(tmp_path / "v.jsonl", INFO), pytest.raises(UsageError, match="another process"):
        VerdictLog(tmp_path / "v.jsonl", INFO)


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file grows beyond `room` bytes: what comes then is cut there, as on a disk that is
    full.
    """
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    with VerdictLog(path, INFO) as log:
        log.append(verdict("a"))
        with (
            full_disk(path.stat().st_size + 20),
            pytest.raises(UsageError, match="cannot be written: File too large"),
        ):
            log.append(verdict("b"))
        log.append(verdict("c"))
    assert [v.id for v in read_verdicts(path)] == ["a", "c"]


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "replaced": lambda path: path.with_name("new").replace(path),
    "renamed": lambda path: path.rename(path.with_name("older.jsonl")),
    "appended": lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_file_loses_no_verdict(tmp_path: Path, change: str) -> None:
    path = tmp_path / "v.jsonl"
    (tmp_path / "new").write_bytes(encode(verdict("x")))
    log = VerdictLog(path, INFO)
    log.append(verdict("a"))
    CHANGES[change](path)
    with pytest.raises(UsageError, match="another program"):
        log.append(verdict("b"))
    with pytest.raises(UsageError, match=r"v\.jsonl\.bak"):
        log.close()
    assert (tmp_path / "v.jsonl.bak").read_bytes().startswith(encode(verdict("a")))
    assert encode(verdict("b")) in (tmp_path / "v.jsonl.bak").read_bytes()


def test_emptied_file_ends_the_run(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    log = VerdictLog(path, INFO)
    log.append(verdict("a"))
    os.truncate(path, 0)
    with pytest.raises(UsageError, match="another program has written to this file"):
        log.append(verdict("b"))
    with pytest.raises(UsageError, match="another program"):
        log.close()


def test_lock_is_of_the_file_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(verdict("old")))
    (tmp_path / "tidied").write_bytes(encode(verdict("new")))

    def other_writer_ends(*arguments: Any) -> None:
        monkeypatch.undo()
        (tmp_path / "tidied").replace(path)  # between opening and locking
        fcntl.flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", other_writer_ends)
    with VerdictLog(path, INFO) as log:
        log.append(verdict("b"))
    assert [v.id for v in read_verdicts(path)] == ["new", "b"]


@pytest.mark.parametrize("resume", [True, False])
def test_link_to_the_file_stays_a_link(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "disk").mkdir()
    path, real = tmp_path / "v.jsonl", tmp_path / "disk/v.jsonl"
    path.symlink_to(real)
    real.write_bytes(encode(verdict("a", None, "budget")))
    with VerdictLog(path, INFO, resume=resume) as log:
        log.append(verdict("a", None, "budget"))
        log.append(verdict("a"))
    assert path.is_symlink()
    assert [v.success for v in read_verdicts(real)] == [True]


@pytest.mark.parametrize(
    "fault", ['"score":7', '"usage":{"calls":"many"}', '"rewards":' + "[" * 100_000]
)
def test_resume_takes_up_what_can_be_read(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "v.jsonl"
    before = encode(verdict("a")).replace(b'"score":null', fault.encode())
    path.write_bytes(before)
    with pytest.raises(UsageError, match=r"v\.jsonl:1: not a verdict"):
        VerdictLog(path, INFO)
    assert path.read_bytes() == before


def test_unwritable_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        VerdictLog(tmp_path, INFO)

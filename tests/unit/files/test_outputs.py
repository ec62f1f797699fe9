"""Outputs: whole or not at all, never in the place of something else, through links and into
pipes.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.io.outputs import check_output, read_content, write_output, writing

OLD = b'{"id": "a", "success": true}\n'


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "l.jsonl"
    path.write_bytes(OLD)
    return path


def test_an_input_is_no_output(labels: Path) -> None:
    (labels.parent / "soft").symlink_to(labels)
    (labels.parent / "hard").hardlink_to(labels)
    (labels.parent / "folder").symlink_to(labels.parent)
    check_output(labels, "labels")
    for name in ("l.jsonl", "soft", "hard", "folder/l.jsonl"):
        with pytest.raises(
            UsageError, match="this is also an input; choose another file"
        ) as caught:
            check_output(labels.parent / name, "labels", [None, "-", "none", labels])
        assert caught.value.parameters == ("output",)


def test_a_failed_block_leaves_the_old(labels: Path) -> None:
    with pytest.raises(ZeroDivisionError), writing(labels) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert labels.read_bytes() == OLD
    assert list(labels.parent.iterdir()) == [labels]


def test_errors_of_the_block_pass_through(labels: Path) -> None:
    with pytest.raises(FileNotFoundError), writing(labels):
        (labels.parent / "none").open().close()


def test_a_full_disk_is_a_usage_error() -> None:
    with (
        pytest.raises(UsageError, match="/dev/full: cannot be written: No space left"),
        writing("/dev/full") as file,
    ):
        file.write(b"x" * 100_000)


def test_links_and_modes_stay(labels: Path) -> None:
    labels.chmod(0o640)
    link = labels.parent / "link"
    link.symlink_to(labels.name)
    write_output(link, b"new")
    assert (link.is_symlink(), labels.read_bytes(), labels.stat().st_mode & 0o777) == (
        True,
        b"new",
        0o640,
    )
    (labels.parent / "dangling").symlink_to("deep/new.txt")
    write_output(labels.parent / "dangling", b"new")
    assert (labels.parent / "deep/new.txt").read_bytes() == b"new"


def test_planted_names_are_not_followed(labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "foreseen")
    (labels.parent / ".out.foreseen.part").symlink_to(labels)
    with pytest.raises(UsageError, match="out: cannot be written: File exists"):
        write_output(labels.parent / "out", b"new")
    assert labels.read_bytes() == OLD


def test_places_that_cannot_be_are_said(labels: Path) -> None:
    for path, why in (
        (labels.parent, "it is a directory"),
        (labels / "below", "is not a directory"),
    ):
        for call in (
            lambda path=path: check_output(path, "a report"),
            lambda path=path: write_output(path, b""),
        ):
            with pytest.raises(UsageError, match=f"{path}: cannot be written: .*{why}"):
                call()


def test_a_named_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arrived: list[bytes] = []
    reader = threading.Thread(target=lambda: arrived.append(pipe.read_bytes()))
    reader.start()
    check_output(pipe, "a report")
    write_output(pipe, b"all of it")
    reader.join()
    assert (arrived, pipe.is_fifo()) == ([b"all of it"], True)


LONG = b'{"id":"a","task":{"goal":"%s"}}' % (b"x" * 100_000)


def test_a_long_line_is_known(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(LONG)
    with pytest.raises(UsageError, match="contains trajectories, not a report"):
        check_output(tmp_path / "t.jsonl", "a report")


@pytest.mark.parametrize("data", [b"", b"\n", b'{"id":"a","tas', LONG[:-2]])
def test_nothing_whole_may_be_replaced(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(data)
    assert read_content(tmp_path / "f") == ""
    check_output(tmp_path / "f", "a report")

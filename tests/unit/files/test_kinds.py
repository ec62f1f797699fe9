"""Folders as inputs: which of their files are trajectories."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.io.kinds import trajectory_files
from prill.io.schemas import check_file
from prill.io.store import TrajectoryReader, encode, iter_trajectories, read_labels
from prill.types import EvaluatorInfo, LabelRecord, Verdict


def line(id: str) -> bytes:
    return b'{"id": "%s", "task": {"goal": "g"}}\n' % id.encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "b.jsonl").write_bytes(line("b1") + line("b2"))
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(line("a")))
    (folder / "labels.jsonl").write_bytes(encode(LabelRecord(id="a", success=True)))
    (folder / "v.jsonl").write_bytes(
        encode(Verdict(id="a", success=True, evaluator=EvaluatorInfo("x", "1")))
    )
    (folder / "notes.txt").write_text("x")
    (folder / ".hidden.jsonl").write_bytes(line("no"))
    return folder


def test_trajectories_come_by_name(folder: Path) -> None:
    notes: list[str] = []
    files = trajectory_files(["other.jsonl", folder], notes.append)
    assert files == ["other.jsonl", f"{folder}/a.jsonl.gz", f"{folder}/b.jsonl"]
    assert notes == [
        f"{folder}: not read as trajectories: labels.jsonl (labels), v.jsonl (verdicts)"
    ]
    assert [item.id for item in iter_trajectories(folder)] == ["a", "b1", "b2"]
    places = [place for place, _ in TrajectoryReader([folder])]
    assert places == [f"{folder}/a.jsonl.gz:1", f"{folder}/b.jsonl:1", f"{folder}/b.jsonl:2"]


def test_interrupted_attempts_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "interrupted.jsonl").write_bytes(line("a~1"))
    assert [item.id for item in iter_trajectories(tmp_path)] == ["a~1"], (
        "alone, it is a file like others"
    )
    (tmp_path / "trajectories.jsonl").write_bytes(line("a"))
    assert [item.id for item in iter_trajectories(tmp_path)] == ["a"]


def test_another_kind_of_file_is_named(folder: Path) -> None:
    for name, holds in (("labels.jsonl", "labels"), ("v.jsonl", "verdicts")):
        with pytest.raises(
            UsageError, match=f"{name}: contains {holds}, not trajectories; choose another file"
        ):
            list(TrajectoryReader([folder / name]))
    (folder / "c.json").write_text('{"format": "prill calibration 1"}')
    with pytest.raises(UsageError, match="contains a calibration, not labels"):
        list(read_labels(folder / "c.json"))
    assert check_file(folder / "c.json").problems == [
        f"{folder}/c.json:1: this is a calibration, which prill check does not support"
    ]


def test_a_folder_without_any_is_an_error(folder: Path) -> None:
    (folder / "a.jsonl.gz").unlink()
    (folder / "b.jsonl").unlink()
    with pytest.raises(
        UsageError, match=r"without trajectory files.*it has labels.jsonl \(labels\), v.jsonl"
    ):
        list(iter_trajectories(folder))

"""Damage to the folders of runs: the same figures, or one error that names the file.

What a manifest hashes may not change at all. What a run appends to is checked by what it must
contain: what is missing is made again, or named.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from prill.episodes.record import Episode, Pool, RecordTally, record
from prill.errors import UsageError
from prill.io.manifest import MANIFEST, write_manifest
from prill.io.retries import read_results
from prill.models.local.weights import check_adapter
from prill.policies.react import React
from prill.refine.filter import export_rows
from prill.refine.filtered_bc.results import read_study_results, write_results
from prill.refine.selection import filter_steps
from prill.refine.training.samples import read_rows
from prill.types import LabelRecord, Task, Trajectory
from prill.ui.view.label_log import LabelLog
from tests.support.refine.builders import attempt, click, verdict
from tests.support.refine.retrying import Room, Scribe, Written
from tests.support.refine.retrying import run as play_retries
from tests.unit.refine.test_study import FILTERED, SELF_TRAINING, Small
from tests.unit.refine.test_study import run as play_study

TRUTHS: dict[str, list[bool | None]] = {
    "a": [False, False, True],
    "b": [True],
    "c": [False] * 4,
    "d": [None] * 4,
}
VERDICTS = {"a": "FFS", "b": "S", "c": "FFFF", "d": "FU"}


def retries(folder: Path, judge: Written | None = None) -> Any:
    return asyncio.run(play_retries(folder, TRUTHS, judge or Written(VERDICTS)))


def make_study(folder: Path) -> None:
    play_study(Small(), folder, arms=[SELF_TRAINING, FILTERED])
    write_results(folder)


def make_rows(folder: Path) -> None:
    export_rows(folder, filter_steps([attempt("a", click(7))], [verdict("a")]))


def make_adapter(folder: Path) -> None:
    """As a training leaves it."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8}\n')
    (folder / "adapter_model.safetensors").write_bytes(bytes(range(256)) * 4)
    record = {"format": "prill training 1", "done": True}
    write_manifest(folder / "training.json", record, folder.glob("adapter_*"))


# How a folder is made, its manifests, and what reads it.
KINDS: dict[str, tuple[Callable[[Path], Any], str, Callable[[Path], Any]]] = {
    "retries": (retries, "reflexion.json", read_results),
    "study": (make_study, MANIFEST, read_study_results),
    "study, taken up": (make_study, MANIFEST, make_study),
    "rows": (make_rows, MANIFEST, lambda folder: read_rows(folder / "sft.jsonl")),
    "adapter": (make_adapter, "training.json", check_adapter),
}
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "a bit flipped": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    ),
    "cut": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "a line twice": lambda data: data + data.splitlines(keepends=True)[-1],
    "gone": lambda data: None,
}


def put(file: Path, data: bytes | None) -> None:
    file.unlink() if data is None else file.write_bytes(data)


@pytest.mark.parametrize("name", KINDS)
def test_changed_file_of_a_manifest_is_named(name: str, tmp_path: Path) -> None:
    make, manifest, read = KINDS[name]
    folder = tmp_path / "run"
    make(folder)
    read(folder)
    hashed = {
        (file.parent / name).resolve()
        for file in folder.rglob(manifest)
        for name in json.loads(file.read_bytes()).get("sha256", {})
    }
    assert len(hashed) >= {"study": 8, "study, taken up": 8, "adapter": 2}.get(name, 1)
    for file in sorted(hashed):
        before = file.read_bytes()
        for what, damage in DAMAGES.items():
            put(file, damage(before))
            with pytest.raises(UsageError) as refused:
                read(folder)
            assert str(refused.value).startswith(str(file)), (file, what)
            assert "restore it, or " in str(refused.value)
            put(file, before)
    read(folder)


@pytest.mark.parametrize("left", [0, 3, None])
@pytest.mark.parametrize("name", ["verdicts.jsonl", "lessons.jsonl", "labels.jsonl"])
def test_retries_make_again_or_name_what_is_missing(
    name: str, left: int | None, tmp_path: Path
) -> None:
    before = retries(tmp_path)
    assert before.lost_labels == 0
    lines = (tmp_path / name).read_bytes().splitlines(keepends=True)
    put(tmp_path / name, None if left is None else b"".join(lines[:left]))
    judge, lost = Written(VERDICTS), len(lines) - (left or 0)
    if name == "lessons.jsonl":
        with pytest.raises(UsageError, match=r"lessons.jsonl: the lesson from .*restore"):
            retries(tmp_path, judge)
        return
    after = retries(tmp_path, judge)
    if name == "labels.jsonl":
        assert (after.lost_labels, judge.seen) == (lost, [])
    else:
        assert [task.ended for task in after.tasks] == [task.ended for task in before.tasks]
        assert after.table == before.table
        assert len(judge.seen) == lost, "no verdict twice"


def test_judged_attempt_that_is_gone_is_named(tmp_path: Path) -> None:
    before = retries(tmp_path).tasks
    path = tmp_path / "trajectories.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[1:]))
    with pytest.raises(UsageError, match=r"trajectories.jsonl: the attempt a-a0, .*restore"):
        retries(tmp_path)
    path.write_bytes(whole)
    assert retries(tmp_path).tasks == before, "the refusal changed nothing"


def rollout(folder: Path) -> RecordTally:
    async def task(room: Room, name: str) -> Task:
        return Task(id=name, goal="g")

    async def oracle(room: Room, trajectory: Trajectory) -> LabelRecord:
        return LabelRecord(id=trajectory.id, success=True, source="oracle")

    episodes = [
        Episode[Room](id=id, task=partial(task, name=id), policy=lambda: React(Scribe()))
        for id in "abcd"
    ]
    return asyncio.run(record(Pool([Room()]), episodes, folder, oracle=oracle))


@pytest.mark.parametrize("left", [0, 3, None])
def test_rollout_counts_lost_labels_and_plays_lost_attempts(
    left: int | None, tmp_path: Path
) -> None:
    assert rollout(tmp_path) == RecordTally(success=4)
    labels, played = tmp_path / "labels.jsonl", tmp_path / "trajectories.jsonl"
    lines = labels.read_bytes().splitlines(keepends=True)
    put(labels, None if left is None else b"".join(lines[:left]))
    assert rollout(tmp_path) == RecordTally(skipped=4, unlabelled=4 - (left or 0))
    labels.write_bytes(b"".join(lines))
    put(played, b"".join(played.read_bytes().splitlines(keepends=True)[: left or 0]))
    assert rollout(tmp_path) == RecordTally(skipped=left or 0, success=4 - (left or 0))
    assert rollout(tmp_path) == RecordTally(skipped=4)


def test_lost_labels_of_a_study_are_named_and_verdicts_made_again(tmp_path: Path) -> None:
    out = tmp_path / "s"
    make_study(out)
    before = read_study_results(out)
    (verdicts,) = (out / "base/attempts").glob("verdicts-oracle-*.jsonl")
    verdicts.unlink()
    make_study(out)
    assert read_study_results(out) == before
    labels = out / "base/evaluation/labels.jsonl"
    whole = labels.read_bytes()
    for data in (b"".join(whole.splitlines(keepends=True)[1:]), None):
        put(labels, data)
        for read in (read_study_results, make_study):
            with pytest.raises(UsageError, match=r"evaluation/labels.jsonl: .* attempts have lost"):
                read(out)
    labels.write_bytes(whole)
    with LabelLog(labels, "ann") as log:  # people may label what is finished
        log.put(LabelRecord(id="100-2", success=False, source="human", annotator="ann"))
    assert read_study_results(out) == before


@pytest.mark.parametrize("name", ["base/attempts", "seed-0/filtered/round-1/evaluation"])
def test_folder_of_a_study_that_is_gone_is_named(name: str, tmp_path: Path) -> None:
    make_study(tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / name)
    with pytest.raises(UsageError, match=r"trajectories.jsonl: is gone since .*manifest.json"):
        read_study_results(tmp_path / "s")

"""A training killed anywhere resumes to the same end, and weights of one that has not ended are not
used.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prill.errors import UsageError
from prill.models.local.weights import check_adapter
from prill.refine.training.checkpoints import drop_torn, last_checkpoint
from prill.refine.training.spec import TrainSpec
from prill.refine.training.train import train_rows as train
from tests.support.paths import ROOT, SUPPORT
from tests.support.refine.launching import TRAINS, write_rows

pytestmark = TRAINS
# The record is begun; a checkpoint is half written; it is whole; the adapter is; the record says
# that it is done.
POINTS = (
    "open .training.json.*",
    "half checkpoints/*/optimizer.pt",
    "open checkpoints/*/.files.json.*",
    "half .saving.part/adapter_model.safetensors",
    "os.rename .training.json.*",
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows"))


def test_killed_anywhere_it_ends_the_same(
    tiny_model: Callable[[str], Path], rows: Path, tmp_path: Path
) -> None:
    script, points = (
        SUPPORT / "refine/killed_training.py",
        ("*",) if os.environ.get("PRILL_LONG") else POINTS,
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    command = [
        sys.executable,
        str(script),
        str(tiny_model("qwen2")),
        str(rows),
        str(tmp_path),
        *points,
    ]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(found) >= len(points), run.stderr[-3000:]
    assert [
        one for one in found if not one["killed"] or one["error"] or not one["same"] or one["parts"]
    ] == []


@pytest.fixture(scope="module")
def finished(
    tiny_model: Callable[[str], Path], rows: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], Path]:
    """A copy of a finished training in a folder, and the way to call it again: `train_again`."""
    folder = tmp_path_factory.mktemp("finished") / "adapter"
    train(spec(tiny_model("qwen2")), rows, folder)
    return lambda place: Path(shutil.copytree(folder, place / "adapter"))


def spec(model: Path) -> TrainSpec:
    settings: dict[str, Any] = {"steps": 2, "batch": 4, "rank": 2, "checkpoint_every": 1}
    return TrainSpec(model=str(model), **settings)


def test_an_unfinished_training_is_not_used(
    finished: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = finished(tmp_path)
    check_adapter(folder)
    record = json.loads((folder / "training.json").read_bytes())
    (folder / "training.json").write_text(json.dumps({**record, "done": False}))
    with pytest.raises(
        UsageError,
        match=r"the training is not finished; run the same prill train command to resume it",
    ):
        check_adapter(folder)


def test_cut_files_of_checkpoints_are_noticed(
    finished: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = finished(tmp_path)
    assert (last_checkpoint(folder) or folder).name == "checkpoint-2"
    os.truncate(folder / "checkpoints/checkpoint-2/optimizer.pt", 100)
    (folder / "checkpoints/checkpoint-old").mkdir()
    drop_torn(folder)
    assert (last_checkpoint(folder) or folder).name == "checkpoint-1"

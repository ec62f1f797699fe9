"""The folder of rows: what it counts as lost, and that what was there before stays until the new
one is whole.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.protocols import Message
from prill.refine.filter import (
    ExportSpec,
    check_folder,
    export_rows,
    format_precision,
    report_text,
    true_precision,
)
from prill.refine.selection import filter_steps
from prill.types import Observation, Step, Task, Trajectory
from tests.support.refine.builders import Parrot, attempt, click, verdict


def test_a_row_of_any_kind_is_no_loss(tmp_path: Path) -> None:
    """A policy may teach what has no state to pair it by."""
    step = Step(Observation(url="http://a"), click(7))
    runs = [
        Trajectory(id="blind", task=Task(id="k", goal="g"), steps=(step,)),
        attempt("good", click(7)),
        attempt("bad", click(9)),
    ]
    filtered = filter_steps(runs, [verdict("blind"), verdict("good"), verdict("bad", False)])

    class ById(Parrot):
        def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
            return self.messages, trajectory.id

    written = export_rows(tmp_path / "rows", filtered, ById(), ExportSpec(rows=("sft", "dpo")))
    assert (written.rows, written.lost) == ({"sft": 2, "dpo": 1}, {})
    assert len(written.filtered.steps) == 2


def test_stopped_export_keeps_the_old_folder(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    filtered = filter_steps([attempt("a", click(7), click(9))], [verdict("a")])
    export_rows(folder, filtered)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    seen: list[int] = []

    def stop() -> None:
        seen.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_rows(folder, filtered, spec=ExportSpec(format="axolotl"), progress=stop)
    assert seen
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_killed_export_leaves_no_folder(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from prill.refine.filter import export_rows
from prill.refine.selection import filter_steps
from prill.types import *
steps = tuple(Step(Observation(text="[1] link 'a'"), Action("click", "click", target="[1] link 'a'")) for _ in range(3))
judge = EvaluatorInfo("vlm", "1")
run = Trajectory(id="a", task=Task(goal="g"), steps=steps)
filtered = filter_steps([run], [Verdict(id="a", success=True, evaluator=judge)])
export_rows(Path("rows"), filtered, progress=lambda: os.kill(os.getpid(), 9))
"""  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ, check=False
    )
    assert done.returncode == -9
    assert not (tmp_path / "rows").exists()
    check_folder(tmp_path / "rows")


def test_manifest_names_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    filtered = filter_steps([attempt("a", click(7))], [verdict("a")])
    export_rows(folder, filtered, spec=ExportSpec(format="llama-factory"))
    export_rows(folder, filtered)
    assert not (folder / "dataset_info.json").exists(), (
        "what the last run wrote for another trainer is gone"
    )
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    assert manifest["rows"]["sft"]["rows"] == 1


def test_report_counts_every_step_once(tmp_path: Path) -> None:
    runs = [attempt("a", click(7), click(9), task="<x>"), attempt("b", click(7), task="y")]
    filtered = filter_steps(runs, [verdict("a"), verdict("b", False)])
    text = report_text(filtered, {"sft": 2}, {"a": True, "b": None})
    assert "2 of 3 steps kept, of 1 of 2 attempts" in text
    assert "<x>" not in text and "| /&lt;x> | 2 | 0 |" in text and "| /y | 0 | 1 |" in text
    assert "1 of 1 labelled attempts that were kept truly succeeded: 1.000" in text


def test_true_precision_is_of_kept_attempts() -> None:
    runs = [attempt(id, click(7)) for id in "abcd"]
    filtered = filter_steps(runs, [verdict(id, id != "d") for id in "abcd"])
    assert true_precision(filtered, {"a": True, "b": False, "c": None, "d": True}) == (1, 2)
    assert format_precision(0, 0) == "no kept attempt has a label"

"""The folder of rows: what it counts as lost, and that what was there before stays until the new
one is whole.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.errors import UsageError
from prill.protocols import Message
from prill.refine.export import ExportSpec, check_folder, export_rows
from prill.refine.filter import filter_steps
from prill.refine.report import format_precision, page, true_precision
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
from prill.refine.export import export_rows
from prill.refine.filter import filter_steps
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: text[: len(text) // 2],
            "manifest.json: does not list its row files .*, so nothing is replaced",
        ),
        (
            lambda text: "rows",
            "manifest.json: does not list its row files .*, so nothing is replaced",
        ),
        (lambda text: "[]", "manifest.json: .*Expected `object`, got `array`"),
        (
            lambda text: text.replace('"files": [', '"files": 5, "was": ['),
            r"manifest.json: .*at `\$.files`",
        ),
        (
            lambda text: text.replace('"files": [', '"files": [5, '),
            r"manifest.json: .*at `\$.files\[0\]`",
        ),
        (
            lambda text: text.replace("prill rows 1", "prill rows 9"),
            "manifest.json: its format is 'prill rows 9'",
        ),
        (
            None,
            "contains README.md, checksums.jsonl, report.html and 1 more, which would be deleted",
        ),
    ],
)
def test_damaged_manifest_replaces_nothing(
    change: Callable[[str], str] | None, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    filtered = filter_steps([attempt("a", click(7))], [verdict("a")])
    export_rows(folder, filtered)
    manifest = folder / "manifest.json"
    manifest.write_text(change(manifest.read_text())) if change else manifest.unlink()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UsageError, match=message):
        export_rows(folder, filtered)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_rows_are_named_once_each() -> None:
    for rows in ((), ("sft", "sft")):
        with pytest.raises(UsageError, match="each once"):
            ExportSpec(rows=rows)


def test_page_counts_every_step_once(tmp_path: Path) -> None:
    runs = [attempt("a", click(7), click(9), task="<x>"), attempt("b", click(7), task="y")]
    filtered = filter_steps(runs, [verdict("a"), verdict("b", False)])
    html = page(filtered, {"sft": 2}, {"a": True, "b": None})
    assert "2 of 3 steps kept, of 1 of 2 attempts" in html
    assert "<x>" not in html and "&lt;x&gt;" in html
    assert "script" not in html, "it needs none"
    assert "1 of 1 labelled attempts that were kept truly succeeded: 1.000 [0.207, 1.000]" in html


def test_true_precision_is_of_kept_attempts() -> None:
    runs = [attempt(id, click(7)) for id in "abcd"]
    filtered = filter_steps(runs, [verdict(id, id != "d") for id in "abcd"])
    assert true_precision(filtered, {"a": True, "b": False, "c": None, "d": True}) == (1, 2)
    assert format_precision(0, 0) == "no kept attempt has a label"

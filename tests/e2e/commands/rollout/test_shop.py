"""`prill rollout webarena --shop` in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.cli import main
from prill.io.store import read_labels


@pytest.mark.usefixtures("chromium")
def test_shop_plays_are_graded_by_state(tmp_path: Path) -> None:
    words = [
        "--shop", "--tasks", "1006", "--policy", "scripted", "--behaviour", "solve,wrong-target",
        "--workers", "2",
    ]  # fmt: skip
    assert main(["rollout", "webarena", "-o", str(tmp_path / "out"), *words]) == 0
    labels = {label.note: label.success for label in read_labels(tmp_path / "out" / "labels.jsonl")}
    (failed,) = (note for note in labels if note is not None and note != "solve")
    assert (labels["solve"], labels[failed]) == (True, False)
    assert failed.startswith("wrong-target; failed: program_html")
    told = (tmp_path / "out" / "trajectories.jsonl").read_text()
    assert "http://onestopmarket.com/" in told
    assert "program_html" not in told

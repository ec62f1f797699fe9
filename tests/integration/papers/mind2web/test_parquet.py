"""Multimodal-Mind2Web's Parquet, written by pyarrow: rows of actions become tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.io.store import BadLine
from prill.papers.mind2web.format import load
from prill.papers.mind2web.pages.state import read_state
from prill.types import Trajectory

PAGE = '<html backend_node_id="1"><a backend_node_id="7">Sale</a><b backend_node_id="30"/></html>'
REPRS = ["[link]  Sale -> CLICK", "[textbox]  Zip -> TYPE: 10203", "[button]  Go -> CLICK"]


def row(id: str, index: int, op: str = "CLICK", value: str = "", **more: Any) -> dict[str, Any]:
    """A row as the data set has them: JSON in texts, the index as a text."""
    return {
        "action_uid": f"{id}-{index}",
        "raw_html": "<html/>",
        "cleaned_html": PAGE,
        "operation": json.dumps({"original_op": op, "value": value, "op": op}),
        "pos_candidates": [
            json.dumps({"tag": "a", "backend_node_id": "7", "is_original_target": True})
        ],
        "neg_candidates": [
            json.dumps({"tag": "b", "attributes": json.dumps({"backend_node_id": "30"})})
        ],
        "website": "shop",
        "domain": "Shopping",
        "subdomain": "General",
        "annotation_id": id,
        "confirmed_task": f"Find the sale of {id}",
        "screenshot": {"bytes": b"\x89PNG", "path": "x.png"},
        "action_reprs": REPRS,
        "target_action_index": str(index),
        "target_action_reprs": REPRS[index % 3],
        **more,
    }


def write(path: Path, rows: Sequence[dict[str, Any]], **options: Any) -> Path:
    pyarrow = pytest.importorskip(
        "pyarrow", reason="pyarrow is not installed: make test-all installs it"
    )
    parquet = pytest.importorskip("pyarrow.parquet", reason="part of pyarrow")
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path, **options)
    return path


def turns(path: Path) -> list[Trajectory]:
    found = list(load(path))
    assert not [item for item in found if isinstance(item, BadLine)], found
    return [item for item in found if isinstance(item, Trajectory)]


def test_rows_become_tasks_in_the_order_of_actions(tmp_path: Path) -> None:
    rows = [row("t", 1, "TYPE", "10203"), row("u", 0), row("t", 0), row("t", 2), row("u", 1)]
    path = write(tmp_path / "train.parquet", rows, row_group_size=2)
    by_id = {turn.id: turn for turn in turns(path)}
    turn = by_id["t"]
    assert [step.action.text for step in turn.steps] == REPRS
    assert (turn.steps[1].action.kind, turn.steps[1].action.value) == ("type", "10203")
    assert turn.metadata["uids"] == ["t-0", "t-1", "t-2"]
    assert (turn.task.site, turn.metadata["domain"]) == ("shop", "Shopping")
    state = read_state(turn.steps[1].observation.text)
    assert state.candidates == ("7", "30"), "also an id that stands among the attributes alone"
    assert turn.steps[1].action.target == "7"
    assert len(by_id["u"].steps) == 2 and by_id["u"].metadata["of_actions"] == 3


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([row("t", 0), row("t", 1, operation="{")], r"\[1\]: "),
        ([row("t", 0), row("t", 0)], r"\[1\]: a second row for action 0"),
        ([row("t", 7)], "3 action_reprs for 1 actions"),
        ([row("t", 0, target_action_index="x")], "invalid literal"),
        ([row("t", 0, pos_candidates=["[]"])], "Expected `object`"),
    ],
)
def test_a_broken_row_costs_its_task(
    tmp_path: Path, rows: list[dict[str, Any]], problem: str
) -> None:

    bad, good = list(load(write(tmp_path / "a.parquet", [*rows, row("u", 0)])))
    assert isinstance(bad, BadLine) and re.search(problem, bad.message)
    assert isinstance(good, Trajectory) and good.id == "u"

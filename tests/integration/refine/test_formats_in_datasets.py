"""Rows, read by the library that TRL's trainers read them with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.refine.formats import KINDS, Kind
from tests.support.refine.builders import picture
from tests.unit.refine.test_formats import rows


@pytest.mark.parametrize("kind", KINDS)
def test_datasets_reads_trl_rows_back(kind: Kind, tmp_path: Path) -> None:
    """The reader that TRL's trainers are given their data by; `Dataset.from_json` is
    `load_dataset("json")` for one file.
    """
    dataset = pytest.importorskip("datasets.arrow_dataset").Dataset
    file = tmp_path / "rows.jsonl"
    written = rows(kind, picture(tmp_path / "s.png"))
    file.write_text("".join(json.dumps(row) + "\n" for row in written))
    read = list(
        dataset.from_json(str(file), cache_dir=str(tmp_path / "cache"), keep_in_memory=True)
    )

    def bare(value: Any) -> Any:
        """Without the nulls that a table has for keys which other parts of a message have."""
        if isinstance(value, dict):
            return {key: bare(inner) for key, inner in value.items() if inner is not None}
        return [bare(inner) for inner in value] if isinstance(value, list) else value

    assert [bare(row) for row in read] == written

"""Small folders in the layouts of the two data sets, and where the real ones are, if they are."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Rows = list[dict[str, Any]]


@pytest.fixture
def recording(tmp_path: Path) -> Callable[[Rows, Rows], Path]:
    """Writes rows as trajectories.jsonl.gz and labels.jsonl.gz, and gives the folder."""

    def write(trajectories: Rows, labels: Rows) -> Path:
        folder = tmp_path / "recording"
        folder.mkdir()
        for name, rows in (("trajectories", trajectories), ("labels", labels)):
            with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        return folder

    return write


@pytest.fixture
def shop_axtree() -> str:
    """A page as BrowserGym's agents are shown it."""
    return """RootWebArea 'Red Shoes - Shop', focused, url='http://shop/red-shoes'
\t[7] banner '', visible
\t\t[a12] searchbox 'Search', clickable, visible, value='shoes'
\t[40] LabelText '', clickable, visible
\t\tStaticText 'Color'
\t[44] combobox 'Color', clickable, visible, hasPopup='menu', expanded=False
\t\t[45] option 'Red', selected=True
\t\t[46] option 'Blue', selected=False
\t[237] button 'Add to Cart', clickable, visible
\t[b4] link '', clickable, visible
\t\tStaticText 'Order'
\t\tStaticText '#1042'"""


@pytest.fixture
def real() -> Callable[[str], Path]:
    """The folder of real recordings of that name; skips the test where there is none."""

    def find(name: str) -> Path:
        base = Path(
            os.environ.get("PRILL_DATA")
            or Path(__file__).resolve().parents[2].parent / "shared" / "data"
        )
        if not (base / name).is_dir():
            pytest.skip(f"no recordings in {base / name}; PRILL_DATA says where they are")
        return base / name

    return find

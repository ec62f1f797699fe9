"""Changes folders of runs to simulate interrupted or old runs."""

from __future__ import annotations

import json
from pathlib import Path

from prill.io.checksums import CHECKSUMS


def as_killed(folder: Path) -> None:
    """Simulates a killed run: its append-only files may end in a partial line."""
    for record in folder.rglob(CHECKSUMS):
        lines = map(json.loads, record.read_text().splitlines())
        last = {
            line["file"]: {**line, "state": "growing"}
            for line in lines
            if line.get("file", "").endswith(".jsonl")
        }
        with record.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in last.values())


def as_of_old(folder: Path) -> None:
    """Simulates a run that was recorded before checksums existed."""
    for record in folder.rglob(CHECKSUMS):
        record.unlink()

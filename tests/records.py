"""Folders of runs as other circumstances leave them: for tests of what is done with them then."""

from __future__ import annotations

import json
from pathlib import Path

from prill.io.checksums import CHECKSUMS


def as_killed(folder: Path) -> None:
    """As if the run had been killed: what it appended to may go on, with half a line, too."""
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
    """As if the run had been recorded before there were checksums."""
    for record in folder.rglob(CHECKSUMS):
        record.unlink()

"""Folders of runs as other circumstances leave them: for tests of what is done with them then."""

from __future__ import annotations

import json
from pathlib import Path

from prill.files.checksums import CHECKSUMS


def as_killed(folder: Path) -> None:
    """As if the run had been killed: what it appended to may go on, with half a line, too."""
    for record in folder.rglob(CHECKSUMS):
        last = {line["file"]: line for line in map(json.loads, record.read_text().splitlines()) if "file" in line}
        with record.open("a") as file:
            file.writelines(json.dumps({**line, "state": "growing"}) + "\n" for line in last.values() if "jsonl" in line["file"])


def as_of_old(folder: Path) -> None:
    """As if the run had been recorded before there were checksums."""
    for record in folder.rglob(CHECKSUMS):
        record.unlink()

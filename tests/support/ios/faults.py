"""Faults of a fake companion, set in a file `faults.json` next to its simulators.

It maps a request (a command such as `boot`, an RPC such as `screenshot`, or `start` for the start
of a companion) to its fault: one name for every request, or a list of names, one for each request,
where "ok" means no fault. The names:

    hang      no answer
    error     the answer is an error; a command exits with 1
    die       the companion is killed, as by kill -9, before the request takes effect
    gone      the simulator is deleted; then the request is handled as usual
    slow:S    boot: the phone answers S seconds after the command has ended; others: the answer is S
              seconds late
    small     screenshot: an image of another size
    garbage   screenshot, accessibility_info, start: invalid bytes
    cut       screenshot: half of the image
    empty     accessibility_info: no elements; describe: no screen size
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.ios.simulators import locked


def set_faults(folder: Path, faults: Mapping[str, str | Sequence[str]]) -> None:
    """Replaces the faults."""
    with locked(folder):
        (folder / "faults.json").write_text(json.dumps(faults), encoding="utf-8")


def next_fault(folder: Path, what: str) -> str:
    """Returns the fault for this request; "ok" for none."""
    path = folder / "faults.json"
    if not path.exists():
        return "ok"
    with locked(folder):
        faults = json.loads(path.read_text(encoding="utf-8"))
        planned = faults.get(what, "ok")
        if isinstance(planned, str):
            return planned
        if not planned:
            return "ok"
        word = str(planned.pop(0))
        path.write_text(json.dumps(faults), encoding="utf-8")
        return word


def delay(fault: str) -> float:
    """Returns the delay in seconds."""
    return float(fault[5:]) if fault.startswith("slow:") else 3600.0 if fault == "hang" else 0.0

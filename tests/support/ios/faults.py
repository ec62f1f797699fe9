"""How a fake companion is told to misbehave: a file `faults.json` beside its simulators.

It maps what is asked for (a command such as `boot`, an RPC such as `screenshot`, or `start` for the
start of a companion) to what is to go wrong: a word for every time, or a list of words, one for
each time, where "ok" is none. The words:

    hang      no answer
    error     the answer is an error; a command exits with 1
    die       the companion is killed, as by kill -9, before the request takes effect
    gone      the simulator is deleted; then the request is treated as ever
    slow:S    boot: the phone answers S seconds after the command has ended; else the answer comes S
    seconds late small     screenshot: a picture of another size
    garbage   screenshot, accessibility_info, start: bytes that mean nothing
    cut       screenshot: half of the picture
    empty     accessibility_info: no elements; describe: no screen size
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.ios.simulators import locked


def set_faults(folder: Path, faults: Mapping[str, str | Sequence[str]]) -> None:
    """From now on these faults and no others."""
    with locked(folder):
        (folder / "faults.json").write_text(json.dumps(faults), encoding="utf-8")


def next_fault(folder: Path, what: str) -> str:
    """What is to go wrong this time; "ok" for nothing."""
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
    """The seconds that are to be lost."""
    return float(fault[5:]) if fault.startswith("slow:") else 3600.0 if fault == "hang" else 0.0

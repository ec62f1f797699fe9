"""Runs whose records are apart in a file: whatever their order, memory holds one run at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats import FORMATS
from prill.datasets.reading import groups, records, sources
from prill.errors import UsageError
from prill.io.store import BadLine
from prill.types import Trajectory

RUNS, TURNS = 24, 4
Lines = Callable[[int, int, str], Iterator[dict[str, Any]]]
READ = """
import sys
from pathlib import Path
from prill.datasets.formats import FORMATS

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10

load, before = FORMATS.maker(sys.argv[1]), peak()
runs = [len(run.steps) for run in load(sys.argv[2])]
print(len(runs), sum(runs), peak() - before)
"""


def spans(run: int, turn: int, text: str) -> Iterator[dict[str, Any]]:
    held = {"openinference.span.kind": "TOOL", "tool.name": "look", "output.value": text}
    ids = {"trace_id": f"t{run}", "span_id": f"s{run}.{turn}"}
    yield {"name": "look", "context": ids, "start_time": 1e9 + turn, "attributes": held}


def langsmith(run: int, turn: int, text: str) -> Iterator[dict[str, Any]]:
    ids = {"id": f"r{run}.{turn}", "trace_id": f"t{run}", "start_time": f"2026-01-01T00:00:0{turn}"}
    yield {
        **ids,
        "run_type": "tool",
        "name": "look",
        "inputs": {"at": turn},
        "outputs": {"output": text},
    }


def agents_sdk(run: int, turn: int, text: str) -> Iterator[dict[str, Any]]:
    if not turn:
        yield {"object": "trace", "id": f"t{run}", "workflow_name": "shop"}
    data = {"type": "function", "name": "look", "input": "{}", "output": text}
    stamp = f"2026-01-01T00:00:0{turn}"
    yield {
        "object": "trace.span",
        "id": f"s{turn}",
        "trace_id": f"t{run}",
        "started_at": stamp,
        "span_data": data,
    }


def responses(run: int, turn: int, text: str) -> Iterator[dict[str, Any]]:
    call = {"type": "function_call", "call_id": f"c{turn}", "name": "look", "arguments": "{}"}
    told = {"type": "function_call_output", "call_id": f"c{turn - 1}", "output": text}
    yield {
        "object": "response",
        "id": f"{run}.{turn}",
        "previous_response_id": f"{run}.{turn - 1}" if turn else None,
        "input": [told] if turn else text,
        "output": [call],
    }


def threads(run: int, turn: int, text: str) -> Iterator[dict[str, Any]]:
    use = {"type": "tool_use", "id": f"u{turn}", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"u{turn - 1}", "content": text}
    yield {
        "thread": {"previous_message_id": f"{run}.{turn - 1}" if turn else None},
        "messages": [{"role": "user", "content": [result] if turn else text}],
        "response": {"id": f"{run}.{turn}", "role": "assistant", "content": [use]},
    }


JOINING: dict[str, Lines] = {
    "opentelemetry": spans,
    "langsmith": langsmith,
    "agents-sdk": agents_sdk,
    "openai-responses": responses,
    "messages": threads,
}


def write(path: Path, lines: Lines, text: str, *, apart: bool = True, runs: int = RUNS) -> Path:
    """Writes the records of all runs in turn, or run by run."""
    order = (
        [(run, turn) for turn in range(TURNS) for run in range(runs)]
        if apart
        else [(run, turn) for run in range(runs) for turn in range(TURNS)]
    )
    with path.open("w") as file:
        for run, turn in order:
            for line in lines(run, turn, f"{run}.{turn} {text}"):
                file.write(json.dumps(line) + "\n")
    return path


def load(name: str, path: Path) -> list[Trajectory | BadLine]:
    return list(FORMATS.maker(name)(path))


def peak(name: str, source: Path) -> tuple[int, int, int]:
    """Returns the runs and steps that a process of its own reads, and by how many MiB its peak of
    memory rises.
    """
    done = subprocess.run(
        [sys.executable, "-c", READ, name, str(source)], check=True, capture_output=True, text=True
    )
    runs, steps, size = map(int, done.stdout.split())
    return runs, steps, size


@pytest.mark.parametrize("name", JOINING)
def test_memory_holds_one_run_of_a_file(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", JOINING[name], "page " * 100_000)
    runs, steps, size = peak(name, path)
    assert (runs, steps) == (RUNS, RUNS * TURNS)
    assert size < 24 < path.stat().st_size >> 20, size


@pytest.mark.parametrize("name", JOINING)
def test_runs_do_not_depend_on_the_order_of_records(name: str, tmp_path: Path) -> None:
    apart = write(tmp_path / "log.jsonl", JOINING[name], "page", runs=3)
    expected = load(name, apart)
    assert [len(run.steps) for run in expected if isinstance(run, Trajectory)] == [TURNS] * 3
    assert load(name, write(apart, JOINING[name], "page", apart=False, runs=3)) == expected


@pytest.mark.parametrize("name", JOINING)
def test_a_run_of_too_many_bytes_costs_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_MAX_GROUP", 2**20)
    path = write(tmp_path / "log.jsonl", JOINING[name], "page", runs=2)
    with path.open("a") as file:
        for turn in range(TURNS):
            for line in JOINING[name](9, turn, "page " * 100_000):
                file.write(json.dumps(line) + "\n")
    items = load(name, path)
    bad = [item for item in items if isinstance(item, BadLine)]
    assert len(items) == 3
    assert len(bad) == 1 and "of this run exceed 1 MiB" in bad[0].message


@pytest.mark.parametrize("name", JOINING)
def test_more_records_than_the_disk_may_hold_stop_the_reading(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run is returned that may lack records."""
    monkeypatch.setattr(groups, "_MAX_TOTAL", 2**20)
    path = write(tmp_path / "log.jsonl", JOINING[name], "page " * 20_000)
    with pytest.raises(UsageError, match="exceed 1 MiB; split the file"):
        next(iter(FORMATS.maker(name)(path)))


@pytest.mark.parametrize("name", [*JOINING, "browser-use"])
def test_a_large_document_is_an_error_that_says_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (records, sources):
        monkeypatch.setattr(module, "MAX_FILE", 2**20)
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"page": "text " * 2**20}, indent=1))
    (item,) = load(name, path)
    assert isinstance(item, BadLine)
    assert item.message == (
        f"{path}: the file has 5 MiB, and the limit for one that is read as a whole is 1 MiB; "
        "split it by run, or write JSON lines with one record each"
    )

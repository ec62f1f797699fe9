"""benchmarks/synapse.py: a run that was killed goes on in its log, nothing is played twice, and
tasks are what varies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from prill.config.registry import load_file

benchmark: Any = load_file(Path(__file__).parents[3] / "benchmarks/synapse.py")


def line(number: int, of: str = "click-tab") -> bytes:
    return (
        bytes(msgspec.json.encode(benchmark.Episode(1.0, number, "click-tab", True, 5, 0, of)))
        + b"\n"
    )


@pytest.mark.asyncio
async def test_a_cut_line_is_taken_off_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.write_bytes(line(0) + line(1)[:30])
    monkeypatch.setattr(benchmark, "LEVELS", (1.0,))
    # its only episode is there, so that nothing is left to play
    await benchmark.play(log, ["click-tab"], 1)
    with log.open("ab") as file:
        file.write(line(2))
    assert [one.round for one in benchmark.read(log)] == [0, 2]


def test_memories_of_other_tasks_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An episode tells which tasks its memory was grown from: one with a memory of all ten is none
    of this table.
    """
    (log := tmp_path / "log").write_bytes(line(0) + line(0, of=",".join(benchmark.GROWN)))
    monkeypatch.setattr(benchmark, "LEVELS", (1.0,))
    monkeypatch.setattr(
        "sys.argv", ["synapse.py", str(log), "--tasks", "click-tab", "--rounds", "1"]
    )
    benchmark.main()
    assert "| 1.0 | 5.0, 0.0 | 1 of 1 (1.00)" in capsys.readouterr().out


def test_episodes_of_one_task_are_no_evidence_apart() -> None:
    """Six episodes of a task that all go alike say as much of other tasks as one of them does."""
    apart, alike = [[True]] * 5 + [[False]] * 5, [[True] * 6] * 5 + [[False] * 6] * 5
    assert benchmark.interval(alike) == pytest.approx(benchmark.interval(apart))
    mixed = [[True, True, True, False, False, False]] * 9 + [[True, True, True, True, False, False]]
    low, high = benchmark.interval(mixed)
    assert 0.45 < low < 0.52 < high < 0.6, "tasks that go alike leave little to vary"
    assert benchmark.interval([[True] * 6] * 10) == pytest.approx((0.722, 1.0), abs=0.001)

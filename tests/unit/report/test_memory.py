"""What the report holds in memory: modules that it does not need, and verdicts in full."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from prill.io.store import encode, encode_trajectory
from prill.types import Action, Findings, LabelRecord, Observation, Opinion, Step, StepVerdict
from prill.ui.report.entries import Judge, read_judges
from tests.support.paths import ROOT
from tests.support.report.judges import FIRST, picture, trajectory, verdict

# Each takes one to thirteen megabytes: an event loop, TLS, databases, the client of models and the
# scorer, and parts of numpy and scipy.
UNUSED = (
    "asyncio", "multiprocessing", "numpy.ma", "prill.models.calls", "prill.models.client",
    "prill.models.ledger", "prill.refine", "prill.evaluators.scoring.scorer", "scipy", "sqlite3",
    "ssl",
)  # fmt: skip


def test_a_report_of_files_loads_nothing_that_only_other_commands_need(tmp_path: Path) -> None:
    seen = Observation(screenshot=picture(tmp_path, "s.png"))
    with (
        (tmp_path / "runs.jsonl").open("wb") as runs,
        (tmp_path / "v.jsonl").open("wb") as verdicts,
        (tmp_path / "labels.jsonl").open("wb") as labels,
    ):
        for i in range(40):
            item = trajectory(f"r{i}", [Step(seen, Action("click", f"button {i}"))])
            runs.write(encode_trajectory(item, tmp_path))
            verdicts.write(encode(replace(verdict(f"r{i}", i % 3 > 0), score=i / 40)))
            labels.write(encode(LabelRecord(id=f"r{i}", success=i % 2 > 0)))
    program = (
        "import sys\nfrom prill.cli import main\ncode = main(sys.argv[1:])\n"
        f"print(*[name for name in {UNUSED!r} if name in sys.modules], sep='\\n')\nsys.exit(code)"
    )
    words = ["report", "runs.jsonl", "-o", "r.html", "--verdicts", "v.jsonl"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--labels", "labels.jsonl"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "What went wrong" in page
    assert "accuracy" in page  # numpy was needed, and its intervals are there


def test_verdicts_are_held_without_their_largest_parts_and_found_whole(tmp_path: Path) -> None:
    full = replace(
        verdict("a", True),
        steps=(StepVerdict(0, "towards", 0.5, "closer"),),
        opinions=(Opinion(judge="other", success=True, score=0.7, reason="seen"),),
        findings=Findings(key_points=("a point",)),
    )
    path = tmp_path / "v.jsonl"
    path.write_bytes(encode(full) + encode(verdict("b", False)))
    (judge,) = read_judges([path])
    assert judge.whole("a") == full
    assert judge.whole("b") == judge.verdicts["b"] == verdict("b", False)
    assert judge.whole("c") is None
    short = judge.verdicts["a"]
    assert (short.steps, short.opinions) == (None, None)
    assert (short.success, short.reason, short.usage) == (full.success, full.reason, full.usage)


@pytest.mark.parametrize("first", [True, False], ids=["whole last", "short last"])
def test_the_last_verdict_counts_whole_or_not(first: bool) -> None:
    short = verdict("a", True)
    long = replace(verdict("a", False), steps=(StepVerdict(0, "towards", 0.5),))
    judge = Judge("first", FIRST, {})
    for one in (short, long) if first else (long, short):
        judge.add(one)
    assert judge.whole("a") == (long if first else short)
    assert judge.verdicts["a"].success is (not first)

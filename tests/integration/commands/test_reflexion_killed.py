"""`prill reflexion`, killed and taken up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands.command import Prill
from tests.support.paths import ROOT
from tests.unit.commands.test_reflexion import guessing


# Played 3, judged 3, reflected on 2; played, judged 2, reflected on 1; played, judged 1.
@pytest.mark.parametrize("dies_at", [2, 5, 8, 12, 15])
def test_kill_changes_no_byte_of_the_results(prill: Prill, tmp_path: Path, dies_at: int) -> None:
    words = guessing(tmp_path, "guesser.py:Umpire")
    environment = {**os.environ, "DIES_AT": str(dies_at), "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(
        [sys.executable, "-m", "prill", *words],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert prill(*words).returncode == 0
    resumed = (tmp_path / "out" / "results.json").read_bytes()
    ids = [
        json.loads(line)["id"]
        for line in (tmp_path / "out" / "trajectories.jsonl").read_text().splitlines()
    ]
    assert len(ids) == len(set(ids)) == 6
    done = prill(*words[:-1], "undisturbed")
    assert "| 2 | 3 | 3 | 100.0% |" in done.stdout
    calls = len((tmp_path / "calls").read_text())
    assert 15 + 15 < calls <= 15 + 15 + 3, "only what was under way is done again"
    assert (tmp_path / "undisturbed" / "results.json").read_bytes() == resumed

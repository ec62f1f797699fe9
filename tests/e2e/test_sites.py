"""The example around a real application, played as the guide says: by commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from prill import read_labels
from tests.support.chromium import need_chromium
from tests.support.examples import run
from tests.support.paths import SUPPORT

need_chromium()
PROGRAMS = Path(os.environ.get("PRILL_TRAC", Path(sys.prefix, "trac/bin")))
if not (PROGRAMS / "tracd").is_file():
    pytest.skip("Trac is not installed: make .venv/trac/.installed", allow_module_level=True)
SITE = "examples/sites/trac"


def played(out: Path, policy: str, *more: str) -> list[bool | None]:
    run(
        *(sys.executable, "-m", "prill", "rollout", f"{SITE}/site.py:Trac", "--whole-page"),
        *("--tasks", f"{SITE}/tasks.jsonl", "--programs", PROGRAMS, "--policy", policy, *more),
        *("--workers", "2", "-o", out),
    )
    return [label.success for label in read_labels(out / "labels.jsonl")]


def test_solutions_are_accepted(tmp_path: Path) -> None:
    assert played(tmp_path, f"{SITE}/solved.py:Solved") == [True] * 5


def test_stopping_is_not_accepted(tmp_path: Path) -> None:
    assert played(tmp_path, f"{SUPPORT / 'policies/infinity.py'}:Stops") == [False] * 5

"""Real recordings of other people, imported and judged with the embedded model. Opt-in:
PRILL_LONG=1 (several minutes).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from prill.io.store import read_verdicts
from tests.support.commands.command import Prill
from tests.support.paths import ROOT

DATA = Path(os.environ.get("PRILL_DATA") or ROOT.parent / "shared" / "data")
COUNT = 50

pytestmark = [
    pytest.mark.labelled,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("PRILL_LONG") != "1", reason="takes several minutes: set PRILL_LONG=1"
    ),
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no recorded data at {DATA} (set PRILL_DATA)"),
]


@pytest.mark.parametrize(
    ("format", "folder", "captioner", "part"),
    [
        ("agentrewardbench-webjudge", "arb_webjudge", "given", "caption"),
        ("agentrewardbench-webjudge", "arb_webjudge", "ocr", "screenshot"),
        ("androidworld", "androidworld", "given", "caption"),
        ("androidworld", "androidworld", "text", "text"),
    ],
)
def test_recordings_import_and_judge(
    prill: Prill, tmp_path: Path, format: str, folder: str, captioner: str, part: str
) -> None:
    assert prill("convert", format, DATA / folder, "-o", "set").returncode == 0
    rows = [
        json.loads(line) for line in (tmp_path / "set/trajectories.jsonl").read_text().splitlines()
    ]
    usable = [row for row in rows if (row["final"] or row["steps"][-1]["observation"])[part]][
        :COUNT
    ]
    assert len(usable) >= (20 if part == "text" else COUNT)
    (tmp_path / "set/part.jsonl").write_text("".join(json.dumps(row) + "\n" for row in usable))
    words = (
        "-o",
        "v.jsonl",
        "--judge",
        "modular",
        "--judge.captioner",
        captioner,
        "--model",
        "embedded",
    )
    result = prill("score", "set/part.jsonl", *words)
    verdicts = list(read_verdicts(tmp_path / "v.jsonl"))
    unscored = Counter(verdict.unscored for verdict in verdicts if verdict.unscored)
    assert len(verdicts) == len(usable)
    assert result.returncode == 0, (unscored, result.stderr[-2000:])
    agreed = prill(
        "agree",
        "v.jsonl",
        "set/labels.jsonl",
        "--source",
        "oracle",
        "--trajectories",
        "set/part.jsonl",
    )
    assert f"judged {len(usable)}, unscored 0" in agreed.stdout

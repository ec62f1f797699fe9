"""Every SQLite connection is closed by who opened it: by the commands, in another process, and
where a constructor raises.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prill.captioner.files import FileCaptioner
from prill.errors import UsageError
from prill.io.cache import DiskCache
from prill.io.store import TrajectoryReader
from prill.testing import MockServer
from tests.support import connections
from tests.support.paths import ROOT

SAMPLES = ROOT / "datasets/samples/miniwob"


def test_commands_close_their_databases(tmp_path: Path) -> None:
    with MockServer() as server:
        judge = ("--judge", "modular", "--model", "m", "--base-url", server.base_url)
        kept = ("--cache", "kept")
        runs, labels = str(SAMPLES / "trajectories.jsonl"), str(SAMPLES / "labels.jsonl")
        caption = {"id": "sha256:0", "captioner": "c", "image": "a.png", "caption": "A shop"}
        (tmp_path / "captions.jsonl").write_text(json.dumps(caption) + "\n")
        commands = [
            ["score", runs, "-o", "v.jsonl", *judge, *kept, "--limit", "3"],
            ["score", runs, "-o", "v.jsonl", *judge, *kept, "--limit", "3", "--no-resume"],
            [
                "score",
                runs,
                "-o",
                "c.jsonl",
                *judge,
                "--captioner",
                "captions.jsonl",
                "--limit",
                "2",
            ],
            ["score", runs, "-o", "s.jsonl", "--judge", "self-report"],
            ["score", "nowhere.jsonl", "-o", "n.jsonl", "--judge", "self-report"],
            ["score", runs, "-o", "v.jsonl", "--judge", "always-fail"],  # another judge's file
            ["batch", "write", runs, "-o", "batch", *judge, "--limit", "2"],
            ["batch", "collect", "batch", "-o", "b.jsonl"],
            ["merge", "s.jsonl", "-o", "m.jsonl"],
            ["check", runs, labels, "s.jsonl"],
            ["agree", "s.jsonl", labels, "--trajectories", runs],
            ["report", runs, "--verdicts", "s.jsonl", "-o", "r.html"],
            ["table", "s.jsonl"],
            ["filter", runs, "--verdicts", "s.jsonl", "-o", "rows"],
            [
                "redteam",
                runs,
                labels,
                "--judge",
                "self-report",
                "-o",
                "red",
                "--attacks",
                "claim-stop",
            ],
            ["caption", runs, "-o", "cap.jsonl", "--captioner", "vlm", *judge[2:], "--limit", "1"],
        ]
        root = str(ROOT)
        environment = {**os.environ, "PYTHONPATH": root, "PRILL_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, str(Path(connections.__file__))],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
    found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else done.stderr
    expected = [0, 0, 3, 0, 2, 2, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]
    assert (found["unclosed"], found["codes"]) == ([], expected), done.stderr[-3000:]
    assert found["opened"] >= len(commands)


def test_what_is_dropped_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[connections.Connection] = []
    monkeypatch.setattr(connections, "_made", made)
    monkeypatch.setattr("sqlite3.connect", connections.keeping)
    monkeypatch.setattr("prill.io.store._IDS_IN_MEMORY", 0)
    (tmp_path / "t.jsonl").write_text('{"id": "a", "task": {"goal": "g"}}\n')
    list(TrajectoryReader([tmp_path / "t.jsonl"]))
    DiskCache(tmp_path / "c.sqlite").put("k", b"v")
    (tmp_path / "notes.sqlite").write_text(
        "my notes, which are long enough to be taken for a header of something"
    )
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UsageError):
        DiskCache(tmp_path / "notes.sqlite").get("k", bytes)
    with pytest.raises(UsageError):
        FileCaptioner(str(tmp_path / "empty.jsonl"))
    assert len(made) == 4
    assert [connection.place for connection in made if connection.is_open] == []

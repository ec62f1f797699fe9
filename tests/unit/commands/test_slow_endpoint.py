"""What is shown while an endpoint is slow."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from prill.cli import main, showing
from prill.testing import MockServer
from tests.support.golden.cases import SAMPLES


def test_calls_that_wait_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showing, "SLOW", 0.3)
    runs = (SAMPLES / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()[:3]
    (tmp_path / "t.jsonl").write_text("\n".join(runs) + "\n", encoding="utf-8")
    with MockServer(stall=1.0, stall_seconds=1.0) as server:
        words = ["--judge", "modular", "--judge.captioner", "text", "--model", "m"]
        address = ["--model.base-url", server.base_url]
        main(
            ["score", str(tmp_path / "t.jsonl"), "-o", str(tmp_path / "v.jsonl"), *words, *address]
        )
    assert re.search(r"3 calls wait, the oldest for \d+ s", capsys.readouterr().err)


def test_remaining_time_is_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run of 100 skips 90 at once; the first two of the rest take 4 s each."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with showing.progress_bar(total=100, file=io.StringIO(), delay=0, unit="run") as bar:
        for seconds, made in ((0.5, 0), (4.5, 1), (8.5, 2)):
            now[0] = seconds
            bar.initial, bar.n = 90, 90 + made
            bar.update(0)
        left = re.search(r"<00:(\d\d),", str(bar))
    assert left is not None
    assert 30 <= int(left[1]) <= 36

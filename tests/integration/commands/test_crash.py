"""kill -9 at random moments, and an endpoint that fails in every way: nothing lost, nothing
wrong.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prill.io.store import read_verdicts
from prill.models.transcripts import read_transcripts
from prill.testing import MockServer
from tests.support.commands.command import Prill, environment, write_trajectories

CONCURRENCY = 16
KILLS = 10 if os.environ.get("PRILL_LONG") else 5
COUNT = 200 * KILLS


@pytest.mark.slow
def test_killed_run_has_every_id_once(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "t.jsonl", COUNT)
    out = tmp_path / "v.jsonl"
    chance = random.Random(7)
    with MockServer(latency=0.05) as server:
        words = ["t.jsonl", "-o", "v.jsonl", "--judge", "modular", "--model", "m"]
        words += ["--model.base-url", server.base_url, "--concurrency", str(CONCURRENCY)]
        command = [sys.executable, "-m", "prill", "score", *words]
        before = repeated = 0
        kept = b""
        for _ in range(KILLS):
            running = subprocess.Popen(
                command, cwd=tmp_path, stderr=subprocess.DEVNULL, env=environment()
            )
            goal = before + chance.randrange(1, 190)
            while not out.exists() or out.read_bytes().count(b"\n") < goal:
                assert running.poll() is None, "the run ended before it was killed"
                time.sleep(0.005)
            time.sleep(chance.random() * 0.05)
            running.kill()
            running.wait()
            written = out.read_bytes()
            assert written.startswith(kept), "something already written was lost"
            kept = written[: written.rfind(b"\n") + 1]
            before = kept.count(b"\n")
            again = counted(server) - before
            assert again - repeated <= CONCURRENCY, "more calls were lost than were under way"
            repeated = again
        # whatever a crash in the middle of a write may leave
        out.write_bytes(out.read_bytes() + f'{{"id":"t{COUNT - 1}","success":tr'.encode())
        assert (
            subprocess.run(
                command, cwd=tmp_path, stderr=subprocess.DEVNULL, env=environment(), check=False
            ).returncode
            == 0
        )
        stats = server.stats()
    # a finished file has the order of its input
    assert {*kept.splitlines()} <= {*out.read_bytes().splitlines()}
    assert [verdict.id for verdict in read_verdicts(out)] == [f"t{i}" for i in range(COUNT)]
    verdicts = {verdict.id: verdict.success for verdict in read_verdicts(out)}
    assert out.read_bytes().count(b"\n") == len(verdicts) == COUNT
    assert all(verdicts[f"t{i}"] == (i % 3 == 0) for i in range(COUNT))
    assert stats.requests - COUNT <= KILLS * CONCURRENCY
    assert {
        transcript.id for transcript in read_transcripts(tmp_path / "v.transcripts")
    } == verdicts.keys()


def counted(server: MockServer) -> int:
    """The requests so far, once the server has counted the last calls of the dead client."""
    count, last = server.stats().requests, -1
    while count != last:
        time.sleep(0.2)
        count, last = server.stats().requests, count
    return count


FAULTS = {
    "rate_limit": 0.10,
    "retry_after": 0.05,
    "server_error": 0.05,
    "drop": 0.03,
    "stall": 0.03,
    "stall_seconds": 5.0,
    "garbage": 0.03,
    "cut": 0.02,
    "unsuccessful": 0.02,
}


@pytest.mark.slow
@pytest.mark.parametrize("retries", [5, 0])
def test_failing_endpoint_no_wrong_verdict(prill: Prill, tmp_path: Path, retries: int) -> None:
    write_trajectories(tmp_path / "t.jsonl", 600)
    with MockServer(seed=3, latency=0.01, **FAULTS) as server:
        words = (
            "-o",
            "v.jsonl",
            "--judge",
            "modular",
            "--model",
            "m",
            "--model.base-url",
            server.base_url,
        )
        result = prill(
            "score",
            "t.jsonl",
            *words,
            "--concurrency",
            64,
            "--model.timeout",
            2,
            "--model.retries",
            retries,
        )
        outcomes = server.stats().outcomes
    assert set(outcomes) >= {
        "ok",
        "rate_limit",
        "server_error",
        "drop",
        "stall",
        "garbage",
        "cut",
        "unsuccessful",
    }
    verdicts = {verdict.id: verdict for verdict in read_verdicts(tmp_path / "v.jsonl")}
    assert len(verdicts) == 600
    judged = {id: v.success for id, v in verdicts.items() if v.unscored is None}
    assert all(success == (int(id[1:]) % 3 == 0) for id, success in judged.items())
    reasons = {v.unscored for v in verdicts.values()} - {None}
    if retries:
        assert reasons <= {"parse", "truncated", "transport", "timeout"}
        assert len(judged) >= 594
    else:
        assert {"transport", "timeout"} <= reasons <= {"transport", "timeout", "parse", "truncated"}
        unscored = {id: v.unscored for id, v in verdicts.items() if v.unscored}
        assert result.returncode == 3
        assert 0.12 <= len(unscored) / 600 <= 0.30

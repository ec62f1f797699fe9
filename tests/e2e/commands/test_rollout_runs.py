"""`prill rollout` in real environments: killed and taken up, several at a time, refused, and what
it leaves behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prill.emulators.android.adb import AdbPhone
from prill.io.store import iter_trajectories, read_labels
from prill.types import Trajectory
from tests.support.android import FakeAdb

Prill = Callable[..., subprocess.CompletedProcess[str]]


def recorded(out: Path) -> list[Trajectory]:
    path = out / "trajectories.jsonl"
    return list(iter_trajectories(path)) if path.exists() else []


def episodes(out: Path) -> list[tuple[str | None, str]]:
    return sorted((t.task.site, t.task.id) for t in recorded(out))


@pytest.mark.usefixtures("chromium")
def test_killed_run_is_taken_up(tmp_path: Path) -> None:
    words = [
        "rollout",
        "miniwob",
        "--tasks",
        "click-link,enter-text",
        "--seeds",
        "0-7",
        "--workers",
        "2",
        "-o",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "prill", *words]
    for enough in (2, 5):
        run = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while len(recorded(tmp_path)) < enough and run.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        run.kill()
        assert run.wait() == -9
        kept = episodes(tmp_path)
        assert enough <= len(kept) < 16
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["skipped"] == len(kept)
    assert episodes(tmp_path) == sorted(
        (task, f"miniwob/{task}?seed={seed}")
        for task in ("click-link", "enter-text")
        for seed in range(8)
    )
    assert sorted(label.id for label in read_labels(tmp_path / "labels.jsonl")) == sorted(
        t.id for t in recorded(tmp_path)
    )
    assert all(
        Path(str(o.screenshot)).is_file() for t in recorded(tmp_path) for o in t.observations
    )


def by_hand(tmp_path: Path) -> Path:
    steps = [
        {
            "observation": {},
            "action": {"kind": "click", "text": "tap Settings", "target": "[9] button 'Settings'"},
        }
    ]
    tasks = [{"id": name, "goal": f"Open {name}"} for name in ("a", "b")]
    lines = [{"id": task["id"], "task": task, "steps": steps, "answer": "open"} for task in tasks]
    path = tmp_path / "by-hand.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return path


def needs_adb() -> None:
    import shutil

    if shutil.which("adb") is None:
        pytest.skip("adb is not installed: apt-get install adb")


def test_two_phones_share_the_tasks(prill: Prill, tmp_path: Path) -> None:
    needs_adb()
    words = (
        "--policy",
        "replay",
        "--policy.trajectories",
        by_hand(tmp_path),
        "--tasks",
        tmp_path / "tasks.jsonl",
        "--attempts",
        2,
    )
    with FakeAdb(("emulator-5554", "emulator-5556")) as adb:
        phones = ("--device", "emulator-5554,emulator-5556", "--adb-port", adb.port)
        done = prill("rollout", "android", *words, *phones, "-o", tmp_path / "out", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["undecided"] == 4
        more = prill("rollout", "android", *words, *phones, "-o", tmp_path / "out", "--workers", 3)
    assert (more.returncode, "every worker needs a device of its own" in more.stderr) == (2, True)
    assert not (tmp_path / "out" / "labels.jsonl").exists()
    kept = recorded(tmp_path / "out")
    assert {(t.task.id, t.metadata["attempt"]) for t in kept} == {
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    }
    assert {(t.answer, t.error, t.agent, t.task.platform) for t in kept} == {
        ("open", None, "replay", "android")
    }
    assert all("Wi-Fi" in (t.final.text or "") for t in kept if t.final)


def test_no_working_phone_ends_the_run(
    prill: Prill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_adb()
    # Each of the three episodes waits so long for a phone.
    monkeypatch.setitem(AdbPhone.__init__.__kwdefaults__, "timeout", 2.0)
    words = (
        "--policy",
        "replay",
        "--policy.trajectories",
        by_hand(tmp_path),
        "--tasks",
        tmp_path / "tasks.jsonl",
        "--attempts",
        2,
    )
    with FakeAdb(()) as adb:
        done = prill("rollout", "android", *words, "--adb-port", adb.port, "-o", tmp_path / "out")
    assert done.returncode == 4
    assert "all environments failed; last error: no" in done.stderr
    assert all(t.error for t in recorded(tmp_path / "out"))


def test_devices_says_what_is_missing(prill: Prill) -> None:
    done = prill("devices", "ios", "web")
    assert done.returncode == 0
    assert done.stdout.startswith("ios\n")
    assert "idb client" in done.stdout and "Chromium" in done.stdout
    told = json.loads(prill("devices", "--json").stdout)
    assert list(told) == ["web", "android", "ios", "sites"]
    assert all(tool["found"] or tool["get"] for tools in told.values() for tool in tools)
    assert prill("devices", "windows").returncode == 2

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
from prill.io.store import read_labels, read_trajectories
from prill.types import Trajectory
from tests.support.android import FakeAdb

Prill = Callable[..., subprocess.CompletedProcess[str]]


def recorded(out: Path) -> list[Trajectory]:
    path = out / "trajectories.jsonl"
    return (
        [item for item in read_trajectories(path) if isinstance(item, Trajectory)]
        if path.exists()
        else []
    )


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


@pytest.mark.usefixtures("chromium")
def test_dead_pages_cost_their_episodes_only(prill: Prill, tmp_path: Path) -> None:
    by_hand(tmp_path)
    # Port 1 is one that browsers refuse to ask.
    tasks = [
        {"id": f"gone{i}", "goal": "Open a", "start_url": "http://127.0.0.1:1/"} for i in range(3)
    ]
    tasks.append({"id": "a", "goal": "Open a", "start_url": "data:text/html,<p>here</p>"})
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    words = (
        "--tasks",
        tmp_path / "tasks.jsonl",
        "--policy",
        "replay",
        "--replay",
        tmp_path / "by-hand.jsonl",
    )
    done = prill("rollout", "web", *words, "-o", tmp_path / "out", "--json")
    assert (
        done.returncode,
        json.loads(done.stdout)["undecided"],
        json.loads(done.stdout)["broken"],
    ) == (3, 1, 3), done.stderr
    assert "last error: the start page http://127.0.0.1:1/ cannot be opened" in done.stderr
    assert [t.task.id for t in recorded(tmp_path / "out") if t.error is None] == ["a"]


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
        "--replay",
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
        "--replay",
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


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("web", "--goal", "x", "--policy", "replay", "--replay", "by-hand.jsonl"),
            "start_url is missing",
        ),
        (
            ("web", "--policy", "replay", "--replay", "by-hand.jsonl"),
            "give either tasks or goal (--tasks, --goal)",
        ),
        (
            ("android", "--tasks", "nowhere", "--policy", "replay", "--replay", "by-hand.jsonl"),
            "neither a file nor a task list",
        ),
        (("android", "--goal", "x"), "policy is missing; choose from react"),
        (
            ("android", "--goal", "x", "--policy", "scripted"),
            "only solves MiniWoB++, the airline and the local shop",
        ),
        (
            (
                "ios",
                "--goal",
                "x",
                "--policy",
                "replay",
                "--replay",
                "by-hand.jsonl",
                "--companion",
                "/nowhere",
            ),
            "/nowhere",
        ),
        (
            ("webarena", "--shop", "--reset", "x", "--policy", "scripted"),
            "shop has its own tasks and resets itself",
        ),
        (
            ("webarena", "--shop", "--tasks", "1", "--policy", "scripted"),
            "unknown task 1; expected one of 25",
        ),
        (
            (
                "webarena",
                "--shop",
                "--tasks",
                "all",
                "--policy",
                "scripted",
                "--behaviour",
                "no-submit",
            ),
            "there are solve and",
        ),
        (
            ("webarena", "--shop", "--tasks", "all", "--policy", "scripted", "--viewport", "big"),
            "expected a size such as",
        ),
    ],
)
def test_impossible_runs_are_one_error(
    prill: Prill, tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    by_hand(tmp_path)
    done = prill("rollout", *words, "-o", "out")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert problem in done.stderr


def test_site_without_address_is_named(prill: Prill, tmp_path: Path) -> None:
    configs = tmp_path / "tasks.json"
    from prill.emulators.shop import shop_configs

    configs.write_bytes(shop_configs())
    words = (
        "--configs",
        configs,
        "--tasks",
        "1001",
        "--policy",
        "replay",
        "--replay",
        by_hand(tmp_path),
    )
    done = prill("rollout", "webarena", *words, "-o", "out", SHOPPING="", WA_SHOPPING="")
    assert (done.returncode, "SHOPPING is not set" in done.stderr) == (2, True)


def test_devices_says_what_is_missing(prill: Prill) -> None:
    done = prill("devices", "ios", "web")
    assert done.returncode == 0
    assert done.stdout.startswith("ios\n")
    assert "idb client" in done.stdout and "Chromium" in done.stdout
    told = json.loads(prill("devices", "--json").stdout)
    assert list(told) == ["web", "android", "ios"]
    assert all(tool["found"] or tool["get"] for tools in told.values() for tool in tools)
    assert prill("devices", "windows").returncode == 2

"""Runs the `prill` command as users do, and writes a trajectory file with known true verdicts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from prill.cli import main
from tests.support.chromium import need_chromium

Prill = Callable[..., subprocess.CompletedProcess[str]]


def environment() -> dict[str, str]:
    """Returns the environment variables without keys or endpoints, so that no test can reach a real
    one.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return {**kept, "PRILL_CACHE_DIR": "/nonexistent/prill-tests"}


@pytest.fixture
def prill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Prill:
    """Runs the command in this process, in `tmp_path`. It calls the same function, without the
    startup time.
    """
    monkeypatch.chdir(tmp_path)
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("PRILL_CACHE_DIR", str(tmp_path / "cache"))

    def run(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
        command = list(map(str, words))
        capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            try:
                code = main(command)
            except SystemExit as exit:  # argparse ends the process for --help and bad options
                code = int(exit.code or 0)
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(command, code, out, err)

    return run


@pytest.fixture(scope="module")
def chromium() -> None:
    """Skips the test if MiniWoB++ cannot be played in a browser."""
    need_chromium("miniwob")


def write_trajectories(path: Path, count: int, **final: str) -> Path:
    """Writes `count` trajectories. The i-th is truly a success if i is divisible by 3."""
    with path.open("w") as file:
        for i in range(count):
            goal = f"Order number {i}. truth={'success' if i % 3 == 0 else 'failure'}"
            task = {"id": f"k{i % 10}", "goal": goal, "platform": "web"}
            steps = [{"observation": {}, "action": {"kind": "click", "text": "click"}}]
            record = {
                "id": f"t{i}",
                "task": task,
                "steps": steps,
                "final": {"caption": f"order {i}", **final},
            }
            file.write(json.dumps(record) + "\n")
    return path

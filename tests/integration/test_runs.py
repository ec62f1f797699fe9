"""Runs from a plain script, as users write it, leave behind what the commands leave behind.

The script is a Python process of its own, without `if __name__ == "__main__"`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prill.cli import main
from tests.support.paths import ROOT

SAMPLES = ROOT / "datasets/samples/miniwob"
COUNTER = f"{ROOT / 'examples/own_environment.py'}:Counter"
ADD = f"{ROOT / 'examples/own_policy.py'}:Add"
PATIENT = f"{ROOT / 'examples/own_learner.py'}:Patient"
NAMES = f"""
import prill

COUNTER, ADD, PATIENT, SAMPLES = {COUNTER!r}, {ADD!r}, {PATIENT!r}, {str(SAMPLES)!r}
"""
ROLLOUT = """
result = prill.rollout(
    environment=prill.OwnEnvironmentConfig(name=COUNTER, goal=["Count to 3", "Count to 2"], options={"start": 1}),
    policy=ADD,
    seeds=range(2),
    workers=1,
    output="played",
)
print(result)
"""  # noqa: E501
SCORE = """
result = prill.score(
    prill.ScoreConfig(
        trajectories=[SAMPLES + "/trajectories.jsonl"],
        output="verdicts.jsonl",
        judge=prill.JudgeConfig("noisy", labels=SAMPLES + "/labels.jsonl", false_negatives=0.5),
        limit=8,
        concurrency=1,
    )
)
print(result)
"""
REFLEXION = """
result = prill.reflexion(
    prill.ReflexionConfig(
        spec={"environment": {"name": COUNTER, "goal": "Count to 3"}},
        policy=PATIENT,
        judge="oracle",
        retries=prill.RetrySpec(attempts=3),
        output="learnt",
    )
)
print(result)
"""
# What no two runs have in common: times, and what is computed of files that have some.
TIMES = r'"date":\s?"[^"]*"|"seconds":\s?[\d.e-]+|[0-9a-f]{64}'
# What is computed of those files, and of a training what has times, or words in the order of a set.
LEFT_OUT = (
    ".lock",
    "README.md",
    "files.json",
    "_config.json",
    "training_args.bin",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that scripts and commands run in, one after the other: ids may hold it. Nothing of
    it goes out.
    """
    for name in [name for name in os.environ if name.startswith("OPENAI_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def of_script(text: str, here: Path) -> tuple[str, Path]:
    """What the script printed, and the folder with what it wrote; the folder it ran in is empty
    again.
    """
    here.with_name("script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "../script.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    folder = shutil.copytree(here, here.with_name("script"), symlinks=True)
    for there in here.iterdir():
        shutil.rmtree(there) if there.is_dir() else there.unlink()
    return done.stdout, folder


def written(folder: Path) -> dict[str, str | bytes]:
    """Every file below a folder, without times and hashes."""
    files = (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(LEFT_OUT)
    )
    return {path.relative_to(folder).as_posix(): without_times(path.read_bytes()) for path in files}


def without_times(content: bytes) -> str | bytes:
    try:
        return re.sub(TIMES, "", content.decode())
    except UnicodeDecodeError:
        return content


def keys(folder: Path) -> list[object]:
    """What the verdicts on samples were asked for, by whom and of what: recorded trajectories have
    the same times.
    """
    return [
        json.loads(line)["key"] for line in (folder / "verdicts.jsonl").read_text().splitlines()
    ]


def test_script_plays_judges_and_learns_as_the_commands_do(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, folder = of_script(NAMES + ROLLOUT + SCORE + REFLEXION, here)
    goals = [
        "--goal",
        '["Count to 3", "Count to 2"]',
        "--start",
        "1",
        "--seeds",
        "0-1",
        "--workers",
        "1",
    ]
    assert main(["rollout", COUNTER, *goals, "--policy", ADD, "-o", "played"]) == 0
    noisy = [
        "--judge",
        "noisy",
        "--judge.labels",
        f"{SAMPLES}/labels.jsonl",
        "--judge.false-negatives",
        "0.5",
    ]
    asked = ["--limit", "8", "--concurrency", "1"]
    assert (
        main(["score", f"{SAMPLES}/trajectories.jsonl", "-o", "verdicts.jsonl", *noisy, *asked])
        == 0
    )
    tries = ["--goal", "Count to 3", "--policy", PATIENT, "--judge", "oracle", "--attempts", "3"]
    assert main(["reflexion", COUNTER, *tries, "-o", "learnt"]) == 0
    assert written(folder) == written(here)
    assert keys(folder) == keys(here) and len(keys(here)) == 8
    assert {
        "played/trajectories.jsonl",
        "played/labels.jsonl",
        "verdicts.jsonl",
        "learnt/results.json",
    } <= written(here).keys()
    said = "".join(capsys.readouterr())
    assert len(printed.splitlines()) > 10 and all(line in said for line in printed.splitlines())

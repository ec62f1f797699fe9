"""Runs from a plain script, as users write it, leave behind what the commands leave behind.

The script is a Python process of its own, without `if __name__ == "__main__"`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
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
    prill.RolloutConfig(
        environment=prill.OwnEnvironmentConfig(name=COUNTER, goal=["Count to 3", "Count to 2"], options={"start": 1}),
        policy=ADD,
        seeds=range(2),
        workers=1,
        output="played",
    )
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
        environment={"name": COUNTER, "goal": "Count to 3"},
        policy=PATIENT,
        judge="oracle",
        retries=prill.RetrySpec(attempts=3),
        output="learnt",
    )
)
print(result)
"""
# A policy that can be taught: whatever is trained solves the task, and without it nothing is done.
TAUGHT = """
from prill import Action, Step
from prill.protocols import Message


class Taught:
    def __init__(self, *, adapter: str | None = None):
        self.adapter = adapter

    def reset(self, task):
        self.wanted = task.goal.split()[-1]

    async def act(self, observation):
        done = self.adapter is None or observation.text.endswith(self.wanted)
        return Step(observation, Action("stop", "stop") if done else Action("press", "press +", value="+"))

    def demonstrate(self, trajectory, index):
        step = trajectory.steps[index]
        return [Message("user", (step.observation.text,))], step.action.text or "stop"
"""  # noqa: E501
STUDY = """
policy = "{taught}:Taught"
attempts = {{policy = "{add}", goal = "Count to 2"}}
evaluation = {{goal = "Count to 3", seeds = "10-11"}}
arms = [{{name = "filtered", judge = "oracle"}}]
training = {{model = "{model}", targets = "language", steps = 1, batch = 1, rank = 2, dtype = "float32"}}

[episodes]
environment = "{counter}"
max_steps = 5
workers = 1
"""  # noqa: E501
FILTERED_BC = """
result = prill.filtered_bc(
    prill.FilteredBCConfig(
        policy=TAUGHT,
        episodes={"environment": COUNTER, "max_steps": 5, "workers": 1},
        attempts={"policy": ADD, "goal": "Count to 2"},
        evaluation={"goal": "Count to 3", "seeds": "10-11"},
        arms=[{"name": "filtered", "judge": prill.JudgeConfig("oracle")}],
        training={"model": MODEL, "targets": "language", "steps": 1, "batch": 1, "rank": 2, "dtype": "float32"},
        output="study",
    )
)
print(result)
"""  # noqa: E501
TRAIN = """
result = prill.train(
    prill.TrainPolicyConfig(
        rows="study/seed-0/filtered/round-1/rows.jsonl",
        preset=prill.PresetConfig("small-text", model=MODEL, targets="language", steps=2, batch=1, rank=2),
        output="trained",
    )
)
print(result)
"""  # noqa: E501
# What no two runs have in common: times, and what is computed of files that have some.
TIMES = r'"date":\s?"[^"]*"|"seconds":\s?[\d.e-]+|sha256:[0-9a-f]{64}'
# What is computed of those files, and of a training what has times, or words in the order of a set.
LEFT_OUT = (
    ".lock",
    "checksums.jsonl",
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
    """Every file below a folder, without times."""
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
        "--false-negatives",
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the libraries' own, about their deprecations
def test_script_trains_as_the_commands_do(
    here: Path, tiny_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy learns from another one's attempts, and a model is trained on the rows of that."""
    if missing := [
        name
        for name in ("torch", "transformers", "trl", "peft")
        if importlib.util.find_spec(name) is None
    ]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    taught, model = here.with_name("taught.py"), str(tiny_model("qwen2"))
    taught.write_text(TAUGHT)
    names = f"TAUGHT, MODEL = {f'{taught}:Taught'!r}, {model!r}\n"
    printed, folder = of_script(NAMES + names + FILTERED_BC + TRAIN, here)
    here.with_name("study.toml").write_text(
        STUDY.format(taught=taught, add=ADD, counter=COUNTER, model=model)
    )
    study = ["refine", "filtered-bc", "../study.toml", "-o"]
    rows = "study/seed-0/filtered/round-1/rows.jsonl"
    settings = [
        "--targets",
        "language",
        "--steps",
        "2",
        "--batch",
        "1",
        "--rank",
        "2",
    ]
    assert main([*study, "study"]) == 0
    assert (
        main(
            [
                "train",
                "policy",
                rows,
                "-o",
                "trained",
                "--preset",
                "small-text",
                "--model",
                model,
                *settings,
            ]
        )
        == 0
    )
    assert written(folder) == written(here)
    assert {"study/results.json", "trained/adapter_model.safetensors"} <= written(here).keys()
    assert "| filtered | 0 | 1 | 2/2 |" in printed and "policy -> trained" in printed
    said = "".join(capsys.readouterr())
    assert all(line in said for line in printed.splitlines())
    # It is the same study, and all of it is done.
    before = written(folder)
    assert main([*study, str(folder / "study")]) == 0
    assert written(folder) == before

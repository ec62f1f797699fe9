"""`prill reflexion` as users run it: with other attempts, with bad usage, simulated."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import prill as prill_package
from tests.support.commands.command import Prill
from tests.support.paths import SUPPORT

RECORDED = SUPPORT / "commands/recorded/retries"
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
            assert "results.json: is missing" in prill("report", "out", "-o", "page.html").stderr
            (tmp_path / "out" / "checksums.jsonl").unlink()
        done = prill("report", "out", "-o", "page.html")
        # a progress bar is shown after 0.2 s
        lines = [line for line in done.stderr.splitlines() if line and not re.search(r"%\|", line)]
        assert done.returncode == 0 and len(lines) == 1, done.stderr
        assert re.fullmatch(r"page\.html: 6 trajectories, judges: 1, [\d.]+ MB", lines[0])
        page = (tmp_path / "page.html").read_text("utf-8")
        found = re.findall(r'<script type="application/json" id="t\d+">(.*?)</script>', page)
        shown.append([json.loads(text).get("retry") or {} for text in found])
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
        (
            ("--policy", "counter.py:Mute", "--judge", "oracle"),
            "the policy Mute does not accept lessons",
        ),
        (("--judge", "oracle", "--second", "vlm"), "second: not available with the judge oracle"),
        (
            ("--judge", "self-report", "--threshold", "2"),
            "--retries.threshold: Expected `float` <= 1",
        ),
        (
            ("--judge", "noisy", "--judge.false-positive", "1"),
            "--judge.false-positive: unknown option (did you mean",
        ),
        (("--evaluater", "vlm"), "--evaluater: unknown option"),
        (("--judge", "self-report", "--false-negative-cost", "3"), "give the judge a calibration"),
        (("--judge", "oracle", "--baseline", "out"), "the other run is this run itself"),
    ],
)
def test_bad_usage_is_one_clear_error(
    prill: Prill, tmp_path: Path, words: tuple[Any, ...], problem: str
) -> None:
    common = guessing(tmp_path)
    done = prill(*common[:4], "-o", "out", *(() if "--policy" in words else common[4:6]), *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert problem in done.stderr


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
    assert (alone.returncode, alone.stderr.count("\n")) == (2, 1) and "give both" in alone.stderr

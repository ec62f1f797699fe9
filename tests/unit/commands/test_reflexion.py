"""`prill reflexion` as users run it: with other attempts, with bad usage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands.command import Prill

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


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("--policy", "counter.py:Mute", "--judge", "oracle"),
            "the policy Mute does not accept lessons",
        ),
        (("--judge", "oracle", "--second", "vlm"), "second: not available with the judge oracle"),
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

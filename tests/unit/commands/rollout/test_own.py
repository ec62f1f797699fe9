"""`prill rollout` with an environment and a policy of the user's own, in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.cli import main
from prill.io.store import iter_trajectories, read_labels
from prill.types import LabelRecord, Trajectory
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
OWN = """
from prill import Action
from prill import LabelRecord
from prill import Observation
from prill import Step

class Echo:
    platform = "desktop"
    def __init__(self, images, *, start: int = 0, deaf: bool = False, words: list[str] = ("a",), size: int = 1):
        self.start, self.deaf, self.words = start, deaf, list(words)
        assert images.name == "images"
    async def reset(self, task):
        return Observation(text=f"{self.start} {self.words}")
    async def step(self, action):
        return Observation(text="" if self.deaf else action.value), action.value == "over"
    async def close(self): ...
    async def grade(self, trajectory):
        return LabelRecord(id=trajectory.id, success=trajectory.final.text == "over", source="own")

class Says:
    def __init__(self, seed: int = 9, size: int = 1, word: str = "over"):
        self.seed, self.word = seed, word
    def reset(self, task): ...
    async def act(self, observation):
        return Step(observation, Action("message", f"{self.seed} {self.word}", value=self.word))

says = Says()
def same():
    return says

class Broken(Echo):
    platform = "mainframe"

class Blind:
    async def reset(self, task):
        return Observation()
    async def step(self, action):
        return Observation(), True
    async def close(self): ...
"""  # noqa: E501


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return str(tmp_path / "own.py")


def record(
    own: str, out: Path, *words: str, environment: str = "Echo", policy: str = "Says"
) -> int:
    return main(
        [
            "rollout",
            f"{own}:{environment}",
            "--goal",
            "x",
            "--policy",
            f"{own}:{policy}",
            "-o",
            str(out),
            *words,
        ]
    )


def played(out: Path) -> list[Trajectory]:
    return [
        item
        for item in iter_trajectories(out / "trajectories.jsonl")
        if isinstance(item, Trajectory)
    ]


def labels(out: Path) -> list[LabelRecord]:
    return list(read_labels(out / "labels.jsonl"))


def test_own_episode_recorded_and_graded(own: str, tmp_path: Path) -> None:
    assert record(own, tmp_path / "out", "--seeds", "0,5") == 0
    assert [
        (t.agent, t.task.platform, t.steps[0].action.text) for t in played(tmp_path / "out")
    ] == [("Says", "desktop", "0 over"), ("Says", "desktop", "5 over")]
    assert [(label.success, label.source) for label in labels(tmp_path / "out")] == [
        (True, "own")
    ] * 2


def test_own_options_reach_each_side(own: str, tmp_path: Path) -> None:
    words = (
        "--start", "4", "--deaf", "--words", '["b", "c"]', "--policy.seed", "7", "--max-steps", "1",
    )  # fmt: skip
    assert record(own, tmp_path / "out", *words) == 0
    (kept,) = played(tmp_path / "out")
    assert (kept.steps[0].observation.text, kept.steps[0].action.text) == ("4 ['b', 'c']", "7 over")
    assert [label.success for label in labels(tmp_path / "out")] == [False]


@pytest.mark.parametrize(
    ("environment", "policy", "words", "problem"),
    [
        ("Ecko", "Says", (), "has no 'Ecko' (did you mean 'Echo'?)"),
        ("Says", "Says", (), "returned a Says, which has no reset(task), step(action) and close()"),
        ("Echo", "Echo", (), "images is missing: policy"),
        ("Broken", "Says", (), "has the platform 'mainframe'; expected one of web, android"),
        ("Echo", "Says", ("--start", "many"), "--start: Expected `int`, got 'many'"),
        (
            "Echo",
            "Says",
            ("--environment.start", "3"),
            "--environment.start: unknown option; write --start",
        ),
        ("Echo", "Says", ("--environment", "Echo"), "give ENVIRONMENT without a flag"),
        ("Echo", "Says", ("--policy.start", "3"), "--policy.start: unknown option"),
    ],
)
def test_own_errors_are_one_line(
    own: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    environment: str,
    policy: str,
    words: tuple[str, ...],
    problem: str,
) -> None:
    assert record(own, tmp_path / "out", *words, environment=environment, policy=policy) == 2
    error = capsys.readouterr().err
    assert (problem in error, error.count("\n")) == (True, 1), error

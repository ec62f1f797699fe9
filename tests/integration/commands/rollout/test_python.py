"""The work of `prill rollout` from Python and from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

import prill
from prill import rollout
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import iter_trajectories
from prill.testing import ScriptedModel
from prill.types import Task
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
COUNTER, ADD = f"{EXAMPLES / 'own_environment.py'}:Counter", f"{EXAMPLES / 'own_policy.py'}:Add"


def recorded(folder: Path) -> list[tuple[str, str, str | None, int]]:
    items = list(iter_trajectories(folder / "trajectories.jsonl"))
    return sorted((item.id, item.task.goal, item.answer, len(item.steps)) for item in items)


def test_file_says_what_the_command_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(
        f"""
        output = "file"
        policy = "{ADD}"
        [environment]
        name = "{COUNTER}"
        start = 1
        tasks = [{{goal = "Count to 3", id = "three"}}, {{goal = "Count to 2"}}]
        """
    )
    assert main(["rollout", "run.toml"]) == 0
    tasks = [Task(id="three", goal="Count to 3"), "Count to 2"]
    environment = prill.OwnEnvironmentConfig(name=COUNTER, tasks=tasks, options={"start": 1})
    rollout(environment=environment, policy=ADD, output="python")
    assert recorded(tmp_path / "file") == recorded(tmp_path / "python")
    assert [goal for _, goal, _, _ in recorded(tmp_path / "file")] == ["Count to 2", "Count to 3"]


def test_made_policy_plays(tmp_path: Path) -> None:
    policy = prill.policy(ADD)
    environment = {"name": COUNTER, "goal": "Count to 3"}
    assert rollout(environment, policy=policy, output=tmp_path).counts.success == 1


def test_made_model_plays(tmp_path: Path) -> None:
    reply = "I see. In summary, the next action I will perform is ```stop [3]```"
    policy = prill.PolicyConfig("react", model=ScriptedModel([reply]))
    config = prill.RolloutConfig(
        spec={"environment": {"name": COUNTER, "goal": "Count to 0"}},
        policy=policy,
        output=tmp_path,
    )
    (played,) = rollout(config).trajectories()
    assert (played.answer, played.error) == ("3", None)
    with pytest.raises(UsageError, match="takes no options"):
        rollout(
            config.copy_with(
                policy=prill.PolicyConfig(
                    "react", model=ScriptedModel([reply]), base_url="http://x"
                )
            )
        )

"""The work of `prill rollout` from a plain script, with the results of the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import prill
from prill import plan_rollout, rollout
from prill.cli import main
from prill.errors import UsageError
from prill.io.store import read_trajectories
from prill.runs.rollout.run import rollout_session
from prill.testing import ScriptedModel
from prill.types import Task, Trajectory
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
COUNTER, ADD = f"{EXAMPLES / 'own_environment.py'}:Counter", f"{EXAMPLES / 'own_policy.py'}:Add"
SCRIPT = f"""
import prill

config = prill.RolloutConfig(
    environment=prill.OwnEnvironmentConfig(name={COUNTER!r}, goal=["Count to 3", "Count to 2"], options={{"start": 1}}),
    policy={ADD!r},
    seeds=range(2),
    output="script",
)
result = prill.rollout(config)
print(result.counts.success, len(result.trajectories()), result.graded)
"""  # noqa: E501


def recorded(folder: Path) -> list[tuple[str, str, str | None, int]]:
    items = [
        item
        for item in read_trajectories(folder / "trajectories.jsonl")
        if isinstance(item, Trajectory)
    ]
    return sorted((item.id, item.task.goal, item.answer, len(item.steps)) for item in items)


def test_script_records_what_the_command_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "4 4 True\n", "")
    goals = ["--goal", '["Count to 3", "Count to 2"]', "--start", "1", "--seeds", "0,1"]
    assert main(["rollout", COUNTER, *goals, "--policy", ADD, "-o", "command"]) == 0
    assert recorded(tmp_path / "script") == recorded(tmp_path / "command")


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
    rollout(prill.RolloutConfig(environment=environment, policy=ADD, output="python"))
    assert recorded(tmp_path / "file") == recorded(tmp_path / "python")
    assert [goal for _, goal, _, _ in recorded(tmp_path / "file")] == ["Count to 2", "Count to 3"]


def test_result_is_a_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    config = prill.RolloutConfig(
        environment={"name": COUNTER, "goal": ["Count to 3", "Count to 2"]},
        policy=ADD,
        output=tmp_path,
    )
    assert plan_rollout(config).counts["episodes"] == 2
    result = rollout(config)
    assert str(result) == f"2 success -> {tmp_path}"
    assert isinstance(result.to_pandas(), pandas.DataFrame)
    assert result.to_pandas()[["goal", "success"]].sort_values("goal").values.tolist() == [
        ["Count to 2", True],
        ["Count to 3", True],
    ]
    again = rollout(config)
    assert (again.counts.skipped, again.complete) == (2, True)


def test_made_policy_plays(tmp_path: Path) -> None:
    policy = prill.policy(ADD)
    config = prill.RolloutConfig(
        environment={"name": COUNTER, "goal": "Count to 3"}, policy=policy, output=tmp_path
    )
    assert rollout(config).counts.success == 1


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (
            {"name": "miniwob", "task": "click-link"},
            "environment.task: unknown option (did you mean 'tasks'?)",
        ),
        ({"tasks": "click-link"}, "environment: expected the name of an environment or a table"),
        (3, "environment: expected the name of an environment or a table"),
        ({"name": "android", "settle_gap": -1}, "environment.settle_gap: Expected `float` >= 0.0"),
        ({"name": "android", "avd": "a", "device": ["b"]}, "give either avd or device"),
        (
            {"name": "web", "tasks": [{"goal": "x", "url": "http://x"}]},
            "environment.tasks: a task has no key 'url'",
        ),
        (
            {"name": "web", "tasks": [{"id": "x"}]},
            "environment.tasks: Object missing required field `goal`",
        ),
        ({"name": "web", "tasks": [3]}, "environment.tasks: Expected `object`, got `int`"),
        ({"name": "web", "tasks": 3}, "environment.tasks: expected "),
        ({"name": "web", "goal": 3}, "environment.goal: "),
        ({"name": "mind2web", "recordings": 3}, "environment.recordings: "),
        ({"name": "mind2web", "recordings": [3]}, "environment.recordings: "),
        ({"name": "webarena", "configs": 3}, "environment.configs: "),
        ({"name": "webarena", "oracle": "best"}, "environment.oracle: "),
        ({"name": "miniwob", "tasks": 1.5}, "environment.tasks: "),
        ({"name": "android", "device": 3}, "environment.device: "),
        ({"name": COUNTER, "options": 3, "goal": "x"}, "environment.options: "),
        ({"name": "web", "viewport": [0, 5]}, "viewport: expected a size such as 1280x720"),
        (
            {"name": "web", "viewport": "big"},
            "viewport: expected a size such as 1280x720, got 'big'",
        ),
    ],
)
def test_wrong_environments_are_refused_when_made(environment: object, problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        prill.RolloutConfig.read({"environment": environment, "output": "out"})
    assert problem in str(raised.value)


def test_unknown_environment_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "miniwobb", "--tasks", "a", "-o", "out"]) == 2
    assert "unknown environment 'miniwobb' (did you mean 'miniwob'?)" in capsys.readouterr().err


async def test_the_policys_model_comes_before_the_runs(tmp_path: Path) -> None:
    """The options of the run's model hold for another one, as far as that has them."""
    place = {"base_url": "http://127.0.0.1:1", "timeout": 7.0}
    react = {"name": "react", "max_tokens": 9}
    said = {
        "run": {"policy": react, "model": {"name": "m", **place}},
        "policy": {"policy": {**react, "model": "m"}, "model": {"name": "other", **place}},
        "beside": {"policy": {**react, "model": "m", **place}},
        "nested": {"policy": {**react, "model": {"name": "m", **place}}},
        "nameless": {"policy": {**react, "model": "m"}, "model": {"name": "", **place}},
    }
    found = {}
    for name, table in said.items():
        config = prill.RolloutConfig.read(
            {"environment": {"name": COUNTER, "goal": "x"}, "output": tmp_path / name, **table}
        )
        async with rollout_session(config) as made:
            found[name] = (
                made.plan.agent,
                made.id(made.rows[0]),
                made.plan.fingerprint["max_tokens"],
            )
    assert set(found.values()) == {("react/m", found["run"][1], 9)}


def test_made_model_plays(tmp_path: Path) -> None:
    reply = "I see. In summary, the next action I will perform is ```stop [3]```"
    policy = prill.PolicyConfig("react", model=ScriptedModel([reply]))
    config = prill.RolloutConfig(
        environment={"name": COUNTER, "goal": "Count to 0"}, policy=policy, output=tmp_path
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

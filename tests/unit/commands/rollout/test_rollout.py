"""`prill rollout` up to the point where the browser starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.cli import main
from prill.emulators.browser.config import WebConfig
from prill.emulators.task_source import fingerprint, task_contents
from prill.errors import UsageError
from prill.runs.rollout.cases import Case, read_plan
from prill.types import Task


def test_plan_lists_tasks_and_behaviours(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'episodes = [{ task = "click-link", seed = 1 }, { task = "click-link", seed = 1, '
        'behaviour = "no-submit" }]'
    )
    assert read_plan(plan) == (
        Case("click-link", 1, behaviour="solve"),
        Case("click-link", 1, behaviour="no-submit"),
    )


def test_id_is_stable_and_tells_nothing() -> None:
    ids = [
        Case("click-link", 1, 0, behaviour).id("miniwob", "")
        for behaviour in ("solve", "solve", "no-submit")
    ]
    assert ids[0] == ids[1] != ids[2]
    assert not any("solve" in id or "submit" in id for id in ids)


def test_other_settings_are_other_episodes() -> None:
    for case in (Case("click-link", 1), Case("click-link", 1, behaviour="solve")):
        assert (
            len(
                {
                    case.id("miniwob", fingerprint(settings))
                    for settings in ({"text": "lines"}, {"text": "html"})
                }
            )
            == 2
        )


def list_tasks(lines: str, folder: Path, start_url: str | None = None) -> dict[str, Task]:
    path = folder / "tasks.jsonl"
    path.write_text(lines)
    return WebConfig(tasks=path, start_url=start_url).read_tasks("web")


def test_edited_task_is_another_task(tmp_path: Path) -> None:
    before = task_contents(
        list_tasks(
            '{"id": "a", "goal": "Find x"}\n{"id": "b", "goal": "Find y"}', tmp_path, "http://one"
        )
    )
    after = task_contents(
        list_tasks(
            '{"id": "a", "goal": "Find z"}\n{"id": "b", "goal": "Find y"}', tmp_path, "http://one"
        )
    )
    elsewhere = task_contents(list_tasks('{"id": "b", "goal": "Find y"}', tmp_path, "http://two"))
    assert (
        before["a"] == after["a"],
        before["b"] == after["b"],
        before["b"] == elsewhere["b"],
    ) == (False, True, False)


def test_nameless_tasks_are_named_by_text(tmp_path: Path) -> None:
    (one,) = list_tasks('{"goal": "Find x"}', tmp_path)
    (other,) = list_tasks('{"goal": "Find y"}', tmp_path)
    assert one != other
    assert list(list_tasks('{"goal": "Find y"}\n{"goal": "Find x"}', tmp_path)) == [other, one]
    with pytest.raises(UsageError, match="duplicate task id"):
        list_tasks('{"goal": "Find x"}\n{"goal": "Find x"}', tmp_path)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (None, "No such file"),
        ("episodes = [", "plan.toml:"),
        ('episodes = [{ task = "a" }]', "missing required field `seed` - at `$.episodes[0]`"),
        (
            'episodes = [{ task = "a", seed = 1, behaviour = "cheat" }]',
            "Invalid enum value 'cheat'",
        ),
        ('episodes = [{ task = "a", seed = 1 }, { task = "a", seed = 1 }]', "listed twice"),
    ],
)
def test_bad_plan_is_one_clear_error(
    plan: str | None, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.toml"
    if plan is not None:
        path.write_text(plan)
    assert main(["rollout", "miniwob", "--plan", str(path), "-o", str(tmp_path)]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "tasks is missing; give names, or all (--tasks)"),
        (["--tasks", "click-lynk"], "unknown task click-lynk"),
        (
            ["--tasks", "bisect-angle"],
            "policy scripted cannot play bisect-angle; it can play choose-list, ",
        ),
        (
            ["--tasks", "click-link", "--policy", "replay"],
            "policy 'replay' needs it. Trajectories to replay, or a file of them. (--replay)",
        ),
        (
            ["--tasks", "click-link", "--policy", "react"],
            "give a model at the endpoint, or `embedded` (--model)",
        ),
        (
            ["--plan", "p.toml", "--policy", "react", "--model", "m"],
            "plan: lists episodes of the scripted policy",
        ),
        (["--tasks", "click-link", "--seeds", "1-x"], "numbers and ranges"),
        (["--tasks", "click-link", "--seeds", "0,4-2"], "the range 4-2 is descending"),
        (["--tasks", "click-link", "--behaviour", "cheat"], "expected solve"),
        (
            ["--tasks", "click-link", "--policy", "scripted", "--reasoning"],
            "--reasoning: policy 'scripted' has no such option; policies with this option: react",
        ),
        (
            ["--tasks", "click-link", "--policy", "scripted", "--generation", "18b"],
            "with this option: cogagent",
        ),
        (
            ["--tasks", "click-link", "--model", "m"],
            "policies with this option: react, step, screen, cogagent, autoui",
        ),
        (
            ["--tasks", "click-link", "--setle", "1"],
            "--setle: unknown option (did you mean '--settle'?)",
        ),
        (
            ["--tasks", "click-link", "--settle", "soon"],
            "--environment.settle: Expected `float`, got 'soon'",
        ),
        (
            ["--tasks", "click-link", "--settle", "-1"],
            "--environment.settle: Expected `float` >= 0.0",
        ),
        (
            ["--tasks", "click-link", "--policy", "scripted", "--policy.sites", "x"],
            "with this option: react",
        ),
        (["--tasks", "click-link", "--images", "x"], "--images: unknown option"),
        (["--tasks", "click-link", "--text", "[1"], "--environment.text: Invalid enum value '[1'"),
        (
            ["--tasks", "click-link", "--policy", "scriptd"],
            "unknown policy 'scriptd' (did you mean 'scripted'?)",
        ),
    ],
)
def test_bad_options_are_one_clear_error(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rollout", "miniwob", "-o", str(tmp_path), *words]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_episode_needs_some_time(
    seconds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "rollout",
                "miniwob",
                "--tasks",
                "click-link",
                "-o",
                str(tmp_path),
                f"--episode-timeout={seconds}",
            ]
        )
        == 2
    )
    assert "--episode-timeout: " in capsys.readouterr().err


def test_unwritable_folder_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["rollout", "miniwob", "--tasks", "click-link", "-o", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err

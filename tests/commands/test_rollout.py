"""`prill rollout` up to the point where the browser starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.cli import main
from prill.commands.cases import Case, read_plan


def test_a_plan_is_a_list_of_tasks_seeds_and_behaviours(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'episodes = [{ task = "click-link", seed = 1 }, { task = "click-link", seed = 1, behaviour = "no-submit" }]'
    )
    assert read_plan(plan) == (
        Case("click-link", 1, behaviour="solve"),
        Case("click-link", 1, behaviour="no-submit"),
    )


def test_an_id_is_the_same_each_time_and_tells_nothing() -> None:
    ids = [Case("click-link", 1, 0, behaviour).id("miniwob", "") for behaviour in ("solve", "solve", "no-submit")]
    assert ids[0] == ids[1] != ids[2]
    assert not any("solve" in id or "submit" in id for id in ids)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (None, "No such file"),
        ("episodes = [", "plan.toml:"),
        ('episodes = [{ task = "a" }]', "missing required field `seed` - at `$.episodes[0]`"),
        ('episodes = [{ task = "a", seed = 1, behaviour = "cheat" }]', "Invalid enum value 'cheat'"),
        ('episodes = [{ task = "a", seed = 1 }, { task = "a", seed = 1 }]', "listed twice"),
    ],
)
def test_a_bad_plan_is_one_clear_error(
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
        ([], "give --tasks: names, or all"),
        (["--tasks", "click-lynk"], "there is no task click-lynk"),
        (["--tasks", "bisect-angle"], "the scripted policy cannot play bisect-angle; it plays choose-list, "),
        (["--tasks", "click-link", "--policy", "replay"], "--policy replay needs --replay FILE"),
        (["--tasks", "click-link", "--policy", "react"], "--model is missing"),
        (["--plan", "p.toml", "--policy", "react", "--model", "m"], "--plan lists episodes of the scripted policy"),
        (["--tasks", "click-link", "--seeds", "1-x"], "numbers and ranges"),
        (["--tasks", "click-link", "--behaviour", "cheat"], "choose from solve"),
    ],
)
def test_bad_options_are_one_clear_error(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rollout", "miniwob", "-o", str(tmp_path), *words]) == 2
    assert problem in capsys.readouterr().err

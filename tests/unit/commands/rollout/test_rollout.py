"""`prill rollout` up to the point where the browser starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.cli import main
from prill.emulators.task_source import fingerprint
from prill.episodes.cases import Case, read_plan


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
            "needs it. Trajectories to replay, or a file of them. (--policy.trajectories)",
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
            ["--tasks", "click-link", "--policy", "scripted", "--policy.reasoning"],
            "policy 'scripted' has no such option; policies with this option: react",
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
            "--settle: Expected `float`, got 'soon'",
        ),
        (["--tasks", "click-link", "--images", "x"], "--images: unknown option"),
    ],
)
def test_bad_options_are_one_clear_error(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rollout", "miniwob", "-o", str(tmp_path), *words]) == 2
    assert problem in capsys.readouterr().err

"""`prill reflexion FILE`: the same run from flags, TOML, JSON and Python, and what is wrong in a
file.
"""

from __future__ import annotations

import json
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import prill as prill_package
from tests.support.commands.command import Prill
from tests.support.paths import ROOT, SUPPORT
from tests.unit.commands.test_reflexion import guessing

CONFIG = """
max_steps = 4

[environment]
name = "counter.py:Counter"
tasks = "tasks.jsonl"

[policy]
name = "guesser.py:Guesser"

[judge]
name = "oracle"

[retries]
attempts = 3
keep_best = true

[lessons]
lesson_tokens = 100
"""


def test_all_ways_are_the_same_run(prill: Prill, tmp_path: Path) -> None:
    words = [*guessing(tmp_path)[:-2], "--max-steps", "4", "--keep-best", "--lesson-tokens", "100"]
    done = prill(*words, "-o", "flags")
    assert done.returncode == 0, done.stderr
    (tmp_path / "r.toml").write_text(CONFIG)
    tables = {
        # null: as if it were left out
        "environment": {"name": "counter.py:Counter", "tasks": "tasks.jsonl", "goal": None},
        "max_steps": 4,
        "seeds": None,
        "policy": {"name": "guesser.py:Guesser", "model": None},
        "judge": {"name": "oracle"},
    }
    more = {"retries": {"attempts": 3, "keep_best": True}, "lessons": {"lesson_tokens": 100}}
    (tmp_path / "r.json").write_text(json.dumps({**tables, **more}))
    for name in ("r.toml", "r.json"):
        shown = prill("reflexion", name, "-o", name.partition(".")[2])
        assert shown.returncode == 0 and shown.stdout == done.stdout, shown.stderr
    result = prill_package.reflexion(
        prill_package.ReflexionConfig(
            environment={"name": "counter.py:Counter", "tasks": "tasks.jsonl"},
            policy="guesser.py:Guesser",
            judge="oracle",
            max_steps=4,
            retries={"attempts": 3, "keep_best": True},  # type: ignore[arg-type]
            lessons=prill_package.LessonsConfig(lesson_tokens=100),
            output=tmp_path / "python",
        )
    )
    assert f"{result}\n" == done.stdout
    assert result.to_pandas()["truth"].tolist() == [True, False, True, False, False, True]
    folders = ("flags", "toml", "json", "python")
    for name in ("results.json", "results.md", "reflexion.json"):
        assert len({(tmp_path / folder / name).read_bytes() for folder in folders}) == 1, name


def test_flags_come_before_the_file(prill: Prill, tmp_path: Path) -> None:
    guessing(tmp_path)
    (tmp_path / "r.toml").write_text(CONFIG.replace("keep_best = true", "stop_on_repeat = false"))
    common = ("reflexion", "r.toml", "-o", "out")
    done = prill(
        *common,
        "--attempts",
        2,
        "--limit",
        2,
        "--stop-on-repeat",
        "--max-steps=5",
        "--lesson-tokens",
        "50",
    )
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "out" / "results.json").read_text())["settings"]
    assert (settings["retries"]["attempts"], settings["retries"]["stop_on_repeat"]) == (2, True)
    assert settings["lessons"]["lesson_tokens"] == 50
    assert len((tmp_path / "out" / "trajectories.jsonl").read_text().splitlines()) == 3, (
        "the first two tasks"
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ("[retries]", "[retires]"),
            "r.toml: retires: unknown option (did you mean 'retries'?)",
        ),
        (
            ("attempts = 3", "atempts = 3"),
            "r.toml: retries.atempts: unknown option (did you mean 'attempts'?)",
        ),
        (("attempts = 3", 'attempts = "3"'), "r.toml: retries.attempts: Expected `int`, got '3'"),
        (
            ("max_steps = 4", "max_step = 4"),
            "r.toml: max_step: unknown option (did you mean 'max_steps'?)",
        ),
        (("max_steps = 4", "max_steps = 0"), "r.toml: max_steps: Expected `int` >= 1, got 0"),
        (("max_steps = 4", "retry_broken = 1"), "r.toml: retry_broken: Expected `bool`, got 1"),
        (("[judge]", "resoning = 1\n[judge]"), "r.toml: policy.resoning: "),
        (("[policy]", "start = 1\n[policy]"), "r.toml: environment.start: "),
        (
            ("lesson_tokens", "lessons_token"),
            "r.toml: lessons.lessons_token: unknown option (did you mean",
        ),
        (
            ('"oracle"', '"self-report"\nfrom = "x"'),
            "r.toml: judge.from: judge 'self-report' has no such option",
        ),
    ],
)
def test_wrong_file_is_one_clear_error(
    prill: Prill, tmp_path: Path, change: tuple[str, str], problem: str
) -> None:
    guessing(tmp_path)
    assert change[0] in CONFIG
    (tmp_path / "r.toml").write_text(CONFIG.replace(*change))
    done = prill("reflexion", "r.toml", "-o", "out")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert problem in done.stderr


def test_file_fills_policy_and_environment(prill: Prill, tmp_path: Path) -> None:
    guessing(tmp_path)
    with (tmp_path / "counter.py").open("a") as file:
        file.write(
            "\n\nclass Open(Counter):\n    def __init__(self, *, doors: list[str], wide: bool = "
            "False):\n"
        )
        file.write("        print('doors', doors, wide)\n")
    with (tmp_path / "guesser.py").open("a") as file:
        file.write(
            "\n\nclass Agent(Guesser):\n    def __init__(self, *, mood: str, calm: float = 0.0):\n"
        )
        file.write("        print('mood', mood, calm)\n        super().__init__()\n")
    own = CONFIG.replace(
        '"guesser.py:Guesser"', '"guesser.py:Agent"\nmood = "good = fine"\ncalm = 0.5'
    )
    own = own.replace('"counter.py:Counter"', '"counter.py:Open"\ndoors = ["a", "b"]\nwide = true')
    (tmp_path / "r.toml").write_text(own)
    done = prill("reflexion", "r.toml", "-o", "out")
    assert "doors ['a', 'b'] True\n" in done.stdout and "mood good = fine 0.5\n" in done.stdout, (
        done.stderr
    )


# Of runs that were recorded before the command line was derived: the words as they are now, and
# `reflexion.json`.
RECORDED: dict[str, Any] = json.loads((SUPPORT / "commands/recorded/settings.json").read_bytes())


@pytest.mark.parametrize("words", RECORDED)
def test_recorded_runs_are_the_same_runs(prill: Prill, tmp_path: Path, words: str) -> None:
    """Everything that tells runs apart: environment, policy, ids, judge, retries and lessons."""
    if words.startswith(("miniwob", "webarena", "airline")) and find_spec("miniwob") is None:
        pytest.skip("miniwob is not installed")
    shutil.copy(SUPPORT / "commands/doubles.py", tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "out").mkdir()
    command = ("reflexion", *shlex.split(words), "-o", "out", "--dry-run")
    for settings, code in ((RECORDED[words], 0), ({**RECORDED[words], "run": "0" * 8}, 2)):
        (tmp_path / "out/reflexion.json").write_text(json.dumps(settings))
        done = prill(*command)
        assert done.returncode == code, done.stderr
    assert "contains a run with other settings (run)" in done.stderr

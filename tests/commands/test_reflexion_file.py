"""`prill reflexion --config`: the same run from flags, TOML and JSON, and what is wrong in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Prill
from .test_reflexion import guessing

CONFIG = """
[episodes]
tasks = "tasks.jsonl"
max_steps = 4

[policy]
name = "guesser.py:Guesser"

[judge]
evaluator = "oracle"

[retries]
attempts = 3
keep_best = true

[lessons]
lesson_tokens = 100
"""


def test_file_and_flags_are_the_same_run(prill: Prill, tmp_path: Path) -> None:
    words = [*guessing(tmp_path)[:-2], "--max-steps", "4", "--keep-best", "--lesson-tokens", "100"]
    assert prill(*words, "-o", "flags").returncode == 0
    (tmp_path / "r.toml").write_text(CONFIG)
    policy = {"name": "guesser.py:Guesser", "model": None}  # null: as if it were left out
    tables = {
        "episodes": {"tasks": "tasks.jsonl", "max_steps": 4, "seeds": None},
        "policy": policy,
        "judge": {"evaluator": "oracle"},
    }
    more = {"retries": {"attempts": 3, "keep_best": True}, "lessons": {"lesson_tokens": 100}}
    (tmp_path / "r.json").write_text(json.dumps({**tables, **more}))
    for name in ("r.toml", "r.json"):
        done = prill("reflexion", "counter.py:Counter", "--config", name, "-o", name.partition(".")[2])
        assert done.returncode == 0, done.stderr
    results = [(tmp_path / folder / "results.json").read_bytes() for folder in ("flags", "toml", "json")]
    assert results[0] == results[1] == results[2]


def test_flags_come_before_the_file(prill: Prill, tmp_path: Path) -> None:
    guessing(tmp_path)
    (tmp_path / "r.toml").write_text(CONFIG.replace("keep_best = true", "stop_on_repeat = false"))
    common = ("reflexion", "counter.py:Counter", "--config", "r.toml", "-o", "out")
    done = prill(*common, "--attempts", 2, "--limit", 2, "--stop-on-repeat", "--max-steps=5", "--lesson-tokens", "50")
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "out" / "results.json").read_text())["settings"]
    assert (settings["retries"]["attempts"], settings["retries"]["stop_on_repeat"]) == (2, True)
    assert settings["lessons"]["lesson_tokens"] == 50
    assert len((tmp_path / "out" / "trajectories.jsonl").read_text().splitlines()) == 3, "the first two tasks"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("[retries]", "[retires]"), "r.toml: retires: a file of retries has no such option (did you mean 'retries'?)"),
        (("attempts = 3", "atempts = 3"), "r.toml: retries.atempts: the retries has no such option (did you mean 'attempts'?)"),
        (("attempts = 3", 'attempts = "3"'), "r.toml: retries.attempts: Expected `int`, got `str`"),
        (("max_steps = 4", "max_step = 4"), "r.toml: episodes.max_step: there is no such option (did you mean 'max_steps'?)"),
        (("max_steps = 4", "max_steps = 0"), "r.toml: episodes.max_steps: give a whole number of at least 1, got 0"),
        (("max_steps = 4", "retry_broken = 1"), "r.toml: episodes.retry_broken: expected true or false, got 1"),
        (("[judge]", "resoning = 1\n[judge]"), "r.toml: policy.resoning: there is no such option"),
        (("[judge]", "[environment]\nstart = 1\n[judge]"), "r.toml: environment.start: there is no such option"),
        (("lesson_tokens", "lessons_token"), "r.toml: lessons.lessons_token: there is no such option (did you mean"),
        (('"oracle"', '"self-report"\nfrom = "x"'), "r.toml: judge.from: judge 'self-report' has no such option"),
    ],
)
def test_wrong_file_is_one_clear_error(prill: Prill, tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    guessing(tmp_path)
    (tmp_path / "r.toml").write_text(CONFIG.replace(*change))
    done = prill("reflexion", "counter.py:Counter", "--config", "r.toml", "-o", "out")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert problem in done.stderr


def test_file_fills_policy_and_environment(prill: Prill, tmp_path: Path) -> None:
    guessing(tmp_path)
    with (tmp_path / "counter.py").open("a") as file:
        file.write("\n\nclass Open(Counter):\n    def __init__(self, *, doors: list[str], wide: bool = False):\n")
        file.write("        print('doors', doors, wide)\n")
    with (tmp_path / "guesser.py").open("a") as file:
        file.write("\n\nclass Agent(Guesser):\n    def __init__(self, *, mood: str, calm: float = 0.0):\n")
        file.write("        print('mood', mood, calm)\n        super().__init__()\n")
    own = CONFIG.replace('"guesser.py:Guesser"', '"guesser.py:Agent"\nmood = "good = fine"\ncalm = 0.5')
    (tmp_path / "r.toml").write_text(own + '[environment]\ndoors = ["a", "b"]\nwide = true\n')
    done = prill("reflexion", "counter.py:Open", "--config", "r.toml", "-o", "out")
    assert "doors ['a', 'b'] True\n" in done.stdout and "mood good = fine 0.5\n" in done.stdout, done.stderr

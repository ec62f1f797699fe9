"""`prill papers bench` as users run it, on MiniWoB++ and the shop in the real Chromium: killed,
resumed, with bad usage.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from prill.cli import main
from prill.cli.commands import COMMANDS
from prill.cli.derive import derive
from prill.config.registry import load_object
from prill.io.store import iter_trajectories
from prill.papers.bench.papers import list_tasks, read_paper
from prill.papers.bench.run import BenchConfig, choose
from tests.support.commands.command import Prill, environment
from tests.support.commands.reflexion_actors import COURSES
from tests.support.paths import ROOT, SUPPORT

ACTOR = f"{SUPPORT / 'commands/reflexion_actors.py'}:Actor"
TASKS = ("click-test-2", "click-checkboxes", "click-link")  # their courses: FSF, FFS, FSF


class Played(NamedTuple):
    """What is played."""

    tasks: str
    seeds: str
    trials: int


WORDS = (
    "papers",
    "bench",
    "miniwob",
    "--policy",
    ACTOR,
    "--tasks",
    ",".join(TASKS),
    "--seeds",
    "0",
    "--trials",
    "3",
    "-o",
    "out",
)


@pytest.fixture(scope="module")
def played(chromium: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three trials whose first process died in the middle of its third attempt; the same
    command took it up.
    """
    folder = tmp_path_factory.mktemp("bench")
    env = environment() | {"PYTHONPATH": str(ROOT), "DIES_AT": "play 5"}
    died = subprocess.run(
        [sys.executable, "-m", "prill", *WORDS],
        cwd=folder,
        env=env,
        capture_output=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert not (folder / "out" / "results.md").exists()
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        for name in os.environ.keys() - environment().keys():
            patch.delenv(name)
        assert main(list(WORDS)) == 0
    return folder / "out"


def rows(out: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The rows of the first list of tasks, by name."""
    (first, *_) = json.loads((out / "results.json").read_bytes())["sections"]
    return {row["name"]: row for row in first[kind]}


@pytest.mark.slow
def test_a_killed_run_plays_nothing_twice(played: Path) -> None:
    recorded = list(iter_trajectories(played / "episodes" / "trajectories.jsonl"))
    attempts = Counter((str(one.task.site), one.metadata["attempt"]) for one in recorded)
    needed = {(task, number): 1 for task in TASKS for number in range(COURSES[task].index("S") + 1)}
    assert attempts == needed


@pytest.mark.slow
def test_tables_are_those_of_the_courses(played: Path) -> None:
    by_trials = {
        name: [share["success"] for share in row["success"]]
        for name, row in rows(played, "tasks").items()
    }
    assert by_trials == {"click-test-2": [0, 1], "click-link": [0, 1], "click-checkboxes": [0, 1]}
    whole = json.loads((played / "results.json").read_bytes())
    assert (whole["trials"], whole["missing"], whole["agent"]) == ([1, 3], {}, "Actor")
    assert (
        rows(played, "categories")["all"]["attempts"] == whole["overall"]["attempts"] == 2 + 3 + 2
    )


@pytest.mark.slow
def test_calls_of_both_processes_are_counted(played: Path) -> None:
    usage = json.loads((played / "results.json").read_bytes())["usage"]
    recorded = list(iter_trajectories(played / "episodes" / "trajectories.jsonl"))
    # an action each, and a lesson after every failure
    calls = sum(len(one.steps) for one in recorded) + 4
    assert (usage["calls"], usage["prompt_tokens"], usage["usd"]) == (
        calls,
        10 * calls,
        pytest.approx(12e-6 * calls),
    )
    assert f"{calls} calls, {12 * calls} tokens" in (played / "results.md").read_text()
    assert (played / "results.svg").read_text().startswith("<svg")


@pytest.mark.slow
def test_the_shop_is_told_by_sites(chromium: None, prill: Prill) -> None:
    done = prill(
        "papers",
        "bench",
        "webarena",
        "--shop",
        "--policy",
        "scripted",
        "--tasks",
        "1001,1003,1022",
        "-o",
        "out",
    )
    assert done.returncode == 3, "the oracle of 1003 wants a model"
    assert "1 undecided" in done.stdout and "theirs" not in done.stdout
    counts = {
        name: (row["tasks"], row["success"][0]["missing"])
        for name, row in rows(Path("out"), "categories").items()
    }
    assert counts == {"shopping": (2, 1), "reddit": (1, 0), "all": (3, 1)}


@pytest.mark.slow
def test_the_desk_is_told_with_progress(chromium: None, prill: Prill) -> None:
    done = prill(
        "papers",
        "bench",
        "airline",
        "--policy",
        "scripted",
        "--tasks",
        "find-booking",
        "--seeds",
        "6",
        "-o",
        "out",
    )
    assert done.returncode == 0, done.stderr
    (row,) = rows(Path("out"), "categories").values()
    assert (row["success"][0]["success"], row["progress"], row["theirs"][3]["success"]) == (
        1,
        1,
        0.94,
    )


def chosen(*words: str) -> tuple[Played, list[str]]:
    """What is played, and whose figures stand next to it."""
    command = COMMANDS["papers bench"]
    derived, rest = derive(
        load_object(command.config),
        [*words, "-o", "out"],
        command.layout,
        prog="prill papers bench",
    )
    config, _ = derived.read(rest)
    assert isinstance(config, BenchConfig)
    made, papers = choose(config)
    return Played(made.spec.place.tasks, str(made.spec.seeds), made.trials or 0), [
        paper.title for paper in papers
    ]  # type: ignore[attr-defined]


def test_an_agent_of_a_paper_has_its_settings() -> None:
    args, papers = chosen("miniwob", "--policy", "structured-reflection")
    assert (args.tasks.split(","), args.seeds, args.trials) == (
        list(list_tasks(read_paper("structured-reflection"))),
        "1000-1024",
        5,
    )
    assert papers == ["structured reflection", "structured reflection, shared tasks"]
    args, papers = chosen(
        "miniwob", "--policy", "step", "--tasks", "click-link", "--seeds", "3", "--trials", "2"
    )
    assert (args.tasks, args.seeds, args.trials, papers) == ("click-link", "3", 2, ["SteP"])


def test_a_list_has_the_seeds_of_its_paper() -> None:
    args, papers = chosen("miniwob", "--policy", "react", "--tasks", "64")
    assert (len(args.tasks.split(",")), args.seeds, args.trials, papers) == (
        64,
        "0-49",
        1,
        ["Synapse"],
    )
    args, papers = chosen("miniwob", "--policy", "synapse", "--tasks", "43")
    assert (len(args.tasks.split(",")), args.seeds, papers) == (
        43,
        "0-49",
        ["structured reflection", "structured reflection, shared tasks", "Synapse"],
    )
    args, papers = chosen("miniwob", "--policy", "react", "--tasks", "click-link,click-tab")
    assert (args.seeds, len(papers)) == ("0-4", 4)

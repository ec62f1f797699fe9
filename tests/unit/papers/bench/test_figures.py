"""Figures of a benchmark, worked out by hand: shares, trials, intervals, what has no outcome, and
theirs beside.
"""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest

from prill.evaluators.metrics import wilson
from prill.papers.bench import BenchRun, BenchTrial, make_bench, read_paper, read_runs
from prill.papers.bench.figures import Missing, compare_trials, compute_share, solved
from prill.papers.bench.tables import bench_picture, bench_text
from prill.types import Usage
from tests.support.refine.retrying import Scribe
from tests.support.refine.retrying import run as try_again

LETTERS = {"S": True, "F": False, "?": None}


def run(
    task: str,
    seed: int = 0,
    trials: str = "S",
    *,
    group: str = "",
    cluster: str = "",
    missing: Missing | None = None,
) -> BenchRun:
    """One letter a trial: S, F, or ? for none. A trial is a number of actions that grows, and a
    call of 10 + 2 tokens.
    """
    usage = Usage(1, 10, 2, 0, 0.5)
    made = tuple(
        BenchTrial(success=LETTERS[letter], actions=i + 1, usage=usage)
        for i, letter in enumerate(trials)
    )
    return BenchRun(
        task=task, seed=seed, group=group, cluster=cluster or task, trials=made, missing=missing
    )


def runs(task: str, letters: str) -> list[BenchRun]:
    """One trial a seed."""
    return [
        run(task, seed, letter, missing="undecided" if letter == "?" else None)
        for seed, letter in enumerate(letters)
    ]


@pytest.mark.parametrize(
    ("trials", "missing", "after"),
    [
        ("S", None, [True, True, True]),
        ("FS", None, [False, True, True]),
        ("FFF", None, [False, False, False]),
        ("F", "no lesson", [False, None, None]),
        ("F?", "broke off", [False, None, None]),
        ("?", "undecided", [None, None, None]),
        ("", "could not begin", [None, None, None]),
        ("FF", None, [False, False, False]),
    ],
)
def test_solved_within_so_many_trials(
    trials: str, missing: Missing | None, after: list[bool | None]
) -> None:
    assert [solved(run("t", trials=trials, missing=missing), count) for count in (1, 2, 3)] == after


def test_every_task_counts_the_same() -> None:
    share = compute_share([*runs("a", "SSSS"), *runs("b", "FF")], 1)
    assert (share.success, share.decided) == (0.5, 6), "by episode it would be 4 of 6"


def rewarded(task: str, *rewards: float | None) -> list[BenchRun]:
    made = (BenchTrial(success=bool(reward and reward > 0), reward=reward) for reward in rewards)
    return [BenchRun(task=task, seed=seed, trials=(trial,)) for seed, trial in enumerate(made)]


def test_part_of_a_reward_is_no_full_one() -> None:
    made = make_bench(
        [*rewarded("a", 1, 0.5), *rewarded("b", 1, 1), *rewarded("c", -1, 0)],
        benchmark="miniwob",
        agent="x",
    )
    row = made.sections[0].categories[-1]
    assert (row.success[0].success, row.full) == (pytest.approx(2 / 3), 0.5)
    assert "| success | reward 1 | without outcome |" in bench_text(made)
    unknown = make_bench(runs("a", "SF"), benchmark="miniwob", agent="x")
    assert unknown.overall.full is None and "| reward 1 |" not in bench_text(unknown)


def came(task: str, *progress: float, missing: Missing | None = None) -> BenchRun:
    """A trial for each; one that came to 1 succeeded, and with `missing` the last has no
    outcome.
    """
    made = [BenchTrial(success=far == 1, progress=far) for far in progress] + [
        BenchTrial(success=None)
    ] * (missing is not None)
    return BenchRun(task=task, seed=0, trials=tuple(made), missing=missing)


def test_progress_is_that_of_the_best_trial() -> None:
    played = [came("a", 0.25, 0.75), came("b", 0.0, 1.0), came("c", 0.5, missing="broke off")]
    made = make_bench(
        played, [read_paper("step-airline")], benchmark="airline", agent="x", trials=2
    )
    (row,) = made.sections[0].categories
    assert (row.name, row.success[-1].success, row.progress) == ("all", 0.5, 0.875), (
        "what broke off is in neither"
    )
    text = bench_text(made)
    assert "| progress | without outcome |" in text and "87.5%" in text and "reward 1" not in text
    assert [figure.success for figure in row.theirs if figure] == [
        0.24,
        0.76,
        0.68,
        0.94,
    ] and "0 tasks" not in bench_picture(made)
    assert make_bench(runs("a", "SF"), benchmark="airline", agent="x").overall.progress is None


def test_what_has_no_outcome_is_in_neither() -> None:
    share = compute_share([*runs("a", "SF??"), *runs("b", "??")], 1)
    assert (share.success, share.decided, share.missing) == (0.5, 2, 4)
    nothing = compute_share(runs("b", "??"), 1)
    assert (nothing.success, nothing.low, nothing.method, nothing.missing) == (None, None, None, 2)


def test_interval_of_one_task_is_over_seeds() -> None:
    share = compute_share(runs("a", "SSSF"), 1)
    assert (share.method, (share.low, share.high)) == ("wilson over seeds", wilson(0.75, 4))


def test_tasks_that_are_all_alike_are_trials() -> None:
    share = compute_share([*runs("a", "SSSS"), *runs("b", "SSSS")], 1)
    assert (share.method, (share.low, share.high)) == ("wilson over clusters", wilson(1.0, 2))


def test_tasks_of_one_template_are_one_cluster() -> None:
    def of(copies: int) -> list[BenchRun]:
        return [
            run(f"{name}{i}", trials=letter, cluster=name)
            for name, letter in (("x", "S"), ("y", "S"), ("z", "F"))
            for i in range(copies)
        ]

    one, ten = compute_share(of(1), 1), compute_share(of(10), 1)
    assert (one.success, one.method) == (pytest.approx(2 / 3), "t")
    assert (ten.low, ten.high) == (pytest.approx(one.low), pytest.approx(one.high))


def test_sites_with_a_group_for_several(tmp_path: Path) -> None:
    rows = "task,site,success\n1,shopping,1\n2,shopping,0\n3,reddit,1\n4,multi,0\n5,multi,1\n6,multi,0\n7,shopping,1\n"  # noqa: E501
    listed = csv.DictReader(rows.splitlines())
    played = [
        run(row["task"], trials="S" if row["success"] == "1" else "F", group=row["site"])
        for row in listed
    ]
    bench = make_bench(played, [read_paper("step-webarena")], benchmark="webarena", agent="a")
    (section,) = bench.sections
    means = {row.name: (row.success[0].success, row.tasks) for row in section.categories}
    assert means == {
        "shopping": (pytest.approx(2 / 3), 3),
        "reddit": (1.0, 1),
        "multi": (pytest.approx(1 / 3), 3),
        "all": (pytest.approx(4 / 7), 7),
    }
    assert "12.5% (48 tasks)" in bench_text(bench), (
        "theirs are over all tasks of the group, and it says so"
    )
    alone = make_bench(played, benchmark="webarena", agent="a")
    assert [row.name for row in alone.sections[0].categories] == list(means)
    assert "theirs" not in bench_text(alone)


def test_the_missing_are_told_by_reason() -> None:
    played = [
        run("a"),
        run("b", trials="?", missing="broke off"),
        run("c", trials="", missing="could not begin"),
    ]
    bench = make_bench(played, benchmark="miniwob", agent="a")
    assert bench.missing == {"broke off": 1, "could not begin": 1}
    assert "Without an outcome: 2 (1 broke off, 1 could not begin)" in bench_text(bench)


def cells(text: str, first: str) -> list[str]:
    """The first row of a table that begins so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_the_table_marks_what_is_theirs() -> None:
    text = bench_text(
        make_bench(
            runs("click-link", "SSF"), [read_paper("step")], benchmark="miniwob", agent="a|b\n# c"
        )
    )
    assert text.startswith("# a\\|b # c on miniwob\n"), "a name cannot leave its place"
    head = cells(text, "category")
    assert head[-1] == "**theirs**: SteP few-shot (text-davinci-003, 50 seeds a task)"
    assert all(name.startswith("**theirs**: SteP") for name in head[-4:])
    row = cells(text, "simple")
    assert len(row) == len(head)
    assert row[3].startswith("66.7% (") and row[-4] == "94.0%, 1.00 actions"
    assert "theirs: SteP: Stacked LLM Policies for Web Actions, arXiv 2310.03720" in text


def test_the_picture_has_ours_and_theirs() -> None:
    bench = make_bench(
        runs("click-link", "SSF"), [read_paper("step")], benchmark="miniwob", agent="<me>"
    )
    root = ET.fromstring(bench_picture(bench))
    titles = [str(title.text) for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert (
        sum(title.startswith("<me>: 66.7% (1 task, 3 episodes), interval") for title in titles) == 2
    ), "simple, and all"
    assert (
        sum(title.startswith("theirs: SteP few-shot, text-davinci-003: 100.0%") for title in titles)
        == 2
    )


def test_trials_are_compared_by_hand() -> None:
    """Of four pairs one is gained: McNemar 1/2; differences 1, 0, 0, 0 have mean 1/4 and deviation
    1/2, so t is 1 with 3 degrees of freedom, p 0.391.
    """
    played = [
        *(run("a", 0, "FS"), run("a", 1, "S"), run("b", 0, "FF"), run("b", 1, "S")),
        run("b", 2, "F", missing="broke off"),
    ]
    found = compare_trials(played, 1, 2)
    assert (found.pairs, found.gained, found.mcnemar) == (4, 1, 0.5)
    assert (found.t, found.p) == (pytest.approx(1.0), pytest.approx(0.3910022, abs=1e-6))
    all_gained = compare_trials([run("a", seed, "FS") for seed in range(5)], 1, 2)
    assert (all_gained.mcnemar, all_gained.t, all_gained.p) == (1 / 32, None, 0.0)
    assert compare_trials(played[:1], 1, 2).p is None, "one pair has no spread"


def test_tests_stand_beside_theirs() -> None:
    """41 of 325 pairs gained, as from 72.3 % to 84.9 %: McNemar 2^-41; mean 0.126 and deviation
    0.333, so t is 0.126 / (0.333 / sqrt(325)) = 6.84.
    """
    paper = read_paper("structured-reflection")
    pairs = [
        (task, seed) for task in paper.categories["n-screen-n-step"] for seed in range(1000, 1025)
    ]
    played = [run(*pair, "FFS" if i < 41 else "FFF") for i, pair in enumerate(pairs)]
    bench = make_bench(played, [paper], benchmark="miniwob", agent="a", trials=3)
    row = cells(bench_text(bench), "n-screen-n-step | 1 and 3")
    assert row[1:] == ["1 and 3", "325", "41", "4.5e-13", "6.8", "4e-11", "2e-10"]
    assert {test.name for test in bench.tests} == {
        *("n-screen-n-step", "all"),
        *("click-collapsible-2", "click-menu-2"),
    }, "the tasks without a gain are left out"
    once = make_bench([run("a")], benchmark="miniwob", agent="a")
    assert "Do more trials" not in bench_text(once)


def test_planning_calls_of_successes_by_hand() -> None:
    def trial(success: bool, actions: int, planned: int | None) -> BenchTrial:
        return BenchTrial(success=success, actions=actions, planned=planned)

    many = "click-checkboxes-large"
    played = [
        BenchRun(task=many, seed=0, trials=(trial(True, 9, 1),)),
        BenchRun(task=many, seed=1, trials=(trial(False, 4, 2), trial(True, 12, 3))),
        BenchRun(task="other", seed=0, trials=(trial(True, 5, None),)),
    ]
    bench = make_bench(
        played, [read_paper("structured-reflection")], benchmark="miniwob", agent="a", trials=3
    )
    assert [(row.trials, row.solved, row.actions, row.calls) for row in bench.planning] == [
        (1, 1, 9, 1),
        (3, 2, 21, 4),
    ], "the failed attempt does not count"
    assert cells(bench_text(bench), f"{many} | 3")[2:] == ["2", "21", "4", "270", "31"]


async def played_again(
    folder: Path, truths: dict[str, Sequence[bool | None]], attempts: int, model: Scribe
) -> list[BenchRun]:
    await try_again(folder, truths, None, model=model, attempts=attempts, stop_on_repeat=False)
    return read_runs(folder)


async def test_runs_are_read_from_a_recording(tmp_path: Path) -> None:
    truths: dict[str, Sequence[bool | None]] = {
        "a-s0": [False, True],
        "a-s12": [True],
        "b-s0": [None],
    }
    first, second, third = await played_again(tmp_path, truths, 3, Scribe())
    assert [(one.task, one.seed) for one in (first, second, third)] == [
        ("a", 0),
        ("a", 12),
        ("b", 0),
    ]
    assert [trial.success for trial in first.trials] == [False, True]
    assert first.trials[0].usage == Usage(2, 20, 4, 0, 24e-6), "an action, and a lesson"
    assert first.trials[1].usage.calls == 1
    assert first.trials[0].actions == 0, "the word that ends the episode is no action"
    assert (third.trials[0].success, third.missing) == (None, "undecided")

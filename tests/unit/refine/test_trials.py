"""Success within so many attempts: the paper's own table gives the paper's means, and tests of
known outcomes known ps.
"""

from __future__ import annotations

import math

import pytest

from prill.errors import UsageError
from prill.papers.bench import read_paper
from prill.refine.outcomes import AttemptResult, TaskResult
from prill.refine.trials import (
    category_means,
    completion,
    more_than_lost,
    paired_t,
    solved_by,
    within,
)


def task(name: str, *truths: bool | None) -> TaskResult:
    attempts = tuple(
        AttemptResult(id=f"{name}-{i}", status="success" if truth else "failure", truth=truth)
        for i, truth in enumerate(truths)
    )
    return TaskResult(name=name, attempts=attempts, ended="accepted")


@pytest.mark.parametrize(
    ("attempts", "means"),
    [(1, (96.4, 94.0, 72.3)), (3, (99.6, 96.4, 84.9)), (5, (100.0, 96.6, 87.1))],
)
def test_the_papers_table_gives_its_means(attempts: int, means: tuple[float, float, float]) -> None:
    paper = read_paper("structured-reflection")
    column = [column.trials for column in paper.columns].index(attempts)
    shares = {name: figures[column] for name, figures in paper.tasks.items()}
    assert [len(tasks) for tasks in paper.categories.values()] == [10, 20, 13]
    assert (
        tuple(round(100 * mean, 1) for mean in category_means(shares, paper.categories).values())
        == means
    )


def test_solved_counts_the_first_success() -> None:
    solved = solved_by(
        [task("a", False, True), task("b", False, False), task("c", None, None), task("d", True)]
    )
    assert solved == {"a": 2, "b": None, "d": 1}
    assert [sum(within(solved, attempts).values()) for attempts in (1, 2, 5)] == [1, 2, 2]


def test_an_unknown_truth_is_no_failure() -> None:
    assert solved_by([task("a", False, None), task("b", None, True), task("c")]) == {"b": 2}


def test_completion_is_a_share_of_seeds() -> None:
    solved = {"tab s1": 1, "tab s2": 3, "pie s1": None}
    shares = [completion(solved, attempts, lambda name: name.split()[0]) for attempts in (1, 3)]
    assert shares == [{"tab": 0.5, "pie": 0.0}, {"tab": 1.0, "pie": 0.0}]


def test_categories_without_tasks_are_left_out() -> None:
    assert category_means({"a": 0.5, "b": 1.0}, {"x": ["a", "b", "c"], "y": ["c"]}) == {"x": 0.75}


# With one degree of freedom t = 1 has p = 1/2, with two t = 2 has 1 - 2 / sqrt(6).
@pytest.mark.parametrize(
    ("first", "second", "t", "p"),
    [
        ([1, 0], [0, 0], 1.0, 0.5),
        ([1, 1, 0], [0, 0, 0], 2.0, 1 - 2 / math.sqrt(6)),
        ([0, 0, 0], [1, 1, 0], -2.0, 1 - 2 / math.sqrt(6)),
        ([1, 1, 1, 0, 1, 0, 1, 1], [0, 0, 1, 0, 0, 1, 0, 0], 1.8708286934, 0.1035517103),
        ([0, 1, 0, 1], [0, 1, 0, 1], 0.0, 1.0),
    ],
)
def test_paired_t_of_known_outcomes(
    first: list[float], second: list[float], t: float, p: float
) -> None:
    found = paired_t(first, second)
    assert (found.t, found.p) == (pytest.approx(t), pytest.approx(p))


def test_paired_t_of_the_papers_size() -> None:
    # Of 13 x 25 pairs, as many gains as the paper's means tell: 72.3 % to 84.9 %, none lost; its p
    # is 2e-10.
    found = paired_t([1] * 41 + [0] * 284, [0] * 325)
    assert found.pairs == 325 and 1e-11 < found.p < 1e-9


def test_paired_t_of_all_gains_is_sure() -> None:
    assert paired_t([1, 1, 1], [0, 0, 0]) == (math.inf, 0.0, 3)


def test_one_pair_is_too_few() -> None:
    with pytest.raises(UsageError, match="two or more outcomes on both sides"):
        paired_t([1], [0])


@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(0, 0, 1.0), (5, 0, 1 / 32), (7, 1, 9 / 256), (1, 1, 0.75)]
)
def test_mcnemar_counts_gains_on_one_side(gained: int, lost: int, p: float) -> None:
    assert more_than_lost(gained, lost) == pytest.approx(p)

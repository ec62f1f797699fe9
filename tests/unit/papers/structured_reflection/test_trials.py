"""Success within so many attempts: the paper's own table gives the paper's means."""

from __future__ import annotations

import pytest

from prill.io.retries import AttemptResult, TaskResult
from prill.papers.bench import read_paper
from tests.support.papers.trials import category_means, completion, solved_by, within


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


def test_completion_is_a_share_of_seeds() -> None:
    solved = {"tab s1": 1, "tab s2": 3, "pie s1": None}
    shares = [completion(solved, attempts, lambda name: name.split()[0]) for attempts in (1, 3)]
    assert shares == [{"tab": 0.5, "pie": 0.0}, {"tab": 1.0, "pie": 0.0}]

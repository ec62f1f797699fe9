"""Success within so many attempts, as the benchmark counts it."""

from __future__ import annotations

from prill.io.retries import AttemptResult, TaskResult
from tests.support.papers.trials import completion, solved_by, within


def task(name: str, *truths: bool | None) -> TaskResult:
    attempts = tuple(
        AttemptResult(id=f"{name}-{i}", status="success" if truth else "failure", truth=truth)
        for i, truth in enumerate(truths)
    )
    return TaskResult(name=name, attempts=attempts, ended="accepted")


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

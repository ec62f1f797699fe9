"""Success after each retry, from results files that were written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill.errors import UsageError
from prill.io.retries import read_results
from prill.refine.outcomes import make_table


def written(path: Path, **changes: object) -> Path:
    """Four tasks: solved at once; by the second attempt; lost by a false negative; never
    decided.
    """

    def attempt(
        number: int, status: str, truth: bool | None, score: float | None = None
    ) -> dict[str, object]:
        return {"id": f"a{number}", "status": status, "truth": truth, "score": score}

    tasks = [
        {"name": "a", "ended": "accepted", "attempts": [attempt(0, "success", True, 0.9)]},
        {
            "name": "b",
            "ended": "accepted",
            "attempts": [attempt(0, "failure", False, 0.1), attempt(1, "success", True, 0.8)],
        },
        {
            "name": "c",
            "ended": "attempts",
            "attempts": [
                attempt(0, "failure", True, 0.4),
                attempt(1, "failure", False, 0.2),
                attempt(2, "broken", None),
            ],
        },
        {"name": "d", "ended": "unscored", "attempts": [attempt(0, "unscored", None)]},
    ]
    judge = {"name": "hand", "version": "1"}
    path.write_text(
        json.dumps(
            {
                "format": "prill reflexion 1",
                "evaluator": judge,
                "attempts": 3,
                "tasks": tasks,
                **changes,
            }
        )
    )
    return path


def test_success_after_each_retry(tmp_path: Path) -> None:
    results = read_results(written(tmp_path / "results.json"))
    plain, best = (make_table(results.tasks, 3, keep_best=keep_best) for keep_best in (False, True))
    assert [(row.solved, row.decided) for row in plain.rows] == [(2, 3), (2, 3), (2, 3)], (
        "the broken attempt counts for nothing"
    )
    assert [(row.solved, row.decided) for row in best.rows] == [(2, 3), (3, 3), (3, 3)]
    assert (plain.gained, plain.lost_to_false_negatives, best.lost_to_false_negatives) == (1, 1, 0)
    assert (plain.undecided, plain.ended) == (1, {"accepted": 2, "attempts": 1, "unscored": 1})
    low, high = plain.rows[0].low, plain.rows[0].high
    assert low is not None and high is not None and low < 2 / 3 < high


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="another version"):
        read_results(written(tmp_path / "results.json", format="prill reflexion 9"))
    with pytest.raises(UsageError, match="not results of retries"):
        read_results(written(tmp_path / "results.json", tasks=7))

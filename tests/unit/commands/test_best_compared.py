"""`prill best --compare` with the mock endpoint as a process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import prill
from prill.cli import main
from prill.errors import UsageError
from prill.evaluators.meta.best import best_of_all
from prill.io.store import encode
from prill.testing import MockServer, ScriptedModel
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory
from tests.support.messages import text


@pytest.fixture(scope="module")
def endpoint() -> Iterator[MockServer]:
    with MockServer() as server:
        yield server


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two tasks of three attempts and one of one attempt, interleaved in the file; the second
    attempts succeed.
    """
    made, labels = [], []
    for k in range(3):
        for task in range(3 if k == 0 else 2):
            end = "order placed" if k == 1 else f"an error {k}"
            made.append(
                Trajectory(
                    id=f"{task}-{k}",
                    task=Task(id=f"t{task}", goal=f"Buy tea {task}", platform="web"),
                    steps=(Step(Observation(text="a shop"), Action("click", f"click [{k}]")),),
                    final=Observation(text=end),
                )
            )
            labels.append(LabelRecord(id=made[-1].id, success=k == 1))
    prill.write_trajectories(tmp_path / "t.jsonl", made)
    (tmp_path / "l.jsonl").write_bytes(b"".join(map(encode, labels)))
    return tmp_path / "t.jsonl"


def command(runs: Path, endpoint: MockServer, *more: str) -> list[str]:
    model = ("--model", "gpt-4o", "--base-url", endpoint.base_url)
    return ["best", str(runs), "--compare", str(runs.parent / "c.jsonl"), *model, *more]


def judging(messages: object) -> str:
    """Picks the attempt whose last screen shows the order."""
    asked = text(messages)  # type: ignore[arg-type]
    if "You compare several attempts" not in asked:
        return "- a page opened"
    number = re.search(r"\[attempt-(\d)-last \S+\]\norder placed", asked)
    assert number is not None
    return f"Thoughts: it was placed\nBest: {number[1]}"


def config(runs: Path, **more: object) -> prill.BestConfig:
    given = {"model": ScriptedModel(judging), "compare": runs.parent / "c.jsonl", **more}
    return prill.BestConfig(trajectories=runs, **given)  # type: ignore[arg-type]


def test_the_plan_names_the_calls_that_the_run_makes(
    runs: Path, endpoint: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    before = endpoint.stats().requests
    assert main(command(runs, endpoint, "--dry-run")) == 0
    page = capsys.readouterr().out
    assert "3 tasks to compare, 0 done" in page
    # 3 actions of 2 tasks, and one question for each
    assert "at most 8 calls" in page and "cost: about $" in page
    assert endpoint.stats().requests == before and not (runs.parent / "c.jsonl").exists()
    assert main(command(runs, endpoint, "-o", str(runs.parent / "best.jsonl"))) == 0
    assert endpoint.stats().requests - before == 8
    page = capsys.readouterr().out
    assert "Picked: 3 of 3 tasks, from 7 attempts, shown in an order shuffled by seed 0" in page
    assert "one attempt only, not compared: 1" in page
    assert "Unscored: 0 tasks" in page
    assert re.search(r"Calls: 8 in this run, \$0\.\d{4}", page)
    assert len(list(prill.read_trajectories(runs.parent / "best.jsonl"))) == 3
    # all is there
    assert main(command(runs, endpoint, "--dry-run")) == 0
    assert "0 tasks to compare, 3 done" in capsys.readouterr().out
    assert main(command(runs, endpoint)) == 0
    assert endpoint.stats().requests - before == 8


def test_another_seed_is_another_comparison(runs: Path, endpoint: MockServer) -> None:
    assert main(command(runs, endpoint)) == 0
    assert main(command(runs, endpoint, "--seed", "1")) == 2
    assert main(command(runs, endpoint, "--seed", "1", "--no-resume")) == 0


def test_a_refusing_model_leaves_tasks_without_a_pick(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with MockServer(refusal=1.0) as server:
        assert main(command(runs, server)) == 3
        page = capsys.readouterr().out
        assert "Picked: 1 of 3 tasks" in page
        assert "Unscored: 2 tasks, without a pick (refusal 2)" in page
        assert "t0: " in page
    lines = [json.loads(line) for line in (runs.parent / "c.jsonl").read_text().splitlines()]
    assert {line["id"]: line["unscored"] for line in lines} == {
        "t0": "refusal",
        "t1": "refusal",
        "t2": None,
    }
    with MockServer() as server:
        assert main(command(runs, server)) == 3  # they stay unscored
        assert server.stats().requests == 0
        assert main(command(runs, server, "--retry-unscored", "--json")) == 0
    capsys.readouterr()
    lines = [json.loads(line) for line in (runs.parent / "c.jsonl").read_text().splitlines()]
    assert len(lines) == 3 and all(line["unscored"] is None for line in lines)


def test_a_budget_stops_calls_and_is_told(
    runs: Path, endpoint: MockServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(runs, endpoint, "--budget-usd", "0")) == 3
    assert "budget 2" in capsys.readouterr().out


def test_labels_show_what_a_comparison_is_worth(runs: Path) -> None:
    result = prill.best(config(runs, labels=runs.parent / "l.jsonl"))
    assert [pick.id for pick in result.picks] == ["0-1", "1-1", "2-0"]
    assert [pick.choice for pick in result.picks] == ["attempt", "attempt", "only"]
    assert [point.n for point in result.curve] == [1, 3]
    # one attempt: a third of two tasks, and none of the last
    assert [point.pick.value for point in result.curve] == pytest.approx([2 / 9, 2 / 3])
    assert result.curve[1].passed.value == pytest.approx(2 / 3)
    assert list(result.to_pandas()["id"]) == ["0-1", "1-1", "2-0"]


def test_tasks_with_an_unlabelled_attempt_count_in_no_figure(runs: Path) -> None:
    labels = [LabelRecord(id=f"{task}-{k}", success=True) for task, k in ((0, 0), (0, 2), (2, 0))]
    (runs.parent / "l.jsonl").write_bytes(b"".join(map(encode, labels)))
    result = prill.best(config(runs, labels=runs.parent / "l.jsonl"))
    assert (result.tasks, result.unlabelled) == (1, 4)


def test_figures_of_comparisons_by_hand() -> None:
    # one task: of two equal attempts one succeeds; another: the wrong one of two; a third: no pick
    tasks = [([True, False], [True, False]), ([True, False], [False]), ([True, True], [])]
    one, both = best_of_all(tasks)
    assert [one.pick.value, one.picked] == pytest.approx([0.5, 2 / 3])
    assert [both.pick.value, both.passed.value] == pytest.approx([0.25, 1.0])


def test_contradicting_options_are_refused(runs: Path) -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"verdicts": "v.jsonl"}, "give the verdicts of a judge, or compare"),
        ({"compare": None}, "give the verdicts of a judge, or compare"),
        ({"model": None}, "compare needs a model"),
        ({"attempts": 2, "labels": "l.jsonl"}, "a comparison is of all attempts"),
    ]
    for more, message in wrong:
        with pytest.raises(UsageError, match=message):
            config(runs, **more)
    with pytest.raises(UsageError, match="this is also an input"):
        prill.best(config(runs, compare=runs))
    with pytest.raises(UsageError, match="comparisons need a file|standard output|cannot"):
        prill.best(config(runs, compare="-"))

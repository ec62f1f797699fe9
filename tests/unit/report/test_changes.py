"""What changed on the same tasks: between agents, after training, and between runs of one agent."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from prill.io.store import encode_trajectory
from prill.models.ledger import find_price
from prill.models.transcripts import Call, Transcript
from prill.types import EvaluatorInfo, Task, Trajectory, Usage, Verdict
from prill.ui.report.calls import exchanges
from prill.ui.report.changes import change_tables
from prill.ui.report.entries import Outcome, ReportRow, Retry, file_names
from prill.ui.report.run import ReportConfig, report
from tests.support.report.judges import blocks, overview


def run(
    id: str, task: str, agent: str, truth: Outcome, file: str | None = None, said: Outcome = ""
) -> ReportRow:
    return ReportRow(
        id=id, goal=f"Do {task}", task=task, agent=agent, truth=truth, outcomes=(said,), file=file
    )


def test_agents_are_compared_on_the_tasks_that_both_did() -> None:
    rows = [
        run("a1", "one", "old", "failure"),
        run("a2", "two", "old", "success"),
        run("a3", "three", "old", "success"),
        run("a4", "alone", "old", "success"),
        run("b1", "one", "new", "success"),
        run("b2", "two", "new", "", said="failure"),  # without a label, the verdict counts
        run("b3", "three", "new", "success"),
    ]
    [table] = change_tables(rows, {})
    assert table.title == "From old to new"
    assert table.note.startswith("Success 67%, then 67% on 3 tasks: 1 to success, 1 to failure")
    assert [(row.goal, row.beside) for row in table.rows] == [("Do one", "0 4"), ("Do two", "1 5")]


def test_training_rounds_are_told_apart_by_their_files() -> None:
    rows = [
        run("a", "one", "small", "failure", "base"),
        run("b", "one", "small", "success", "round-1"),
    ]
    [table] = change_tables(rows, {})
    assert table.title == "From small · base to small · round-1" and len(table.rows) == 1
    assert change_tables([rows[0]], {}) == []


def test_flips_of_one_agent_are_listed() -> None:
    rows = [
        run("a", "one", "robot", "failure"),
        run("b", "one", "robot", "success"),
        run("c", "two", "robot", "success"),
        run("d", "two", "robot", "success"),
        run("e", "three", "robot", ""),
        run("f", "three", "robot", "success"),
    ]
    [table] = change_tables(rows, {})
    assert table.note.startswith("1 of 3 tasks with several runs")
    [row] = table.rows
    assert [one.id for one in row.runs[0]] == ["a", "b"] and row.beside == "1 0"


def test_of_retries_the_answer_counts_alone() -> None:
    rows = [run("a", "one", "robot", "failure"), run("b", "one", "robot", "success")]
    assert change_tables(rows, {"a": Retry(lesson="x"), "b": Retry(answer=True)}) == []


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["t.jsonl"], []),
        (["base/evaluation/t.jsonl", "r/round-1/evaluation/t.jsonl"], ["base", "round-1"]),
        (["s0/r/t.jsonl", "s1/r/t.jsonl"], ["s0", "s1"]),
        (["a/x.jsonl", "b/x.jsonl", "b/y.jsonl"], ["a/x.jsonl", "b/x.jsonl", "b/y.jsonl"]),
        (["t.jsonl", "./t.jsonl"], []),
    ],
)
def test_files_have_short_names_that_differ(paths: list[str], names: list[str]) -> None:
    assert list(file_names(paths).values()) == names


def test_two_files_are_a_filter_of_the_report(tmp_path: Path) -> None:
    for folder in ("base", "round-1"):
        (tmp_path / folder).mkdir()
        item = Trajectory(id=folder, task=Task(id="k", goal="Buy bread"), agent="small")
        (tmp_path / folder / "t.jsonl").write_bytes(encode_trajectory(item, tmp_path / folder))
    paths = [tmp_path / folder / "t.jsonl" for folder in ("base", "round-1")]
    report(ReportConfig(trajectories=paths, output=tmp_path / "r.html"))
    found = overview(tmp_path / "r.html")
    place = found["parts"].index("file")
    assert [row["parts"][place] for row in found["rows"]] == ["base", "round-1"]
    report(ReportConfig(trajectories=paths[:1], output=tmp_path / "r.html"))
    assert "file" not in overview(tmp_path / "r.html")["parts"] and blocks(tmp_path / "r.html")


def cost(usd: float | None, *models: str) -> list[float | None]:
    calls = tuple(
        Call(model=model, messages=(), prompt_tokens=1000, completion_tokens=100)
        for model in models
    )
    verdict = Verdict(
        id="a", success=True, evaluator=EvaluatorInfo("vlm", "1"), usage=Usage(usd=usd)
    )
    return [call.usd for call in exchanges(Transcript("a", "", calls), verdict).calls]


def test_calls_show_a_cost_that_adds_up_or_none() -> None:
    price = find_price("gpt-4o")
    assert price is not None
    one = price.usd(1000, 100)
    found = cost(2 * one, "gpt-4o", "gpt-4o")
    assert found[0] is not None and math.isclose(found[0], one) and found[0] == found[1]
    assert cost(5 * one, "gpt-4o", "gpt-4o") == [None, None], "another price was in force"
    assert cost(None, "gpt-4o", "unknown") == [None, None]

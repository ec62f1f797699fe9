"""`prill table` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill.io.store import encode, encode_trajectory
from prill.types import Answer, EvaluatorInfo, Findings, LabelRecord, Task, Trajectory, Verdict
from tests.support.commands.command import Prill

JUDGE = EvaluatorInfo("vlm", "1")
VERDICTS = [
    Verdict(id="a", success=True, reason="=1\x1b[2J\u009b31m", evaluator=JUDGE),
    Verdict(id="b", unscored="parse", evaluator=JUDGE),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "v.jsonl").write_bytes(b"".join(map(encode, VERDICTS)))
    labels = [
        LabelRecord(id="a", success=False),
        LabelRecord(id="a", success=True, source="oracle"),
    ]
    (tmp_path / "l.jsonl").write_bytes(b"".join(map(encode, labels)))
    return tmp_path


def test_table_is_printed_as_markdown(prill: Prill, folder: Path) -> None:
    done = prill("table", "v.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(" | ")[:3] for line in done.stdout.splitlines()[2:]] == [
        ["| a", "true", ""],
        ["| b", "", ""],
    ]


def test_table_has_other_forms_by_name(prill: Prill, folder: Path) -> None:
    rows = json.loads(prill("table", "v.jsonl", "--format", "json").stdout)
    assert [(row["success"], row["unscored"]) for row in rows] == [(True, None), (None, "parse")]
    assert rows[0]["reason"] == VERDICTS[0].reason
    assert (
        prill("table", "v.jsonl", "--format", "csv")
        .stdout.splitlines()[1]
        .startswith("a,true,,,'=1")
    )


def test_answers_have_a_row_each(prill: Prill, folder: Path) -> None:
    asked = EvaluatorInfo("ask", "1", "m")
    answers = (
        Answer(question="A wall?", value=True, step=2, reason="as asked"),
        Answer(question="How many?", value=3),
        Answer(question="Which?", value={"n": "ä"}),
        Answer(question="Who?", value=None),
    )
    verdicts = [
        Verdict(id="a", success=True, evaluator=asked, findings=Findings(answers=answers)),
        Verdict(id="b", unscored="timeout", reason="late", evaluator=asked),
    ]
    (folder / "asked.jsonl").write_bytes(b"".join(map(encode, verdicts)))
    rows = json.loads(prill("table", "asked.jsonl", "--answers", "--format", "json").stdout)
    assert [(row["id"], row["question"], row["value"], row["step"]) for row in rows] == [
        ("a", "A wall?", "yes", 3),
        ("a", "How many?", "3", None),
        ("a", "Which?", '{"n": "ä"}', None),
        ("a", "Who?", None, None),
        ("b", None, None, None),
    ]
    assert (rows[4]["unscored"], rows[4]["reason"]) == ("timeout", "late")
    none = prill("table", "v.jsonl", "--answers", "--format", "json")
    assert (none.returncode, json.loads(none.stdout)[0]["unscored"]) == (0, "parse")
    (folder / "v.jsonl").write_bytes(encode(VERDICTS[0]))
    refused = prill("table", "v.jsonl", "--answers")
    assert refused.returncode == 2 and "no verdict has answers" in refused.stderr


@pytest.mark.parametrize("form", ["markdown", "csv", "json"])
def test_table_moves_no_terminal(form: str, prill: Prill, folder: Path) -> None:
    printed = prill("table", "v.jsonl", "--format", form).stdout
    assert all(character.isprintable() or character == "\n" for character in printed)


def test_table_form_follows_file_name(prill: Prill, folder: Path) -> None:
    for name, start in (("t.csv", "id,success"), ("t.json", "["), ("t.md", "| id |")):
        assert prill("table", "v.jsonl", "-o", name).stdout == f"2 rows -> {name}\n"
        assert (folder / name).read_text().startswith(start)
    assert prill("table", "v.jsonl", "-o", "t.csv", "--format", "json").returncode == 0
    assert json.loads((folder / "t.csv").read_text())[0]["id"] == "a"


def test_table_has_labels_of_one_source(prill: Prill, folder: Path) -> None:
    words = ("table", "v.jsonl", "--labels", "l.jsonl", "--format", "json")
    assert [row["label"] for row in json.loads(prill(*words, "--source", "human").stdout)] == [
        False,
        None,
    ]
    done = prill(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "come from several sources (human, oracle); choose one source (--source)" in done.stderr


def test_no_verdict_file_is_bad_usage(prill: Prill, folder: Path) -> None:
    for words, message in (
        (("l.jsonl",), "contains labels, not verdicts"),
        (("none.jsonl",), "no such file"),
        (("v.jsonl", "-o", folder), "cannot be written"),
    ):
        done = prill("table", *words)
        assert (done.returncode, done.stdout, message in done.stderr) == (2, "", True)


def test_leaderboard_row_has_precision_by_benchmark(prill: Prill, tmp_path: Path) -> None:
    """An unscored run is a missed success; WorkArena++ are the tasks with l2 in their id."""
    runs = [
        # benchmark, task, verdict, truth
        ("webarena", "1", True, True),
        ("webarena", "2", True, False),
        ("webarena", "3", None, True),
        ("workarena", "sort-list", True, True),
        ("workarena", "change-request-l2", False, True),
        ("assistantbench", "4", False, False),
    ]
    trajectories, verdicts, labels = b"", b"", b""
    for number, (site, task, success, truth) in enumerate(runs):
        id = f"r{number}"
        run = Trajectory(id=id, task=Task(id=task, goal="g", site=site, platform="web"))
        trajectories += encode_trajectory(run, tmp_path)
        verdict = (
            Verdict(id=id, unscored="parse", evaluator=JUDGE)
            if success is None
            else Verdict(id=id, success=success, evaluator=JUDGE)
        )
        verdicts += encode(verdict)
        labels += encode(LabelRecord(id=id, success=truth, source="human"))
    for name, data in (("t", trajectories), ("v2", verdicts), ("l2", labels)):
        (tmp_path / f"{name}.jsonl").write_bytes(data)
    words = ("v2.jsonl", "--labels", "l2.jsonl", "--recording", "t.jsonl")
    [line] = prill("table", *words, "--format", "agentrewardbench").stdout.splitlines()
    row = json.loads(line)
    assert [row[name] for name in ("Judge", "Overall", "Recall", "F1")] == ["vlm", 66.7, 50.0, 57.1]
    assert [row[name] for name in ("AB", "VWA", "WA", "Work", "Work++")] == [
        *(None, None, 50.0, 100.0, None)
    ]
    assert prill("table", "v2.jsonl", "--format", "agentrewardbench").returncode == 2

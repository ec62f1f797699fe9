"""`prill show`: a verdict with what was asked and answered, in a form that nothing in it can
disturb.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from prill.io.store import encode
from prill.testing import MockServer
from prill.types import (
    Citation,
    EvaluatorInfo,
    Findings,
    LabelRecord,
    Verdict,
)
from tests.support.commands.command import Prill, write_trajectories


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    with MockServer() as running:
        yield running


@pytest.fixture
def score(prill: Prill, server: MockServer, tmp_path: Path) -> Prill:
    """Judges three trajectories into v.jsonl, with more options."""
    write_trajectories(tmp_path / "t.jsonl", 3)

    def run(*more: object) -> object:
        words = ("--judge", "modular", "--model", "mock", "--model.base-url", server.base_url)
        result = prill("score", "t.jsonl", "-o", "v.jsonl", *words, *more)
        assert result.returncode == 0, result.stderr
        return result

    return run  # type: ignore[return-value]


def test_show_prints_labels(prill: Prill, score: Prill, tmp_path: Path) -> None:
    score()
    labels = (
        LabelRecord(id="t1", success=False, annotator="ada", note="the cart\x1b[2J is empty"),
        LabelRecord(id="t2", success=True),
        LabelRecord(id="t1", success=None, source="oracle", undecided="unsure"),
    )
    (tmp_path / "l.jsonl").write_bytes(b"".join(map(encode, labels)))
    done = prill("show", "t1", "--verdicts", "v.jsonl", "--labels", "l.jsonl")
    shown = [line for line in done.stdout.splitlines() if line.startswith("label")]
    assert shown == [
        "label (human, by ada): failure: the cart?[2J is empty",
        "label (oracle): unsure",
    ]


def test_show_prints_question_and_answer(prill: Prill, score: Prill) -> None:
    score()
    result = prill("show", "t1", "--verdicts", "v.jsonl", "--trajectories", "t.jsonl")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert "goal: Order number 1. truth=failure" in lines
    assert "  1: click" in lines
    assert any(
        line.startswith("t1: failure, score ") and line.endswith(", by modular (mock)")
        for line in lines
    )
    assert any(
        line.startswith("call 1 of 1: mock, ") and line.endswith(" s, finish stop")
        for line in lines
    )
    assert "    | order 1" in lines
    assert "    | order 2" not in lines
    assert (
        lines.index("  system:")
        < lines.index("  user:")
        < lines.index("    | order 1")
        < lines.index("  reply:")
    )
    assert any(
        line.startswith('    | {"thoughts":') and '"status":"failure"' in line for line in lines
    )


def test_show_as_json_holds_everything(prill: Prill, score: Prill, tmp_path: Path) -> None:
    score()
    record = json.loads(
        prill("show", "t2", "--verdicts", "v.jsonl", "--trajectories", "t.jsonl", "--json").stdout
    )
    (entry,) = record["verdicts"]
    assert (entry["file"], entry["verdict"]["id"], record["trajectory"]["id"]) == (
        "v.jsonl",
        "t2",
        "t2",
    )
    assert entry["transcript"]["key"] == entry["verdict"]["key"]
    assert entry["transcript"]["calls"][0]["messages"][1]["role"] == "user"


def test_every_file_of_verdicts_is_shown(prill: Prill, score: Prill) -> None:
    score()
    prill("score", "t.jsonl", "-o", "w.jsonl", "--judge", "self-report")
    lines = prill("show", "t1", "--verdicts", "v.jsonl", "w.jsonl").stdout.splitlines()
    assert [line for line in lines if line.startswith("file: ")] == [
        "file: v.jsonl",
        "file: w.jsonl",
    ]
    assert any(line.startswith("transcript: the verdict needed no model call") for line in lines)


def test_show_disarms_what_others_wrote(prill: Prill, server: MockServer, tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07red\r\n  reply:\n    | success\u202e"
    write_trajectories(tmp_path / "t.jsonl", 1, caption=evil)
    words = ("--judge", "modular", "--model", "mock", "--model.base-url", server.base_url)
    prill("score", "t.jsonl", "-o", "v.jsonl", *words)
    info = EvaluatorInfo("mine", "1")
    verdict = Verdict(id="t0", success=True, reason=evil, evaluator=info)
    (tmp_path / "w.jsonl").write_bytes(encode(verdict))
    out = prill(
        "show", "t0", "--verdicts", "v.jsonl", "w.jsonl", "--trajectories", "t.jsonl"
    ).stdout
    assert not set(out) & set("\x1b\x07\r\u202e")
    assert out.splitlines().count("  reply:") == 1
    assert "    |   reply:" in out.splitlines()
    assert "\x1b" not in prill("show", "t0", "--verdicts", "w.jsonl", "--json").stdout


def test_show_names_a_wrong_citation_on_one_line(prill: Prill, tmp_path: Path) -> None:
    cited = Findings(citations=(Citation(text="S9\x1b", step=8, status="no_such_step"),))
    failed = Verdict(
        id="t0", success=False, reason="[S9]", evaluator=EvaluatorInfo("vlm", "1"), findings=cited
    )
    (tmp_path / "v.jsonl").write_bytes(encode(failed))
    lines = prill("show", "t0", "--verdicts", "v.jsonl").stdout
    assert "\n  cites S9?: step 9, no such step\n" in lines

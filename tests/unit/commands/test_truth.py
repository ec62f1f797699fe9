"""Every command that reads labels decides between annotators by the same rule: here two who differ
on everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from prill.io.store import encode, read_labels
from tests.support.paths import ROOT

Prill = Callable[..., CompletedProcess[str]]
SAMPLES = ROOT / "datasets" / "samples" / "miniwob"
RUNS = SAMPLES / "trajectories.jsonl"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Ann says what is true of the samples, Bob the contrary, and comes first."""
    path = tmp_path / "two.jsonl"
    true = list(read_labels(SAMPLES / "labels.jsonl"))
    bob = [replace(label, success=not label.success, annotator="Bob") for label in true]
    path.write_bytes(
        b"".join(map(encode, [*bob, *(replace(label, annotator="Ann") for label in true)]))
    )
    return path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("fit", RUNS, "{labels}", "-o", "m.json", "--kind", "prior"),
            "no trajectory has a decided label",
        ),
        (
            (
                "redteam",
                RUNS,
                "{labels}",
                "-o",
                "red",
                "--judge",
                "self-report",
                "--attacks",
                "claim-answer",
            ),
            "no decided label of source",
        ),
        (("agree", "v.jsonl", "{labels}"), "undecided (186 tie)"),
        (("calibrate", "v.jsonl", "{labels}", "-o", "c.json"), "undecided (186 tie)"),
    ],
)
def test_commands_leave_ties_undecided(
    words: tuple[object, ...], message: str, labels: Path, prill: Prill
) -> None:
    prill("score", RUNS, "-o", "v.jsonl", "--judge", "self-report")
    asked = [str(word).replace("{labels}", str(labels)) for word in words]
    done = prill(*asked)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert prill(*asked, "--truth", "Ann").returncode == 0


def test_tables_and_pages_follow_the_rule(labels: Path, prill: Prill) -> None:
    prill(
        "score",
        RUNS,
        "-o",
        "v.jsonl",
        "--judge",
        "oracle",
        "--judge.labels",
        labels,
        "--judge.truth",
        "Ann",
    )
    rows = {
        rule: json.loads(
            prill(
                "table", "v.jsonl", "--labels", labels, "--format", "json", "--truth", rule
            ).stdout
        )
        for rule in ("majority", "first", "Ann")
    }
    agreeing = {
        rule: {row["label"] == row["success"] for row in table} for rule, table in rows.items()
    }
    assert agreeing == {"majority": {False}, "first": {False}, "Ann": {True}}
    assert {row["label"] for row in rows["majority"]} == {None}
    for rule, undecided in (("majority", True), ("Ann", False)):
        words = (
            "report",
            RUNS,
            "-o",
            "r.html",
            "--verdicts",
            "v.jsonl",
            "--labels",
            labels,
            "--truth",
            rule,
        )
        assert prill(*words).returncode == 0
        assert (
            "labels are undecided: 186;" in Path("r.html").read_text(encoding="utf-8")
        ) == undecided

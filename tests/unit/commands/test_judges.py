"""Judges by name and by judge file, through `prill score`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.evaluators import JUDGES
from prill.io.store import encode, read_verdicts
from prill.testing import MockServer
from prill.types import LabelRecord, Verdict
from tests.support.commands.command import Prill, write_trajectories


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    return write_trajectories(tmp_path / "t.jsonl", 12)


def verdicts(path: Path) -> list[Verdict]:
    return sorted(read_verdicts(path), key=lambda verdict: int(verdict.id[1:]))


def test_baselines_need_no_model(prill: Prill, tmp_path: Path, attempts: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_bytes(
        b"".join(encode(LabelRecord(id=f"t{i}", success=i % 2 == 0)) for i in range(11))
    )
    for name, code, found in [
        ("always-fail", 0, [False] * 12),
        ("always-success", 0, [True] * 12),
        ("self-report", 0, [False] * 12),
        ("oracle", 3, [*(i % 2 == 0 for i in range(11)), None]),
    ]:
        out = tmp_path / f"{name}.jsonl"
        words = ("--judge.labels", labels) if name == "oracle" else ()
        assert prill("score", attempts, "-o", out, "--judge", name, *words).returncode == code
        assert [verdict.success for verdict in verdicts(out)] == found


def test_vote_counts_every_sampled_call(prill: Prill, tmp_path: Path, attempts: Path) -> None:
    out = tmp_path / "v.jsonl"
    (tmp_path / "vote.toml").write_text(
        "name = 'vote'\nsamples = 3\n[[judges]]\nname = 'modular'\n"
    )
    with MockServer() as server:
        words = (
            "--judge",
            tmp_path / "vote.toml",
            "--model",
            "m",
            "--model.base-url",
            server.base_url,
        )
        assert prill("score", attempts, "-o", out, *words).returncode == 0
        assert server.stats().requests == 36
    found = verdicts(out)
    assert [verdict.success for verdict in found] == [i % 3 == 0 for i in range(12)]
    models = [judge["model"] for judge in found[0].evaluator.params["judges"]]
    assert models == ["m", "m (temperature 1, seed 1)", "m (temperature 1, seed 2)"]
    assert all(verdict.usage.calls == 3 for verdict in found)


FILE = """
name = "ensemble"
threshold = 0.6
weights = [3, 1]

[[judges]]
name = "modular"
model = "m"

[[judges]]
name = "vote"
rule = "any"
  [[judges.judges]]
  name = "always-success"
  [[judges.judges]]
  name = "always-fail"
"""


def test_judge_file_nests_judges(prill: Prill, tmp_path: Path, attempts: Path) -> None:
    (tmp_path / "judge.toml").write_text(FILE)
    with MockServer(no_logprobs=True) as server:
        words = ("--judge", tmp_path / "judge.toml", "--model.base-url", server.base_url)
        done = prill("score", attempts, "-o", tmp_path / "v.jsonl", *words)
        plan = prill("score", attempts, "-o", tmp_path / "w.jsonl", *words, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    # Three parts of four say 1 or 0; the vote always says success with a mean of 0.5.
    assert [verdict.score for verdict in verdicts(tmp_path / "v.jsonl")] == [
        0.875 if i % 3 == 0 else 0.125 for i in range(12)
    ]
    assert json.loads(plan.stdout)["calls"] == 12


def test_plan_of_judge_file_has_a_price(prill: Prill, tmp_path: Path, attempts: Path) -> None:
    def plan(*models: str) -> str:
        parts = "".join(
            f"[[judges]]\nname = 'modular'\nmodel = '{model}'\ncaptioner = 'given'\n"
            for model in models
        )
        fail = "[[judges]]\nname = 'always-fail'\n" if len(models) == 1 else ""
        (tmp_path / "judge.toml").write_text(f"name = 'cascade'\n{fail}{parts}")
        words = (
            "-o",
            tmp_path / "v.jsonl",
            "--judge",
            tmp_path / "judge.toml",
            "--dry-run",
            "--model.base-url",
            "http://x/v1",
        )
        return prill("score", attempts, *words).stdout

    assert "at most 12 calls" in plan("gpt-4o-mini")
    assert "cost: about $0.0" in plan("gpt-4o-mini")
    assert "cost: unknown" in plan("gpt-4o-mini", "gpt-4o")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--judge", "student"),
            "model is missing: judge 'student' needs it. File written by `prill fit`. (--model)",
        ),
        (("--judge", "cascade"), "judges is missing"),
        (("--judge", "oracle"), "labels is missing: judge 'oracle' needs it"),
        (
            ("--judge", "always-fail", "--model.top-k", "3"),
            "model: judge 'always-fail' does not call a model; leave it out",
        ),
        (
            ("--judge", "always-fail", "--judge.captioner", "nonsense"),
            "captioner: judge 'always-fail' has no such option",
        ),
        (
            ("--judge", "vlm", "--model", "m", "--judge.captioner", "text"),
            "judges with this option: modular, steps, webjudge, rubric",
        ),
    ],
)
def test_wrong_judge_writes_nothing(
    prill: Prill, tmp_path: Path, attempts: Path, words: tuple[Any, ...], message: str
) -> None:
    done = prill("score", attempts, "-o", tmp_path / "v.jsonl", *words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "v.jsonl").exists()


def test_evidence_only_changes_identity(prill: Prill, tmp_path: Path, attempts: Path) -> None:
    words = ("score", attempts, "-o", tmp_path / "v.jsonl", "--judge", "self-report")
    assert prill(*words, "--judge.evidence-only").returncode == 0
    again = prill(*words)
    assert again.returncode == 2
    assert "another judge" in again.stderr


def test_judges_are_listed(prill: Prill) -> None:
    listing = prill("judges").stdout
    assert all(f"\n{name} " in f"\n{listing}" for name in JUDGES.entries)
    page = prill("judges", "rubric").stdout
    assert "top_k" in page
    assert "Maximum number of frames shown" in page
    records = json.loads(prill("judges", "steps", "--json").stdout)
    assert {"name": "towards", "type": "float", "required": False, "default": 0.5} in [
        {key: record[key] for key in ("name", "type", "required", "default")} for record in records
    ]
    assert prill("judges", "nobody").returncode == 2


def test_a_page_is_copied_changed_shown_and_scored_with(
    prill: Prill, attempts: Path, tmp_path: Path
) -> None:
    page = tmp_path / "mine" / "checklist.toml"
    assert prill("judges", "checklist", "--write", page).returncode == 0
    assert prill("judges", "checklist", "--write", page).returncode == 2  # it is there already
    assert (page.parent / "prompts/checklist_state.md").is_file()
    assert "max_chars" in prill("judges", page).stdout
    output = tmp_path / "v.jsonl"
    words = ("--judge", page, "--model", "m", "--judge.captioner", "text", "--dry-run")
    planned = prill("score", attempts, "-o", output, *words)
    assert planned.returncode == 0 and "trajectories to judge" in planned.stdout
    page.write_text(page.read_text().replace("reads", "read", 1))
    refused = prill("score", attempts, "-o", output, *words)
    assert refused.returncode == 2 and "did you mean 'reads'" in refused.stderr


def test_calibrated_cascade_says_savings(prill: Prill, tmp_path: Path) -> None:
    attempts = write_trajectories(tmp_path / "t.jsonl", 40)
    (tmp_path / "c.toml").write_text(
        "name = 'cascade'\nband = [0.5, 0.5]\nfirst_may_accept = true\n"
        "[[judges]]\nname = 'self-report'\n[[judges]]\nname = 'modular'\n"
    )
    (tmp_path / "l.jsonl").write_bytes(
        b"".join(encode(LabelRecord(id=f"t{i}", success=i % 3 == 0)) for i in range(40))
    )
    with MockServer() as server:
        words = (
            "--judge",
            tmp_path / "c.toml",
            "--model",
            "m",
            "--model.base-url",
            server.base_url,
        )
        assert prill("score", attempts, "-o", tmp_path / "v.jsonl", *words).returncode == 0
        assert (
            prill(
                "calibrate", tmp_path / "v.jsonl", tmp_path / "l.jsonl", "-o", tmp_path / "c.json"
            ).returncode
            == 0
        )
        done = prill(
            "score",
            attempts,
            "-o",
            tmp_path / "w.jsonl",
            *words,
            "--judge.calibration",
            tmp_path / "c.json",
        )
    assert done.returncode == 0, done.stderr
    assert "the second judge was asked for 0 of 40" in done.stderr
    assert {verdict.evaluator.name for verdict in verdicts(tmp_path / "w.jsonl")} == {
        "calibrated cascade"
    }


def test_run_that_cannot_begin_leaves_no_output(
    prill: Prill, tmp_path: Path, attempts: Path
) -> None:
    out, gone = tmp_path / "v.jsonl", ("--model.base-url", "http://127.0.0.1:9/v1")
    command = ("score", attempts, "-o", out, "--judge", "modular", "--model", "gpt-4o")
    for words, why in (((), "OPENAI_API_KEY is not set"), (gone, "cannot reach")):
        done = prill(*command, *words)
        assert done.returncode == 2 and why in done.stderr and not out.exists()
    out.touch()  # a file that someone made stays
    assert prill(*command, *gone).returncode == 2 and out.read_bytes() == b""

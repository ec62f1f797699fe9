"""`prill table`: verdicts as annotations of logs and services, with reasons for what is unscored,
and never over the input.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from prill.datasets.formats import inspect, langsmith, opentelemetry
from prill.errors import MissingExtraError
from prill.io.joining import record_digest
from prill.io.shards import Shard
from prill.io.store import encode, with_screenshots
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Verdict
from tests.support.commands.command import Prill
from tests.support.paths import SUPPORT

WRITTEN = SUPPORT / "datasets/written"
VLM = EvaluatorInfo("vlm", "3", "gpt-4o")
TRACE, RUN = "0af7651916cd43dd8448eb211c80319c", "6d2b0a8a-8c5e-4b7e-9f0e-2f2f2f2f2f2f"


def verdicts(path: Path, *ids: str) -> Path:
    """Success, failure, and unscored, in turn."""
    ways: list[dict[str, Any]] = [
        {"success": True, "score": 0.9, "reason": "It is bought."},
        {"success": False, "reason": "It is not."},
        {"unscored": "timeout", "reason": "no reply in 60 s"},
    ]
    path.write_bytes(
        b"".join(encode(Verdict(id=id, evaluator=VLM, **ways[i % 3])) for i, id in enumerate(ids))
    )
    return path


def runs(module: Any, source: Path) -> dict[str, Trajectory]:
    """The runs of a log, whose pictures are told by their names: those in logs are named by their
    content.
    """
    found = [item for item in module.load(source) if isinstance(item, Trajectory)]
    return {run.id: with_screenshots(run, lambda path, at: Path(path).name) for run in found}


def annotated(
    prill: Prill, form: str, source: str | Path, out: str | Path
) -> CompletedProcess[str]:
    return prill("table", "v.jsonl", "--format", form, "--recording", source, "-o", out)


@pytest.mark.parametrize("name", ["old-long.eval", "long.eval", "chunked-long.eval", "short.json"])
def test_inspect_has_a_score(name: str, prill: Prill, tmp_path: Path) -> None:
    source = WRITTEN / "inspect" / name
    try:
        before = runs(inspect, source)
    except MissingExtraError as error:
        pytest.skip(str(error))
    (id, *_) = before
    for ids, value in (((id,), "C"), (("x", "y", id), None)):
        verdicts(tmp_path / "v.jsonl", *ids)
        out = tmp_path / f"{len(ids)}" / name
        assert annotated(prill, "inspect", source, out).returncode in (0, 3)
        assert {key: (run.steps, run.answer) for key, run in runs(inspect, out).items()} == {
            key: (run.steps, run.answer) for key, run in before.items()
        }
        labels = [
            label
            for label in inspect.load_labels(out)
            if getattr(label, "source", "") == "prill/vlm"
        ]
        assert [label.success for label in labels if hasattr(label, "success")] == (
            [True] if value else []
        )


def test_inspect_takes_no_verdict_on_other_contents(prill: Prill, tmp_path: Path) -> None:
    source = WRITTEN / "inspect/short.json"
    run = next(iter(runs(inspect, source).values()))
    for digest, code in ((record_digest(run), 0), (record_digest(replace(run, answer="no")), 2)):
        verdict = Verdict(id=run.id, success=True, evaluator=VLM, record=digest)
        (tmp_path / "v.jsonl").write_bytes(encode(verdict))
        out = tmp_path / f"{code}.json"
        done = annotated(prill, "inspect", source, out)
        assert (done.returncode, out.exists()) == (code, code == 0), done.stderr
    assert "on other contents" in done.stderr


def test_openinference_has_spans_in_the_trace(prill: Prill, tmp_path: Path) -> None:
    """Of the id that the recording's metadata has, or of the id of the run itself."""
    task = {"task": {"goal": "g"}, "steps": []}
    rows = [
        {"id": "a", **task, "metadata": {"trace_id": TRACE, "span_id": "b7ad6b7169203331"}},
        {"id": TRACE, **task},
        {"id": "c", **task},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdicts(tmp_path / "v.jsonl", "a", "c", TRACE)
    done = annotated(prill, "openinference", "t.jsonl", "spans.jsonl")
    assert done.returncode == 3 and "'c'" in done.stderr
    first, last = (
        json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
        for line in Path("spans.jsonl").read_text().splitlines()
    )
    assert (first["traceId"], first["parentSpanId"], last["traceId"]) == (
        TRACE,
        "b7ad6b7169203331",
        TRACE,
    )
    assert first["spanId"] != last["spanId"] and len(first["spanId"]) == 16
    read = [
        {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
        for span in (first, last)
    ]
    prefix = "trace.annotations.0.annotation."
    assert read[0]["openinference.span.kind"] == "EVALUATOR"
    assert (read[0][f"{prefix}name"], read[0][f"{prefix}label"], read[0][f"{prefix}score"]) == (
        "prill/vlm",
        "success",
        0.9,
    )
    assert f"{prefix}score" not in read[1] and read[1][f"{prefix}label"] == "unscored"
    assert read[1][f"{prefix}explanation"] == "unscored (timeout): no reply in 60 s"
    again = annotated(prill, "openinference", "t.jsonl", "spans.jsonl")
    assert again.returncode == 3, "its own output may be replaced"


def test_spans_next_to_the_trace_are_its_labels(prill: Prill, tmp_path: Path) -> None:
    """As the reader of such traces understands them; the run itself stays what it was."""
    source = WRITTEN / "otel/openinference-long.json"
    before = runs(opentelemetry, source)
    (id,) = before
    for ids, success in (((id,), True), (("x", id), False), (("x", "y", id), None)):
        verdicts(tmp_path / "v.jsonl", *ids)
        annotated(prill, "openinference", source, "spans.jsonl")
        both = tmp_path / f"both{len(ids)}.jsonl"
        both.write_bytes(
            json.dumps(json.loads(source.read_bytes())).encode()
            + b"\n"
            + Path("spans.jsonl").read_bytes()
        )
        labels = [
            label for label in opentelemetry.load_labels(both) if isinstance(label, LabelRecord)
        ]
        assert [(label.id, label.success, label.source) for label in labels] == [
            (id, success, "llm-judge")
        ]
        assert {key: run.steps for key, run in runs(opentelemetry, both).items()} == {
            k: run.steps for k, run in before.items()
        }


def test_langsmith_has_feedback(prill: Prill, tmp_path: Path) -> None:
    verdicts(tmp_path / "v.jsonl", RUN, "x", RUN.upper())
    assert prill("table", "v.jsonl", "--format", "langsmith", "-o", "f.jsonl").returncode == 3
    good, bad = map(json.loads, Path("f.jsonl").read_text().splitlines())
    assert (good["run_id"], good["key"], good["score"], good["value"], good["error"]) == (
        RUN,
        "prill/vlm",
        0.9,
        "success",
        False,
    )
    assert (bad["run_id"], bad["score"], bad["value"], bad["error"]) == (
        RUN,
        None,
        "unscored",
        True,
    )
    assert bad["comment"].startswith("unscored (timeout)")


def test_feedback_is_labels_of_its_runs(prill: Prill, tmp_path: Path) -> None:
    """As the reader of LangSmith's runs understands it."""
    source = WRITTEN / "langsmith/openai-long.jsonl"
    before = runs(langsmith, source)
    (id, *_) = before
    verdicts(tmp_path / "v.jsonl", id)
    done = annotated(prill, "langsmith", source, "f.jsonl")
    assert done.returncode == 0, done.stderr
    both = tmp_path / "both.jsonl"
    both.write_text(source.read_text() + Path("f.jsonl").read_text())
    labels = [
        label
        for label in langsmith.load_labels(both)
        if isinstance(label, LabelRecord) and label.source == "prill/vlm"
    ]
    assert [(label.id, label.success) for label in labels] == [(id, True)]
    assert {key: run.steps for key, run in runs(langsmith, both).items()} == {
        key: run.steps for key, run in before.items()
    }


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--format", "inspect", "--recording", "a.eval"), "name the log, and a file for the copy"),
        (("--format", "inspect", "--recording", "logs", "-o", "logs/out"), "choose a new folder"),
        (
            ("--format", "inspect", "--recording", "logs", "-o", "out"),
            "none of the 1 ids in the verdicts is in logs",
        ),
        (("--format", "langsmith", "-o", "v.jsonl"), "this is also an input"),
        (("--format", "langsmith"), "none of the 1 ids in the verdicts is the id of a trace"),
        (("--format", "langsmith", "--recording", "a.eval", "-o", "link"), "this is also an input"),
        (("--format", "openinference", "--labels", "l.jsonl"), "a column of a table"),
    ],
)
def test_what_cannot_be_is_refused(
    words: tuple[str, ...], problem: str, prill: Prill, tmp_path: Path
) -> None:
    verdicts(tmp_path / "v.jsonl", "a")
    (tmp_path / "logs").mkdir()
    for name in ("a.eval", "logs/a.eval"):
        shutil.copy(WRITTEN / "inspect/long.eval", tmp_path / name)
    (tmp_path / "link").symlink_to("a.eval")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = prill("table", "v.jsonl", *words)
    assert done.returncode == 2 and problem in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_missing_shards_are_named(prill: Prill, tmp_path: Path) -> None:
    """From ids alone; a few runs, or all of them, lack nothing."""
    ids = [f"task-{number}" for number in range(200)]
    for number in (1, 2, 3):
        there = [id for id in ids if Shard(number, 3).takes(id)]
        verdicts(tmp_path / f"{number}.jsonl", *there)
    assert "shard 2/3 is missing" in prill("table", "1.jsonl", "3.jsonl").stderr
    assert "missing" not in prill("table", "1.jsonl", "2.jsonl", "3.jsonl").stderr
    verdicts(tmp_path / "few.jsonl", "a", "b", "c")
    assert "missing" not in prill("table", "few.jsonl").stderr

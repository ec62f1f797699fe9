"""`prill export`: verdicts back in logs and services, with reasons for what is unscored, and never
over the input.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import prill as library
from prill.datasets.formats import atif, browser_use, inspect, langsmith, opentelemetry
from prill.errors import MissingExtraError
from prill.io.store import encode, read_verdicts, with_screenshots
from prill.types import EvaluatorInfo, LabelRecord, Trajectory, Verdict
from tests.support.commands.command import Prill
from tests.support.paths import SUPPORT
from tests.unit.datasets.formats.test_atif import document
from tests.unit.datasets.formats.test_messages import USER

WRITTEN = SUPPORT / "datasets/written"
VLM, OTHER = EvaluatorInfo("vlm", "3", "gpt-4o"), EvaluatorInfo("rubric", "1")
TRACE, RUN = "0af7651916cd43dd8448eb211c80319c", "6d2b0a8a-8c5e-4b7e-9f0e-2f2f2f2f2f2f"


def verdicts(path: Path, *ids: str, judge: EvaluatorInfo = VLM) -> Path:
    """Success, failure, and unscored, in turn."""
    ways: list[dict[str, Any]] = [
        {"success": True, "score": 0.9, "reason": "It is bought."},
        {"success": False, "reason": "It is not."},
        {"unscored": "timeout", "reason": "no reply in 60 s"},
    ]
    path.write_bytes(
        b"".join(encode(Verdict(id=id, evaluator=judge, **ways[i % 3])) for i, id in enumerate(ids))
    )
    return path


def runs(module: Any, source: Path) -> dict[str, Trajectory]:
    """The runs of a log, whose pictures are told by their names: those in logs are named by their
    content.
    """
    found = [item for item in module.load(source) if isinstance(item, Trajectory)]
    return {run.id: with_screenshots(run, lambda path, at: Path(path).name) for run in found}


def test_atif_has_them_in_extra(prill: Prill, tmp_path: Path) -> None:
    """Those of several judges; what is read of the copy is what was read of the recording."""
    (tmp_path / "logs/images").mkdir(parents=True)
    (tmp_path / "logs/images/a.png").write_bytes(b"picture")
    for name in ("a", "b", "c", "d"):
        (tmp_path / f"logs/{name}.json").write_text(
            json.dumps(document(session_id=name, extra={"mine": 1}))
        )
    before = {path: path.read_bytes() for path in (tmp_path / "logs").rglob("*.json")}
    verdicts(tmp_path / "v.jsonl", "a", "b", "c", "gone")
    verdicts(tmp_path / "w.jsonl", "b", judge=OTHER)
    done = prill("export", "v.jsonl", "w.jsonl", "--to", "atif", "--recording", "logs", "-o", "out")
    assert (
        done.returncode == 3
        and "'gone': left out, because the recording has nothing with that id" in done.stderr
    )
    extra = {
        name: json.loads((tmp_path / f"out/{name}.json").read_text())["extra"] for name in "abcd"
    }
    assert extra["d"] == {"mine": 1} and extra["a"]["mine"] == 1
    assert [one["success"] for one in extra["b"]["prill"]] == [False, True]
    assert extra["c"]["prill"] == [
        {
            "judge": {"name": "vlm", "version": "3", "model": "gpt-4o"},
            "success": None,
            "score": None,
            "unscored": "timeout",
            "reason": "no reply in 60 s",
        }
    ]
    assert {path: path.read_bytes() for path in before} == before
    assert [run.steps[-1].action for run in runs(atif, tmp_path / "out").values()] == [
        run.steps[-1].action for run in runs(atif, tmp_path / "logs").values()
    ]
    assert library.ExportConfig(verdicts=["v.jsonl"], to="csv", output="x").recording is None


def test_browser_use_has_its_judgement(prill: Prill, tmp_path: Path) -> None:
    """A copy that its reader takes; what is unscored leaves the judgement as it was, and the reason
    is in the metadata.
    """
    for name in ("short", "long", "broken"):
        shutil.copy(WRITTEN / f"browser_use/{name}.json", tmp_path / f"{name}.json")
    for name, success in (("short", True), ("long", None)):
        verdicts(tmp_path / "v.jsonl", *([name] if success else ["x", "y", name]))
        source = tmp_path / f"{name}.json"
        out = tmp_path / f"{name}-out.json"
        assert prill(
            "export", "v.jsonl", "--to", "browser-use", "--recording", source, "-o", out
        ).returncode in (0, 3)
        before, after = (
            json.loads(path.read_text())["history"][-1]["result"][-1] for path in (source, out)
        )
        ours = after["metadata"]["prill"]
        assert [one["success"] for one in ours] == [success]
        if success:
            assert (
                after["judgement"]["verdict"] is True
                and after["judgement"]["reasoning"] == "It is bought."
            )
        else:
            assert (
                after.get("judgement") == before.get("judgement")
                and ours[0]["unscored"] == "timeout"
            )
        (one,), (two,) = (runs(browser_use, path).values() for path in (source, out))
        assert one.steps == two.steps and one.metadata == two.metadata


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
        assert prill(
            "export", "v.jsonl", "--to", "inspect", "--recording", source, "-o", out
        ).returncode in (0, 3)
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
    done = prill(
        "export", "v.jsonl", "--to", "openinference", "--recording", "t.jsonl", "-o", "spans.jsonl"
    )
    assert done.returncode == 3 and "'c'" in done.stderr
    (line,) = Path("spans.jsonl").read_text().splitlines()
    first, last = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
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
    again = prill(
        "export", "v.jsonl", "--to", "openinference", "--recording", "t.jsonl", "-o", "spans.jsonl"
    )
    assert again.returncode == 3, "its own output may be replaced"


def test_spans_next_to_the_trace_are_its_labels(prill: Prill, tmp_path: Path) -> None:
    """As the reader of such traces understands them; the run itself stays what it was."""
    source = WRITTEN / "otel/openinference-long.json"
    before = runs(opentelemetry, source)
    (id,) = before
    for ids, success in (((id,), True), (("x", id), False), (("x", "y", id), None)):
        verdicts(tmp_path / "v.jsonl", *ids)
        prill(
            "export", "v.jsonl", "--to", "openinference", "--recording", source, "-o", "spans.jsonl"
        )
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
    assert prill("export", "v.jsonl", "--to", "langsmith", "-o", "f.jsonl").returncode == 3
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
    done = prill("export", "v.jsonl", "--to", "langsmith", "--recording", source, "-o", "f.jsonl")
    assert done.returncode == 0, done.stderr
    rows = (
        json.loads(source.read_bytes())
        if source.suffix == ".json"
        else list(map(json.loads, source.read_text().splitlines()))
    )
    both = tmp_path / "both.jsonl"
    rows = rows if isinstance(rows, list) else [rows]
    both.write_text("".join(json.dumps(row) + "\n" for row in rows) + Path("f.jsonl").read_text())
    labels = [
        label
        for label in langsmith.load_labels(both)
        if isinstance(label, LabelRecord) and label.source == "prill/vlm"
    ]
    assert [(label.id, label.success) for label in labels] == [(id, True)]
    assert {key: run.steps for key, run in runs(langsmith, both).items()} == {
        key: run.steps for key, run in before.items()
    }


def test_a_table_has_all(prill: Prill, tmp_path: Path) -> None:
    verdicts(tmp_path / "v.jsonl", "a", "b", "c")
    assert prill("export", "v.jsonl", "--to", "csv", "-o", "v.csv").returncode == 0
    with Path("v.csv").open(newline="") as file:
        assert [(row["id"], row["unscored"]) for row in csv.DictReader(file)] == [
            ("a", ""),
            ("b", ""),
            ("c", "timeout"),
        ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--to", "atif", "-o", "out"), "recording is missing"),
        (
            ("--to", "inspect", "--recording", "a.json", "-o", "out"),
            "is of the format atif; only one of inspect can be copied (--to)",
        ),
        (("--to", "atif", "--recording", "a.json", "-o", "a.json"), "already exists"),
        (("--to", "atif", "--recording", "logs", "-o", "logs/out"), "inside the recording"),
        (
            ("--to", "atif", "--recording", "b.json", "-o", "out.json"),
            "has none of the 1 ids in the verdicts; name what was judged (--recording)",
        ),
        (("--to", "langsmith", "-o", "v.jsonl"), "this is also an input"),
        (
            ("--to", "langsmith", "-o", "f.jsonl"),
            "none of the 1 verdicts belongs to a LangSmith run",
        ),
        (("--to", "langsmith", "--recording", "m.jsonl", "-o", "m.jsonl"), "this is also an input"),
        (("--to", "langsmith", "--recording", "m.jsonl", "-o", "link"), "this is also an input"),
        (("--to", "csv", "--recording", "m.jsonl", "-o", "link"), "this is also an input"),
        (("--to", "openinference", "-o", "link"), "this is also an input"),
        (("--to", "browser-use", "--recording", "logs", "-o", "out"), "is of the format atif"),
    ],
)
def test_what_cannot_be_is_refused(
    words: tuple[str, ...], problem: str, prill: Prill, tmp_path: Path
) -> None:
    verdicts(tmp_path / "v.jsonl", "a")
    (tmp_path / "logs").mkdir()
    for path, id in (("a.json", "a"), ("b.json", "b"), ("logs/a.json", "a")):
        (tmp_path / path).write_text(json.dumps(document(session_id=id)))
    (tmp_path / "m.jsonl").write_text(json.dumps({"messages": [USER]}) + "\n")
    (tmp_path / "link").symlink_to("v.jsonl" if "openinference" in words else "m.jsonl")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    done = prill("export", "v.jsonl", *words)
    assert done.returncode == 2 and problem in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before and not list(
        tmp_path.glob(".*")
    )


def test_verdicts_stay_verdicts(prill: Prill, tmp_path: Path) -> None:
    verdicts(tmp_path / "v.jsonl", "a")
    prill("export", "v.jsonl", "--to", "csv", "-o", "v.csv")
    assert [verdict.id for verdict in read_verdicts(tmp_path / "v.jsonl")] == ["a"]
    assert msgspec.json.decode((tmp_path / "v.jsonl").read_bytes())["evaluator"]["name"] == "vlm"

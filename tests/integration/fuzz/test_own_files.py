"""Files of prill, edited at random: a clear error or a right answer, no lost line, no verdict for
another id.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prill.emulators.task_source import _task_file
from prill.emulators.webarena.tasks import read_configs
from prill.evaluators.baselines import Constant
from prill.evaluators.fitted.calibration import read_calibration
from prill.evaluators.fitted.student import Student
from prill.evaluators.meta.agreement import agreement
from prill.evaluators.meta.corrections import correct, load_corrections
from prill.evaluators.registry import make_judge
from prill.evaluators.rubric import read_rubrics
from prill.io.schemas import check_file
from prill.io.store import (
    TrajectoryReader,
    encode,
    read_labels,
    read_lines,
    read_trajectories,
    read_verdicts,
)
from prill.io.tables import table
from prill.io.truth import gold_labels
from prill.io.verdict_log import VerdictLog
from prill.models.ledger import find_price
from prill.models.prompts import prompt_set
from prill.runs.rollout.cases import read_plan
from prill.scoring.scorer import score_files
from prill.transcripts import Call, Transcript, TranscriptLog, Turn, read_transcripts
from prill.types import EvaluatorInfo, Findings, LabelRecord, StepLabel, Trajectory, Verdict
from prill.ui.report.page import Judge, write_report
from prill.ui.view.label_log import LabelLog
from tests.support.fuzz.edits import (
    as_json,
    attempt,
    bounded,
    edited_bytes,
    edited_json,
    edited_value,
    edits,
    fuzzed,
)
from tests.support.paths import ROOT, SUPPORT

GOLDEN = SUPPORT / "golden"
INFO = EvaluatorInfo("always-fail", "1", "m", "sha256:0", {"frames": 1})
RECORD: dict[str, Any] = {
    "id": "middle",
    "task": {
        "id": "t",
        "goal": "Buy tea",
        "platform": "web",
        "site": "shop",
        "start_url": "http://shop",
        "earlier": [
            {"id": "turn", "task": {"goal": "Log in"}, "steps": [], "final": {"text": "in"}}
        ],
    },
    "agent": "a",
    "answer": "done",
    "error": None,
    "metadata": {"date": "2026-01-01", "truncated": False, "extra": [1, {"x": 2}]},
    "steps": [
        {
            "observation": {
                "screenshot": "images/x.png",
                "text": "[17] link 'Cart'",
                "url": "http://shop",
                "caption": "A shop",
            },
            "action": {
                "kind": "click",
                "text": "click [17]",
                "target": "[17] link 'Cart'",
                "point": [0.5, 0.25],
                "end_point": None,
                "value": None,
            },
            "thought": "I look",
        },
        {
            "observation": {"caption": "Thank you"},
            "action": {"kind": "answer", "value": "done"},
            "thought": None,
        },
    ],
    "final": {"caption": "Thank you", "text": "[1] StaticText 'Thank you'"},
}
VERDICT = msgspec.to_builtins(
    Verdict(
        id="middle",
        success=True,
        score=0.75,
        reason="bought",
        rewards=(0.0, 1.0),
        evaluator=INFO,
        key="k",
        findings=Findings(process=0.5, key_points=("tea",)),
    )
)
LABEL = msgspec.to_builtins(
    LabelRecord(id="middle", success=True, annotator="ann", steps=(StepLabel(0, "towards"),))
)


def trajectory(id: str) -> bytes:
    return as_json({**RECORD, "id": id}) + b"\n"


def verdict(id: str) -> bytes:
    return encode(Verdict(id=id, success=False, score=0.0, evaluator=INFO, key="k"))


def label(id: str) -> bytes:
    return encode(LabelRecord(id=id, success=False, annotator="ann"))


def between(path: Path, line: Callable[[str], bytes], middle: bytes) -> Path:
    """The file with a good first and last line, and something between them."""
    path.write_bytes(line("first") + middle + b"\n" + line("last"))
    return path


@fuzzed
@given(edits)
def test_trajectories_lose_no_line(tmp_path: Path, change: bytes) -> None:
    path, output = (
        between(tmp_path / "t.jsonl", trajectory, edited_json(RECORD, change)),
        tmp_path / "v.jsonl",
    )
    output.unlink(missing_ok=True)
    with bounded(), closing(TrajectoryReader([path])) as reader:
        items = [item for _, item in reader]
        asyncio.run(score_files([path], Constant(False), output))
        verdicts = {v.id: v for v in read_verdicts(output)}
    assert len(items) == sum(1 for _ in read_lines(path)) == len(verdicts)
    good = {item.id for item in items if isinstance(item, Trajectory)}
    assert {"first", "last"} <= good
    assert verdicts.keys() == {item.id for item in items}
    assert all(
        (v.success is False) == (v.id in good) and (v.unscored == "input") != (v.id in good)
        for v in verdicts.values()
    )


@fuzzed
@given(edits)
def test_packed_trajectories_end_clearly(tmp_path: Path, change: bytes) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(
        edited_bytes(gzip.compress(trajectory("first") + trajectory("middle") * 3, mtime=0), change)
    )
    for on_error in ("raise", "skip", "yield"):
        attempt(lambda on_error=on_error: list(read_trajectories(path, on_error)))  # type: ignore[misc]
    attempt(lambda: check_file(path))


@fuzzed
@given(edits)
def test_labels_lose_no_line(tmp_path: Path, change: bytes) -> None:
    path = between(tmp_path / "l.jsonl", label, edited_json(LABEL, change))
    labels = attempt(lambda: list(read_labels(path)))
    assert attempt(lambda: check_file(path)) is not None
    if labels is not None:
        assert len(labels) == sum(1 for _ in read_lines(path))
        assert {"first", "last"} <= {x.id for x in labels}
        judged = [Verdict(id=id, success=True, evaluator=INFO) for id in {x.id for x in labels}]
        attempt(lambda: agreement(judged, labels, source="human"))
        attempt(lambda: gold_labels(labels, "human"))


@fuzzed
@given(edits)
def test_verdicts_lose_no_line(tmp_path: Path, change: bytes) -> None:
    path = between(tmp_path / "v.jsonl", verdict, edited_json(VERDICT, change))
    verdicts = attempt(lambda: list(read_verdicts(path)))
    assert attempt(lambda: check_file(path)) is not None
    if verdicts is not None:
        assert len(verdicts) == sum(1 for _ in read_lines(path))
        made = table(verdicts)
        assert [len(made.to_markdown().splitlines()) - 2, len(made.rows)] == [len(verdicts)] * 2


@fuzzed
@given(edits, st.booleans())
def test_verdict_file_is_taken_up_or_left(tmp_path: Path, change: bytes, cut: bool) -> None:
    path = tmp_path / "v.jsonl"
    middle = edited_json(VERDICT, change)
    path.write_bytes(verdict("first") + middle + (b"" if cut else b"\n" + verdict("last")))
    before = path.read_bytes()

    def take_up() -> bool:
        with VerdictLog(path, INFO) as log:
            assert log.done("first", lambda: "k")
            log.append(Verdict(id="new", success=True, evaluator=INFO, key="k"))
        return True

    if attempt(take_up) is None:
        assert path.read_bytes() == before
    else:
        ids = [v.id for v in read_verdicts(path)]
        assert len(set(ids)) == len(ids)
        assert {"first", "new"} | (set() if cut else {"last"}) <= set(ids)


@fuzzed
@given(edits, st.booleans())
def test_label_file_is_taken_up_or_left(tmp_path: Path, change: bytes, cut: bool) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(
        label("first") + edited_json(LABEL, change) + (b"" if cut else b"\n" + label("last"))
    )
    before = path.read_bytes()

    def take_up() -> bool:
        with LabelLog(path, "ann") as log:
            assert log.mine["first"].success is False
            log.put(LabelRecord(id="first", success=True, annotator="ann"))
            log.put(LabelRecord(id="new", success=True, annotator="ann"))
        return True

    if attempt(take_up) is None:
        assert path.read_bytes() == before
    else:
        labels = {x.id: x.success for x in read_labels(path)}
        assert labels["first"] is labels["new"] is True
        assert cut or "last" in labels


@fuzzed
@given(edits)
def test_report_is_made_of_what_is_read(tmp_path: Path, change: bytes) -> None:
    path = between(tmp_path / "t.jsonl", trajectory, edited_json(RECORD, change))
    verdicts = attempt(
        lambda: list(
            read_verdicts(
                between(tmp_path / "v.jsonl", verdict, as_json(edited_value(VERDICT, change)))
            )
        )
    )
    labels = attempt(
        lambda: list(
            read_labels(between(tmp_path / "l.jsonl", label, as_json(edited_value(LABEL, change))))
        )
    )
    labels = [x for x in labels or () if x.source == "human"]  # of two sources one has to be named
    by_id = {v.id: replace(v, evaluator=INFO) for v in verdicts or ()}
    judges = [Judge("judge", INFO, by_id)] if by_id else []
    made = attempt(
        lambda: write_report(
            tmp_path / "r.html", read_trajectories(path, "yield"), judges, labels, embed=True
        )
    )
    assert made is not None
    assert made.trajectories >= 2


TRANSCRIPT = Transcript("a", "k", (Call(model="m", messages=(Turn("user", ("?",)),), reply="yes"),))


@fuzzed
@given(edits, st.booleans())
def test_transcripts_are_read_or_passed_over(tmp_path: Path, change: bytes, packed: bool) -> None:
    folder = tmp_path / "v.transcripts"
    if not folder.exists():
        with TranscriptLog(folder) as log:
            log.append(TRANSCRIPT)
        (folder / "whole").write_bytes(next(folder.glob("calls-*")).read_bytes())
    whole = (folder / "whole").read_bytes()
    record = edited_json(msgspec.to_builtins(TRANSCRIPT), change)
    data = (
        edited_bytes(whole, change)
        if packed
        else gzip.compress(encode(TRANSCRIPT) + record + b"\n", 1)
    )
    next(folder.glob("calls-*")).write_bytes(data)
    found = attempt(lambda: list(read_transcripts(folder)))
    assert packed or found is None or found[0] == TRANSCRIPT


JUDGES: dict[str, Any] = {
    "vote": {"name": "vote", "rule": "any", "judges": [{"name": "self-report"}, "always-fail"]},
    "ensemble": {
        "name": "ensemble",
        "weights": [1, 2.5],
        "threshold": 0.4,
        "judges": ["self-report", "always-success"],
    },
    "cascade": {
        "name": "cascade",
        "band": [0.2, 1.0],
        "judges": ["self-report", {"name": "modular", "captioner": "text"}],
        "model": "m",
        "temperature": 0.5,
    },
    "rubric": {
        "name": "rubric",
        "model": {"name": "m", "temperature": 0.5},
        "captioner": {"name": "text", "lines": 3},
        "top_k": 3,
    },
    "vlm": {
        "name": "vlm",
        "model": "m",
        "frames": 3,
        "retries": 2,
        "concurrency": 4,
        "max_tokens": 100,
        "seed": 1,
    },
}


@fuzzed
@given(st.sampled_from(sorted(JUDGES)), edits)
def test_judge_files_are_made_or_refused(tmp_path: Path, name: str, change: bytes) -> None:
    (tmp_path / "j.json").write_bytes(edited_json(JUDGES[name], change))
    attempt(lambda: make_judge(tmp_path / "j.json"))


CASCADE = b"""# a judge
name = "cascade"
band = [0.2, 1.0]

[[judges]]
name = "self-report"

[[judges]]
name = "modular"
captioner = { name = "text" }
model = "m"
"""
PRICES = b"""[gpt-4o]
prompt = 2.5
completion = 10.0

["m"]
prompt = 0
completion = 1e2
"""


def judged(path: Path) -> None:
    """The judge that was fitted, and its verdict."""
    judge = Student.load(path)
    assert asyncio.run(judge(msgspec.convert(RECORD, Trajectory))).id == "middle"


def mapped(path: Path) -> None:
    """The calibration at both ends and in the middle."""
    calibration = read_calibration(path)
    for score in (0.0, 0.5, 1.0):
        assert 0 <= calibration.map(score) <= 1


def corrected(path: Path) -> None:
    correct(
        [LabelRecord(id="webarena.24", success=True, source="oracle")], load_corrections(str(path))
    )


def prompted(path: Path) -> None:
    prompt_set("prill.evaluators", ["web_text"], ["web_text"], str(path))


SETTINGS: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], object]]] = {
    "judge": ("j.toml", lambda: CASCADE, make_judge),
    "prices": ("p.toml", lambda: PRICES, lambda path: find_price("gpt-4o", str(path))),
    "rubrics": ("r.toml", (GOLDEN / "rubrics.toml").read_bytes, read_rubrics),
    "rubric lines": (
        "r.jsonl",
        lambda: (
            b'{"task_id":"t","criteria":[{"text":"a","weight":2}]}\n{"goal":"g","criteria":[{"text":"b"}]}\n'
        ),
        read_rubrics,
    ),
    "plan": ("plan.toml", (ROOT / "datasets/samples/miniwob/plan.toml").read_bytes, read_plan),
    "tasks": (
        "tasks.jsonl",
        lambda: b'{"id":"a","goal":"Buy tea","start_url":"http://x"}\n{"goal":"Log out"}\n',
        lambda path: _task_file(str(path)),
    ),
    "corrections": (
        "c.toml",
        (ROOT / "evaluators/meta/webarena_corrections.toml").read_bytes,
        corrected,
    ),
    "prompt": ("web.md", (ROOT / "evaluators/prompts/web_text.md").read_bytes, prompted),
    "calibration": ("cal.json", (GOLDEN / "calibration.json").read_bytes, mapped),
    "fitted judge": ("s.json", (GOLDEN / "prior.json").read_bytes, judged),
    "configs": (
        "w.json",
        lambda: json.dumps(
            [
                {
                    "task_id": 1,
                    "sites": ["shopping"],
                    "start_url": "__SHOPPING__",
                    "intent": "Buy",
                    "intent_template_id": 3,
                    "intent_template": "Buy",
                    "instantiation_dict": {},
                    "storage_state": None,
                    "geolocation": None,
                    "require_reset": False,
                    "require_login": True,
                    "eval": {
                        "eval_types": ["string_match"],
                        "reference_answers": {"exact_match": "x"},
                    },
                }
            ]
        ).encode(),
        lambda path: read_configs(path.read_bytes(), {"SHOPPING": "http://x"}),
    ),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    name, sample, read = SETTINGS[kind]
    data, path = sample(), tmp_path / name
    path.write_bytes(data)
    read(path)  # the sample itself is good

    @fuzzed
    @given(edits)
    def fuzz(change: bytes) -> None:
        path.write_bytes(
            edited_json(json.loads(data), change)
            if name.endswith(".json")
            else edited_bytes(data, change)
        )
        price_table_cleared()
        attempt(lambda: read(path))

    fuzz()


def price_table_cleared() -> None:
    """Prices are read once a path."""
    from prill.models import ledger

    ledger._table.cache_clear()

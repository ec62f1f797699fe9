"""Files of prill, edited at random: each is read or refused with a clear error, no line is lost,
and what is refused stays as it was.
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

from prill.captioner.files import Caption, FileCaptioner
from prill.datasets.webarena_tasks import read_configs
from prill.emulators.task_source import _task_file
from prill.episodes.cases import read_plan
from prill.episodes.run_folder import RunFolder
from prill.evaluators.agreement.agreement import agreement
from prill.evaluators.agreement.corrections import correct, load_corrections
from prill.evaluators.baselines import Constant
from prill.evaluators.criteria import read_rubrics
from prill.evaluators.fitted.calibration import read_calibration
from prill.evaluators.fitted.student import Student
from prill.evaluators.page import PACKAGE
from prill.evaluators.registry import make_judge
from prill.evaluators.scoring.batches.folder import MANIFEST, Manifest, RequestFile, read_manifest
from prill.evaluators.scoring.scorer import score_files
from prill.io.retries import FORMAT, Lesson, read_lessons, read_results
from prill.io.schemas import check_file
from prill.io.store import (
    TrajectoryReader,
    encode,
    iter_trajectories,
    read_labels,
    read_lines,
    read_verdicts,
)
from prill.io.tables import table
from prill.io.truth import gold_labels
from prill.io.verdict_log import VerdictLog
from prill.models import ledger
from prill.models.ledger import find_price
from prill.models.local.weights import check_adapter
from prill.models.prompts import load_prompt, prompt_set
from prill.papers.bench.papers import read_paper
from prill.papers.embedders import TfidfEmbedder
from prill.papers.mind2web.mindact.memory import Sentences
from prill.papers.mind2web.pages.ranking import _About, _open_log
from prill.papers.mind2web.pages.state import read_scores
from prill.papers.mind2web.training import GoldTurns
from prill.papers.synapse.memory import ABSTRACTIONS, EXEMPLARS, ExemplarMemory
from prill.refine.filter import FilterConfig
from prill.refine.filtered_bc.study import FilteredBCConfig
from prill.refine.reflexion import ReflexionConfig
from prill.refine.rewards import make_reward
from prill.refine.rewards.service.serving import ServeConfig
from prill.refine.training.samples import read_rows
from prill.refine.training.spec import training_spec
from prill.types import EvaluatorInfo, Findings, LabelRecord, StepLabel, Trajectory, Verdict
from prill.ui.report.page import Judge, write_report
from prill.ui.view.label_log import LabelLog
from tests.support.fuzz.edits import (
    as_json,
    attempt,
    edited_bytes,
    edited_json,
    edited_value,
    edits,
    fuzzed,
)
from tests.support.paths import ROOT, SUPPORT
from tests.unit.papers.mind2web import test_format as test_mind2web

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
        "captioner": {"name": "text"},
        "top_k": 3,
    },
    "vlm": {
        "name": "vlm",
        "model": "m",
        "frames": 3,
        "retries": 2,
        "concurrency": 4,
        "max_tokens": 100,
    },
}


CASCADE = """# a judge
name = "cascade"
band = [0.2, 1.0]

[[judges]]
name = "self-report"

[[judges]]
name = "modular"
captioner = { name = "text" }
model = "m"
"""
PLAN = """episodes = [
  { task = "choose-list", seed = 1, behaviour = "solve" },
  { task = "choose-list", seed = 1, behaviour = "wrong-target" },
  { task = "click-button", seed = 3 },
]
"""
PRICES = """[gpt-4o]
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
    prompt_set({"web_text": load_prompt(PACKAGE, "web_text")}, ["web_text"], str(path))


REFLEXION = {
    "environment": {"name": "miniwob", "tasks": "click-link"},
    "max_steps": 4,
    "output": "out",
    "policy": {"name": "react"},
    "judge": {"name": "oracle"},
    "retries": {"attempts": 3, "keep_best": True},
    "lessons": {"lesson_tokens": 100},
}
RESULTS = {
    "format": FORMAT,
    "evaluator": {"name": "oracle", "version": "1"},
    "attempts": 2,
    "tasks": [],
}
ROW = {
    "prompt": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Where?"}]}
    ],
    "completion": [{"role": "assistant", "content": "Here"}],
    "images": ["a.png"],
    "trajectory": "t",
}


ENTRY = RequestFile(
    name="requests-01-001.jsonl",
    stage=1,
    model="m",
    base_url="http://h/v1",
    api_key_env="K",
    requests=2,
)
BATCH = msgspec.to_builtins(
    Manifest(
        evaluator=EvaluatorInfo("vlm", "1"),
        trajectories=("/t.jsonl",),
        secret="s",
        files=(ENTRY,),
        judge={"a": 1},
    )
)


def values(things: Any) -> list[Any]:
    return [msgspec.to_builtins(thing) for thing in things]


def adapter(folder: Path) -> None:
    (folder / "adapter_model.safetensors").touch()
    check_adapter(folder)


def ranked_steps(path: Path) -> object:
    known: dict[str, dict[str, float]] = {}
    with _open_log(path, _About("prill ranking 1", "r", "t"), known, resume=True):
        return known


def gold_turns(folder: Path) -> list[Any]:
    from prill.papers.mind2web import format as mind2web

    (folder / "in").mkdir()
    (folder / "in/one_0.json").write_text(
        json.dumps([test_mind2web.task(name) for name in ("one", "two", "three")])
    )
    turns = [item for item in mind2web.load(folder / "in") if isinstance(item, Trajectory)]
    assert len(turns) == 3
    return values(turns)


def judged_all(path: Path) -> None:
    """Every line has a verdict: of the judge, or that it could not be read."""
    output = path.with_name("scored.jsonl")
    output.unlink(missing_ok=True)
    with closing(TrajectoryReader([path])) as reader:
        items = [item for _, item in reader]
    asyncio.run(score_files([path], Constant(False), output))
    verdicts = {v.id: v for v in read_verdicts(output)}
    good = {item.id for item in items if isinstance(item, Trajectory)}
    assert {"first", "last"} <= good
    assert len(items) == sum(1 for _ in read_lines(path)) == len(verdicts)
    assert all(
        (v.success is False) == (v.id in good) and (v.unscored == "input") != (v.id in good)
        for v in verdicts.values()
    )


def labelled(path: Path) -> None:
    labels = list(read_labels(path))
    assert len(labels) == sum(1 for _ in read_lines(path))
    assert {"first", "last"} <= {x.id for x in labels}
    verdicts = [Verdict(id=id, success=True, evaluator=INFO) for id in {x.id for x in labels}]
    agreement(verdicts, labels, source="human")
    gold_labels(labels, "human")


def tabled(path: Path) -> None:
    verdicts = list(read_verdicts(path))
    assert len(verdicts) == sum(1 for _ in read_lines(path))
    made = table(verdicts)
    assert [len(made.to_markdown().splitlines()) - 2, len(made.rows)] == [len(verdicts)] * 2


def verdicts_go_on(path: Path) -> None:
    with VerdictLog(path, INFO) as log:
        assert log.done("first", lambda: "k")
        log.append(Verdict(id="new", success=True, evaluator=INFO, key="k"))
    ids = [v.id for v in read_verdicts(path)]
    assert len(set(ids)) == len(ids) and {"first", "last", "new"} <= set(ids)


def labels_go_on(path: Path) -> None:
    with LabelLog(path, "ann") as log:
        assert log.mine["first"].success is False
        log.put(LabelRecord(id="first", success=True, annotator="ann"))
    labels = {x.id: x.success for x in read_labels(path)}
    assert labels["first"] and "last" in labels


def recording_goes_on(path: Path) -> None:
    with closing(RunFolder(path.parent)) as folder:
        assert "first" in folder
    ids = [item.id for item in iter_trajectories(path, "skip")]
    assert ids[0] == "first" and "last" in ids


def batch(path: Path) -> None:
    (path.parent / ENTRY.name).touch()
    read_manifest(path.parent)


def price(path: Path) -> object:
    ledger._table.cache_clear()  # prices are read once a path
    return find_price("gpt-4o", str(path))


# Name of the file, what is in it (a text, a value, or the lines of a file of lines), and who reads
# it. Of lines, the second is edited.
FILES: dict[str, tuple[str, Any, Callable[[Path], object]]] = {
    "trajectories": (
        "t.jsonl",
        [{**RECORD, "id": id} for id in ("first", "middle", "last")],
        judged_all,
    ),
    "recording": (
        "trajectories.jsonl",
        [{**RECORD, "id": id} for id in ("first", "middle", "last")],
        recording_goes_on,
    ),
    "labels": ("l.jsonl", [{**LABEL, "id": id} for id in ("first", "middle", "last")], labelled),
    "labels that go on": (
        "l.jsonl",
        [{**LABEL, "id": id, "success": False} for id in ("first", "middle", "last")],
        labels_go_on,
    ),
    "verdicts": ("v.jsonl", [{**VERDICT, "id": id} for id in ("first", "middle", "last")], tabled),
    "verdicts that go on": (
        "v.jsonl",
        [{**VERDICT, "id": id} for id in ("first", "middle", "last")],
        verdicts_go_on,
    ),
    "batch": (MANIFEST, BATCH, batch),
    **{f"judge {name}": ("j.json", value, make_judge) for name, value in JUDGES.items()},
    "judge": ("j.toml", CASCADE, make_judge),
    "prices": ("p.toml", PRICES, price),
    "rubrics": ("r.toml", (GOLDEN / "rubrics.toml").read_text(), read_rubrics),
    "plan": ("plan.toml", PLAN, read_plan),
    "tasks": (
        "tasks.jsonl",
        [{"id": id, "goal": "Buy tea", "start_url": "http://x"} for id in "abc"],
        lambda path: _task_file(str(path)),
    ),
    "corrections": (
        "c.toml",
        (ROOT / "evaluators/agreement/webarena_corrections.toml").read_text(),
        corrected,
    ),
    "prompt": ("web.md", (ROOT / "evaluators/judges/prompts/web_text.md").read_text(), prompted),
    "calibration": ("cal.json", json.loads((GOLDEN / "calibration.json").read_text()), mapped),
    "fitted judge": ("s.json", json.loads((GOLDEN / "prior.json").read_text()), judged),
    "configs": (
        "w.json",
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
                "eval": {"eval_types": ["string_match"], "reference_answers": {"exact_match": "x"}},
            }
        ],
        lambda path: read_configs(path.read_bytes(), {"SHOPPING": "http://x"}),
    ),
    "captions": (
        "c.jsonl",
        values(
            Caption(id=f"sha256:{n}", captioner="c", image="a.png", caption="A shop")
            for n in range(3)
        ),
        lambda path: FileCaptioner(str(path)),
    ),
    "scores": (
        "s.json",
        {"scores": {"a_1": {"1": 0.5, "2": -1.0}}, "ranks": {"a_1": {"1": 0}}},
        read_scores,
    ),
    "steps that were ranked": (
        "s.steps.jsonl",
        [
            {"format": "prill ranking 1", "ranker": "r", "trajectories": "t"},
            *({"sample": f"a_{n}", "scores": {"1": 0.5}} for n in range(2)),
        ],
        ranked_steps,
    ),
    "service": (
        "s.toml",
        (ROOT / "examples/reward_service/service.toml").read_text(),
        ServeConfig.load,
    ),
    "reflexion": ("r.json", REFLEXION, ReflexionConfig.load),
    "filter": (
        "f.toml",
        'trajectories = ["t.jsonl"]\nverdicts = ["v.jsonl"]\noutput = "o"\n[filter]\nlevel = '
        '"step"\nper_task = 2\n',
        FilterConfig.load,
    ),
    "study": (
        "s.toml",
        f'output = "s"\n{(ROOT / "examples/filtered_bc/short.toml").read_text()}',
        FilteredBCConfig.load,
    ),
    "training": (
        "t.toml",
        'preset = "small-text"\nepochs = 2\nlearning_rate = 1e-4\n',
        lambda path: training_spec(str(path), model="m"),
    ),
    "rows": ("rows.jsonl", [{**ROW, "trajectory": f"t{n}"} for n in range(3)], read_rows),
    "gold turns": ("g.jsonl", [], GoldTurns),
    "reward": (
        "r.json",
        {"judge": "self-report", "kind": "success", "on_unscored": "abstain"},
        make_reward,
    ),
    "figures of a paper": (
        "p.toml",
        (ROOT / "papers/step/published/step.toml").read_text(),
        read_paper,
    ),
    "lessons": (
        "l.jsonl",
        values(Lesson(id=f"a{n}", text="Look twice.", status="failed") for n in range(3)),
        read_lessons,
    ),
    "results": ("r.json", RESULTS, read_results),
    "sentences": ("s.jsonl", [{"key": f"k{n}", "text": "a"} for n in range(3)], Sentences),
    "adapter": (
        "adapter_config.json",
        {"r": 8, "peft_type": "LORA"},
        lambda path: adapter(path.parent),
    ),
    "exemplars": (
        EXEMPLARS,
        [
            {
                "name": "click",
                "key": f"k {n}",
                "task": "Click",
                "steps": [{"action": "agent.click_xpath('//a')"}],
            }
            for n in range(3)
        ],
        lambda path: ExemplarMemory.load(path.parent, TfidfEmbedder()),
    ),
    "abstractions": (
        ABSTRACTIONS,
        {"click": {"code": ["x"]}},
        lambda path: ExemplarMemory.load(path.parent, TfidfEmbedder()),
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    name, sample, read = FILES[kind]
    path = tmp_path / name
    if kind == "gold turns":
        sample = gold_turns(tmp_path)
    if kind == "abstractions":
        (tmp_path / EXEMPLARS).write_bytes(as_json(FILES["exemplars"][1][0]) + b"\n")

    def written(change: bytes | None) -> bytes:
        if isinstance(sample, str):
            data = sample.encode() if change is None else edited_bytes(sample.encode(), change)
        elif isinstance(sample, list) and not name.endswith(".json"):
            lines = [*map(as_json, sample)]
            if change is not None:
                lines[1] = edited_json(sample[1], change)
            data = b"\n".join(lines) + b"\n"
        else:
            data = as_json(sample) if change is None else edited_json(sample, change)
        path.write_bytes(data)
        return data

    written(None)
    read(path)  # the sample itself is good

    @fuzzed
    @given(edits)
    def fuzz(change: bytes) -> None:
        data = written(change)
        if attempt(lambda: (read(path),)) is None:
            assert path.read_bytes() == data
        if name in ("t.jsonl", "l.jsonl", "v.jsonl"):
            assert attempt(lambda: check_file(path)) is not None

    fuzz()


@fuzzed
@given(edits)
def test_packed_trajectories_end_clearly(tmp_path: Path, change: bytes) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(edited_bytes(gzip.compress(as_json(RECORD) + b"\n", mtime=0), change))
    for on_error in ("raise", "skip", "yield"):
        attempt(lambda on_error=on_error: list(iter_trajectories(path, on_error)))  # type: ignore[misc]


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
            tmp_path / "r.html", iter_trajectories(path, "yield"), judges, labels, embed=True
        )
    )
    assert made is not None
    assert made.trajectories >= 2

"""The schemas say what the readers take, and a check finds what the readers refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.io.kinds import Kind
from prill.io.schemas import KINDS, check_file, schema
from prill.io.store import encode
from prill.types import (
    Criterion,
    EvaluatorInfo,
    Findings,
    LabelRecord,
    Opinion,
    StepLabel,
    StepVerdict,
    Usage,
    Verdict,
)
from tests.support.paths import ROOT

SAMPLES = ROOT / "datasets" / "samples" / "miniwob"
GOOD = b'{"id": "%s", "task": {"goal": "g"}}\n'
JUDGE = EvaluatorInfo("vlm", "1", "m", "sha256:0", {"k": [1]})
VERDICT = Verdict(
    id="a",
    success=True,
    score=0.5,
    steps=(StepVerdict(0, "reached", 1.0),),
    rewards=(1.0,),
    usage=Usage(usd=None),
    evaluator=JUDGE,
    findings=Findings(
        criteria=(Criterion(text="t", met="met"),), side_effects=("s",), official_label=None
    ),
    opinions=(Opinion(judge="j", success=None, unscored="parse"),),
)
LABEL = LabelRecord(id="a", success=None, undecided="unsure", steps=(StepLabel(0, "away"),))
STEP = {
    "observation": {"screenshot": None, "new": 1},
    "action": {"kind": "tap", "point": [0, 1.0], "raw": [1]},
    "extra": {},
}
TRAJECTORY: dict[str, Any] = {
    "id": "a",
    "task": {
        "goal": "g",
        "platform": "ios",
        "earlier": [{"id": "e", "task": {"goal": "f"}}],
        "difficulty": "hard",
    },
    "steps": [STEP],
    "final": None,
    "metadata": {"seed": 3},
    "error": "gone",
    "mood": "good",
}
ACCEPTED: list[tuple[Kind, object]] = [
    ("trajectories", json.loads(GOOD % b"a")),
    ("trajectories", TRAJECTORY),
    ("verdicts", json.loads(encode(VERDICT))),
    ("verdicts", {"id": "a", "unscored": "input", "evaluator": {"name": "x", "version": "1"}}),
    ("labels", json.loads(encode(LABEL))),
    ("labels", {"id": "a", "success": True, "confidence": 0.5}),
]
REFUSED: list[tuple[Kind, object]] = [
    ("trajectories", {"id": "a"}),
    ("trajectories", {**TRAJECTORY, "id": ""}),
    ("trajectories", {**TRAJECTORY, "task": {"goal": 3}}),
    ("trajectories", {**TRAJECTORY, "task": {"goal": "g", "platform": "tv"}}),
    (
        "trajectories",
        {**TRAJECTORY, "steps": [{**STEP, "action": {"kind": "tap", "point": [0.5, 2]}}]},
    ),
    (
        "trajectories",
        {**TRAJECTORY, "steps": [{**STEP, "action": {"kind": "tap", "point": [0.5]}}]},
    ),
    ("trajectories", {**TRAJECTORY, "steps": [{**STEP, "action": {}}]}),
    ("verdicts", {"id": "a", "success": True}),
    (
        "verdicts",
        {"id": "a", "success": True, "score": 1.5, "evaluator": {"name": "x", "version": "1"}},
    ),
    ("verdicts", {"id": "a", "unscored": "tired", "evaluator": {"name": "x", "version": "1"}}),
    ("labels", {"id": "a"}),
    ("labels", {"id": "a", "success": "yes"}),
]


def is_valid(kind: Kind, record: object) -> bool:
    jsonschema = pytest.importorskip(
        "jsonschema", reason="jsonschema is not installed: make test-all installs it"
    )
    form = json.loads(schema(kind))
    jsonschema.Draft202012Validator.check_schema(form)
    return bool(jsonschema.Draft202012Validator(form).is_valid(record))


def problems(path: Path, data: bytes, **options: bool) -> list[str]:
    path.write_bytes(data)
    return [problem.removeprefix(str(path)) for problem in check_file(path, **options).problems]


@pytest.mark.parametrize("kind", KINDS)
def test_the_schemas_in_docs_are_current(kind: Kind) -> None:
    path = ROOT / "docs" / "schemas" / f"{kind}.json"
    assert path.read_text(encoding="utf-8") == schema(kind), (
        f"run: prill check --schema {kind} > docs/schemas/{kind}.json"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described(kind: Kind) -> None:
    records = json.loads(schema(kind))["$defs"]
    keys = {
        f"{name}.{key}": part
        for name, record in records.items()
        for key, part in record["properties"].items()
    }
    assert keys and not [key for key, part in keys.items() if not part.get("description")]


@pytest.mark.parametrize(("kind", "record"), ACCEPTED)
def test_schema_and_reader_take_the_same(kind: Kind, record: object, tmp_path: Path) -> None:
    assert is_valid(kind, record)
    assert problems(tmp_path / "f.jsonl", json.dumps(record).encode()) == []


@pytest.mark.parametrize(("kind", "record"), REFUSED)
def test_schema_and_reader_refuse_the_same(kind: Kind, record: object, tmp_path: Path) -> None:
    assert not is_valid(kind, record)
    good = {"trajectories": GOOD % b"z", "verdicts": encode(VERDICT), "labels": encode(LABEL)}[kind]
    (problem,) = problems(tmp_path / "f.jsonl", good + json.dumps(record).encode() + b"\n")
    assert problem.startswith(":2: ")


@pytest.mark.parametrize("kind", ["trajectories", "labels"])
def test_the_samples_keep_to_their_schema(kind: Kind) -> None:
    path = SAMPLES / f"{kind}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(is_valid(kind, json.loads(line)) for line in lines[:10])
    report = check_file(path, decode_images=True)
    assert (report.kind, report.good, report.broken, report.problems) == (kind, len(lines), 0, [])


def test_the_kind_is_told_by_content(tmp_path: Path) -> None:
    path = tmp_path / "misnamed.txt"
    for kind, line in (
        ("trajectories", GOOD % b"a"),
        ("verdicts", encode(VERDICT)),
        ("labels", encode(LABEL)),
    ):
        path.write_bytes(b"torn{\n\n" + line)
        report = check_file(path)
        assert (report.kind, report.good, report.broken) == (kind, 1, 1)
        assert report.problems[0].startswith(f"{path}:1: ")


def test_every_problem_names_line_and_field(tmp_path: Path) -> None:
    lines = [GOOD % b"a", b'{"id": "b", "task": {"goal": 1}}\n', b"\n", GOOD % b"a", encode(LABEL)]
    assert problems(tmp_path / "t.jsonl", b"".join(lines)) == [
        ":2: Expected `str`, got `int` - at `$.task.goal`",
        (
            f":4: duplicate id 'a', first used at {tmp_path}/t.jsonl:1; give each trajectory an id "
            "of its own"
        ),
        ":5: a labels line in a file of trajectories; move it to a file of its own",
    ]
    torn = encode(VERDICT)[:30]
    assert problems(
        tmp_path / "v.jsonl", encode(VERDICT) + b'{"id": "b", "evaluator": {"name": 1}}\n' + torn
    ) == [
        ":2: Expected `str`, got `int` - at `$.evaluator.name`",
        ":3: incomplete last line: Input data was truncated",
    ]
    assert problems(tmp_path / "l.jsonl", encode(LABEL) + encode(VERDICT)) == [
        ":2: a verdicts line in a file of labels; move it to a file of its own"
    ]
    contradiction = b'{"id": "a", "success": null, "evaluator": {"name": "x", "version": "1"}}'
    assert "either a success value or a reason" in problems(tmp_path / "v.jsonl", contradiction)[0]


def test_images_are_looked_for_or_opened(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "good.png")
    Image.effect_noise((64, 64), 50).save(tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:1000])
    turn = {"id": "e", "task": {"goal": "f"}, "final": {"screenshot": "gone.png"}}
    steps = [
        {"observation": {"screenshot": name}, "action": {"kind": "tap"}}
        for name in ("good.png", "cut.png")
    ]
    record = {
        "id": "a",
        "task": {"goal": "g", "earlier": [turn]},
        "steps": steps,
        "final": {"screenshot": "cut.png"},
    }
    data = json.dumps(record).encode()
    missing = f":1: image {tmp_path}/gone.png is missing - at `$.task.earlier[0].final.screenshot`"
    assert problems(tmp_path / "t.jsonl", data) == [missing]
    opened = problems(tmp_path / "t.jsonl", data, decode_images=True)
    assert sorted(opened)[2:] == [missing]
    assert all("cut.png is truncated" in problem for problem in sorted(opened)[:2])
    assert [problem.rpartition("at ")[2] for problem in sorted(opened)[:2]] == [
        "`$.final.screenshot`",
        "`$.steps[1].observation.screenshot`",
    ]
    assert check_file(tmp_path / "t.jsonl", decode_images=True).broken == 1

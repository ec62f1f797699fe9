"""The fixed inputs of the golden tests: judges as options by name, and command lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

SAMPLES = ROOT / "datasets" / "samples" / "miniwob"
# Six runs of MiniWoB++ with pictures, which stay as they are when the samples change.
RECORDED = Path(__file__).parent / "recorded" / "trajectories.jsonl"
STUDENT = Path(__file__).with_name("prior.json")
CALIBRATION = Path(__file__).with_name("calibration.json")
LABELS = SAMPLES / "labels.jsonl"
RUBRICS = Path(__file__).with_name("rubrics.toml")

_PRIOR = {"name": "prior", "model": str(STUDENT)}
_TEXT = {"name": "modular", "captioner": "text", "model": "m"}

# Every judge and every wrapper, in the form of a judge file.
JUDGES: dict[str, dict[str, Any]] = {
    "vlm": {"name": "vlm", "model": "m"},
    "aer-v": {"name": "aer-v", "model": "m"},
    "vlm, options": {
        "name": "vlm",
        "model": "m",
        "frames": 3,
        "answer": False,
        "thoughts": True,
        "max_tokens": 99,
    },
    "modular": {"name": "modular", "model": "m", "captioner": "given"},
    "modular, options": {**_TEXT, "frames": 2, "answer": False, "thoughts": True, "max_tokens": 99},
    "aer-c": {**_TEXT, "name": "aer-c"},
    "modular, ocr": {"name": "modular", "model": "m", "captioner": "ocr"},
    "steps": {"name": "steps", "model": "m", "captioner": "text"},
    "aer-steps": {
        "name": "aer-steps",
        "model": "m",
        "captioner": "text",
        "towards": 0.3,
        "away": -1.0,
    },
    "webjudge": {"name": "webjudge", "model": "m"},
    "webjudge, text": {"name": "webjudge", "model": "m", "captioner": "text"},
    "rubric": {"name": "rubric", "model": "m"},
    "rubric, options": {
        "name": "rubric",
        "model": "m",
        "captioner": "text",
        "answer": False,
        "top_k": 1,
    },
    "rubric, rubrics": {
        "name": "rubric",
        "model": "m",
        "captioner": "text",
        "rubrics": str(RUBRICS),
    },
    "ask": {"name": "ask", "model": "m", "captioner": "text", "question": "Was it paid?"},
    "ask, several": {
        "name": "ask",
        "model": "m",
        "captioner": "text",
        "questions": [
            {"question": "How many?", "answer": "number"},
            {"question": "Where?", "answer": ["cart", "home"]},
        ],
        "show_answer": False,
    },
    "vote": {"name": "vote", "samples": 3, "temperature": 0.7, "rule": "any", "judges": [_TEXT]},
    "vote of two": {"name": "vote", "judges": [_TEXT, {"name": "self-report"}]},
    "cascade": {
        "name": "cascade",
        "band": [0.2, 0.7],
        "first_may_accept": True,
        "judges": [_PRIOR, _TEXT],
    },
    "ensemble": {
        "name": "ensemble",
        "threshold": 0.4,
        "weights": [1.0, 3.0],
        "judges": [_PRIOR, _TEXT],
    },
    "prior": _PRIOR,
    "oracle": {"name": "oracle", "labels": str(LABELS), "source": "oracle"},
    "self-report": {"name": "self-report"},
    "always-fail": {"name": "always-fail"},
    "always-success": {"name": "always-success"},
    "evidence only": {**_TEXT, "evidence_only": True},
    "calibrated": {**_PRIOR, "calibration": str(CALIBRATION)},
}

_RUNS = str(SAMPLES / "trajectories.jsonl")
_ATTACKS = "claim-answer,claim-stop,inject-page,pad-both,look-alikes-100"

# Each subcommand on the samples. The tests compare the named files, the exit code and standard
# output.
VERBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "score": (
        ("score", _RUNS, "-o", "{out}/v.jsonl", "--judge", "self-report", "--json"),
        ("v.jsonl",),
    ),
    "score a fitted judge": (
        ("score", _RUNS, "-o", "{out}/p.jsonl", "--judge", "prior", "--model", str(STUDENT)),
        ("p.jsonl",),
    ),
    "score, planned": (
        ("score", _RUNS, "-o", "{out}/w.jsonl", "--judge", "vlm", "--model", "gpt-4o", "--dry-run"),
        (),
    ),
    "score, no file": (
        ("score", "{out}/none.jsonl", "-o", "{out}/v.jsonl", "--judge", "always-fail"),
        (),
    ),
    "score, no evaluator": (("score", _RUNS, "-o", "{out}/v.jsonl", "--judge", "nobody"), ()),
    "agree": (("agree", "{out}/v.jsonl", str(LABELS), "--trajectories", _RUNS, "--by", "site"), ()),
    "agree as JSON": (
        ("agree", "{out}/v.jsonl", str(LABELS), "--json", "--disagreements", "{out}/d.jsonl"),
        ("d.jsonl",),
    ),
    "fit": (("fit", _RUNS, str(LABELS), "-o", "{out}/prior.json", "--kind", "prior"), ()),
    "calibrate": (
        (
            "calibrate",
            "{out}/p.jsonl",
            str(LABELS),
            "-o",
            "{out}/c.json",
            "--trajectories",
            _RUNS,
            "--plot",
            "{out}/p.svg",
        ),
        ("c.json", "p.svg"),
    ),
    "redteam": (
        (
            "redteam",
            _RUNS,
            str(LABELS),
            "-o",
            "{out}/red",
            "--judge",
            "self-report",
            "--limit",
            "30",
            "--attacks",
            _ATTACKS,
        ),
        ("red/redteam.json", "red/redteam.md"),
    ),
    "report": (
        (
            "report",
            _RUNS,
            "-o",
            "{out}/r.html",
            "--verdicts",
            "{out}/v.jsonl",
            "--labels",
            str(LABELS),
        ),
        (),
    ),
    "convert": (
        ("convert", "agent-eval-refine", "{out}/theirs", "-o", "{out}/ours"),
        ("ours/trajectories.jsonl", "ours/labels.jsonl"),
    ),
    "devices": (("devices", "nowhere"), ()),
    "annotate": (("annotate", "{out}/none.jsonl", "-o", "{out}/l.jsonl", "--annotator", "ada"), ()),
    "rollout": (
        (
            "rollout",
            "miniwob",
            "--policy",
            "scripted",
            "--tasks",
            "no-such-task",
            "-o",
            "{out}/runs",
        ),
        (),
    ),
}

# Commands that read the output of another command.
NEEDS = {
    "agree": "score",
    "agree as JSON": "score",
    "report": "score",
    "calibrate": "score a fitted judge",
}


def prepare(folder: Path) -> None:
    """Writes a recording in another tool's format."""
    theirs = folder / "theirs"
    (theirs / "evals").mkdir(parents=True)
    (theirs / "meta.json").write_text('{"platform": "web"}')
    log = [
        {
            "uid": "tea",
            "intent": "Find the cheapest tea",
            "response": "$5",
            "steps": [{"other": {"raw_action": "stop [$5]"}}],
        },
        {
            "uid": "cup",
            "intent": "Buy a cup",
            "response": "",
            "steps": [{"other": {"raw_action": "scroll [down]"}}],
        },
    ]
    (theirs / "trajectory_log.json").write_text(json.dumps(log))
    annotation = {
        "task_uid": "tea",
        "task_idx": 0,
        "user_uid": "Ann",
        "annotation": "Success",
        "comment": "",
    }
    (theirs / "evals" / "human.jsonl").write_text(json.dumps(annotation) + "\n")

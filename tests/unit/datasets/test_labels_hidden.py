"""Labels that a recording carries reach no judge, whatever its format: files with words and numbers
planted in every place that speaks of the outcome, and everything that judges send.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prill import judge
from prill.datasets.formats import FORMATS, open_recording
from prill.io.store import encode
from prill.types import LabelRecord, Observation, Trajectory
from tests.support.commands.endpoint import Endpoint
from tests.support.paths import SUPPORT
from tests.unit.datasets.formats import (
    test_agent_eval_refine,
    test_agentlab,
    test_agentrewardbench,
    test_agentrewardbench_webjudge,
    test_androidworld,
    test_langsmith,
    test_online_mind2web,
    test_opentelemetry,
    test_osworld,
    test_stagehand,
    test_webarena,
)
from tests.unit.datasets.formats.test_agentlab import foreign as foreign

WORD, NUMBER = "PLANTED", 0.73193
Recording = Callable[[list[dict[str, Any]], list[dict[str, Any]]], Path]
Build = Callable[[Path, Recording], Path]
BUILDERS: dict[str, Build] = {}


def builder(build: Build) -> Build:
    BUILDERS[build.__name__.replace("_", "-")] = build
    return build


@builder
def agent_eval_refine(folder: Path, recording: Recording) -> Path:
    made = test_agent_eval_refine
    root = made.folder(folder / "a", [made.record("u1", "tap")], platform="web")
    row = made.judged("u1", WORD, "Success", comment=WORD)
    made.judgements(root, WORD, row, {**row, "task_idx": 0, "explanation": WORD})
    return root


@builder
def agentlab(folder: Path, recording: Recording) -> Path:
    rewards = {"cum_reward": NUMBER, "cum_raw_reward": NUMBER, "stats.verdict": WORD}
    return test_agentlab.run(folder / "a", "click('1')", None, **rewards).parent


@builder
def agentrewardbench(folder: Path, recording: Recording) -> Path:
    made, rewards = test_agentrewardbench, {"cum_reward": NUMBER, "cum_raw_reward": NUMBER}
    step = made.step(0, "click('1')", reward=NUMBER, screenshot_path=None)
    made.run(folder / "a", "24", step, made.step(1, None, screenshot_path=None), summary=rewards)
    return folder / "a"


@builder
def agentrewardbench_webjudge(folder: Path, recording: Recording) -> Path:
    made = test_agentrewardbench_webjudge
    row = made.row(
        [made.step("click('1')", caption=f"### Reasoning:\nA shop.\n\n### Score:\n{NUMBER}")],
        key_points=WORD,
    )
    person = {"annotator": WORD, "success": "Successful", "side_effect": "No", "optimality": "1"}
    labels = {"human": [person], "oracle_reward": NUMBER, **made.judged(WORD)}
    return recording([row], [{**labels, "id": row["id"]}])


@builder
def androidworld(folder: Path, recording: Recording) -> Path:
    steps = [{"i": 0, "action": '{"action_type": "wait"}', "ui": []}]
    row = test_androidworld.row(steps=steps, final_ui=[], is_successful=NUMBER)
    return recording([row], [{"id": row["id"], "oracle_reward": NUMBER}])


@builder
def browser_use(folder: Path, recording: Recording) -> Path:
    """By browser-use itself, with its judge's words; a step that says done says nothing of them."""
    record = json.loads((SUPPORT / "datasets/written/browser_use/long.json").read_text())
    for step in record["history"]:
        for result in step["result"]:
            if "judgement" in result or result.get("is_done"):
                result["judgement"] = {
                    "reasoning": WORD,
                    "verdict": True,
                    "failure_reason": WORD,
                    "impossible_task": False,
                    "reached_captcha": False,
                }
    (folder / "a.json").write_text(json.dumps(record))
    return folder / "a.json"


@builder
def inspect(folder: Path, recording: Recording) -> Path:
    """By inspect_ai itself: its target and its scorers' explanations."""
    return SUPPORT / "datasets/written/inspect/old-long.eval"


@builder
def langsmith(folder: Path, recording: Recording) -> Path:
    made = test_langsmith
    root = made.llm(
        {"messages": [["human", "Go"]]},
        {"output": {"type": "ai", "content": "Done."}},
        trace_id="t",
        feedback_stats={WORD: {"n": 4, "avg": NUMBER, "comments": [WORD]}},
        extra={"metadata": {"expected": WORD}},
        reference_example_id=WORD,
    )
    said = {"id": "f", "run_id": "r", "trace_id": "t", "key": WORD, "score": NUMBER}
    return made.written(folder, root, {**said, "comment": WORD})


@builder
def online_mind2web(folder: Path, recording: Recording) -> Path:
    record = test_online_mind2web.result(
        judge={"score": 73193, "reasoning": WORD},
        predicted_label=1,
        human_label=WORD,
        evaluation={"reason": WORD},
    )
    source = test_online_mind2web.folder(folder / "a", "SeeAct", record, shots=1)
    people = [{"task_id": "t1", "SeeAct_human_label": "1", "note": WORD}]
    (source / "human_label.json").write_text(json.dumps(people))
    return source


@builder
def opentelemetry(folder: Path, recording: Recording) -> Path:
    made = test_opentelemetry
    values = {
        "gen_ai.evaluation.name": WORD,
        "gen_ai.evaluation.score.value": NUMBER,
        "gen_ai.evaluation.explanation": WORD,
    }
    call = made.chat("a", 1, [made.said("user", "Go")], made.said("assistant", "Done."))
    event = {"name": "gen_ai.evaluation.result", "attributes": made.attributes(**values)}
    note = {"name": WORD, "annotator_kind": "HUMAN", "result": {"label": "fail", "score": NUMBER}}
    call |= {"events": [event], "annotations": [note]}
    said = {"openinference__span__kind": "EVALUATOR", "output__value": json.dumps({"label": WORD})}
    return made.written(folder / "a.json", call, made.span("j", 2, **said))


@builder
def osworld(folder: Path, recording: Recording) -> Path:
    made = test_osworld
    row = made.row(1, "pyautogui.click(1, 2)", reward=NUMBER, info={WORD: NUMBER})
    return made.run(folder, [row], result=f"{NUMBER}\n")


@builder
def stagehand(folder: Path, recording: Recording) -> Path:
    run = test_stagehand.long(folder / "a")
    task = json.loads((run / "trajectory.json").read_text())
    task["task"]["expectedAnswer"] = WORD
    (run / "trajectory.json").write_text(json.dumps(task))
    score = {
        "outcomeSuccess": False,
        "processScore": NUMBER,
        "perCriterion": [{"criterion": WORD}],
        "evidenceInsufficient": [WORD],
        "explanation": WORD,
    }
    (run / "scores/result.json").write_text(json.dumps(score))
    (run / "task_data.json").write_text(json.dumps({"result": score}))
    return folder


@builder
def webarena(folder: Path, recording: Recording) -> Path:
    page = test_webarena.page("[9] StaticText '$5'", "stop [$5]", raw="```stop [$5]```")
    test_webarena.render(folder, "24", page)
    lines = (f"[Intent]: {WORD}", f"[Result] (PASS) config_files/24.json {WORD} {NUMBER}")
    (folder / "merge_log.txt").write_text("\n".join(lines))
    (folder / "log_files").mkdir()
    (folder / "log_files/a.log").write_text("\n".join(lines))
    return folder


# What a log made by its writer says of the outcome; none of these words is planted here.
THEIRS = {"inspect": ("EXPLANATION", "TARGET", "quarter")}
JUDGES: tuple[dict[str, Any], ...] = (
    {"name": "vlm", "thoughts": True, "frames": 9},
    {"name": "modular", "captioner": "text", "thoughts": True, "frames": 9},
    {"name": "steps", "captioner": "text"},
    {"name": "webjudge"},
    {"name": "webjudge", "captioner": "text"},
    {"name": "rubric", "captioner": "given"},
)


def labelled_formats() -> set[str]:
    """The formats with trajectories and labels."""
    return {
        name
        for name in FORMATS.names()
        if hasattr(importlib.import_module(FORMATS.maker(name).__module__), "load_labels")
    }


def test_every_format_with_labels_is_tried() -> None:
    """A new format shows up here."""
    tried = {name.strip("-") for name in BUILDERS}
    assert labelled_formats() - {"agentoccam"} == tried


@pytest.mark.parametrize("name", BUILDERS)
async def test_labels_reach_no_judge(
    name: str, tmp_path: Path, recording: Recording, foreign: pytest.MonkeyPatch
) -> None:
    source = BUILDERS[name](tmp_path, recording)
    format = name.strip("-")
    items, labels = open_recording(format, source, goal="Buy tea", goals={})
    runs = []
    asked = 0
    with Endpoint(reply) as endpoint:
        model = {
            "name": "m",
            "base_url": endpoint.words[endpoint.words.index("--model.base-url") + 1],
        }
        judges = [judge({**one, "model": model}) for one in JUDGES]
        for run in items:  # pictures of a run are there until the next is asked for
            assert isinstance(run, Trajectory), run
            runs.append(run)
            # where nothing was seen at the end no judge would ask
            seen = run.final and (run.final.text or run.final.screenshot)
            final = run.final if seen else Observation(text="A shop", caption="A shop")
            shown = replace(run, final=final)
            for one in judges:
                await one(shown)
        asked = len(endpoint.bodies)
        sent = json.dumps(endpoint.bodies, ensure_ascii=False)
    assert runs and asked, "nothing was sent: the test shows nothing"
    found = [label for label in labels if isinstance(label, LabelRecord)]
    assert found, "the file carries no label: the test shows nothing"
    planted = THEIRS.get(format, (WORD, str(NUMBER), "73193", "73.193"))
    assert not [word for word in planted if word in sent]
    assert not [word for word in planted if word.encode() in b"".join(map(encode, runs))]


def reply(text: str) -> str:
    """What a judge's next call can be made of: all that its prompts ask for, in one object."""
    return json.dumps(
        {
            "key_points": ["Tea is bought"],
            "criteria": [
                {"text": "Tea is bought", "weight": 1, "criterion": 1, "reason": "so", "step": 0}
                | {"met": "met"}
            ],
            "description": "A shop",
            "score": "5",
            "scores": [5],
            "thoughts": "so",
            "status": "success",
            "response": "goal-reached",
        }
    )

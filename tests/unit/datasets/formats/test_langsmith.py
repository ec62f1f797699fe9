"""Runs that LangSmith 0.15.1 and langchain-core 1.8.3 wrote:
tests/support/datasets/written/make_langsmith.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats.langsmith import load, load_labels
from prill.io.store import encode
from prill.types import LabelRecord
from tests.support.datasets.written.reading import WRITTEN, Row, one, rows

FILES = WRITTEN / "langsmith"
LANGCHAIN: list[Row] = [
    ("goto", "http://shop.test/", None, None),
    ("type", "green tea", None, None),
    ("answer", "I bought green tea.", None, None),
]
OPENAI: list[Row] = [
    *LANGCHAIN[:2],
    ("press", "Enter", None, None),
    ("click", None, None, (0.25, 0.25)),
    ("scroll", "down", None, None),
    LANGCHAIN[2],
]


def written(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "runs.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def llm(inputs: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    return {"id": "r", "run_type": "llm", "name": "m", "inputs": inputs, "outputs": outputs, **more}


@pytest.mark.parametrize("name", ["langchain.jsonl", "langchain.json"])
def test_messages_of_langchain_are_read(name: str, tmp_path: Path) -> None:
    """From the calls of the model, or, of the root alone, from what LangGraph keeps."""
    run = one(load(FILES / name, images=tmp_path))
    assert rows(run) == LANGCHAIN
    assert (run.task.goal, run.answer) == ("Buy green tea", "I bought green tea.")
    assert [step.thought for step in run.steps] == ["Open", "Type", None]
    assert (
        run.steps[1].observation.text == "at http://shop.test/"
        and run.steps[1].observation.screenshot
    )


def test_calls_of_a_wrapped_client_are_read() -> None:
    run = one(load(FILES / "openai-long.jsonl"))
    assert rows(run) == OPENAI
    assert (run.task.goal, run.answer, run.agent) == (
        "Buy green tea",
        "I bought green tea.",
        "shopper (scripted)",
    )
    assert run.steps[0].observation.screenshot and run.metadata["prompt_tokens"] == 50
    assert rows(one(load(FILES / "openai-short.jsonl"))) == [
        ("answer", "There is no tea.", None, None)
    ]


def test_a_run_that_broke_off_says_why() -> None:
    run = one(load(FILES / "openai-broken.jsonl"))
    assert (rows(run), run.answer) == (OPENAI[:3], None)
    assert run.error == "BadRequestError('Error code: 400 - no reply is left')"


def test_nested_runs_are_those_in_lines(tmp_path: Path) -> None:
    first, *others = [
        json.loads(line) for line in (FILES / "openai-long.jsonl").read_text().splitlines()
    ]
    for other in others:
        del other["trace_id"], other["parent_run_id"]
    (tmp_path / "a.json").write_text(json.dumps({**first, "child_runs": others}))
    nested, lines = (
        one(load(tmp_path, images=tmp_path / "i")),
        one(load(FILES / "openai-long.jsonl", images=tmp_path / "i")),
    )
    assert (nested.steps, nested.metadata) == (lines.steps, lines.metadata)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ({"messages": [["human", "Go"]]}, {"output": {"type": "ai", "content": "Done."}}),
        (
            {"messages": [[{"type": "human", "data": {"content": "Go"}}]]},
            {"generations": [[{"text": "Done."}]]},
        ),
        (
            {"messages": [{"role": "user", "content": "Go"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        ),
        (
            {"input": [{"role": "user", "content": "Go"}]},
            {"choices": [{"message": {"role": "assistant", "content": "Done."}}]},
        ),
        (
            {"messages": [{"role": "user", "content": "Go"}]},
            {"message": {"role": "assistant", "content": "Done."}},
        ),
    ],
)
def test_every_form_of_a_message(inputs: Any, outputs: Any, tmp_path: Path) -> None:
    run = one(load(written(tmp_path, llm(inputs, outputs))))
    assert (run.task.goal, run.answer, len(run.steps)) == ("Go", "Done.", 1)


def test_feedback_is_labels_only(tmp_path: Path) -> None:
    root = llm(
        {"messages": [["human", "Go"]]},
        {"output": {"type": "ai", "content": "Done."}},
        trace_id="t",
        feedback_stats={"Helpful": {"n": 4, "avg": 0.75}},
        extra={"metadata": {"EXPECTED": "VERDICT"}},
    )
    child = {**llm({}, {}), "id": "c", "trace_id": "t", "parent_run_id": "r"}
    said = [
        {
            "id": "f",
            "run_id": "r",
            "trace_id": "t",
            "key": "Right",
            "score": 0,
            "comment": "VERDICT",
        },
        {"id": "g", "run_id": "c", "trace_id": "t", "key": "Of a part", "score": 1},
    ]
    path = written(tmp_path, root, child, *said)
    line = encode(one(load(path)))
    for word in (b"VERDICT", b"Helpful", b"EXPECTED", b"Right"):
        assert word not in line
    labels = [label for label in load_labels(path) if isinstance(label, LabelRecord)]
    assert [(label.id, label.source, label.success, label.note) for label in labels] == [
        ("t", "Right", False, "VERDICT"),
        ("t", "Helpful", True, "score 0.75"),
    ]

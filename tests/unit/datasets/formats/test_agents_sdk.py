"""Spans that the OpenAI Agents SDK 0.24.0 wrote, by
tests/support/datasets/written/make_agents_sdk.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill.datasets.formats.agents_sdk import load, recognise
from prill.datasets.reading.sources import Source
from prill.io.store import BadLine
from tests.support.datasets.written.reading import WRITTEN, Row, all_read, one, rows

FILES = WRITTEN / "agents_sdk"
LONG: list[Row] = [
    ("goto", "http://shop.test/", None, None),
    ("type", "green tea", None, None),
    ("press", "Enter", None, None),
    ("answer", "I bought green tea.", None, None),
]


def test_actions_are_read() -> None:
    run = one(load(FILES / "long.jsonl"))
    assert rows(run) == LONG
    assert (run.task.goal, run.answer, run.agent) == (
        "Buy green tea",
        "I bought green tea.",
        "Shopper (scripted)",
    )
    assert [step.thought for step in run.steps] == ["Open", "Type", None, None]
    assert [step.observation.text for step in run.steps] == [
        None,
        "at http://shop.test/",
        "typed green tea",
        "pressed Enter",
    ]
    assert {key: run.metadata[key] for key in ("workflow", "session", "prompt_tokens")} == {
        "workflow": "Shopping",
        "session": "chat-1",
        "prompt_tokens": 30,
    }


def test_a_short_run_is_an_answer() -> None:
    assert rows(one(load(FILES / "short.jsonl"))) == LONG[3:]


def test_a_run_that_broke_off_says_why() -> None:
    run = one(load(FILES / "broken.jsonl"))
    assert (rows(run), run.answer) == (LONG[:3], None)
    assert run.error == "Error in agent run: Error code: 400 - no reply is left"
    assert run.final is not None and run.final.text == "pressed Enter"


def test_responses_leave_their_functions() -> None:
    """Their spans hold neither the goal nor what was said."""
    run = one(load(FILES / "responses.jsonl"))
    assert (rows(run), run.task.goal, run.answer) == (LONG[:3], "", None)


def test_responses_are_read_where_they_are_kept(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (FILES / "responses.jsonl").read_text().splitlines()]
    held = next(
        line["span_data"] for line in lines if line.get("span_data", {}).get("type") == "response"
    )
    held["input"] = "Buy green tea"
    call = {"type": "function_call", "call_id": "c", "name": "click", "arguments": '{"x": 1}'}
    held["response"] = {"output": [call], "model": "scripted-1"}
    (tmp_path / "a.json").write_text(json.dumps(lines))
    run = one(load(tmp_path))
    assert (run.task.goal, run.steps[0].action.kind, run.agent) == (
        "Buy green tea",
        "click",
        "Shopper (scripted-1)",
    )


def test_traces_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_bytes(
        b"".join(path.read_bytes() for path in sorted(FILES.iterdir()))
    )
    (tmp_path / "other.jsonl").write_text('{"object": "trace"}\n')
    assert len(all_read(load(tmp_path))) == 4
    assert all(recognise(Source(path)) for path in FILES.iterdir())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"object": "trace.span", "trace_id": "t", "span_data": {"type": 3}}', "span_data.type"),
        (
            '{"object": "trace.span", "trace_id": "t", "span_data": {"type": "agent"}}',
            "contains no model call",
        ),
        ('{"object": "trace.span", "tra', "truncated"),
    ],
)
def test_a_broken_line_costs_itself(line: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text((FILES / "short.jsonl").read_text() + line + "\n")
    items = list(load(tmp_path))
    (bad,) = (item for item in items if isinstance(item, BadLine))
    assert problem in bad.problem and len(items) == 2

"""Spans that the OpenAI Agents SDK 0.24.0 wrote, by
tests/support/datasets/written/make_agents_sdk.py.
"""

from __future__ import annotations

from prill.datasets.formats.agents_sdk import load
from tests.support.datasets.written.reading import WRITTEN, Row, one, rows

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

"""Traces that two instrumentations of OpenAI's client wrote, by
tests/support/datasets/written/make_otel.py; and evaluations made here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.formats.opentelemetry import load, load_labels
from prill.io.store import encode
from prill.types import LabelRecord
from tests.support.datasets.written.reading import WRITTEN, Row, all_read, one, rows

FILES = WRITTEN / "otel"
LONG: list[Row] = [
    ("goto", "http://shop.test/", None, None),
    ("type", "green tea", None, None),
    ("press", "Enter", None, None),
    ("click", None, None, (0.25, 0.25)),
    ("scroll", "down", None, None),
    ("answer", "I bought green tea.", None, None),
]


def attributes(**held: Any) -> list[dict[str, Any]]:
    def typed(value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return {
                "kvlistValue": {
                    "values": [{"key": key, "value": typed(one)} for key, one in value.items()]
                }
            }
        if isinstance(value, list):
            return {"arrayValue": {"values": [typed(one) for one in value]}}
        return {
            {str: "stringValue", int: "intValue", float: "doubleValue", bool: "boolValue"}[
                type(value)
            ]: value
        }

    return [{"key": key, "value": typed(value)} for key, value in held.items()]


def span(
    id: str, start: int, parent: str | None = None, events: Any = (), **held: Any
) -> dict[str, Any]:
    """With `__` in place of the dots of attributes."""
    named = {key.replace("__", "."): value for key, value in held.items()}
    more = {"parentSpanId": parent} if parent else {}
    times = {"startTimeUnixNano": str(start * 10**9 + 1_700_000_000 * 10**9)}
    return {
        "traceId": "t",
        "spanId": id,
        "name": id,
        **more,
        **times,
        "attributes": attributes(**named),
        "events": list(events),
    }


def written(path: Path, *spans: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}))
    return path


def chat(id: str, start: int, inputs: list[Any], *outputs: Any) -> dict[str, Any]:
    return span(
        id,
        start,
        gen_ai__operation__name="chat",
        gen_ai__input__messages=inputs,
        gen_ai__output__messages=list(outputs),
    )


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def called(id: str, name: str = "click") -> dict[str, Any]:
    return {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": id, "name": name, "arguments": {"index": 1}}],
    }


def answered(id: str, text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": id, "response": text}]}


@pytest.mark.parametrize("name", ["openinference", "genai"])
def test_actions_are_read(name: str) -> None:
    run = one(load(FILES / f"{name}-long.json"))
    # OpenTelemetry's own instrumentation leaves pictures out, and with them the size of the screen.
    assert rows(run) == [(*row[:3], row[3] if name == "openinference" else None) for row in LONG]
    assert (run.task.goal, run.answer, run.agent) == (
        "Buy green tea",
        "I bought green tea.",
        "shopper (scripted-1)",
    )
    assert [step.thought for step in run.steps] == ["Open", "Type", None, "Click", "Scroll", None]
    assert [step.observation.text for step in run.steps][1] == "done: browser_navigate"
    assert run.metadata["prompt_tokens"] == 50 and run.metadata["date"].startswith("20")
    assert len(run.metadata["trace_id"]) == 32


def test_pictures_of_openinference_are_seen(tmp_path: Path) -> None:
    run = one(load(FILES / "openinference-long.json", images=tmp_path))
    assert [bool(step.observation.screenshot) for step in run.steps] == [
        True,
        True,
        False,
        True,
        True,
        True,
    ]


def test_blobs_of_genai_are_seen(tmp_path: Path) -> None:
    document = json.loads((FILES / "both-pictures.json").read_text())
    for scope in document["resourceSpans"][0]["scopeSpans"]:
        for held in scope["spans"]:
            held["attributes"] = [
                pair
                for pair in held["attributes"]
                if not pair["key"].startswith(("llm.", "openinference."))
            ]
    (tmp_path / "a.json").write_text(json.dumps(document))
    genai, both = (
        one(load(path, images=tmp_path / "i"))
        for path in (tmp_path / "a.json", FILES / "both-pictures.json")
    )
    assert genai.steps == both.steps
    assert rows(genai) == [LONG[3], LONG[5]] and genai.steps[0].observation.screenshot


def test_pictures_withheld_are_named() -> None:
    run = one(load(FILES / "hidden-pictures.json"))
    assert all(step.observation.screenshot is None for step in run.steps)
    assert run.steps[0].observation.text == "[picture withheld]"


@pytest.mark.parametrize("name", ["openinference", "genai"])
def test_a_run_that_broke_off_says_why(name: str) -> None:
    run = one(load(FILES / f"{name}-broken.json"))
    assert run.error is not None and "no reply is left" in run.error
    assert rows(run) == LONG[:3] and run.answer is None
    assert run.final is not None and run.final.text == "done: press_key"


def test_spans_as_the_sdk_prints_them() -> None:
    printed, exported = (
        one(load(FILES / "spans.jsonl")),
        one(load(FILES / "openinference-short.json")),
    )
    assert (printed.id, rows(printed), printed.metadata) == (
        exported.id,
        rows(exported),
        exported.metadata,
    )


def test_a_list_with_nested_attributes(tmp_path: Path) -> None:
    llm = {
        "model_name": "m",
        "input_messages": [{"message": {"role": "user", "content": "Go"}}],
        "output_messages": [{"message": {"role": "assistant", "content": "Done."}}],
    }
    held = {
        "context": {"trace_id": "t", "span_id": "s"},
        "span_kind": "LLM",
        "name": "x",
        "start_time": "2026-01-01T00:00:00Z",
        "attributes": {"llm": llm},
    }
    (tmp_path / "a.json").write_text(json.dumps({"data": [held]}))
    run = one(load(tmp_path))
    assert (run.task.goal, run.answer, run.metadata["date"]) == (
        "Go",
        "Done.",
        "2026-01-01T00:00:00Z",
    )


def test_results_that_no_call_shows_come_from_tools(tmp_path: Path) -> None:
    tool = span(
        "b",
        2,
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__call__id="1",
        gen_ai__tool__call__result="bought",
    )
    run = one(
        load(written(tmp_path / "a.json", chat("a", 1, [said("user", "Go")], called("1")), tool))
    )
    assert run.final is not None and run.final.text == "bought"


def test_tools_alone_are_the_actions(tmp_path: Path) -> None:
    """By default no message is recorded."""
    root = span(
        "r",
        0,
        gen_ai__operation__name="invoke_agent",
        gen_ai__input__messages=[said("user", "Buy")],
    )
    spans = [
        span(
            str(i),
            i,
            "r",
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name=name,
            gen_ai__tool__call__arguments={"url": "http://x"},
            gen_ai__tool__call__result="seen",
        )
        for i, name in enumerate(("goto", "open_url"), 1)
    ]
    run = one(load(written(tmp_path / "a.json", root, *spans)))
    assert [step.action.kind for step in run.steps] == ["goto", "goto"] and run.task.goal == "Buy"
    assert run.steps[1].observation.text == "seen"


def test_a_tools_own_model_is_no_part(tmp_path: Path) -> None:
    begin = [said("system", "You act"), said("user", "Go")]
    spans = [
        chat("a", 1, begin, called("1")),
        chat(
            "x",
            2,
            [said("system", "You extract"), said("user", "page text")],
            said("assistant", "Extracted"),
        ),
        chat("b", 3, [*begin, called("1"), answered("1")], said("assistant", "Done.")),
    ]
    run = one(load(written(tmp_path / "a.json", *spans)))
    assert [step.action.kind for step in run.steps] == [
        "click",
        "answer",
    ] and "Extracted" not in repr(run)


def test_a_compacted_context_loses_nothing(tmp_path: Path) -> None:
    system = said("system", "You act")
    spans = [
        chat("a", 1, [system, said("user", "Go")], called("1")),
        chat("b", 2, [system, said("user", "Go"), called("1"), answered("1", "one")], called("2")),
        # A summary in place of what was; the last call is still there.
        chat(
            "c",
            3,
            [system, said("user", "Summary: clicked"), called("2"), answered("2", "two")],
            called("3"),
        ),
        # Nothing is left but the system message.
        chat("d", 4, [system, said("user", "Summary: all")], said("assistant", "Done.")),
    ]
    run = one(load(written(tmp_path / "a.json", *spans)))
    assert [step.action.kind for step in run.steps] == ["click", "click", "click", "answer"]
    assert [step.observation.text for step in run.steps] == [None, "one", "two", "Summary: all"]


def test_a_session_can_be_the_run(tmp_path: Path) -> None:
    first = chat("a", 1, [said("user", "Go")], called("1"))
    second = chat(
        "b", 2, [said("user", "Go"), called("1"), answered("1")], said("assistant", "Done.")
    )
    second["traceId"] = "u"
    for held in (first, second):
        held["attributes"] += attributes(**{"session.id": "s"})
    path = written(tmp_path / "a.json", first, second)
    assert len(all_read(load(path))) == 2
    run = one(load(path, by="session"))
    assert (run.id, len(run.steps), run.answer) == ("s", 2, "Done.")


def test_evaluations_are_labels_only(tmp_path: Path) -> None:
    values = {
        "gen_ai.evaluation.name": "Rightness",
        "gen_ai.evaluation.score.value": 0.25,
        "gen_ai.evaluation.explanation": "VERDICT of an event",
    }
    event = {"name": "gen_ai.evaluation.result", "attributes": attributes(**values)}
    judge = {
        "openinference__span__kind": "EVALUATOR",
        "output__value": '{"label": "correct", "explanation": "VERDICT of a span"}',
    }
    asked = {
        "openinference__span__kind": "LLM",
        "llm__input_messages": [{"message": {"role": "user", "content": "VERDICT please"}}],
        "llm__output_messages": [{"message": {"role": "assistant", "content": "VERDICT"}}],
    }
    call = chat("a", 1, [said("user", "Go")], said("assistant", "Done."))
    call["events"] = [event]
    note = {
        "name": "thumb",
        "annotator_kind": "HUMAN",
        "result": {"label": "fail", "explanation": "VERDICT of a person"},
    }
    call["annotations"] = [note]
    path = written(tmp_path / "a.json", call, span("j", 2, **judge), span("k", 3, "j", **asked))
    run = one(load(path))
    assert b"VERDICT" not in encode(run) and [step.action.kind for step in run.steps] == ["answer"]
    labels = [label for label in load_labels(path) if isinstance(label, LabelRecord)]
    assert [(label.source, label.success, label.note) for label in labels] == [
        ("human", False, "label fail; VERDICT of a person"),
        ("Rightness", False, "score 0.25; VERDICT of an event"),
        ("j", True, "label correct; VERDICT of a span"),
    ]

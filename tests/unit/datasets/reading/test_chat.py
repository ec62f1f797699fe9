"""Chat messages into steps, on conversations made up here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from prill.datasets.reading.chat import ChatMessage, Conversation, conversation
from prill.datasets.reading.images import RecordImages, image_store

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="  # noqa: E501
GOAL = {"role": "user", "content": "Buy tea"}


def read(folder: Path, *messages: dict[str, Any], goal: str | None = None) -> Conversation:
    with image_store(folder) as store:
        return conversation(
            msgspec.convert(messages, list[ChatMessage]), RecordImages(store), goal=goal
        )


def calls(*triples: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in triples
    ]
    return {"role": "assistant", "tool_calls": made, **more}


def result(id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def test_calls_name_elements_just_seen(tmp_path: Path, shop_axtree: str) -> None:
    chat = read(
        tmp_path,
        GOAL,
        calls(("a", "goto", '{"url": "http://shop"}')),
        result("a", shop_axtree),
        calls(("b", "click", '{"bid": "237"}')),
        result("b", "Cart"),
        calls(("c", "click", '{"bid": "237"}')),
    )
    assert [step.action.target for step in chat.steps] == [
        None,
        "[237] button 'Add to Cart'",
        "237",
    ]


def test_calls_are_actions_results_are_seen(tmp_path: Path) -> None:
    chat = read(
        tmp_path,
        {"role": "system", "content": "You are an agent"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Buy tea"},
                {"type": "image_url", "image_url": {"url": PIXEL}},
            ],
        },
        calls(("a", "goto", '{"url": "http://shop"}'), content="I go there"),
        result(
            "a", [{"type": "text", "text": "A shop"}, {"type": "image_url", "image_url": PIXEL}]
        ),
        calls(("b", "click", '{"element": "Buy"}'), reasoning_content="Found it"),
        result("b", "Thank you"),
        {"role": "assistant", "content": "Bought."},
    )
    assert chat.goal == "Buy tea"
    assert [(s.action.kind, s.observation.text, s.thought) for s in chat.steps] == [
        ("goto", None, "I go there"),
        ("click", "A shop", "Found it"),
        ("answer", "Thank you", None),
    ]
    assert [s.observation.screenshot is not None for s in chat.steps] == [True, True, False]
    assert (chat.answer, chat.final) == ("Bought.", None)


def test_ending_in_result_has_final_state(tmp_path: Path) -> None:
    chat = read(tmp_path, GOAL, calls(("a", "click", "{}")), result("a", "Done"))
    assert chat.final is not None
    assert (chat.final.text, chat.answer, len(chat.steps)) == ("Done", None, 1)


def test_results_stand_behind_their_own_call(tmp_path: Path) -> None:
    chat = read(
        tmp_path,
        GOAL,
        calls(("a", "f", "{}"), ("b", "g", "{}"), content="both"),
        result("b", "B"),
        result("a", "A"),
    )
    assert [(s.action.text, s.observation.text, s.thought) for s in chat.steps] == [
        ("f()", None, "both"),
        ("g()", "A", None),
    ]
    assert chat.final is not None
    assert chat.final.text == "B"


def test_speaking_environment_is_observed(tmp_path: Path) -> None:
    chat = read(
        tmp_path,
        GOAL,
        {"role": "assistant", "content": "look"},
        {"role": "user", "content": "A shop"},
        {"role": "assistant", "content": "bought"},
    )
    assert [(s.action.kind, s.action.value, s.observation.text) for s in chat.steps] == [
        ("message", "look", None),
        ("answer", "bought", "A shop"),
    ]
    assert chat.goal == "Buy tea"


def test_only_last_action_ends_the_run(tmp_path: Path) -> None:
    chat = read(
        tmp_path,
        GOAL,
        calls(("a", "done", '{"text": "1"}')),
        result("a", "no"),
        calls(("b", "done", '{"text": "2"}')),
    )
    assert [s.action.kind for s in chat.steps] == ["message", "stop"]
    assert chat.answer == "2"


def test_network_picture_is_not_fetched(tmp_path: Path) -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    chat = read(tmp_path, GOAL, calls(("a", "click", "{}")), result("a", [part]))
    assert chat.final is not None
    assert (chat.final.text, chat.final.screenshot) == (
        "[picture at https://example.com/a.png]",
        None,
    )

from __future__ import annotations

import pytest

from prill.datasets.reading.browsergym import parse_action
from prill.types import Action


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("click('147')", ("click", "147", None)),
        ("click('a12', button='right')", ("click", "a12", None)),
        ("fill('3', 'it\\'s, \"so\" (tea)')", ("type", "3", 'it\'s, "so" (tea)')),
        ("fill(bid='3', value='tea')", ("type", "3", "tea")),
        ("press('33', key_comb='Enter')", ("press", "33", "Enter")),
        ("keyboard_press('Control+F')", ("press", None, "Control+F")),
        ("select_option('9', ['red', 'blue'])", ("select", "9", "red, blue")),
        ("goto('https://a.example/?q=(1)')", ("goto", None, "https://a.example/?q=(1)")),
        ("tab_focus(1)", ("focus_tab", None, "1")),
        ("scroll(0, -400)", ("scroll", None, None)),
        ("go_back()", ("back", None, None)),
        ("noop(1000)", ("wait", None, None)),
        ("send_msg_to_user('42')", ("answer", None, "42")),
        ("report_infeasible('no such item')", ("stop", None, "no such item")),
        ("click('7')  <!-- the 'home' link -->", ("click", "7", None)),
    ],
)
def test_calls_become_action_parts(text: str, expected: tuple[str, str | None, str | None]) -> None:
    kind, target, value = expected
    assert parse_action(text) == Action(kind, text, target=target, value=value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "$19.95",
        "dance('147')",
        "click",
        "click('1'",
        "I will click('1')",
        "x.click('1')",
        "(" * 5000,
    ],
)
def test_unknown_call_is_kept_as_it_is(text: str) -> None:
    assert parse_action(text) == Action("other", text)

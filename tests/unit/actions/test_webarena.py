"""WebArena's action grammar as agents write it (the acceptance test T6 of arXiv 2404.06474's
restatement), and log lines.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prill.actions.webarena import UnreadableActionError, describe, parse_action, read_action
from prill.types import Action

PAGE = (
    "Tab 0 (current): Shop\n\n[1] RootWebArea 'Shop'\n\t[7] link 'Cart'\n\t\t[164] searchbox "
    "'Search' req: True"
)


@pytest.mark.parametrize(
    ("text", "kind", "target", "value"),
    [
        ("click [7]", "click", "[7]", None),
        ("click[7]", "click", "[7]", None),
        ("  click [7]\n", "click", "[7]", None),
        ("hover [3]", "hover", "[3]", None),
        # Enter is pressed unless the text says otherwise
        ("type [5] [tea]", "type", "[5]", "tea\n"),
        ("type [5] [tea] [1]", "type", "[5]", "tea\n"),
        ("type [5][tea][0]", "type", "[5]", "tea"),
        ("type [5] [a [b] c] [0]", "type", "[5]", "a [b] c"),
        ("type [5] [two\nlines] [0]", "type", "[5]", "two\nlines"),
        ("type [5] [2] [0]", "type", "[5]", "2"),
        ("press [Enter]", "press", None, "Enter"),
        ("press [ctrl+a]", "press", None, "Control+a"),
        ("press [Ctrl+Shift+PageDown]", "press", None, "Control+Shift+PageDown"),
        ("press [+]", "press", None, "+"),
        ("scroll [down]", "scroll", None, "down"),
        ("scroll down", "scroll", None, "down"),
        ("scroll [up]", "scroll", None, "up"),
        ("goto [http://x/a?b=[1]]", "goto", None, "http://x/a?b=[1]"),
        ("new_tab", "new_tab", None, None),
        ("close_tab", "close_tab", None, None),
        ("go_back", "back", None, None),
        ("go_forward", "forward", None, None),
        ("tab_focus [2]", "focus_tab", None, "2"),
        ("stop [$5 [sale]]", "stop", None, "$5 [sale]"),
        ("stop [two\nlines]", "stop", None, "two\nlines"),
        ("stop []", "stop", None, ""),
        ("stop", "stop", None, ""),
    ],
)
def test_every_known_verb_is_read(
    text: str, kind: str, target: str | None, value: str | None
) -> None:
    assert read_action(text) == Action(kind, text.strip(), target=target, value=value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("click", "expected click"),
        ("click 7", "expected click"),
        ("click [cart]", "expected click"),
        ("hover []", "expected hover"),
        ("type [tea]", "expected type"),
        ("type [5] [1]", "expected type"),  # nothing says what to type
        ("scroll [left]", "expected scroll"),
        ("scroll", "expected scroll"),
        ("press []", "expected press"),
        ("goto []", "expected goto"),
        ("tab_focus [next]", "expected tab_focus"),
        ("Click [7]", "is not an action; the actions are click"),
        ("I click [7]", "is not an action"),
        ("none", "is not an action"),
        ("", "is not an action"),
    ],
)
def test_unreadable_says_what_was_expected(text: str, words: str) -> None:
    with pytest.raises(UnreadableActionError, match=words):
        read_action(text)


@given(st.text(max_size=40))
def test_any_text_is_action_or_unreadable(text: str) -> None:
    for line in (text, f"type [1] [{text}]", f"stop [{text}", f"press [{text}]"):
        try:
            assert read_action(line).text == line.strip()
        except UnreadableActionError as error:
            assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("click [7]", "click [7] where [7] is link 'Cart'"),
        ("hover [164]", "hover [164] where [164] is searchbox 'Search' req: True"),
        (
            "type [164] [tea\npot]",
            "type [164] [tea pot] where [164] is searchbox 'Search' req: True",
        ),
        ("click [16]", "attempted to click [16], but no element on the page has that number"),
        ("scroll down", "scroll [down]"),
        ("press [ctrl+a]", "press [Control+a]"),
        ("goto [http://x]", "goto [http://x]"),
        ("tab_focus [2]", "page_focus [2]"),
        ("go_back", "go_back"),
        ("stop", "stop []"),
    ],
)
def test_description_has_the_logs_form(action: str, words: str) -> None:
    assert describe(read_action(action), PAGE) == words


@pytest.mark.parametrize(
    "text",
    ["click [7]", "hover [7]", "type [164] [a [b] c]", "scroll [up]", "go_forward", "stop [no]"],
)
def test_action_repeated_from_log_is_same(text: str) -> None:
    action = read_action(text)
    repeated = read_action(describe(action, PAGE))
    assert (repeated.kind, repeated.target, repeated.value) == (
        action.kind,
        action.target,
        action.value,
    )
    logged = parse_action(describe(action, PAGE))
    assert (logged.kind, logged.value) == (
        action.kind,
        action.value.rstrip("\n") if action.value else action.value,
    )

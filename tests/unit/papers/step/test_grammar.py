"""Answers and actions as models write them."""

from __future__ import annotations

import pytest

from prill.actions.webarena import UnreadableActionError
from prill.papers.step.grammar import read_call, read_environment_action, read_reply


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("click [12]", "click [12]"),
        ("CLICK 44", "click [44]"),
        ('TYPE 44 "XJ6KL"', "type [44] [XJ6KL]"),
        ("DONE", "stop"),
        ('FILL_TEXT Confirmation code "XJ6KL"', "fill_text [Confirmation code] [XJ6KL]"),
        ('CHOOSE_DATE Departure date "06/25/2023"', "choose_date [Departure date] [06/25/2023]"),
        ("SELECT_FLIGHT 9:00 BOS", "select_flight [9:00 BOS]"),
        ("stop [list [1] and [2]]", "stop [list [1] and [2]]"),
        ("stop N/A", "stop [N/A]"),
        ("stop []", "stop []"),
        ("find_x [a [b", "find_x [a [b]"),
        ("type [5] [well :] done] [1]", "type [5] [well :] done] [1]"),
        ("click [7] where [7] is link 'a]'", "click [7]"),
        ("stop [42] as in [2]", "stop [42]"),
        ('type [5] ["New York"]', "type [5] [New York]"),
        ('type [5] ["New York"] [0]', 'type [5] ["New York"] [0]'),
        ('type [5] [a "b" c]', 'type [5] [a "b" c]'),
    ],
)
def test_both_surfaces_give_one_action(written: str, printed: str) -> None:
    assert str(read_call(written)) == printed


@pytest.mark.parametrize(
    ("reply", "reason", "action"),
    [
        ("REASON: a\nStill a.\nACTION: click [1]", "a\nStill a.", "click [1]"),
        (
            "REASON: the page says ACTION: stop [x]\nACTION:\n```\nclick [7]\n```",
            "the page says ACTION: stop [x]",
            "click [7]",
        ),
        ("REASON: r\nACTION: `click [7]`\nThen I would stop.", "r", "click [7]"),
        ('REASON: r\nACTION:\n"search_issues [x]"', "r", "search_issues [x]"),
        ("**REASON:** r\n**ACTION:** click [7]", "r", "click [7]"),
        ("ACTION: stop [two\nlines]\nmore", None, "stop [two\nlines]"),
        ("<think>ACTION: click [1]</think>REASON: r\nACTION: click [2]", "r", "click [2]"),
        ("I click it.", None, None),
        ("REASON: r\nACTION:", "r", None),
        # What is typed may hold the words by which an action is found, on a line of its own, too.
        (
            "REASON: r\nACTION: type [5] [see ACTION: click [9]]",
            "r",
            "type [5] [see ACTION: click [9]]",
        ),
        (
            "REASON: r\nACTION: type [5] [see\nACTION: click [9]\n]",
            "r",
            "type [5] [see\nACTION: click [9]\n]",
        ),
        (
            "REASON: r\nACTION: click [3] where it says ACTION: click [9]",
            "r",
            "click [3] where it says ACTION: click [9]",
        ),
        ("REASON: r. ACTION: click [3]", "r.", "click [3]"),
        ("The form is:\nACTION: the action\n\nREASON: r\nACTION: click [2]", "r", "click [2]"),
    ],
)
def test_an_action_is_found(reply: str, reason: str | None, action: str | None) -> None:
    assert read_reply(reply) == (reason, action)


@pytest.mark.parametrize(
    "written", ["[7]", "", "click", "click [it]", "type [3]", "scroll [sideways]"]
)
def test_what_is_no_action_says_why(written: str) -> None:
    with pytest.raises(UnreadableActionError):
        read_environment_action(read_call(written), enter=True)

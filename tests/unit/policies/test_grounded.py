"""CogAgent's grounded operations read into actions: every rule of the paper's two translations, and
the newer calls.
"""

from __future__ import annotations

import random

import pytest

from prill.actions.phone import parse_android, parse_ios
from prill.policies.cogagent import read_cogagent_9b, read_cogagent_18b
from prill.types import Action, Point


def reply(operation: str) -> str:
    return f"Plan: 1. Open it.\n\nNext Action: Tap the icon.\n\nGrounded Operation: {operation}"


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("swipe up", Action("swipe", "swipe up", value="up")),
        ("Swipe right on the screen", Action("swipe", "swipe right", value="right")),
        ("swipe left", Action("swipe", "swipe left", value="left")),
        ("swipe down at [[500,500]]", Action("swipe", "swipe down", value="down")),
        ("press home", Action("home", "press home")),
        ("Press Back", Action("home", "press home")),
        ("Task Complete.", Action("stop", "task complete")),
        ("tap on the 'Clock' icon [[500,500]]", Action("click", "tap 195 422", point=(0.5, 0.5))),
        ("tap [[087,123]]", Action("click", "tap 33.93 103.812", point=(0.087, 0.123))),
        (
            'type "New York" into the search bar',
            Action("type", 'type "New York"', value="New York"),
        ),
        ('type "Berlin" in the "City" field', Action("type", 'type "Berlin"', value="Berlin")),
        # The tests are made in the paper's order: a swipe goes before a tap, a tap before typing.
        ("tap [[100,100]] then swipe left", Action("swipe", "swipe left", value="left")),
        # Everything else, and what fails, ends the episode.
        ("tap on the icon", Action("stop", "task complete")),
        ("tap [[1500,500]]", Action("stop", "task complete")),
        ("type hello", Action("stop", "task complete")),
        ('type "tap water"', Action("stop", "task complete")),
        ("#!?", Action("stop", "task complete")),
        ("", Action("stop", "task complete")),
    ],
)
def test_ios_operations_as_in_the_paper(operation: str, action: Action) -> None:
    assert read_cogagent_18b(reply(operation), "ios") == action


def test_swipe_up_draws_by_seed() -> None:
    def ways(seed: int) -> list[str | None]:
        draw = random.Random(seed)
        return [
            read_cogagent_18b(reply("swipe up"), "ios", swipe_up="left-or-right", draw=draw).value
            for _ in range(40)
        ]

    assert ways(1) == ways(1) != ways(2)
    assert set(ways(1)) == {"left", "right"}
    assert 8 < ways(1).count("left") < 32
    assert read_cogagent_18b(reply("swipe up"), "ios", swipe_up="right").value == "right"
    assert read_cogagent_18b(reply("swipe down"), "ios", swipe_up="right").value == "down"
    assert read_cogagent_18b(reply("swipe up"), "android", swipe_up="right").end_point == (0.5, 0.2)


@pytest.mark.parametrize(
    ("operation", "kind", "points", "value"),
    [
        ("tap the icon [[500,200]]", "click", ((0.5, 0.2), None), None),
        ("tap the field [[100,200,300,400]]", "click", ((0.2, 0.3), None), None),
        ('type "hello, world"', "type", (None, None), "hello, world"),
        ("type hello", "type", (None, None), "hello"),
        ("press home", "home", (None, None), None),
        ("press back", "back", (None, None), None),
        ("Press Enter.", "press", (None, None), "Enter"),
        ("task complete", "stop", (None, None), None),
        ("task impossible", "stop", (None, None), None),
        ("swipe up", "swipe", ((0.5, 0.5), (0.5, 0.2)), None),
        ("swipe down", "swipe", ((0.5, 0.2), (0.5, 0.5)), None),
        ("swipe left", "swipe", ((0.8, 0.5), (0.2, 0.5)), None),
        ("swipe right", "swipe", ((0.2, 0.5), (0.8, 0.5)), None),
        ("tap the icon", "wait", (None, None), None),
        ("please tap [[1,1]]", "wait", (None, None), None),  # the first word decides
        ("rotate", "wait", (None, None), None),
        ("", "wait", (None, None), None),
    ],
)
def test_android_operations_as_in_the_paper(
    operation: str, kind: str, points: tuple[Point | None, Point | None], value: str | None
) -> None:
    action = read_cogagent_18b(reply(operation), "android")
    assert (action.kind, (action.point, action.end_point), action.value) == (kind, points, value)
    again = parse_android(action.text)
    assert (again.kind, again.value) == (action.kind, action.value), (
        "its text is the log form that is read elsewhere"
    )


@pytest.mark.parametrize(
    "operation", ["swipe left", "press home", "task complete", "tap [[500,500]]", 'type "a b"']
)
def test_ios_actions_read_back_from_logs(operation: str) -> None:
    action = read_cogagent_18b(reply(operation), "ios")
    assert parse_ios(action.text) == action


CLICK = (
    "CLICK(box=[[219,186,311,206]], element_type='Clickable text', element_info='Mark all "
    "emails as read')"
)


@pytest.mark.parametrize(
    ("operation", "kind", "point", "value"),
    [
        (CLICK, "click", (0.265, 0.196), None),
        ("HOVER(box=[[100,100,200,200]], element_info='Menu')", "hover", (0.15, 0.15), None),
        (
            "TYPE(box=[[0,0,100,100]], text='New York', element_info='City')",
            "type",
            (0.05, 0.05),
            "New York",
        ),
        (
            "TYPE(text='it's (said) \"so\", isn\\'t it')",
            "type",
            None,
            "it's (said) \"so\", isn't it",
        ),
        ('TYPE(box=[[0,0,2,2]], text="a\\nb", element_info="")', "type", (0.001, 0.001), "a\nb"),
        (
            "SCROLL_DOWN(box=[[0,0,1000,1000]], element_info='', step_count=5)",
            "scroll",
            (0.5, 0.5),
            "down",
        ),
        ("SCROLL_UP(box=[[0,0,1000,1000]], step_count=1)", "scroll", (0.5, 0.5), "up"),
        ("SCROLL_RIGHT(box=[[0,0,1000,1000]], step_count=1)", "swipe", None, "left"),
        ("KEY_PRESS(key='Enter')", "press", None, "Enter"),
        ("KEY_PRESS(key='Back')", "back", None, None),
        ("KEY_PRESS(key='Home')", "home", None, None),
        ("GESTURE(key='Ctrl-F')", "press", None, "Control+F"),
        ("LAUNCH(url='https://shop.example/a')", "goto", None, "https://shop.example/a"),
        ("LAUNCH(url='shop.example')", "goto", None, "https://shop.example"),
        ("LAUNCH(app='Clock')", "other", None, None),
        ("END()", "stop", None, None),
        ("DOUBLE_CLICK(box=[[0,0,10,10]])", "other", None, None),
        ("QUOTE_TEXT(box=[[0,0,10,10]], output='x')", "other", None, None),
        ("CLICK(element_info='no box')", "other", None, None),
        ("CLICK(box=[[0,0,5000,10]])", "other", None, None),
        ("TYPE(box=[[0,0,10,10]])", "other", None, None),
        ("click the icon", "other", None, None),
    ],
)
def test_calls_of_the_9b_are_read(
    operation: str, kind: str, point: Point | None, value: str | None
) -> None:
    said = (
        f"Action: Do it (now).\nGrounded Operation: {operation}\n<<General operation (harmless)>>"
    )
    action = read_cogagent_9b(said)
    assert (action.kind, action.point, action.value) == (kind, point, value)
    if kind != "other":
        assert action.text == operation, "the text is the operation as the model wrote it"

"""The compact screen: leaves only, ids hidden as whole numbers, and the nine parts of the
screen.
"""

from __future__ import annotations

import pytest

from prill.papers.structured_reflection.screen import cell, read_screen
from tests.support.papers.pages import page


def box(x: float, y: float) -> str:
    return f'data-wob_box="{x} {y} 2 2"'


def test_only_leaves_have_a_line() -> None:
    html = (
        f'<div id="area" data-wob_ref="1"><p data-wob_ref="2" {box(0, 0)}>Hi &amp; '
        '<b class="NO_CLASS" id="who" data-wob_ref="3">you</b></p>'
        f'<button class="go  on" data-wob_ref="4" {box(79, 104)}>Go</button></div>'
    )
    assert read_screen(html).text().splitlines() == [
        '<t id=2 pos="top left">Hi &</t>',
        '<b id=3 class="who">you</b>',
        '<button id=4 class="go on" pos="center">Go</button>',
    ]


def test_fields_show_what_they_hold() -> None:
    html = (
        '<input type="text" id="name" placeholder="Your name" value="Ann" data-wob_ref="1">'
        '<label data-wob_ref="2"><input type="checkbox" value="on" checked '
        'data-wob_ref="3">Tick</label>'
        '<input type="radio" value="on" data-wob_ref="4"><select data-wob_ref="5"><option '
        'value="a" selected data-wob_ref="6">a'
        '</option><option value="b" data-wob_ref="7">b</option></select>'
    )
    assert read_screen(f"<div data-wob_ref='8'>{html}</div>").text().splitlines() == [
        '<input id=1 class="name" placeholder="Your name" value="Ann"></input>',
        '<input id=3 type="checkbox" value="checked"></input>',
        "<t id=2>Tick</t>",
        '<input id=4 type="radio"></input>',
        '<option id=6 value="selected">a</option>',
        "<option id=7>b</option>",
    ]


@pytest.mark.parametrize(
    ("x", "y", "place"),
    [
        (0, 0, "top left"),
        (80, 10, "top"),
        (159, 0, "top right"),
        (10, 105, "left"),
        (80, 105, "center"),
        (150, 105, "right"),
        (0, 209, "bottom left"),
        (80, 200, "bottom"),
        (160, 210, "bottom right"),
        (160 / 3 - 0.01, 70 - 0.01, "top left"),
        (160 / 3 + 0.01, 70, "center"),
        (-50, 900, "bottom left"),
    ],
)
def test_screen_has_nine_parts(x: float, y: float, place: str) -> None:
    assert cell(x, y) == place


def test_hiding_one_id_spares_longer_ones() -> None:
    html = "".join(f'<i data-wob_ref="{ref}">x</i>' for ref in (1, 10, 21))
    shown = read_screen(f"<div data-wob_ref='5'>{html}</div>").text(hidden={"1"})
    assert shown == "<i>x</i>\n<i id=10>x</i>\n<i id=21>x</i>"


def test_keys_find_elements_under_other_numbers() -> None:
    lines = (
        "<b class='like'></b>",
        "<b class='like'></b>",
        "<input type='text' value='x'>",
        "<i>it</i>",
    )
    one, other = (read_screen(page(*lines).replace('ref="', f'ref="{first}')) for first in (1, 2))
    keys = [one.key(leaf.ref or "") for leaf in one.leaves]
    assert [other.number(key) for key in keys] == ["21", "22", "23", "24"]
    assert other.number(one.key("1100")) == "1100", "what has no line is known by its number"
    assert read_screen(page("<b class='like'></b>")).numbers(keys) == {"1"}

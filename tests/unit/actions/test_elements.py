"""Elements named by a bare id, on pages in the forms that agents are shown."""

from __future__ import annotations

import time

import pytest

from prill.actions.elements import element_id, find_element
from prill.emulators.widgets import Widget, describe

WEBARENA = """Tab 0 (current): One Stop Market

[1] RootWebArea 'One Stop Market' focused: True
\t[17] link 'My Cart 2'
\t[170] link 'Sign Out'
\t[5] textbox '\\ue615 Search "all"' required: False
\t[8] combobox 'Sort By' hasPopup: menu expanded: False
\t[9] link ''
\t\t[10] img "Tea for two's"
\t[11] textbox ''
\t[12] StaticText 'see [23] and [24]'"""
BROWSERGYM = """RootWebArea 'Dashboard', focused, url='http://x'
\t[a12] textbox 'What are you looking for?', clickable, visible, value='tea'
\t[237] button 'Save', clickable, visible
\t[44] combobox 'Color', clickable, visible, hasPopup='menu', expanded=False
\t\t[45] option 'Blue', selected=False
\t[b3] gridcell '', visible
\t\tStaticText 'Order'
\t\t[b4] link '', clickable
\t\t\tStaticText '#1042'
\t[b5] button '', clickable, visible
\t[99] link 'Edit', clickable
\t[99] link 'Edit', clickable
\t[98] link 'Edit', clickable
\t[98] link 'Delete', clickable"""
PHONE = describe(
    [
        Widget("scrollable", "", (0, 0, 1, 1), states=(("id", "recycler"),)),
        Widget("button", "", (0, 0, 1, 0.1), 1, (("id", "fab"),)),
        Widget("switch", "Wi-Fi", (0, 0.1, 1, 0.2), 1, (("checked", "true"),)),
    ]
)


@pytest.mark.parametrize(
    ("text", "page", "element"),
    [
        ("click [17]", WEBARENA, "link 'My Cart 2'"),
        ("click [170]", WEBARENA, "link 'Sign Out'"),
        ("type [5] [red shoes] [1]", WEBARENA, "textbox '\\ue615 Search \"all\"'"),
        ("hover [8] where [8] is combobox", WEBARENA, "combobox 'Sort By'"),
        ("click [9]", WEBARENA, 'link "Tea for two\'s"'),
        ("click [11]", WEBARENA, "textbox"),
        ("click('237')", BROWSERGYM, "button 'Save'"),
        ("fill('a12', 'red shoes')", BROWSERGYM, "textbox 'What are you looking for?'"),
        ('hover("b3")', BROWSERGYM, "gridcell 'Order #1042'"),
        ("select_option('44', 'Blue')", BROWSERGYM, "combobox 'Color'"),
        ("press(bid='a12', key_comb='Enter')", BROWSERGYM, "textbox 'What are you looking for?'"),
        ("drag_and_drop(from_bid='b4', to_bid='237')", BROWSERGYM, "link '#1042'"),
        ("click('99')", BROWSERGYM, "link 'Edit'"),
        ("tap [3]", PHONE, "switch 'Wi-Fi'"),
        ("tap [2]", PHONE, "button 'fab'"),
        ("click [7]", "[7] [A] [Cart]\n[8] [IMG]", "[A] [Cart]"),
    ],
)
def test_element_named_by_its_page(text: str, page: str, element: str) -> None:
    assert find_element(text, page) == element


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("click [7]", WEBARENA),  # 17 and 170 are others
        ("click [23]", WEBARENA),  # stands in a name only
        ("click('12')", BROWSERGYM),
        ("click('98')", BROWSERGYM),  # there twice, and not the same
        ("stop [17]", WEBARENA),
        ("press [5]", WEBARENA),
        ("tab_focus [1]", WEBARENA),
        ("scroll [down]", WEBARENA),
        ("send_msg_to_user('237')", BROWSERGYM),
        ("scroll(0, 44)", BROWSERGYM),
        ("click(44, 45)", BROWSERGYM),
        ("press('44')", BROWSERGYM),
        ("click link 'My Cart 2'", WEBARENA),
        ("", WEBARENA),
        ("click [17]", ""),
    ],
)
def test_element_not_guessed(text: str, page: str) -> None:
    assert find_element(text, page) is None


def test_element_name_is_cut_when_long() -> None:
    assert find_element("click [1]", f"[1] link '{'a' * 500}'") == f"link '{'a' * 120}…'"
    page = "[1] link ''\n" + "\tStaticText 'abc'\n" * 1000
    assert find_element("click [1]", page) == f"link '{' '.join(['abc'] * 50)[:120]}…'"


@pytest.mark.parametrize(
    "page",
    [
        "\n" * 1_000_000 + "[1]",
        " " * 1_000_000 + "[1]",
        "[1]" * 300_000,
        "[1] link ''\n\t" * 100_000,
        "[1] link '" + "\\" * 1_000_000,
        "[1] " + "a" * 1_000_000,
    ],
)
def test_element_in_linear_time(page: str) -> None:
    began = time.process_time()
    find_element("click [1]", page)
    element_id("click" + " " * 1_000_000)
    element_id("a" * 1_000_000)
    assert time.process_time() - began < 5

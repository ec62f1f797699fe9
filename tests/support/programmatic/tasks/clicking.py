"""Programs for goals that name elements to click, all visible from the start."""

from __future__ import annotations

import re

from tests.support.programmatic.screen import Move, Page, click, detect_kind


def _named(match: re.Match[str], page: Page) -> list[Move]:
    return page.left([click(page.one(match["name"]))])


def _two_buttons(match: re.Match[str], page: Page) -> list[Move]:
    return page.left([click(page.one(match["first"])), click(page.one(match["second"]))])


def _only_button(match: re.Match[str], page: Page) -> list[Move]:
    return page.left([click(button) for button in page.of_kind("button")[:1]])


def _in_dialog(match: re.Match[str], page: Page) -> list[Move]:
    """Closes or answers a dialog. Its close icon has the text "Close" or none, and comes before its
    other buttons.
    """
    if match["name"] != "x":
        return _named(match, page)
    crosses = [
        node for node in page.nodes if detect_kind(node) == "button" or node.text.strip() == "Close"
    ]
    if not crosses:
        raise LookupError("no dialog is open")
    return page.left([click(crosses[0])])


def _field(match: re.Match[str], page: Page) -> list[Move]:
    return page.left([click(page.field(int(match["place"] or 1)))])


def _widget(match: re.Match[str], page: Page) -> list[Move]:
    found = [node for node in page.nodes if detect_kind(node) == match["name"]]
    if not found:
        raise LookupError(f"nothing here is a {match['name']}")
    return page.left([click(found[0])])


PROGRAMS = {
    r'^Close the dialog box by clicking the "(?P<name>x)"': _in_dialog,
    r'^Click the button in the dialog box labeled "(?P<name>.+?)"': _in_dialog,
    r'^Click on a "(?P<name>\w+)" widget': _widget,
    r'^Click on the (?:link )?"(?P<name>.+?)"(?: button| link)?\.?$': _named,
    r"^Click on the grid coordinate (?P<name>\(.+?\))": _named,
    r"^Click on (?P<name>Tab #\d+)": _named,
    r"^Click button (?P<first>\w+), then click button (?P<second>\w+)": _two_buttons,
    r"^Click button (?P<name>\w+)": _named,
    r"^Click the button\.$": _only_button,
    r"^Focus into the (?:(?P<place>\d+)\w\w input )?textbox": _field,
}

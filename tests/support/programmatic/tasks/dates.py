"""Programs for dates and times, in fields and in calendars, and for booking a flight."""

from __future__ import annotations

import calendar
import re
from datetime import date

from tests.support.programmatic.screen import Move, Node, Page, click, enter

_MONTHS = list(calendar.month_name)


def calendar_moves(page: Page, wanted: date) -> list[Move]:
    """Returns the moves in an open calendar: a month towards the date or, in its month, the day.
    Empty if no calendar is open.
    """
    shown = _month_shown(page)
    if shown is None:
        return []
    if shown == (wanted.year, wanted.month):
        return [click(_day(page, wanted))]
    return [click(page.one("Prev" if shown > (wanted.year, wanted.month) else "Next"))]


def _month_shown(page: Page) -> tuple[int, int] | None:
    months = [
        _MONTHS.index(node.text.strip()) for node in page.nodes if node.text.strip() in _MONTHS[1:]
    ]
    years = [int(node.text) for node, _ in page.matching(r"20\d\d")]
    return (years[0], months[0]) if months and years else None


def _day(page: Page, wanted: date) -> Node:
    """Returns the element of a day, which shows its number or, if the agent completes it, the whole
    date.
    """
    for node, found in page.matching(r"(?:(\d+)/)?(\d+)(?:/(\d{4}))?"):
        if int(found[2]) == wanted.day and node.tag.lower() == "a":
            return node
    raise LookupError(f"the calendar has no day {wanted.day}")


def _date(match: re.Match[str]) -> date:
    month, day, year = map(int, match["date"].split("/"))
    return date(year, month, day)


def _pick_date(match: re.Match[str], page: Page) -> list[Move]:
    wanted = _date(match)
    if _month_shown(page):
        moves = calendar_moves(page, wanted)
        return (
            [*moves, click(page.end())]
            if _month_shown(page) == (wanted.year, wanted.month)
            else moves
        )
    # A calendar that has closed has taken a day.
    return page.left([click(page.field()) if len(page.done) < 2 else click(page.end())])


def _typed_date(match: re.Match[str], page: Page) -> list[Move]:
    """Types a date in ISO 8601, the format of date fields."""
    return page.left([enter(page.field(), _date(match).isoformat()), click(page.end())])


def _typed_time(match: re.Match[str], page: Page) -> list[Move]:
    hour = int(match["hour"]) % 12 + (12 if match["half"] == "PM" else 0)
    return page.left([enter(page.field(), f"{hour:02}:{match['minute']}"), click(page.end())])


def _flight(match: re.Match[str], page: Page) -> list[Move]:
    if offers := page.matching(r"Book flight for \$(\d+)"):
        durations = page.matching(r"(\d+)h (\d+)m")
        if match["which"] == "cheapest":
            costs = [int(found[1]) for _, found in offers]
        else:
            costs = [60 * int(found[1]) + int(found[2]) for _, found in durations]
        best = min(range(len(offers)), key=costs.__getitem__)
        return page.left([click(offers[best][0])])
    wanted = _date(match)
    if _month_shown(page):
        return calendar_moves(page, wanted)
    origin, destination, day = page.field(1), page.field(2), page.field(3)
    for field, place in ((origin, match["origin"]), (destination, match["destination"])):
        if (move := enter(field, place)) not in page.done:
            return [move]
        if page.done[-1] == move:
            return [click(_airport(page, place))]
    if not page.clicked(day):
        return [click(day)]
    return page.left([click(page.one("Search"))])


def _airport(page: Page, place: str) -> Node:
    """Returns the entry of the open list for this city or code."""
    for node in page.nodes:
        name, _, code = node.text.strip().partition(" (")
        if code and place in (name, code.rstrip(")")):
            return node
    raise LookupError(f"no airport of {place!r} is offered")


PROGRAMS = {
    r"^Select (?P<date>\d+/\d+/\d+) as the date": _pick_date,
    r"^Enter (?P<date>\d+/\d+/\d+) as the date": _typed_date,
    r"^Enter (?P<hour>\d+):(?P<minute>\d\d) (?P<half>AM|PM) as the time": _typed_time,
    r"^Book the (?P<which>\w+) one-way flight from: (?P<origin>.+?) to: (?P<destination>.+?) on (?P<date>\d+/\d+/\d+)": _flight,  # noqa: E501
}

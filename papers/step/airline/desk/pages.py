"""The desk's pages: what a request is answered with, and what it changes in the state of its
scenario.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from html import escape
from importlib import resources
from urllib.parse import quote, urlencode

from prill.papers.step.airline.desk.progress import DeskState, Draft
from prill.papers.step.airline.desk.world import (
    CITIES,
    GENDERS,
    TITLES,
    Flight,
    FlightBooking,
    Passenger,
    Payment,
    changed,
    flights,
)

_DATE = re.compile(r"(\d\d)/(\d\d)/(\d{4})")


@dataclass(frozen=True, slots=True)
class DeskRequest:
    """One request; `form` are the fields that were sent, `code` is the confirmation code in the
    address.
    """

    state: DeskState
    form: Mapping[str, str]
    code: str = ""


@dataclass(frozen=True, slots=True)
class DeskPage:
    """One answer; with `location` it leads to another address."""

    body: str = ""
    status: int = 200
    location: str = ""


class DeskError(Exception):
    """What was sent cannot be taken; the message says why, and stands above the form."""


def home(request: DeskRequest) -> DeskPage:
    """The first page."""
    return _page("AirlineCRM", "<p>Choose what the caller wants from the menu above.</p>")


def help_page(request: DeskRequest) -> DeskPage:
    """What the desk can do."""
    return _page(
        "Help",
        "<p>A booking is opened by its confirmation code. Tickets are changed and cancelled "
        "there.</p>",
    )


def find_form(request: DeskRequest, wrong: str = "") -> DeskPage:
    """The form that opens a booking; with a code in it, the booking."""
    code = request.form.get("code", "").strip().upper()
    if code in request.state.bookings:
        return DeskPage(location=f"/bookings/{code}")
    request.state.seen.add(("find", ""))
    if code:
        wrong = f"There is no booking {code}."
    return _page(
        "Find booking",
        _form("/find", _field("Confirmation code", "code", code), "Search", "get"),
        wrong,
    )


def booking(request: DeskRequest, dialog: bool = False, wrong: str = "") -> DeskPage:
    """One booking, and what can be done with it."""
    held = _booking(request)
    request.state.seen.add(("booking", held.code))
    said = {
        "saved": "The changes are saved.",
        "cancelled": "The booking is cancelled.",
        "booked": "The flight is booked.",
    }
    message = said.get(request.form.get("said", ""), "")
    facts = [
        ("Status", "Cancelled" if held.cancelled else "Confirmed"),
        ("Outbound", f"{held.outward.day} {held.outward.row}"),
        ("Return", f"{held.back.day} {held.back.row}"),
        (
            "Passenger",
            f"{held.passenger.title} {held.passenger.firstname} {held.passenger.lastname}",
        ),
        ("Gender", held.passenger.gender),
        ("Date of birth", held.passenger.dob),
        ("Email", held.passenger.email),
    ]
    rows = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    acts = "" if held.cancelled else "".join(
        f'<form action="/bookings/{held.code}/{path}"><button>{name} booking</button></form>'
        for path, name in (("modify", "Modify"), ("cancel", "Cancel"))
    )  # fmt: skip
    body = f'<table aria-label="Booking">{rows}</table><div class="row">{acts}</div>'
    return _page(
        f"Booking {held.code}", body + (_dialog(held, wrong) if dialog else ""), said=message
    )


def cancel_dialog(request: DeskRequest, wrong: str = "") -> DeskPage:
    """The booking with the question whether it shall really be cancelled."""
    held = _booking(request)
    if held.cancelled:
        return DeskPage(location=f"/bookings/{held.code}")
    request.state.seen.add(("cancel", held.code))
    return booking(request, dialog=True, wrong=wrong)


def cancel(request: DeskRequest) -> DeskPage:
    """Cancels the booking when its code was entered again."""
    held = _booking(request)
    if request.form.get("code", "").strip().upper() != held.code:
        return cancel_dialog(request, "This is not the confirmation code of this booking.")
    request.state.bookings[held.code] = replace(held, cancelled=True)
    return DeskPage(location=f"/bookings/{held.code}?said=cancelled")


def modify_form(request: DeskRequest, wrong: str = "") -> DeskPage:
    """The passenger's details of a booking, to be changed."""
    held = _booking(request)
    if held.cancelled:
        return DeskPage(location=f"/bookings/{held.code}")
    request.state.seen.add(("passenger", held.code))
    shown = {name: getattr(held.passenger, name) for name in Passenger.__slots__} | dict(
        request.form
    )
    return _page(
        f"Modify booking {held.code}",
        _form(f"/bookings/{held.code}/modify", _passenger(shown), "Save changes"),
        wrong,
    )


def modify(request: DeskRequest) -> DeskPage:
    """Takes the passenger's details."""
    held = _booking(request)
    if held.cancelled:
        return DeskPage(location=f"/bookings/{held.code}")
    try:
        passenger = changed(held.passenger, _read_passenger(request.form))
    except DeskError as problem:
        return modify_form(request, str(problem))
    request.state.bookings[held.code] = replace(held, passenger=passenger)
    return DeskPage(location=f"/bookings/{held.code}?said=saved")


def flight_form(request: DeskRequest, wrong: str = "") -> DeskPage:
    """The form for a trip."""
    day = "MM/DD/YYYY"
    fields = (
        _field("From", "from", request.form.get("from", ""))
        + _field("To", "to", request.form.get("to", ""))
        + _field("Departure date", "departure", request.form.get("departure", ""), hint=day)
        + _field("Return date", "return", request.form.get("return", ""), hint=day)
    )
    return _page("Find flights", _form("/flights/results", fields, "Search flights", "get"), wrong)


def results(request: DeskRequest) -> DeskPage:
    """The flights of both days, to choose one of each."""
    try:
        trip = (
            _city(request, "from"),
            _city(request, "to"),
            _day(request, "departure"),
            _day(request, "return"),
        )
        if trip[0] == trip[1]:
            raise DeskError("From and To are the same city.")
        if _sorts(trip[2]) > _sorts(trip[3]):
            raise DeskError("The return date is before the departure date.")
    except DeskError as problem:
        return flight_form(request, str(problem))
    if request.state.draft.trip != trip:
        request.state.draft = Draft(trip)
    return DeskPage(location="/flights/choice")


def choice(request: DeskRequest, wrong: str = "") -> DeskPage:
    """Both lists, with what was chosen."""
    if (trip := request.state.draft.trip) is None:
        return DeskPage(location="/flights")
    out, back = _listed(request.state)
    draft = request.state.draft
    body = (
        _flights("outward", f"Outbound: {trip[0]} to {trip[1]}, {trip[2]}", out, draft.outward)
        + _flights("back", f"Return: {trip[1]} to {trip[0]}, {trip[3]}", back, draft.back)
        + _form("/checkout", "", "Checkout")
    )
    return _page("Choose flights", body, wrong)


def choose(request: DeskRequest) -> DeskPage:
    """Takes one flight."""
    if request.state.draft.trip is None:
        return DeskPage(location="/flights")
    draft = request.state.draft
    for name, listed in zip(("outward", "back"), _listed(request.state), strict=True):
        for flight in listed:
            if flight.departure == request.form.get(name):
                setattr(draft, name, flight)
    return DeskPage(location="/flights/choice")


def begin_checkout(request: DeskRequest) -> DeskPage:
    """Goes on to the passenger when both flights are chosen."""
    draft = request.state.draft
    if draft.outward is None or draft.back is None:
        return choice(request, "Choose an outbound flight and a return flight first.")
    draft.begun = True
    return DeskPage(location="/checkout/passenger")


def passenger_form(request: DeskRequest, wrong: str = "") -> DeskPage:
    """Who flies."""
    if not request.state.draft.begun:
        return DeskPage(location="/flights")
    held = request.state.draft.passenger
    shown = {name: getattr(held, name, "") for name in Passenger.__slots__} | dict(request.form)
    return _page(
        "Passenger details", _form("/checkout/passenger", _passenger(shown), "Save changes"), wrong
    )


def take_passenger(request: DeskRequest) -> DeskPage:
    """Takes the passenger, and asks for the card."""
    if not request.state.draft.begun:
        return DeskPage(location="/flights")
    try:
        fields = _read_passenger(request.form)
    except DeskError as problem:
        return passenger_form(request, str(problem))
    request.state.draft.passenger = Passenger(**fields)
    return DeskPage(location="/checkout/payment")


_CARD = {
    "card_number": "Card number",
    "expiry": "Expiry",
    "security_code": "Security code",
    "name_on_card": "Name on card",
}


def payment_form(request: DeskRequest, wrong: str = "") -> DeskPage:
    """The card that pays."""
    draft = request.state.draft
    if draft.passenger is None or draft.outward is None or draft.back is None:
        return DeskPage(location="/checkout/passenger")
    hints = {"expiry": "MM/YY"}
    fields = "".join(
        _field(label, name, request.form.get(name, ""), hint=hints.get(name, ""))
        for name, label in _CARD.items()
    )
    total = f"<p>Total ${draft.outward.price + draft.back.price}</p>"
    return _page(
        "Payment details", total + _form("/checkout/payment", fields, "Pay and book"), wrong
    )


def pay(request: DeskRequest) -> DeskPage:
    """Books the trip."""
    state, draft = request.state, request.state.draft
    if draft.passenger is None or draft.outward is None or draft.back is None:
        return DeskPage(location="/checkout/passenger")
    values = {name: request.form.get(name, "").strip() for name in _CARD}
    if missing := [label for name, label in _CARD.items() if not values[name]]:
        return payment_form(request, f"{missing[0]} is missing.")
    values["card_number"] = values["card_number"].replace(" ", "")
    code = state.next_code
    state.bookings[code] = FlightBooking(
        code, draft.outward, draft.back, draft.passenger, Payment(**values)
    )
    state.draft = Draft()
    return DeskPage(location=f"/bookings/{code}?said=booked")


def not_found(request: DeskRequest) -> DeskPage:
    """For addresses that lead nowhere."""
    return replace(_page("There is no such page", '<p><a href="/">Home</a></p>'), status=404)


# Method, path, and who answers; `{code}` stands for a confirmation code.
ROUTES: tuple[tuple[str, str, Callable[[DeskRequest], DeskPage]], ...] = (
    ("GET", "/", home),
    ("GET", "/help", help_page),
    ("GET", "/find", find_form),
    ("GET", "/bookings/{code}", booking),
    ("GET", "/bookings/{code}/cancel", cancel_dialog),
    ("POST", "/bookings/{code}/cancel", cancel),
    ("GET", "/bookings/{code}/modify", modify_form),
    ("POST", "/bookings/{code}/modify", modify),
    ("GET", "/flights", flight_form),
    ("GET", "/flights/results", results),
    ("GET", "/flights/choice", choice),
    ("POST", "/flights/choice", choose),
    ("POST", "/checkout", begin_checkout),
    ("GET", "/checkout/passenger", passenger_form),
    ("POST", "/checkout/passenger", take_passenger),
    ("GET", "/checkout/payment", payment_form),
    ("POST", "/checkout/payment", pay),
)


def _booking(request: DeskRequest) -> FlightBooking:
    try:
        return request.state.bookings[request.code.upper()]
    except KeyError:
        raise LookupError(f"There is no booking {request.code}.") from None


def _listed(state: DeskState) -> tuple[tuple[Flight, ...], tuple[Flight, ...]]:
    assert state.draft.trip is not None
    origin, destination, there, back = state.draft.trip
    return flights(origin, destination, there, state.seed), flights(
        destination, origin, back, state.seed
    )


def _city(request: DeskRequest, field: str) -> str:
    given = request.form.get(field, "").strip().lower()
    for city, code in CITIES.items():
        if given in (city.lower(), code.lower()):
            return city
    raise DeskError(
        f"We do not fly {field} {request.form.get(field, '')!r}. Our cities: {', '.join(CITIES)}."
    )


def _day(request: DeskRequest, field: str) -> str:
    given = request.form.get(field, "").strip()
    if _date(given) is None:
        raise DeskError(f"The {field} date {given!r} cannot be read: write MM/DD/YYYY.")
    return given


def _date(text: str) -> date | None:
    if (parts := _DATE.fullmatch(text)) is None:
        return None
    try:
        return date(int(parts[3]), int(parts[1]), int(parts[2]))
    except ValueError:
        return None


def _sorts(day: str) -> str:
    return day[6:] + day[:5]


_PASSENGER = {
    "title": "Title",
    "firstname": "First name",
    "lastname": "Last name",
    "gender": "Gender",
    "dob": "Date of birth",
    "email": "Email",
}


def _passenger(shown: Mapping[str, str]) -> str:
    choices = {"title": TITLES, "gender": GENDERS}
    return "".join(
        _menu(label, name, choices[name], shown.get(name, ""))
        if name in choices
        else _field(label, name, shown.get(name, ""), hint="MM/DD/YYYY" if name == "dob" else "")
        for name, label in _PASSENGER.items()
    )


def _read_passenger(form: Mapping[str, str]) -> dict[str, str]:
    values = {name: form.get(name, "").strip() for name in _PASSENGER}
    for name, label in _PASSENGER.items():
        if not values[name]:
            raise DeskError(f"{label} is missing.")
    if _date(values["dob"]) is None:
        raise DeskError(f"The date of birth {values['dob']!r} cannot be read: write MM/DD/YYYY.")
    if values["title"] not in TITLES or values["gender"] not in GENDERS:
        raise DeskError("Choose a title and a gender from the lists.")
    return values


def _page(title: str, body: str, wrong: str = "", said: str = "") -> DeskPage:
    notice = f'<p role="alert" class="wrong">{escape(wrong)}</p>' if wrong else ""
    notice += f'<p role="status" class="said">{escape(said)}</p>' if said else ""
    links = (
        ("Home", "/"),
        ("Find booking", "/find"),
        ("Find flights", "/flights"),
        ("Help", "/help"),
    )
    menu = "".join(f'<a href="{address}">{name}</a>' for name, address in links)
    style = (
        resources.files("prill.papers.step.airline.desk")
        .joinpath("airline.css")
        .read_text(encoding="utf-8")
    )
    return DeskPage(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{style}</style></head><body>'
        f'<nav aria-label="Menu">{menu}</nav><main><h1>{escape(title)}</h1>{notice}{body}</main></body></html>'  # noqa: E501
    )


def _form(address: str, fields: str, button: str, method: str = "post") -> str:
    return (
        f'<form method="{method}" action="{address}" '
        f"novalidate>{fields}<button>{button}</button></form>"
    )


def _field(label: str, name: str, value: str = "", hint: str = "") -> str:
    # A click selects what is there, so that typing replaces it, as in many forms of this kind.
    return (
        f'<label class="field"><span>{label}</span><input name="{name}" value="{escape(value)}" '
        'autocomplete="off"'
        f' placeholder="{hint}" onclick="this.select()"></label>'
    )


def _menu(label: str, name: str, choices: Iterable[str], chosen: str) -> str:
    options = "".join(
        f"<option{' selected' if each == chosen else ''}>{each}</option>"
        for each in ("", *choices)
        if each or not chosen
    )
    return (
        f'<label class="field"><span>{label}</span><select name="{name}">{options}</select></label>'
    )


def _flights(name: str, title: str, listed: Iterable[Flight], chosen: Flight | None) -> str:
    rows = "".join(
        f'<li><button name="{name}" value="{each.departure}" '
        f'aria-pressed="{"true" if each == chosen else "false"}">'
        f"{each.row}</button></li>"
        for each in listed
    )
    form = f'<form method="post" action="/flights/choice"><ul>{rows}</ul></form>'
    return f'<section aria-label="{escape(title)}"><h2>{escape(title)}</h2>{form}</section>'


def _dialog(held: FlightBooking, wrong: str) -> str:
    notice = f'<p role="alert" class="wrong">{escape(wrong)}</p>' if wrong else ""
    ask = _form(
        f"/bookings/{held.code}/cancel", _field("Confirmation code", "code"), "Confirm cancellation"
    )
    close = f'<form action="/bookings/{held.code}"><button>Close</button></form>'
    return (
        '<div role="dialog" aria-label="Cancel booking" class="dialog"><h2>Cancel booking</h2>'
        f"{notice}<p>Enter the confirmation code again to cancel this "
        f"booking.</p>{ask}{close}</div>"
    )


def start_address(scenario: str) -> str:
    """Where a scenario begins."""
    return f"/?{urlencode({'scenario': scenario}, quote_via=quote)}"

"""Serves the site of arXiv 2310.03720's AirlineCRM. Each function of a page answers a request and
updates the state of the scenario.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from prill.papers.step.airline.desk.world import (
    CITIES,
    GENDERS,
    PASSENGER_LABELS,
    TASKS,
    TITLES,
    DeskState,
    Draft,
    Flight,
    FlightBooking,
    flights,
    scenario,
)
from prill.served import LocalSite
from prill.ui.templates import render

if TYPE_CHECKING:
    from aiohttp import web

_FORM, _DAY = "%m/%d/%Y", "MM/DD/YYYY"
_SAID = {
    "saved": "The changes are saved.",
    "cancelled": "The booking is cancelled.",
    "booked": "The flight is booked.",
}
_CARD = {
    "card-number": "Card number",
    "expiry": "Expiry",
    "security_code": "Security code",
    "name-on-card": "Name on card",
}


@dataclass(frozen=True, slots=True)
class DeskRequest:
    """One request: the submitted fields, the code in the address, and what is wrong with them."""

    state: DeskState
    form: Mapping[str, str]
    code: str = ""
    wrong: str = ""

    @property
    def booking(self) -> FlightBooking:
        """The booking with this code. Raises LookupError."""
        return self.state.bookings[self.code.upper()]

    @property
    def active_booking(self) -> FlightBooking:
        """The booking with this code. Raises DeskRedirect to its page if it is cancelled."""
        if self.booking.cancelled:
            raise DeskRedirect(f"/bookings/{self.booking.code}")
        return self.booking

    def entered(self, name: str) -> str:
        """Returns a field without spaces around it."""
        return self.form.get(name, "").strip()


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form. With `choices` it is a menu."""

    label: str
    name: str
    value: str = ""
    hint: str = ""
    choices: tuple[str, ...] = ()


class DeskRedirect(Exception):  # noqa: N818 - no error
    """Raised to redirect to another address."""


class DeskError(Exception):
    """Raised for invalid input. The message says why and is shown above the form."""


def _home(request: DeskRequest) -> str:
    return _page("AirlineCRM", text="Choose what the caller wants from the menu above.")


def _help(request: DeskRequest) -> str:
    text = "A booking is opened by its confirmation code. Tickets are changed and cancelled there."
    return _page("Help", text=text)


def _find(request: DeskRequest) -> str:
    code = request.entered("code").upper()
    if code in request.state.bookings:
        raise DeskRedirect(f"/bookings/{code}")
    request.state.seen.add(("find", ""))
    wrong = f"There is no booking {code}." if code else ""
    fields = [FormField("Confirmation code", "code", code)]
    return _form("Find booking", "/find", "Search", fields, wrong, method="get")


def _booking(request: DeskRequest, dialog: bool = False) -> str:
    booking = request.booking
    request.state.seen.add(("booking", booking.code))
    who = booking.passenger
    facts = {
        "Status": "Cancelled" if booking.cancelled else "Confirmed",
        "Outbound": f"{booking.outward.day} {booking.outward.row}",
        "Return": f"{booking.back.day} {booking.back.row}",
        "Passenger": " ".join((who["title"], who["firstname"], who["lastname"])),
        "Gender": who["gender"],
        "Date of birth": who["dob"],
        "Email": who["email"],
    }
    return _page(
        f"Booking {booking.code}",
        template="booking.html",
        said=_SAID.get(request.form.get("said", ""), ""),
        held=booking,
        facts=facts,
        dialog=dialog,
        problem=request.wrong,
        fields=[FormField("Confirmation code", "code")],
    )


def _cancel_dialog(request: DeskRequest) -> str:
    request.state.seen.add(("cancel", request.active_booking.code))
    return _booking(request, dialog=True)


def _cancel(request: DeskRequest) -> str:
    if request.entered("code").upper() != request.booking.code:
        raise DeskError("This is not the confirmation code of this booking.")
    request.state.bookings[request.booking.code] = replace(request.booking, cancelled=True)
    raise DeskRedirect(f"/bookings/{request.booking.code}?said=cancelled")


def _modify_form(request: DeskRequest) -> str:
    code = request.active_booking.code
    request.state.seen.add(("passenger", code))
    fields = _passenger_fields(request.booking.passenger, request)
    title, address = f"Modify booking {code}", f"/bookings/{code}/modify"
    return _form(title, address, "Save changes", fields, request.wrong)


def _modify(request: DeskRequest) -> str:
    booking = request.active_booking
    request.state.bookings[booking.code] = replace(booking, passenger=_read_passenger(request))
    raise DeskRedirect(f"/bookings/{booking.code}?said=saved")


def _flights(request: DeskRequest) -> str:
    names = {"from": "From", "to": "To", "departure": "Departure date", "return": "Return date"}
    fields = [
        FormField(label, name, request.form.get(name, ""), _DAY if "date" in label else "")
        for name, label in names.items()
    ]
    address, button = "/flights/results", "Search flights"
    return _form("Find flights", address, button, fields, request.wrong, method="get")


def _results(request: DeskRequest) -> str:
    origin, destination = _city(request, "from"), _city(request, "to")
    trip = (origin, destination, _day(request, "departure"), _day(request, "return"))
    if origin == destination:
        raise DeskError("From and To are the same city.")
    there, back = map(_date, trip[2:])
    if there and back and there > back:
        raise DeskError("The return date is before the departure date.")
    if request.state.draft.trip != trip:
        request.state.draft = Draft(trip)
    raise DeskRedirect("/flights/choice")


def _choice(request: DeskRequest) -> str:
    draft, (out, back) = request.state.draft, _listed(request.state)
    origin, destination, there, return_day = draft.trip or ("",) * 4
    directions = [
        ("outward", f"Outbound: {origin} to {destination}, {there}", out, draft.outward),
        ("back", f"Return: {destination} to {origin}, {return_day}", back, draft.back),
    ]
    return _page("Choose flights", request.wrong, template="choice.html", directions=directions)


def _choose(request: DeskRequest) -> str:
    for name, listed in zip(("outward", "back"), _listed(request.state), strict=True):
        for flight in listed:
            if flight.departure == request.form.get(name):
                setattr(request.state.draft, name, flight)
    raise DeskRedirect("/flights/choice")


def _begin_checkout(request: DeskRequest) -> str:
    draft = request.state.draft
    if draft.outward is None or draft.back is None:
        raise DeskError("Choose an outbound flight and a return flight first.")
    draft.begun = True
    raise DeskRedirect("/checkout/passenger")


def _passenger_form(request: DeskRequest) -> str:
    if not request.state.draft.begun:
        raise DeskRedirect("/flights")
    fields = _passenger_fields(request.state.draft.passenger, request)
    return _form("Passenger details", "/checkout/passenger", "Save changes", fields, request.wrong)


def _take_passenger(request: DeskRequest) -> str:
    if not request.state.draft.begun:
        raise DeskRedirect("/flights")
    request.state.draft.passenger = _read_passenger(request)
    raise DeskRedirect("/checkout/payment")


def _payment_form(request: DeskRequest) -> str:
    outward, back, _ = _entered_trip(request)
    fields = [
        FormField(label, name, request.form.get(name, ""), "MM/YY" if name == "expiry" else "")
        for name, label in _CARD.items()
    ]
    total, address = f"Total ${outward.price + back.price}", "/checkout/payment"
    return _form("Payment details", address, "Pay and book", fields, request.wrong, text=total)


def _pay(request: DeskRequest) -> str:
    state, trip = request.state, _entered_trip(request)
    values = _filled(request, _CARD)
    values["card-number"] = values["card-number"].replace(" ", "")
    number = f"{len(state.bookings):05d}"
    code = "N" + number.translate(str.maketrans("0123456789", "ABCDEFGHJK"))
    state.bookings[code] = FlightBooking(code, *trip, values)
    state.draft = Draft()
    raise DeskRedirect(f"/bookings/{code}?said=booked")


def _not_found(request: DeskRequest) -> str:
    raise LookupError("There is no such page")


# Method, path, handler, and the page that shows what is wrong. `{code}` is a confirmation code.
_Page = Callable[[DeskRequest], str]
ROUTES: tuple[tuple[str, str, _Page, _Page], ...] = (
    ("GET", "/", _home, _home),
    ("GET", "/help", _help, _help),
    ("GET", "/find", _find, _find),
    ("GET", "/bookings/{code}", _booking, _booking),
    ("GET", "/bookings/{code}/cancel", _cancel_dialog, _cancel_dialog),
    ("POST", "/bookings/{code}/cancel", _cancel, _cancel_dialog),
    ("GET", "/bookings/{code}/modify", _modify_form, _modify_form),
    ("POST", "/bookings/{code}/modify", _modify, _modify_form),
    ("GET", "/flights", _flights, _flights),
    ("GET", "/flights/results", _results, _flights),
    ("GET", "/flights/choice", _choice, _choice),
    ("POST", "/flights/choice", _choose, _choice),
    ("POST", "/checkout", _begin_checkout, _choice),
    ("GET", "/checkout/passenger", _passenger_form, _passenger_form),
    ("POST", "/checkout/passenger", _take_passenger, _passenger_form),
    ("GET", "/checkout/payment", _payment_form, _payment_form),
    ("POST", "/checkout/payment", _pay, _payment_form),
    ("*", "/{rest:.*}", _not_found, _not_found),
)


def _listed(state: DeskState) -> tuple[tuple[Flight, ...], tuple[Flight, ...]]:
    if state.draft.trip is None:
        raise DeskRedirect("/flights")
    origin, destination, there, back = state.draft.trip
    out = flights(origin, destination, there)
    return out, flights(destination, origin, back)


def _entered_trip(request: DeskRequest) -> tuple[Flight, Flight, dict[str, str]]:
    draft = request.state.draft
    if draft.passenger is None or draft.outward is None or draft.back is None:
        raise DeskRedirect("/checkout/passenger")
    return draft.outward, draft.back, draft.passenger


def _city(request: DeskRequest, field: str) -> str:
    given = request.entered(field).lower()
    for city, code in CITIES.items():
        if given in (city.lower(), code.lower()):
            return city
    raise DeskError(
        f"We do not fly {field} {request.form.get(field, '')!r}. Our cities: {', '.join(CITIES)}."
    )


def _day(request: DeskRequest, field: str) -> str:
    if _date(given := request.entered(field)) is None:
        raise DeskError(f"The {field} date {given!r} cannot be read: write MM/DD/YYYY.")
    return given


def _date(text: str) -> date | None:
    """Reads `MM/DD/YYYY`, each with its zeros. None for other text."""
    try:
        day = datetime.strptime(text, _FORM).date()
    except ValueError:
        return None
    return day if day.strftime(_FORM) == text else None


def _passenger_fields(passenger: dict[str, str] | None, request: DeskRequest) -> list[FormField]:
    """Returns the passenger's fields with the submitted values, else the saved ones."""
    choices = {"title": TITLES, "gender": GENDERS}
    found = []
    for name, label in PASSENGER_LABELS.items():
        value = request.form.get(name, (passenger or {}).get(name, ""))
        hint = _DAY if name == "dob" else ""
        found.append(FormField(label, name, value, hint, choices.get(name, ())))
    return found


def _filled(request: DeskRequest, labels: Mapping[str, str]) -> dict[str, str]:
    values = {name: request.entered(name) for name in labels}
    if missing := [label for name, label in labels.items() if not values[name]]:
        raise DeskError(f"{missing[0]} is missing.")
    return values


def _read_passenger(request: DeskRequest) -> dict[str, str]:
    values = _filled(request, PASSENGER_LABELS)
    if _date(values["dob"]) is None:
        raise DeskError(f"The date of birth {values['dob']!r} cannot be read: write MM/DD/YYYY.")
    if values["title"] not in TITLES or values["gender"] not in GENDERS:
        raise DeskError("Choose a title and a gender from the lists.")
    return values


def _form(
    title: str, address: str, button: str, fields: Sequence[FormField], wrong: str, **more: str
) -> str:
    values: dict[str, Any] = {
        "method": "post",
        **more,
        "address": address,
        "button": button,
        "fields": fields,
    }
    return _page(title, wrong, **values)


def _page(title: str, wrong: str = "", *, template: str = "page.html", **values: object) -> str:
    known = {"title": title, "wrong": wrong, "text": "", "said": ""}
    return render(f"papers/step/airline/desk/{template}", **{**known, **values})


class AirlineDesk(LocalSite):
    """The running site of one scenario: `with AirlineDesk() as airline: airline.url`."""

    _what = "airline"

    def __init__(self) -> None:
        super().__init__(0)
        self.reset(f"{TASKS[0]}-00")

    @property
    def is_open(self) -> bool:
        """Whether the site is served."""
        return bool(self._addresses)

    def reset(self, scenario_id: str) -> None:
        """Puts the site in the initial state of a scenario. Raises LookupError."""
        task, _, number = scenario_id.rpartition("-")
        self.state = DeskState(scenario(task, int(number) if number.isdecimal() else -1))

    def _applications(self) -> Sequence[web.Application]:
        from aiohttp import web

        app = web.Application()
        for method, path, page, form in ROUTES:
            app.router.add_route(method, path, self._handler(page, form))
        return (app,)

    def _handler(self, page: _Page, form: _Page) -> Callable[..., Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            from aiohttp import web

            given = [*http.query.items(), *(await http.post()).items()]
            fields = {name: value for name, value in given if isinstance(value, str)}
            request = DeskRequest(self.state, fields, http.match_info.get("code", ""))
            status, headers, body = 200, {}, ""
            try:
                try:
                    body = page(request)
                except DeskError as problem:
                    body = form(replace(request, wrong=str(problem)))
            except DeskRedirect as other:
                status, headers = 303, {"Location": str(other)}
            except LookupError:
                status, body = 404, _page("There is no such page", home=True)
            request.state.measure()
            return web.Response(text=body, status=status, headers=headers, content_type="text/html")

        return handle

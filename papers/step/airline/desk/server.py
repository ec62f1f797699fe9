"""Serves the site, with the addresses that the original service used to choose, reset and grade
scenarios (arXiv 2310.03720).

    GET /get-random-scenario?task=TASK_X  {"id": …, "details": {…}}; &seed=7 fixes the scenario
    GET /reset-scenario?scenario=ID       resets the scenario
    GET /evaluate?scenario=ID             {"metrics": [{"task_completion": …, "%complete": …}, …]};
                                          the last entry is the current state
    GET /?scenario=ID                     the first page; a cookie keeps the scenario for the others

Unlike the original's, the first three addresses require a token, so that agents cannot read the
grading. Each function of a page answers a request and updates the state of its scenario.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from random import Random
from typing import TYPE_CHECKING, Any

from prill.papers.step.airline.desk.world import (
    CITIES,
    GENDERS,
    PASSENGER_LABELS,
    SCENARIOS,
    TITLES,
    DeskState,
    Draft,
    Flight,
    FlightBooking,
    Passenger,
    Payment,
    Scenario,
    changed,
    flights,
    scenario,
)
from prill.served import LocalSite
from prill.ui.templates import render

if TYPE_CHECKING:
    from aiohttp import web

_DATE, _DAY = re.compile(r"(\d\d)/(\d\d)/(\d{4})"), "MM/DD/YYYY"
_SAID = {
    "saved": "The changes are saved.",
    "cancelled": "The booking is cancelled.",
    "booked": "The flight is booked.",
}
_CARD = {
    "card_number": "Card number",
    "expiry": "Expiry",
    "security_code": "Security code",
    "name_on_card": "Name on card",
}


@dataclass(frozen=True, slots=True)
class DeskRequest:
    """One request: the submitted fields, and the confirmation code in the address."""

    state: DeskState
    form: Mapping[str, str]
    code: str = ""


@dataclass(frozen=True, slots=True)
class DeskPage:
    """One response. With `location` it redirects to another address."""

    body: str = ""
    status: int = 200
    location: str = ""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of a form. With `choices` it is a menu."""

    label: str
    name: str
    value: str = ""
    hint: str = ""
    choices: tuple[str, ...] = ()


class DeskError(Exception):
    """Raised for invalid input. The message says why and is shown above the form."""


def home(request: DeskRequest) -> DeskPage:
    """Shows the first page."""
    return _page("AirlineCRM", text="Choose what the caller wants from the menu above.")


def help_page(request: DeskRequest) -> DeskPage:
    """Shows the help page."""
    text = "A booking is opened by its confirmation code. Tickets are changed and cancelled there."
    return _page("Help", text=text)


def find_form(request: DeskRequest) -> DeskPage:
    """Shows the form that opens a booking, or the booking itself if the request has its code."""
    code = request.form.get("code", "").strip().upper()
    if code in request.state.bookings:
        return DeskPage(location=f"/bookings/{code}")
    request.state.seen.add(("find", ""))
    wrong = f"There is no booking {code}." if code else ""
    fields = [FormField("Confirmation code", "code", code)]
    return _form("Find booking", "/find", "Search", fields, wrong, method="get")


def booking(request: DeskRequest, dialog: bool = False, problem: str = "") -> DeskPage:
    """Shows one booking and its actions. `problem` is shown in the dialog."""
    held = _booking(request)
    request.state.seen.add(("booking", held.code))
    who = held.passenger
    facts = {
        "Status": "Cancelled" if held.cancelled else "Confirmed",
        "Outbound": f"{held.outward.day} {held.outward.row}",
        "Return": f"{held.back.day} {held.back.row}",
        "Passenger": f"{who.title} {who.firstname} {who.lastname}",
        "Gender": who.gender,
        "Date of birth": who.dob,
        "Email": who.email,
    }
    return _page(
        f"Booking {held.code}",
        template="booking.html",
        said=_SAID.get(request.form.get("said", ""), ""),
        held=held,
        facts=facts,
        dialog=dialog,
        problem=problem,
        fields=[FormField("Confirmation code", "code")],
    )


def cancel_dialog(request: DeskRequest, problem: str = "") -> DeskPage:
    """Shows the booking with the question whether to cancel it."""
    held = _booking(request)
    if held.cancelled:
        return DeskPage(location=f"/bookings/{held.code}")
    request.state.seen.add(("cancel", held.code))
    return booking(request, dialog=True, problem=problem)


def cancel(request: DeskRequest) -> DeskPage:
    """Cancels the booking if its code was entered again."""
    held = _booking(request)
    if request.form.get("code", "").strip().upper() != held.code:
        return cancel_dialog(request, "This is not the confirmation code of this booking.")
    request.state.bookings[held.code] = replace(held, cancelled=True)
    return DeskPage(location=f"/bookings/{held.code}?said=cancelled")


def modify_form(request: DeskRequest, wrong: str = "") -> DeskPage:
    """Shows the form for a booking's passenger details."""
    held = _booking(request)
    address = f"/bookings/{held.code}"
    if held.cancelled:
        return DeskPage(location=address)
    request.state.seen.add(("passenger", held.code))
    fields = _passenger_fields(held.passenger, request.form)
    title = f"Modify booking {held.code}"
    return _form(title, f"{address}/modify", "Save changes", fields, wrong)


def modify(request: DeskRequest) -> DeskPage:
    """Saves the passenger details."""
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
    """Shows the flight search form."""
    names = {"from": "From", "to": "To", "departure": "Departure date", "return": "Return date"}
    fields = [
        FormField(label, name, request.form.get(name, ""), _DAY if "date" in label else "")
        for name, label in names.items()
    ]
    return _form("Find flights", "/flights/results", "Search flights", fields, wrong, method="get")


def results(request: DeskRequest) -> DeskPage:
    """Shows the flights of both days for selection."""
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
    """Shows both flight lists with the selected flights."""
    draft = request.state.draft
    if draft.trip is None:
        return DeskPage(location="/flights")
    origin, destination, there, return_day = draft.trip
    out, back = _listed(request.state)
    directions = [
        ("outward", f"Outbound: {origin} to {destination}, {there}", out, draft.outward),
        ("back", f"Return: {destination} to {origin}, {return_day}", back, draft.back),
    ]
    return _page("Choose flights", wrong, template="choice.html", directions=directions)


def choose(request: DeskRequest) -> DeskPage:
    """Selects one flight."""
    if request.state.draft.trip is None:
        return DeskPage(location="/flights")
    draft = request.state.draft
    for name, listed in zip(("outward", "back"), _listed(request.state), strict=True):
        for flight in listed:
            if flight.departure == request.form.get(name):
                setattr(draft, name, flight)
    return DeskPage(location="/flights/choice")


def begin_checkout(request: DeskRequest) -> DeskPage:
    """Continues to the passenger form if both flights are selected."""
    draft = request.state.draft
    if draft.outward is None or draft.back is None:
        return choice(request, "Choose an outbound flight and a return flight first.")
    draft.begun = True
    return DeskPage(location="/checkout/passenger")


def passenger_form(request: DeskRequest, wrong: str = "") -> DeskPage:
    """Shows the passenger form."""
    draft = request.state.draft
    if not draft.begun:
        return DeskPage(location="/flights")
    fields = _passenger_fields(draft.passenger, request.form)
    return _form("Passenger details", "/checkout/passenger", "Save changes", fields, wrong)


def take_passenger(request: DeskRequest) -> DeskPage:
    """Saves the passenger and shows the payment form."""
    if not request.state.draft.begun:
        return DeskPage(location="/flights")
    try:
        fields = _read_passenger(request.form)
    except DeskError as problem:
        return passenger_form(request, str(problem))
    request.state.draft.passenger = Passenger(**fields)
    return DeskPage(location="/checkout/payment")


def payment_form(request: DeskRequest, wrong: str = "") -> DeskPage:
    """Shows the payment form."""
    draft = request.state.draft
    if draft.passenger is None or draft.outward is None or draft.back is None:
        return DeskPage(location="/checkout/passenger")
    fields = [
        FormField(label, name, request.form.get(name, ""), "MM/YY" if name == "expiry" else "")
        for name, label in _CARD.items()
    ]
    total = f"Total ${draft.outward.price + draft.back.price}"
    address = "/checkout/payment"
    return _form("Payment details", address, "Pay and book", fields, wrong, text=total)


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
    """Shows the page for unknown addresses."""
    return replace(_page("There is no such page", home=True), status=404)


# Method, path, and handler. `{code}` stands for a confirmation code.
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


def _passenger_fields(held: Passenger | None, form: Mapping[str, str]) -> list[FormField]:
    """Returns the passenger's fields with the submitted values, else the saved ones."""
    choices = {"title": TITLES, "gender": GENDERS}
    return [
        FormField(
            label,
            name,
            form.get(name, getattr(held, name, "")),
            _DAY if name == "dob" else "",
            choices.get(name, ()),
        )
        for name, label in PASSENGER_LABELS.items()
    ]


def _read_passenger(form: Mapping[str, str]) -> dict[str, str]:
    values = {name: form.get(name, "").strip() for name in PASSENGER_LABELS}
    for name, label in PASSENGER_LABELS.items():
        if not values[name]:
            raise DeskError(f"{label} is missing.")
    if _date(values["dob"]) is None:
        raise DeskError(f"The date of birth {values['dob']!r} cannot be read: write MM/DD/YYYY.")
    if values["title"] not in TITLES or values["gender"] not in GENDERS:
        raise DeskError("Choose a title and a gender from the lists.")
    return values


def _form(
    title: str,
    address: str,
    button: str,
    fields: Sequence[FormField],
    wrong: str,
    *,
    method: str = "post",
    text: str = "",
) -> DeskPage:
    return _page(
        title, wrong, text=text, address=address, button=button, fields=fields, method=method
    )


def _page(
    title: str,
    wrong: str = "",
    *,
    template: str = "page.html",
    text: str = "",
    said: str = "",
    **values: object,
) -> DeskPage:
    known = {"title": title, "wrong": wrong, "text": text, "said": said}
    return DeskPage(render(f"papers/step/airline/desk/{template}", **known, **values))


_COOKIE = "scenario"


class AirlineDesk(LocalSite):
    """The running site, as a context manager: `with AirlineDesk() as airline: airline.url`, or
    `async with`.

    Args:
        port: The port. 0: a free one.
        seed: Draws the bookings, flights and passengers.
        token: What the three addresses of the service want as `&token=`. None: drawn at random;
            empty: they are open, as the original's were.

    Raises:
        UsageError: The number is not a port.
    """

    _what = "airline"

    def __init__(self, *, port: int = 0, seed: int = 0, token: str | None = None) -> None:
        super().__init__(port)
        self.token = secrets.token_urlsafe(12) if token is None else token
        self._seed = seed
        self._random = Random(f"{seed} scenarios")
        self._states: dict[str, DeskState] = {}

    @property
    def environ(self) -> dict[str, str]:
        """The site's address and the token of its service, as environment variables."""
        return {"AIRLINE": self.url, "AIRLINE_TOKEN": self.token}

    def state(self, scenario_id: str) -> DeskState:
        """Returns the current state of a scenario.

        Args:
            scenario_id: Its id.

        Returns:
            The state.

        Raises:
            LookupError: There is no such scenario.
        """
        if scenario_id not in self._states:
            self._states[scenario_id] = DeskState.of(self._scenario(scenario_id), self._seed)
        return self._states[scenario_id]

    def _scenario(self, scenario_id: str) -> Scenario:
        task, _, number = scenario_id.rpartition("-")
        return scenario(task, int(number) if number.isdecimal() else -1, self._seed)

    def _applications(self) -> Sequence[web.Application]:
        from aiohttp import web

        app = web.Application()
        app.router.add_get("/get-random-scenario", self._service(self._draw))
        app.router.add_get("/reset-scenario", self._service(self._reset))
        app.router.add_get("/evaluate", self._service(self._evaluate))
        for method, path, page in ROUTES:
            app.router.add_route(method, path, self._handler(page))
        app.router.add_route("*", "/{rest:.*}", self._handler(not_found))
        return (app,)

    def _service(
        self, answer: Callable[[web.Request], dict[str, Any]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            from aiohttp import web

            if self.token and not secrets.compare_digest(
                http.query.get("token", "").encode(), self.token.encode()
            ):
                return web.json_response({"error": "wrong token"}, status=403)
            try:
                return web.json_response(answer(http))
            except LookupError as problem:
                return web.json_response({"error": str(problem.args[0])}, status=404)

        return handle

    def _draw(self, http: web.Request) -> dict[str, Any]:
        task, seed = http.query.get("task", ""), http.query.get("seed", "")
        number = int(seed) if seed.isdecimal() else self._random.randrange(SCENARIOS)
        drawn = scenario(task, number, self._seed)
        return {"id": drawn.id, "details": drawn.details}

    def _reset(self, http: web.Request) -> dict[str, Any]:
        wanted = http.query.get("scenario", "")
        self._states[wanted] = DeskState.of(self._scenario(wanted), self._seed)
        return {"id": wanted}

    def _evaluate(self, http: web.Request) -> dict[str, Any]:
        return {"metrics": self.state(http.query.get("scenario", "")).metrics}

    def _handler(
        self, page: Callable[[DeskRequest], DeskPage]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(http: web.Request) -> web.Response:
            from aiohttp import web

            chosen = http.query.get("scenario") or http.cookies.get(_COOKIE, "")
            try:
                state = self.state(chosen)
            except LookupError as problem:
                return web.Response(status=404, text=f"Open /?scenario=ID first: {problem.args[0]}")
            form = {name: value for name, value in http.query.items() if name != "scenario"}
            form |= {
                name: value for name, value in (await http.post()).items() if isinstance(value, str)
            }
            request = DeskRequest(state, form, http.match_info.get("code", ""))
            try:
                answer = page(request)
            except LookupError:
                answer = not_found(request)
            state.measure()
            if answer.location:
                response = web.Response(status=303, headers={"Location": answer.location})
            else:
                response = web.Response(
                    text=answer.body, status=answer.status, content_type="text/html"
                )
            response.set_cookie(_COOKIE, chosen, path="/", httponly=True, samesite="Lax")
            return response

        return handle

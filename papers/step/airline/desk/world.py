"""The airline's data: daily flights between cities, bookings, callers' requests; the progress in a
scenario, and its solution.

All persons, cards and flights are invented, and the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from random import Random
from typing import Any

from prill.papers.replies import read_toml

# The task names of the original service (arXiv 2310.03720, appendix on AirlineCRM), with twenty
# scenarios each.
TASKS = (
    "TASK_FIND_BOOKING",
    "TASK_CANCEL_FLIGHT",
    "TASK_FIND_FLIGHT",
    "TASK_UPDATE_PASSENGER_DETAILS",
    "TASK_BOOK_FLIGHT",
)
SCENARIOS = 20
_DATA = read_toml("prill.papers.step.airline.desk", "world.toml")
CITIES: dict[str, str] = _DATA["cities"]
# The form labels of a passenger's fields.
PASSENGER_LABELS: dict[str, str] = _DATA["passenger"]
TITLES = ("Mr", "Ms", "Mx", "Dr")
GENDERS = ("female", "male", "other")
_BOOKINGS = 40
_FLIGHTS = 5
_FIRST = date(2023, 6, 1)
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight: cities, the date as MM/DD/YYYY, times as HH:MM, the price in dollars."""

    number: str
    origin: str
    destination: str
    day: str
    departure: str
    arrival: str
    price: int

    @property
    def row(self) -> str:
        """Returns the flight as one row of the search results."""
        start, end = CITIES[self.origin], CITIES[self.destination]
        return f"{self.departure} {start} {self.arrival} {end} {self.number} ${self.price}"


@dataclass(frozen=True, slots=True)
class FlightBooking:
    """An outbound and a return flight of one passenger, and the card that paid for them.

    `passenger` and `payment` have the fields of the original service.
    """

    code: str
    outward: Flight
    back: Flight
    passenger: dict[str, str]
    payment: dict[str, str]
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A caller's request, with `details` in the fields of the original service."""

    id: str
    task: str
    details: dict[str, Any]


def scenario(task: str, number: int) -> Scenario:
    """Makes scenario 0 to 19 of one of `TASKS`. Raises LookupError for another one."""
    if task not in TASKS or not 0 <= number < SCENARIOS:
        raise LookupError(
            f"unknown scenario {number} of {task}; the tasks are {', '.join(TASKS)}, each "
            f"with 0 to {SCENARIOS - 1}"
        )
    random = Random(f"0 {task} {number}")
    booked = list(bookings().values())
    Random(f"0 {task}").shuffle(booked)
    booking, details = booked[number], dict[str, Any]()
    if task in ("TASK_FIND_BOOKING", "TASK_CANCEL_FLIGHT", "TASK_UPDATE_PASSENGER_DETAILS"):
        details["confirmation-code"] = booking.code
    if task == "TASK_UPDATE_PASSENGER_DETAILS":
        details["passenger"] = _changes(random, booking.passenger)
    if task in ("TASK_FIND_FLIGHT", "TASK_BOOK_FLIGHT"):
        outward, back = _trip(random)
        details["flight"] = {
            "from": outward.origin,
            "to": outward.destination,
            "departure": outward.day,
            "return": back.day,
            "outward-departure-time": outward.departure,
            "return-arrival-time": back.arrival,
        }
    if task == "TASK_BOOK_FLIGHT":
        details["passenger"] = _passenger(random)
        details["payment-details"] = _payment(random, details["passenger"])
    return Scenario(f"{task}-{number:02d}", task, details)


def wanted_flights(trip: dict[str, str]) -> tuple[Flight, Flight]:
    """Returns the outbound and return flights that a scenario's details request."""
    out = flights(trip["from"], trip["to"], trip["departure"])
    home = flights(trip["to"], trip["from"], trip["return"])
    return (
        next(each for each in out if each.departure == trip["outward-departure-time"]),
        next(each for each in home if each.arrival == trip["return-arrival-time"]),
    )


def bookings() -> dict[str, FlightBooking]:
    """Returns the initial bookings by confirmation code."""
    random, made = Random("0 bookings"), dict[str, FlightBooking]()
    while len(made) < _BOOKINGS:
        code = "".join(random.choices(_LETTERS, k=6))
        passenger = _passenger(random)
        outward, back = _trip(random)
        made[code] = FlightBooking(code, outward, back, passenger, _payment(random, passenger))
    return made


def flights(origin: str, destination: str, day: str) -> tuple[Flight, ...]:
    """Returns the flights of a day, in order. No two of them depart or arrive at the same time."""
    random = Random(f"0 {origin} {destination} {day}")
    starts = sorted(random.sample(range(5 * 60, 20 * 60, 25), _FLIGHTS))
    length = 80 + 5 * random.randrange(45)
    # Flight times differ by a few minutes, less than the gap between departures, so no two flights
    # arrive at the same time.
    return tuple(
        Flight(
            number=f"LK{random.randrange(100, 1000)}",
            origin=origin,
            destination=destination,
            day=day,
            departure=_clock(start),
            arrival=_clock(start + length + 5 * random.randrange(4)),
            price=random.randrange(79, 520),
        )
        for start in starts
    )


def _changes(random: Random, passenger: dict[str, str]) -> dict[str, str]:
    fields = sorted(
        random.sample(("title", "firstname", "lastname", "dob", "email"), random.choice((2, 3)))
    )
    found = dict[str, str]()
    while len(found) < len(fields):
        other = _passenger(random)
        found = {name: other[name] for name in fields if other[name] != passenger[name]}
    return found


def _trip(random: Random) -> tuple[Flight, Flight]:
    origin, destination = random.sample(list(CITIES), 2)
    there = _FIRST + timedelta(days=random.randrange(120))
    back = there + timedelta(days=random.randrange(3, 15))
    return (
        random.choice(flights(origin, destination, _written(there))),
        random.choice(flights(destination, origin, _written(back))),
    )


def _passenger(random: Random) -> dict[str, str]:
    first, last = random.choice(_DATA["given"]), random.choice(_DATA["family"])
    born = date(1950, 1, 1) + timedelta(days=random.randrange(50 * 365))
    email = f"{first}.{last}{random.randrange(10, 100)}@example.com".lower()
    title, gender = random.choice(TITLES), random.choice(GENDERS)
    values = (title, first, last, gender, _written(born), email)
    return dict(zip(PASSENGER_LABELS, values, strict=True))


def _payment(random: Random, passenger: dict[str, str]) -> dict[str, str]:
    # No bank issues cards that begin with 9.
    number = "9" + "".join(random.choices("0123456789", k=15))
    expiry = f"{random.randrange(1, 13):02d}/{random.randrange(25, 30)}"
    return {
        "card-number": number,
        "expiry": expiry,
        "security_code": f"{random.randrange(1000):03d}",
        "name-on-card": f"{passenger['firstname']} {passenger['lastname']}",
    }


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def _written(day: date) -> str:
    return day.strftime("%m/%d/%Y")


@dataclass(slots=True)
class Draft:
    """A booking in progress. `trip` holds origin, destination, and both dates."""

    trip: tuple[str, str, str, str] | None = None
    outward: Flight | None = None
    back: Flight | None = None
    begun: bool = False
    passenger: dict[str, str] | None = None


@dataclass(slots=True)
class DeskState:
    """The state of one scenario. `seen` holds the shown pages: a type and a confirmation code."""

    scenario: Scenario
    bookings: dict[str, FlightBooking] = field(default_factory=bookings)
    draft: Draft = field(default_factory=Draft)
    seen: set[tuple[str, str]] = field(default_factory=set)
    progress: float = 0.0  # the fraction of checkpoints reached; the last one that holds counts
    done: bool = False

    def measure(self) -> None:
        """Evaluates the checkpoints."""
        checkpoints = state_checkpoints(self)
        reached = max((n for n, holds in enumerate(checkpoints, 1) if holds(self)), default=0)
        self.progress = max(self.progress, reached / len(checkpoints))
        self.done = self.progress == 1 and _as_wanted(self)


Checkpoint = Callable[[DeskState], bool]


def state_checkpoints(state: DeskState) -> tuple[Checkpoint, ...]:
    """Returns the checkpoints of a state in order."""
    details = state.scenario.details
    code = details.get("confirmation-code", "")

    def seen(kind: str, code: str = code) -> Checkpoint:
        return lambda s: (kind, code) in s.seen

    match state.scenario.task:
        case "TASK_FIND_BOOKING":
            return seen("find", ""), seen("booking")
        case "TASK_CANCEL_FLIGHT":
            return seen("booking"), seen("cancel"), lambda s: s.bookings[code].cancelled
        case "TASK_FIND_FLIGHT":
            return _search(details)
        case "TASK_UPDATE_PASSENGER_DETAILS":
            fields = details["passenger"]
            right = (partial(_fields_right, code, fields, n) for n in range(1, len(fields) + 1))
            return seen("booking"), seen("passenger"), *right
        case _:
            passenger = details["passenger"]
            return (
                *_search(details),
                lambda s: s.draft.begun and _chosen(s.draft, details) == 2,
                lambda s: _chosen(s.draft, details) == 2 and s.draft.passenger == passenger,
                _as_wanted,
            )


def _search(details: dict[str, Any]) -> tuple[Checkpoint, ...]:
    trip = details["flight"]
    wanted = (trip["from"], trip["to"], trip["departure"], trip["return"])
    return (
        lambda s: s.draft.trip == wanted,
        lambda s: _chosen(s.draft, details) >= 1,
        lambda s: _chosen(s.draft, details) == 2,
    )


def _chosen(draft: Draft, details: dict[str, Any]) -> int:
    """Returns how many of the two selected flights are right and on the right trip."""
    trip, out, back = details["flight"], draft.outward, draft.back
    if draft.trip != (trip["from"], trip["to"], trip["departure"], trip["return"]):
        return 0
    return (out is not None and out.departure == trip["outward-departure-time"]) + (
        back is not None and back.arrival == trip["return-arrival-time"]
    )


def _fields_right(code: str, fields: dict[str, str], least: int, state: DeskState) -> bool:
    saved = state.bookings[code].passenger
    return sum(saved[name] == value for name, value in fields.items()) >= least


def _as_wanted(state: DeskState) -> bool:
    """Returns whether the bookings are the initial ones changed exactly as the caller wants."""
    wanted, details = bookings(), state.scenario.details
    code = details.get("confirmation-code", "")
    match state.scenario.task:
        case "TASK_CANCEL_FLIGHT":
            wanted[code] = replace(wanted[code], cancelled=True)
        case "TASK_UPDATE_PASSENGER_DETAILS":
            passenger = {**wanted[code].passenger, **details["passenger"]}
            wanted[code] = replace(wanted[code], passenger=passenger)
        case "TASK_BOOK_FLIGHT":
            new = next((each for each in state.bookings if each not in wanted), "")
            trip = wanted_flights(details["flight"])
            wanted[new] = FlightBooking(
                new, *trip, details["passenger"], details["payment-details"]
            )
    return state.bookings == wanted


def solution(task: str, number: int) -> tuple[str, ...]:
    """Returns the shortest sequence of actions that solves a scenario from the first page. Raises
    LookupError.
    """
    details, lines = scenario(task, number).details, list[str]()
    values = {**details, **details.get("flight", {}), **details.get("payment-details", {})}
    if "flight" in details:
        outward, back = wanted_flights(details["flight"])
        values |= {"outward": outward.row, "back": back.row}
    for part in _DATA["solutions"][task]:
        if part == "passenger":
            lines += _enter_passenger(details["passenger"])
        else:
            lines += [line.format_map(values) for line in _DATA["parts"][part]]
    return tuple(lines)


def _enter_passenger(fields: dict[str, Any]) -> list[str]:
    menus, boxes = list[str](), list[str]()
    for name, label in PASSENGER_LABELS.items():
        menu = name in ("title", "gender")
        role = "combobox" if menu else "textbox"
        if name in fields:
            (menus if menu else boxes).append(f"type [{role} '{label}'] [{fields[name]}] [0]")
    return [*menus, *boxes]

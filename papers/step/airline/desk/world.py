"""Generates the airline's data from a seed: daily flights between cities, bookings, and callers'
requests.

All persons, cards and flights are invented. No function reads the clock, so a seed gives the same
data on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from random import Random
from typing import Any

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
CITIES = {
    "Boston": "BOS",
    "Chicago": "ORD",
    "Denver": "DEN",
    "Detroit": "DTW",
    "Houston": "IAH",
    "Miami": "MIA",
    "Nashville": "BNA",
    "Philadelphia": "PHL",
    "Phoenix": "PHX",
    "Portland": "PDX",
    "Seattle": "SEA",
    "Tampa": "TPA",
}
# The form labels of a passenger's fields.
PASSENGER_LABELS = {
    "title": "Title",
    "firstname": "First name",
    "lastname": "Last name",
    "gender": "Gender",
    "dob": "Date of birth",
    "email": "Email",
}
TITLES = ("Mr", "Ms", "Mx", "Dr")
GENDERS = ("female", "male", "other")
_BOOKINGS = 40
_FLIGHTS = 5
_FIRST = date(2023, 6, 1)
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_GIVEN = (
    "Abena",
    "Bruno",
    "Chiara",
    "Dmitri",
    "Elif",
    "Farid",
    "Greta",
    "Hana",
    "Ivo",
    "Jun",
    "Kofi",
    "Lena",
    "Mateo",
    "Nour",
)
_FAMILY = (
    "Adeyemi",
    "Brandt",
    "Castillo",
    "Dubois",
    "Eriksen",
    "Fontana",
    "Gupta",
    "Hofer",
    "Ito",
    "Jansen",
    "Keller",
    "Lopez",
)


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
class Passenger:
    """The passenger. `dob` is the date of birth as MM/DD/YYYY."""

    title: str
    firstname: str
    lastname: str
    gender: str
    dob: str
    email: str


@dataclass(frozen=True, slots=True)
class Payment:
    """The payment card. `expiry` is MM/YY."""

    card_number: str
    expiry: str
    security_code: str
    name_on_card: str


@dataclass(frozen=True, slots=True)
class FlightBooking:
    """An outbound and a return flight of one passenger."""

    code: str
    outward: Flight
    back: Flight
    passenger: Passenger
    payment: Payment
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A caller's request, with `details` in the fields of the original service."""

    id: str
    task: str
    details: dict[str, Any]


def scenario(task: str, number: int, seed: int = 0) -> Scenario:
    """Makes one of the 20 scenarios of a task.

    Args:
        task: One of `TASKS`.
        number: From 0 to 19.
        seed: Draws the bookings, flights and passengers.

    Returns:
        The scenario.

    Raises:
        LookupError: There is no such task or number.
    """
    if task not in TASKS or not 0 <= number < SCENARIOS:
        raise LookupError(
            f"unknown scenario {number} of {task}; the tasks are {', '.join(TASKS)}, each "
            f"with 0 to {SCENARIOS - 1}"
        )
    random = Random(f"{seed} {task} {number}")
    held = list(bookings(seed).values())
    Random(f"{seed} {task}").shuffle(held)
    booking, details = held[number], dict[str, Any]()
    if task in ("TASK_FIND_BOOKING", "TASK_CANCEL_FLIGHT", "TASK_UPDATE_PASSENGER_DETAILS"):
        details["confirmation-code"] = booking.code
    if task == "TASK_UPDATE_PASSENGER_DETAILS":
        details["passenger"] = _changes(random, booking.passenger)
    if task in ("TASK_FIND_FLIGHT", "TASK_BOOK_FLIGHT"):
        outward, back = _trip(random, seed)
        details["flight"] = {
            "from": outward.origin,
            "to": outward.destination,
            "departure": outward.day,
            "return": back.day,
            "outward-departure-time": outward.departure,
            "return-arrival-time": back.arrival,
        }
    if task == "TASK_BOOK_FLIGHT":
        passenger = _passenger(random)
        card = _payment(random, passenger)
        details["passenger"] = {name: getattr(passenger, name) for name in Passenger.__slots__}
        details["payment-details"] = {
            "card-number": card.card_number,
            "expiry": card.expiry,
            "security_code": card.security_code,
            "name-on-card": card.name_on_card,
        }
    return Scenario(f"{task}-{number:02d}", task, details)


def wanted_booking(details: dict[str, Any], code: str, seed: int = 0) -> FlightBooking:
    """Returns the booking that the details of TASK_BOOK_FLIGHT request."""
    card = details["payment-details"]
    return FlightBooking(
        code,
        *wanted_flights(details["flight"], seed),
        Passenger(**details["passenger"]),
        Payment(card["card-number"], card["expiry"], card["security_code"], card["name-on-card"]),
    )


def wanted_flights(trip: dict[str, str], seed: int = 0) -> tuple[Flight, Flight]:
    """Returns the outbound and return flights that a scenario's details request."""
    out = flights(trip["from"], trip["to"], trip["departure"], seed)
    home = flights(trip["to"], trip["from"], trip["return"], seed)
    return (
        next(each for each in out if each.departure == trip["outward-departure-time"]),
        next(each for each in home if each.arrival == trip["return-arrival-time"]),
    )


def bookings(seed: int = 0) -> dict[str, FlightBooking]:
    """Returns the initial bookings by confirmation code."""
    random, held = Random(f"{seed} bookings"), dict[str, FlightBooking]()
    while len(held) < _BOOKINGS:
        code = "".join(random.choices(_LETTERS, k=6))
        passenger = _passenger(random)
        outward, back = _trip(random, seed)
        held[code] = FlightBooking(code, outward, back, passenger, _payment(random, passenger))
    return held


def flights(origin: str, destination: str, day: str, seed: int = 0) -> tuple[Flight, ...]:
    """Returns the flights of a day, in order. No two of them depart or arrive at the same time."""
    random = Random(f"{seed} {origin} {destination} {day}")
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


def changed(passenger: Passenger, changes: dict[str, str]) -> Passenger:
    """Returns the passenger with the changed fields."""
    return replace(passenger, **changes)


def _changes(random: Random, passenger: Passenger) -> dict[str, str]:
    fields = sorted(
        random.sample(("title", "firstname", "lastname", "dob", "email"), random.choice((2, 3)))
    )
    found = dict[str, str]()
    while len(found) < len(fields):
        other = _passenger(random)
        found = {
            name: getattr(other, name)
            for name in fields
            if getattr(other, name) != getattr(passenger, name)
        }
    return found


def _trip(random: Random, seed: int) -> tuple[Flight, Flight]:
    origin, destination = random.sample(list(CITIES), 2)
    there = _FIRST + timedelta(days=random.randrange(120))
    back = there + timedelta(days=random.randrange(3, 15))
    return (
        random.choice(flights(origin, destination, _written(there), seed)),
        random.choice(flights(destination, origin, _written(back), seed)),
    )


def _passenger(random: Random) -> Passenger:
    first, last = random.choice(_GIVEN), random.choice(_FAMILY)
    born = date(1950, 1, 1) + timedelta(days=random.randrange(50 * 365))
    email = f"{first}.{last}{random.randrange(10, 100)}@example.com".lower()
    return Passenger(
        random.choice(TITLES), first, last, random.choice(GENDERS), _written(born), email
    )


def _payment(random: Random, passenger: Passenger) -> Payment:
    # No bank issues cards that begin with 9.
    number = "9" + "".join(random.choices("0123456789", k=15))
    expiry = f"{random.randrange(1, 13):02d}/{random.randrange(25, 30)}"
    return Payment(
        number,
        expiry,
        f"{random.randrange(1000):03d}",
        f"{passenger.firstname} {passenger.lastname}",
    )


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def _written(day: date) -> str:
    return day.strftime("%m/%d/%Y")

"""What the airline knows, all drawn from a number: flights between two cities on a day, bookings,
and what callers want.

Every person, card and flight is invented. Nothing reads a clock, so the same number gives the same
world on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from random import Random
from typing import Any

# The names of the original service (arXiv 2310.03720, appendix on AirlineCRM), and twenty scenarios
# of each.
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
# What the forms call a passenger's fields.
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
    """One flight: cities, its day as MM/DD/YYYY, times as HH:MM of the day, the price in
    dollars.
    """

    number: str
    origin: str
    destination: str
    day: str
    departure: str
    arrival: str
    price: int

    @property
    def row(self) -> str:
        """How a list of results shows it."""
        start, end = CITIES[self.origin], CITIES[self.destination]
        return f"{self.departure} {start} {self.arrival} {end} {self.number} ${self.price}"


@dataclass(frozen=True, slots=True)
class Passenger:
    """Who flies; `dob` is the date of birth as MM/DD/YYYY."""

    title: str
    firstname: str
    lastname: str
    gender: str
    dob: str
    email: str


@dataclass(frozen=True, slots=True)
class Payment:
    """The card that pays; `expiry` as MM/YY."""

    card_number: str
    expiry: str
    security_code: str
    name_on_card: str


@dataclass(frozen=True, slots=True)
class FlightBooking:
    """A flight there and one back, by one passenger."""

    code: str
    outward: Flight
    back: Flight
    passenger: Passenger
    payment: Payment
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """What one caller wants: `details` in the fields of the original service."""

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
            f"no scenario {number} of {task}: the tasks are {', '.join(TASKS)}, each with 0 to "
            f"{SCENARIOS - 1}"
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
    """The booking that the details of TASK_BOOK_FLIGHT ask for."""
    card = details["payment-details"]
    return FlightBooking(
        code,
        *wanted_flights(details["flight"], seed),
        Passenger(**details["passenger"]),
        Payment(card["card-number"], card["expiry"], card["security_code"], card["name-on-card"]),
    )


def wanted_flights(trip: dict[str, str], seed: int = 0) -> tuple[Flight, Flight]:
    """The flights there and back that the details of a scenario ask for."""
    out = flights(trip["from"], trip["to"], trip["departure"], seed)
    home = flights(trip["to"], trip["from"], trip["return"], seed)
    return (
        next(each for each in out if each.departure == trip["outward-departure-time"]),
        next(each for each in home if each.arrival == trip["return-arrival-time"]),
    )


def bookings(seed: int = 0) -> dict[str, FlightBooking]:
    """Those that there are at the start, by confirmation code."""
    random, held = Random(f"{seed} bookings"), dict[str, FlightBooking]()
    while len(held) < _BOOKINGS:
        code = "".join(random.choices(_LETTERS, k=6))
        passenger = _passenger(random)
        outward, back = _trip(random, seed)
        held[code] = FlightBooking(code, outward, back, passenger, _payment(random, passenger))
    return held


def flights(origin: str, destination: str, day: str, seed: int = 0) -> tuple[Flight, ...]:
    """The flights of a day, in order; no two of them leave or arrive at the same time."""
    random = Random(f"{seed} {origin} {destination} {day}")
    starts = sorted(random.sample(range(5 * 60, 20 * 60, 25), _FLIGHTS))
    length = 80 + 5 * random.randrange(45)
    # They take the same time but for a few minutes, fewer than lie between two of them: no two
    # arrive together.
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
    """The passenger with these fields instead."""
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
    # Cards that begin with 9 are issued by no bank.
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

"""How far a scenario has come: an ordered list of checkpoints for each task, and whether it is done
and nothing else was.

A checkpoint that is reached stays reached, and takes those before it with it: who opens a booking
by its address has no need of the form. Done means that the last one is reached and that the
bookings are exactly those that the caller wants: whoever cancels two of them has not cancelled one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from prill.papers.step.airline.desk.world import (
    Flight,
    FlightBooking,
    Passenger,
    Scenario,
    bookings,
    changed,
    wanted_booking,
)


@dataclass(slots=True)
class Draft:
    """A booking that is being made: the trip searched for, the flights chosen, the passenger
    entered.

    `trip` is origin, destination, and the days there and back.
    """

    trip: tuple[str, str, str, str] | None = None
    outward: Flight | None = None
    back: Flight | None = None
    begun: bool = False
    passenger: Passenger | None = None


@dataclass(slots=True)
class DeskState:
    """One scenario while it is played. `seen` holds the pages that were shown: a kind and a
    confirmation code.
    """

    scenario: Scenario
    seed: int
    bookings: dict[str, FlightBooking]
    draft: Draft = field(default_factory=Draft)
    seen: set[tuple[str, str]] = field(default_factory=set)
    reached: int = 0
    metrics: list[dict[str, float]] = field(default_factory=list)

    @classmethod
    def of(cls, scenario: Scenario, seed: int) -> DeskState:
        """The scenario as it begins."""
        state = cls(scenario, seed, bookings(seed))
        state.measure()
        return state

    @property
    def next_code(self) -> str:
        """The confirmation code of the next booking to be made."""
        return f"N{len(self.bookings):05d}".translate(str.maketrans("0123456789", "ABCDEFGHJK"))

    def measure(self) -> None:
        """Looks which checkpoints hold by now; notes it where that has changed."""
        checkpoints = state_checkpoints(self)
        holding = [place for place, (_, holds) in enumerate(checkpoints, 1) if holds(self)]
        self.reached = max([self.reached, *holding])
        done = self.reached == len(checkpoints) and _as_wanted(self)
        now = {"task_completion": float(done), "%complete": self.reached / len(checkpoints)}
        if not self.metrics or self.metrics[-1] != now:
            self.metrics.append(now)


Checkpoint = tuple[str, Callable[[DeskState], bool]]


def state_checkpoints(state: DeskState) -> tuple[Checkpoint, ...]:
    """What is looked for, in order, and in words."""
    details = state.scenario.details
    code = details.get("confirmation-code", "")
    opened: Checkpoint = ("the booking is open", lambda s: ("booking", code) in s.seen)
    match state.scenario.task:
        case "TASK_FIND_BOOKING":
            return ("the form is open", lambda s: ("find", "") in s.seen), opened
        case "TASK_CANCEL_FLIGHT":
            return (
                opened,
                ("the dialog is open", lambda s: ("cancel", code) in s.seen),
                ("the booking is cancelled", lambda s: s.bookings[code].cancelled),
            )
        case "TASK_FIND_FLIGHT":
            return _search(details)
        case "TASK_UPDATE_PASSENGER_DETAILS":
            fields = details["passenger"]
            return (
                opened,
                ("the passenger's form is open", lambda s: ("passenger", code) in s.seen),
                *(
                    (f"{n} of {len(fields)} fields are right", _fields_right(code, fields, n))
                    for n in range(1, len(fields) + 1)
                ),
            )
        case _:
            return (
                *_search(details),
                ("checkout has begun", lambda s: s.draft.begun and _chosen(s.draft, details) == 2),
                (
                    "the passenger is entered",
                    lambda s: _chosen(s.draft, details) == 2 and _passenger_right(s, details),
                ),
                ("the flight is booked", lambda s: _as_wanted(s)),
            )


def _search(details: dict[str, Any]) -> tuple[Checkpoint, ...]:
    trip = details["flight"]
    wanted = (trip["from"], trip["to"], trip["departure"], trip["return"])
    return (
        ("the flights are listed", lambda s: s.draft.trip == wanted),
        ("one of the two flights is chosen", lambda s: _chosen(s.draft, details) >= 1),
        ("both flights are chosen", lambda s: _chosen(s.draft, details) == 2),
    )


def _chosen(draft: Draft, details: dict[str, Any]) -> int:
    """How many of the two flights are chosen as they should be, on the right trip."""
    trip, out, back = details["flight"], draft.outward, draft.back
    if draft.trip != (trip["from"], trip["to"], trip["departure"], trip["return"]):
        return 0
    return (out is not None and out.departure == trip["outward-departure-time"]) + (
        back is not None and back.arrival == trip["return-arrival-time"]
    )


def _fields_right(code: str, fields: dict[str, str], least: int) -> Callable[[DeskState], bool]:
    return lambda s: (
        sum(getattr(s.bookings[code].passenger, name) == value for name, value in fields.items())
        >= least
    )


def _passenger_right(state: DeskState, details: dict[str, Any]) -> bool:
    return state.draft.passenger == Passenger(**details["passenger"])


def _as_wanted(state: DeskState) -> bool:
    """Whether the bookings are those from the start with what the caller wants, and nothing
    else.
    """
    wanted, details = bookings(state.seed), state.scenario.details
    code = details.get("confirmation-code", "")
    match state.scenario.task:
        case "TASK_CANCEL_FLIGHT":
            wanted[code] = replace(wanted[code], cancelled=True)
        case "TASK_UPDATE_PASSENGER_DETAILS":
            wanted[code] = replace(
                wanted[code], passenger=changed(wanted[code].passenger, details["passenger"])
            )
        case "TASK_BOOK_FLIGHT":
            new = next((each for each in state.bookings if each not in wanted), "")
            wanted[new] = wanted_booking(details, new, state.seed)
    return state.bookings == wanted

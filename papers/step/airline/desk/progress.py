"""Measures progress in a scenario: an ordered list of checkpoints for each task, and whether the
task is done without side effects.

A reached checkpoint stays reached and implies those before it. For example, an agent that opens a
booking by its address need not use the form. A task is done if the last checkpoint is reached and
the bookings are exactly those that the caller wants. Cancelling a second booking therefore fails
the task.
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
    """A booking in progress: the searched trip, the selected flights, the passenger.

    `trip` holds origin, destination, and the dates of departure and return.
    """

    trip: tuple[str, str, str, str] | None = None
    outward: Flight | None = None
    back: Flight | None = None
    begun: bool = False
    passenger: Passenger | None = None


@dataclass(slots=True)
class DeskState:
    """The state of one scenario during an episode. `seen` holds the shown pages: a type and a
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
        """Returns the initial state of the scenario."""
        state = cls(scenario, seed, bookings(seed))
        state.measure()
        return state

    @property
    def next_code(self) -> str:
        """Returns the confirmation code of the next booking."""
        return f"N{len(self.bookings):05d}".translate(str.maketrans("0123456789", "ABCDEFGHJK"))

    def measure(self) -> None:
        """Evaluates the checkpoints and records changes."""
        checkpoints = state_checkpoints(self)
        holding = [place for place, (_, holds) in enumerate(checkpoints, 1) if holds(self)]
        self.reached = max([self.reached, *holding])
        done = self.reached == len(checkpoints) and _as_wanted(self)
        now = {"task_completion": float(done), "%complete": self.reached / len(checkpoints)}
        if not self.metrics or self.metrics[-1] != now:
            self.metrics.append(now)


Checkpoint = tuple[str, Callable[[DeskState], bool]]


def state_checkpoints(state: DeskState) -> tuple[Checkpoint, ...]:
    """Returns the checkpoints of a state in order, with descriptions."""
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
    """Returns how many of the two selected flights are right and on the right trip."""
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
    """Returns whether the bookings are the initial ones changed exactly as the caller wants."""
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

"""Solutions of the scenarios: action texts with elements named by role and name, for
`prill.emulators.shop.ShopPlay`.
"""

from __future__ import annotations

from typing import Any

from prill.papers.step.airline.desk.world import PASSENGER_LABELS, scenario, wanted_flights

_MENUS = ("title", "gender")


def solution(task: str, number: int, seed: int = 0) -> tuple[str, ...]:
    """Returns the shortest sequence of actions that solves a scenario from the first page.

    Args:
        task: One of `TASKS`.
        number: From 0 to 19.
        seed: The seed of the scenario.

    Returns:
        The actions as text.

    Raises:
        LookupError: There is no such task or number.
    """
    details = scenario(task, number, seed).details
    lines: list[str] = []
    code = str(details.get("confirmation-code", ""))
    if code:
        lines += [
            "click [link 'Find booking']",
            _typed("Confirmation code", code),
            "click [button 'Search']",
        ]
    if task == "TASK_CANCEL_FLIGHT":
        again = _typed("Confirmation code", code)
        lines += ["click [button 'Cancel booking']", again, "click [button 'Confirm cancellation']"]
    if task == "TASK_UPDATE_PASSENGER_DETAILS":
        lines += [
            "click [button 'Modify booking']",
            *_passenger(details["passenger"]),
            "click [button 'Save changes']",
        ]
    if "flight" in details:
        lines += _trip(details["flight"], seed)
    if task == "TASK_BOOK_FLIGHT":
        card = details["payment-details"]
        lines += [
            "click [button 'Checkout']",
            *_passenger(details["passenger"]),
            "click [button 'Save changes']",
        ]
        lines += [_typed("Card number", card["card-number"]), _typed("Expiry", card["expiry"])]
        lines += [
            _typed("Security code", card["security_code"]),
            _typed("Name on card", card["name-on-card"]),
        ]
        lines += ["click [button 'Pay and book']"]
    return tuple(lines)


def _trip(trip: dict[str, str], seed: int) -> list[str]:
    return [
        "click [link 'Find flights']",
        _typed("From", trip["from"]),
        _typed("To", trip["to"]),
        _typed("Departure date", trip["departure"]),
        _typed("Return date", trip["return"]),
        "click [button 'Search flights']",
        *(f"click [button '{flight.row}']" for flight in wanted_flights(trip, seed)),
    ]


def _passenger(fields: dict[str, Any]) -> list[str]:
    given = {name: label for name, label in PASSENGER_LABELS.items() if name in fields}
    menus = [
        f"type [combobox '{given[name]}'] [{fields[name]}] [0]" for name in _MENUS if name in given
    ]
    boxes = [_typed(label, fields[name]) for name, label in given.items() if name not in _MENUS]
    return [*menus, *boxes]


def _typed(box: str, words: str) -> str:
    return f"type [textbox '{box}'] [{words}] [0]"

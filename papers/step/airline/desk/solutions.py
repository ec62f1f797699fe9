"""How each scenario is done: action texts with elements named by role and name, for
`prill.emulators.shop.ShopPlay`.
"""

from __future__ import annotations

from typing import Any

from prill.papers.step.airline.desk.world import flights, scenario

_BOXES = {
    "firstname": "First name",
    "lastname": "Last name",
    "dob": "Date of birth",
    "email": "Email",
}
_MENUS = {"title": "Title", "gender": "Gender"}


def solution(task: str, number: int, seed: int = 0) -> tuple[str, ...]:
    """Lists the fewest actions that solve a scenario, from the first page on.

    Args:
        task: One of `TASKS`.
        number: From 0 to 19.
        seed: That of the scenario.

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
    out = flights(trip["from"], trip["to"], trip["departure"], seed)
    home = flights(trip["to"], trip["from"], trip["return"], seed)
    chosen = (
        next(each for each in out if each.departure == trip["outward-departure-time"]),
        next(each for each in home if each.arrival == trip["return-arrival-time"]),
    )
    return [
        "click [link 'Find flights']",
        _typed("From", trip["from"]),
        _typed("To", trip["to"]),
        _typed("Departure date", trip["departure"]),
        _typed("Return date", trip["return"]),
        "click [button 'Search flights']",
        *(f"click [button '{flight.row}']" for flight in chosen),
    ]


def _passenger(fields: dict[str, Any]) -> list[str]:
    boxes = [_typed(label, fields[name]) for name, label in _BOXES.items() if name in fields]
    return [
        *(
            f"type [combobox '{label}'] [{fields[name]}] [0]"
            for name, label in _MENUS.items()
            if name in fields
        ),
        *boxes,
    ]


def _typed(box: str, words: str) -> str:
    return f"type [textbox '{box}'] [{words}] [0]"

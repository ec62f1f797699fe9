"""Stand-ins for the outside world, for prill's tests and for yours: models and their server, phones, a shop, replays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prill.testing.android import FakeAdb
    from prill.testing.endpoint.faults import Faults, marked_truth
    from prill.testing.endpoint.mock import MockServer
    from prill.testing.ios import FakeSimulators
    from prill.testing.scripted import ReplayEnvironment, ScriptedModel
    from prill.testing.shop import Shop


__all__ = [
    "FakeAdb",
    "FakeSimulators",
    "Faults",
    "MockServer",
    "ReplayEnvironment",
    "ScriptedModel",
    "Shop",
    "marked_truth",
]
_HOMES = {
    "FakeAdb": "prill.testing.android",
    "FakeSimulators": "prill.testing.ios",
    "Shop": "prill.testing.shop",
    "Faults": "prill.testing.endpoint.faults",
    "marked_truth": "prill.testing.endpoint.faults",
    "MockServer": "prill.testing.endpoint.mock",
    "ReplayEnvironment": "prill.testing.scripted",
    "ScriptedModel": "prill.testing.scripted",
}


def __getattr__(name: str) -> object:
    # Lazy, so that `python -m prill.testing.endpoint.server` and the fakes without a server load only what they use.
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

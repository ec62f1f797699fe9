"""Stand-ins for the outside world, for prill's tests and for yours: models and their server, phones, a shop, replays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prill.fakes.android import FakeAdb
    from prill.fakes.faults import Faults, marked_truth
    from prill.fakes.ios import FakeSimulators
    from prill.fakes.mock import MockServer
    from prill.fakes.scripted import ReplayEnvironment, ReplayPolicy, ScriptedModel
    from prill.fakes.shop import Shop

__all__ = [
    "FakeAdb",
    "FakeSimulators",
    "Faults",
    "MockServer",
    "ReplayEnvironment",
    "ReplayPolicy",
    "ScriptedModel",
    "Shop",
    "marked_truth",
]

_HOMES = {
    "FakeAdb": "prill.fakes.android",
    "FakeSimulators": "prill.fakes.ios",
    "Shop": "prill.fakes.shop",
    "Faults": "prill.fakes.faults",
    "marked_truth": "prill.fakes.faults",
    "MockServer": "prill.fakes.mock",
    "ReplayEnvironment": "prill.fakes.scripted",
    "ReplayPolicy": "prill.fakes.scripted",
    "ScriptedModel": "prill.fakes.scripted",
}


def __getattr__(name: str) -> object:
    # Lazy, so that `python -m prill.fakes.server` and the fakes without a server load only what they use.
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

"""Stand-ins for the outside world, for prill's tests and for yours: a model, a model server, an environment, a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prill.fakes.faults import Faults, marked_truth
    from prill.fakes.mock import MockServer
    from prill.fakes.scripted import ReplayEnvironment, ReplayPolicy, ScriptedModel

__all__ = ["Faults", "MockServer", "ReplayEnvironment", "ReplayPolicy", "ScriptedModel", "marked_truth"]

_HOMES = {
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

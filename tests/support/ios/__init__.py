"""Fake iOS simulators for the real fb-idb client: idb_companion's command line and gRPC service,
and simctl's pbcopy.

    python -m tests.support.ios --make DIR

This makes a folder with the executables `idb_companion` and `simctl`. The state of their simulators
is stored in files there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.ios.folder import FakeSimulators


__all__ = ["FakeSimulators"]


def __getattr__(name: str) -> object:
    # Lazy, so that each command of the fake companion loads only what it uses.
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tests.support.ios.folder"), name)

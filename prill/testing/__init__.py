"""Stand-ins for the outside world, for prill's tests and for yours: models and their server, phones, replays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.testing.android import FakeAdb
    from prill.testing.endpoint.faults import Faults, marked_truth
    from prill.testing.endpoint.mock import MockServer
    from prill.testing.ios import FakeSimulators
    from prill.testing.scripted import ReplayEnvironment, ScriptedModel
    from prill.testing.small_models import small_encoder, small_t5


__all__ = [
    "FakeAdb",
    "FakeSimulators",
    "Faults",
    "MockServer",
    "ReplayEnvironment",
    "ScriptedModel",
    "marked_truth",
    "small_encoder",
    "small_t5",
]
_HOMES = {
    "FakeAdb": "android",
    "FakeSimulators": "ios",
    "Faults": "endpoint.faults",
    "marked_truth": "endpoint.faults",
    "MockServer": "endpoint.mock",
    "ReplayEnvironment": "scripted",
    "ScriptedModel": "scripted",
    "small_encoder": "small_models",
    "small_t5": "small_models",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

"""Public test doubles: a model endpoint, a scripted model, replayed environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.testing.endpoint.faults import Faults, marked_truth
    from prill.testing.endpoint.mock import MockServer
    from prill.testing.scripted import ReplayEnvironment, ScriptedModel


__all__ = ["Faults", "MockServer", "ReplayEnvironment", "ScriptedModel", "marked_truth"]
__getattr__, __dir__ = lazily(__name__)

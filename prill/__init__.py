"""prill judges what a digital agent did, and uses the judgement to make the agent better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.errors import EndpointError, InputError, PrillError, Unscored, UsageError
from prill.loop import rollout
from prill.types import Action, LabelRecord, Observation, Step, Task, Trajectory, Usage, Verdict

if TYPE_CHECKING:
    from prill.scoring import score, score_files, score_stream
    from prill.store import read_labels, read_trajectories, read_verdicts, write_labels, write_trajectories
    from prill.tables import table


__version__ = "0.1.0"
__all__ = [
    "Action",
    "EndpointError",
    "InputError",
    "LabelRecord",
    "Observation",
    "PrillError",
    "Step",
    "Task",
    "Trajectory",
    "Unscored",
    "Usage",
    "UsageError",
    "Verdict",
    "read_labels",
    "read_trajectories",
    "read_verdicts",
    "rollout",
    "score",
    "score_files",
    "score_stream",
    "table",
    "write_labels",
    "write_trajectories",
]


def __getattr__(name: str) -> object:
    # What needs a decoder or a database is loaded when it is first used: `import prill` stays instant.
    from importlib import import_module

    for module in ("prill.scoring", "prill.store", "prill.tables"):
        if name in __all__ and hasattr(loaded := import_module(module), name):
            return getattr(loaded, name)
    raise AttributeError(f"module 'prill' has no attribute {name!r}")

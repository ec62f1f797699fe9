"""prill judges what a digital agent did, and uses the judgement to make the agent better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.errors import EndpointError, EnvironmentFailure, InputError, NoEvidence, PrillError, Unscored, UsageError
from prill.loop import rollout
from prill.types import Action, EvaluatorInfo, LabelRecord, Observation, Step, Task, Trajectory, Usage, Verdict

if TYPE_CHECKING:
    from prill.captioner.registry import make_captioner as captioner
    from prill.emulators.registry import make_environment as environment
    from prill.evaluators.registry import make_judge as judge
    from prill.models.registry import make_model as model
    from prill.policies.registry import make_policy as policy
    from prill.scoring import score, score_files, score_stream
    from prill.store import read_labels, read_trajectories, read_verdicts, write_labels, write_trajectories
    from prill.tables import table

__version__ = "0.1.0"

__all__ = [
    "Action",
    "EndpointError",
    "EnvironmentFailure",
    "EvaluatorInfo",
    "InputError",
    "LabelRecord",
    "NoEvidence",
    "Observation",
    "PrillError",
    "Step",
    "Task",
    "Trajectory",
    "Unscored",
    "Usage",
    "UsageError",
    "Verdict",
    "captioner",
    "environment",
    "judge",
    "model",
    "policy",
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
# What needs a decoder or a database is loaded when it is first used: `import prill` stays instant.
_LAZY = {
    "captioner": "prill.captioner.registry:make_captioner",
    "environment": "prill.emulators.registry:make_environment",
    "judge": "prill.evaluators.registry:make_judge",
    "model": "prill.models.registry:make_model",
    "policy": "prill.policies.registry:make_policy",
    "read_labels": "prill.store:read_labels",
    "read_trajectories": "prill.store:read_trajectories",
    "read_verdicts": "prill.store:read_verdicts",
    "score": "prill.scoring:score",
    "score_files": "prill.scoring:score_files",
    "score_stream": "prill.scoring:score_stream",
    "table": "prill.tables:table",
    "write_labels": "prill.store:write_labels",
    "write_trajectories": "prill.store:write_trajectories",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _LAZY:
        raise AttributeError(f"module 'prill' has no attribute {name!r}")
    module, _, attribute = _LAZY[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

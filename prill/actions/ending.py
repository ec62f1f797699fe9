"""Reads the agent's own claim of success from its final action. It is never used as a label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The metadata key that holds the agent's claim of success, true or false.
CLAIMED_SUCCESS = "claimed_success"
# Arguments that hold the claim: browser-use's `success`, the `status` of Qwen's `terminate`,
# AndroidWorld's `goal_status`.
_KEYS = ("success", "status", "goal_status")
_VALUES = {
    **dict.fromkeys(("true", "success", "successful", "succeeded", "complete", "completed"), True),
    **dict.fromkeys(
        ("false", "failure", "failed", "fail", "infeasible", "impossible", "incomplete"), False
    ),
}


def claim_in(arguments: Mapping[str, object]) -> bool | None:
    """Returns the success flag in the arguments of the call that ends a run, or None."""
    for key in _KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            value = _VALUES.get(value.strip().lower())
        if isinstance(value, bool):
            return value
    return None


def agent_claim(metadata: Mapping[str, Any]) -> bool | None:
    """Returns the success flag from a recording's metadata, or None."""
    value = metadata.get(CLAIMED_SUCCESS)
    return value if isinstance(value, bool) else None


def with_claim(metadata: Mapping[str, Any], claimed: bool | None) -> dict[str, Any]:
    """Returns a recording's metadata with the success flag added, both without what is None."""
    every = {**metadata, CLAIMED_SUCCESS: claimed}
    return {key: value for key, value in every.items() if value is not None}

"""How an agent ends a run, with its own claim of success: a claim, never a label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The key of a trajectory's metadata under which recordings keep that flag, true or false.
CLAIMED_SUCCESS = "claimed_success"
# The arguments that hold it: browser-use's `success`, the `status` of Qwen's `terminate`,
# AndroidWorld's `goal_status`.
_KEYS = ("success", "status", "goal_status")
_VALUES = {
    **dict.fromkeys(("true", "success", "successful", "succeeded", "complete", "completed"), True),
    **dict.fromkeys(
        ("false", "failure", "failed", "fail", "infeasible", "impossible", "incomplete"), False
    ),
}


def claim_in(arguments: Mapping[str, object]) -> bool | None:
    """The flag among the arguments of the call that ends a run; None without one."""
    for key in _KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            value = _VALUES.get(value.strip().lower())
        if isinstance(value, bool):
            return value
    return None


def agent_claim(metadata: Mapping[str, Any]) -> bool | None:
    """The flag that a recording keeps; None without one."""
    value = metadata.get(CLAIMED_SUCCESS)
    return value if isinstance(value, bool) else None


def with_claim(metadata: Mapping[str, Any], claimed: bool | None) -> dict[str, Any]:
    """The metadata of a recording with the flag, where there is one."""
    return dict(metadata) if claimed is None else {**metadata, CLAIMED_SUCCESS: claimed}

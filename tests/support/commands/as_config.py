"""Builds configurations from the arguments of `prill rollout`."""

from __future__ import annotations

from prill.cli.commands import COMMANDS
from prill.cli.derive import derive
from prill.episodes import RolloutConfig


def config(*words: str) -> RolloutConfig:
    """Returns the configuration for these arguments."""
    derived, rest = derive(
        RolloutConfig, list(words), COMMANDS["rollout"].layout, prog="prill rollout", dry_run=True
    )
    made = derived.read(rest)[0]
    assert isinstance(made, RolloutConfig)
    return made

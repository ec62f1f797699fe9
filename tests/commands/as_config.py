"""The configuration that words of `prill rollout` give."""

from __future__ import annotations

from prill.cli.commands import COMMANDS
from prill.cli.derive import derive
from prill.runs.rollout import RolloutConfig


def config(*words: str) -> RolloutConfig:
    """What the command would be told."""
    derived, rest = derive(
        RolloutConfig, list(words), COMMANDS["rollout"].words, prog="prill rollout", dry_run=True
    )
    made = derived.read(rest)[0]
    assert isinstance(made, RolloutConfig)
    return made

"""Settings of a reward monitor, the same in Python, TOML, JSON and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.config.values import Config
from prill.errors import UsageError
from prill.protocols import Evaluator

FEWEST = 30  # scores on each side of a comparison, since the tests use the normal distribution


@dataclass(frozen=True, kw_only=True)
class WatchLimits(Config):
    """Windows and thresholds of the alarms.

    The first `window` verdicts are compared with the latest `window` of those after them. The tests
    are repeated many times, so their significance level `chance` is far below the usual 0.05.

    Raises:
        UsageError: There are canaries without a label file, or a label file without canaries.
    """

    window: Annotated[
        int, Meta(ge=FEWEST, description="verdicts that are compared with each other")
    ] = 200
    reference: Annotated[
        str | Path | None,
        Meta(
            description="verdict file whose scores drift is measured from (default: the first "
            "verdicts)"
        ),
    ] = None
    chance: Annotated[
        float, Meta(gt=0, lt=1, description="probability below which a change is not by chance")
    ] = 0.0001
    unscored_limit: Annotated[
        float, Meta(ge=0, le=1, description="share of verdicts that may be unscored")
    ] = 0.1
    canary_limit: Annotated[
        float,
        Meta(ge=0, le=1, description="share of the canaries that may turn from right to wrong"),
    ] = 0.1
    drift_alarm: Annotated[
        bool,
        Meta(
            description="drift is an alarm by itself, not only a notice: for agents that do not "
            "learn meanwhile"
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class WatchSpec(WatchLimits):
    """Options of a reward watch."""

    observations: Annotated[
        str | Path | None,
        Meta(description="file that what is seen is appended to; `prill watch` shows it"),
    ] = None
    canaries: Annotated[
        str | Path | None,
        Meta(description="trajectories with known labels that are judged again and again"),
    ] = None
    canary_labels: Annotated[str | Path | None, Meta(description="label file of the canaries")] = (
        None
    )
    canary_every: Annotated[
        int, Meta(ge=1, description="verdicts between two rounds of the canaries")
    ] = 500
    student: Annotated[
        str | Mapping[str, Any] | Evaluator | None,
        Meta(description="a second, cheap judge: a file of prill fit, a judge file, or a name"),
    ] = None

    def check(self) -> None:
        """Checks settings that depend on each other."""
        if (self.canaries is None) != (self.canary_labels is None):
            raise UsageError(
                "canaries and canary_labels: give both, trajectories and what is known of them",
                parameters=("canaries", "canary_labels"),
            )

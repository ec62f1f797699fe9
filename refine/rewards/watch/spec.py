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

    window: Annotated[int, Meta(ge=FEWEST, description="Number of verdicts per window.")] = 200
    reference: Annotated[
        str | Path | None,
        Meta(
            description="Verdict file with the reference scores for drift (default: the "
            "first verdicts)."
        ),
    ] = None
    chance: Annotated[
        float, Meta(gt=0, lt=1, description="p-value below which a change is significant.")
    ] = 0.0001
    unscored_limit: Annotated[
        float, Meta(ge=0, le=1, description="Maximum share of unscored verdicts.")
    ] = 0.1
    canary_limit: Annotated[
        float,
        Meta(
            ge=0, le=1, description="Maximum share of canaries that may change from right to wrong."
        ),
    ] = 0.1
    drift_alarm: Annotated[
        bool,
        Meta(
            description="Raise an alarm for drift, instead of a notice. For agents that "
            "are not being trained."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class WatchSpec(WatchLimits):
    """Options of a reward watch."""

    observations: Annotated[
        str | Path | None,
        Meta(description="File to which observations are appended. `prill watch` displays it."),
    ] = None
    canaries: Annotated[
        str | Path | None,
        Meta(description="Trajectories with known labels that are judged repeatedly."),
    ] = None
    canary_labels: Annotated[str | Path | None, Meta(description="Label file of the canaries.")] = (
        None
    )
    canary_every: Annotated[
        int, Meta(ge=1, description="Number of verdicts between two rounds of canaries.")
    ] = 500
    student: Annotated[
        str | Mapping[str, Any] | Evaluator | None,
        Meta(description="Second, cheap judge: a file of `prill fit`, a judge file, or a name."),
    ] = None

    def check(self) -> None:
        """Checks settings that depend on each other."""
        if (self.canaries is None) != (self.canary_labels is None):
            raise UsageError(
                "canaries and canary_labels: give both, the trajectories and their labels",
                parameters=("canaries", "canary_labels"),
            )

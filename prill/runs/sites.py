"""Checks WebArena's sites: URLs, logins, reset and oracle."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prill.emulators.settings import Playing
from prill.emulators.webarena.config import SiteFinding, WebArenaConfig
from prill.emulators.webarena.config import check_sites as findings
from prill.io.tables import data_frame
from prill.runs.base import synchronous
from prill.runs.rollout.episodes import shared_model


@dataclass(frozen=True)
class SitesResult:
    """Findings, in the order of the checks.

    Args:
        findings: One requirement of real sites each, and its problem; None: no problem.
    """

    findings: tuple[SiteFinding, ...]

    @property
    def ready(self) -> bool:
        """Returns whether no requirement failed."""
        return all(finding.problem is None for finding in self.findings)

    def to_pandas(self) -> Any:
        """Returns a row for each requirement, with its problem."""
        return data_frame([asdict(finding) for finding in self.findings])

    def __str__(self) -> str:
        return "\n".join(map(finding_line, self.findings))


def finding_line(finding: SiteFinding) -> str:
    """Formats a finding as text."""
    return f"{'missing' if finding.problem else 'ok':<8}{finding.what}{f': {finding.problem}' if finding.problem else ''}"  # noqa: E501


async def check_sites_async(
    config: WebArenaConfig, *, progress: Callable[[SiteFinding], None] = lambda finding: None
) -> SitesResult:
    """Checks the requirements of a run on WebArena's sites, and plays nothing.

    Args:
        config: The sites, how they are reset, and the tasks.
        progress: Called after each check.

    Returns:
        The results of all checks.

    Raises:
        UsageError: The configuration is invalid.
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="prill-check-") as folder:
        run = Playing(
            images=Path(folder) / "images",
            workers=1,
            model=lambda model: shared_model(None, model, 16),
        )
        async for finding in findings(config, run):
            found.append(finding)
            progress(finding)
    return SitesResult(tuple(found))


check_sites = synchronous(check_sites_async)
"""Runs `check_sites_async` with the same parameters, for scripts and notebooks."""

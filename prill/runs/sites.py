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
    """What was found, in the order in which it was tried.

    Args:
        findings: One thing that real sites need each, and what is wrong with it; None: nothing.
    """

    findings: tuple[SiteFinding, ...]

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return all(finding.problem is None for finding in self.findings)

    def to_pandas(self) -> Any:
        """A row for each thing, with its problem."""
        return data_frame([asdict(finding) for finding in self.findings])

    def __str__(self) -> str:
        return "\n".join(map(line_of_finding, self.findings))


def line_of_finding(finding: SiteFinding) -> str:
    """A finding in words."""
    return f"{'missing' if finding.problem else 'ok':<8}{finding.what}{f': {finding.problem}' if finding.problem else ''}"  # noqa: E501


async def check_sites_async(
    config: WebArenaConfig, *, progress: Callable[[SiteFinding], None] = lambda finding: None
) -> SitesResult:
    """Tries what a run on WebArena's sites needs, and plays nothing.

    Args:
        config: The sites, how they are reset, and which tasks are meant.
        progress: Called after each thing that was tried.

    Returns:
        What is there, and what is missing.

    Raises:
        UsageError: The configuration cannot be carried out.
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
"""`check_sites_async`, waited for: the same parameters, in scripts and notebooks."""

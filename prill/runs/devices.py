"""Lists the environments that work on this machine, and checks WebArena's sites."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from prill.config.values import Config
from prill.emulators.ios.simulators import ios_tools
from prill.emulators.requirements import Tool, android_tools, web_tools
from prill.emulators.settings import Playing
from prill.emulators.webarena.config import SiteFinding, WebArenaConfig
from prill.emulators.webarena.config import check_sites as findings
from prill.errors import UsageError
from prill.io.tables import data_frame
from prill.runs.base import synchronous
from prill.runs.rollout.policies import shared_model

PLATFORMS = ("web", "android", "ios")


@dataclass(frozen=True, kw_only=True)
class DevicesConfig(Config):
    """Configuration of `prill devices`: look for browsers, phones and simulators."""

    platforms: Annotated[
        Sequence[str],
        Meta(description=f"Platforms to check: {', '.join(PLATFORMS)} (default: all)."),
    ] = ()
    appium_url: Annotated[str, Meta(description="Address of an Appium server to check.")] = (
        "http://127.0.0.1:4723"
    )

    def check(self) -> None:
        """Validates the platforms."""
        if unknown := [name for name in self.platforms if name not in PLATFORMS]:
            raise UsageError(
                f"unknown platform {', '.join(unknown)}; expected {', '.join(PLATFORMS)}"
            )


@dataclass(frozen=True)
class DevicesResult:
    """Available environments, and how to install the others.

    Attributes:
        tools: The tools of each platform.
    """

    tools: Mapping[str, tuple[Tool, ...]]

    def __str__(self) -> str:
        lines: list[str] = []
        for platform, tools in self.tools.items():
            lines.append(platform)
            for tool in tools:
                lines.append(
                    f"  {'yes' if tool.found else 'no ':3} {tool.name}: "
                    f"{tool.found or f'{tool.lacking}; {tool.get}'}"
                )
        return "\n".join(lines)


async def devices_async(config: DevicesConfig) -> DevicesResult:
    """Checks which environments this machine can run.

    Args:
        config: The platforms, and the address of an Appium server.

    Returns:
        The tools of each platform, found or missing.
    """
    lookups = {
        "web": web_tools,
        "android": lambda: android_tools(config.appium_url),
        "ios": ios_tools,
    }
    names = list(config.platforms or PLATFORMS)
    return DevicesResult(
        dict(zip(names, await asyncio.gather(*(lookups[name]() for name in names)), strict=True))
    )


devices = synchronous(devices_async)
"""Runs `devices_async` with the same parameters, for scripts and notebooks."""


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

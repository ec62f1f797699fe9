"""Lists the environments that work on this machine, and checks WebArena's sites."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill.config.values import Config
from prill.emulators.ios.simulators import ios_tools
from prill.emulators.requirements import Tool, android_tools, web_tools
from prill.emulators.settings import AppiumOption, EnvironmentLike, Playing
from prill.emulators.webarena.config import SiteFinding, WebArenaConfig, check_sites
from prill.episodes.policies import shared_model
from prill.errors import UsageError
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run

PLATFORMS = ("web", "android", "ios")


@dataclass(frozen=True, kw_only=True)
class DevicesConfig(Config):
    """Configuration of `prill devices`: look for browsers, phones and simulators, or check that
    WebArena's sites are ready.
    """

    platforms: Annotated[
        Sequence[str],
        Meta(
            description=f"Platforms to check: {', '.join(PLATFORMS)} (default: all, or none if an "
            "environment is given)."
        ),
    ] = ()
    appium_url: AppiumOption = "http://127.0.0.1:4723"
    environment: Annotated[
        EnvironmentLike | None,
        Meta(description="webarena: check the addresses, logins, reset and oracle of its sites."),
    ] = None

    def check(self) -> None:
        """Validates the platforms."""
        if unknown := [name for name in self.platforms if name not in PLATFORMS]:
            raise UsageError(
                f"unknown platform {', '.join(unknown)}; expected {', '.join(PLATFORMS)}"
            )
        if not isinstance(self.environment, WebArenaConfig | None):
            raise UsageError("only webarena has sites to check", parameters=("environment",))


@dataclass(frozen=True)
class DevicesResult(Printed):
    """Available environments, and how to install the others.

    Attributes:
        tools: The tools of each platform.
        sites: The requirements of WebArena's sites, in the order of the checks.
    """

    tools: Mapping[str, tuple[Tool, ...]]
    sites: tuple[SiteFinding, ...] = ()

    @property
    def ready(self) -> bool:
        """Returns whether no requirement of the sites failed."""
        return all(finding.problem is None for finding in self.sites)

    def to_dict(self) -> dict[str, Any]:
        """Returns the tools of each platform, and the findings, as a JSON object."""
        return dict(msgspec.to_builtins({**self.tools, "sites": self.sites}))

    @property
    def exit_code(self) -> int:
        """Returns 3 if a requirement of the sites failed."""
        return EXIT_ALL if self.ready else EXIT_SOME

    def __str__(self) -> str:
        lines: list[str] = []
        for platform, tools in self.tools.items():
            lines.append(platform)
            for tool in tools:
                lines.append(
                    f"  {'yes' if tool.found else 'no ':3} {tool.name}: "
                    f"{tool.found or f'{tool.lacking}; {tool.get}'}"
                )
        for site in self.sites:
            lines.append(
                f"missing {site.what}: {site.problem}" if site.problem else f"ok      {site.what}"
            )
        return "\n".join(lines)


@as_run(DevicesConfig)
async def devices(
    config: DevicesConfig, *, progress: Callable[[], object] = lambda: None
) -> DevicesResult:
    """Checks which environments this machine can run, and plays nothing.

    Args:
        config: The platforms, the address of an Appium server, and WebArena's sites.
        progress: Called after each check of WebArena's sites.

    Returns:
        The tools of each platform, found or missing, and the findings on the sites.

    Raises:
        UsageError: The configuration of the sites is invalid.
    """
    lookups = {
        "web": web_tools,
        "android": lambda: android_tools(config.appium_url),
        "ios": ios_tools,
    }
    names = config.platforms or (() if config.environment else PLATFORMS)
    tools = await asyncio.gather(*(lookups[name]() for name in names))
    sites = []
    if isinstance(config.environment, WebArenaConfig):
        with tempfile.TemporaryDirectory(prefix="prill-check-") as folder:
            run = Playing(
                images=Path(folder) / "images",
                workers=1,
                model=lambda model: shared_model(None, model, 16),
            )
            async for finding in check_sites(config.environment, run):
                sites.append(finding)
                progress()
    return DevicesResult(dict(zip(names, tools, strict=True)), tuple(sites))

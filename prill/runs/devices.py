"""Lists the environments that work on this machine, and how to install the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from prill.config.values import Config
from prill.emulators.android.requirements import android_tools
from prill.emulators.browser.requirements import web_tools
from prill.emulators.ios.simulators import ios_tools
from prill.emulators.requirements import Tool
from prill.errors import UsageError
from prill.runs.base import synchronous

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
    asked = {
        "web": web_tools,
        "android": lambda: android_tools(config.appium_url),
        "ios": ios_tools,
    }
    names = list(config.platforms or PLATFORMS)
    return DevicesResult(
        dict(zip(names, await asyncio.gather(*(asked[name]() for name in names)), strict=True))
    )


devices = synchronous(devices_async)
"""Runs `devices_async` with the same parameters, for scripts and notebooks."""

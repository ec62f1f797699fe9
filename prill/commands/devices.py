"""`prill devices`: which environments can be used on this machine, and how to get what is missing."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict

from prill.emulators.android.requirements import android_tools
from prill.emulators.browser.requirements import web_tools
from prill.emulators.ios.simulators import ios_tools
from prill.emulators.requirements import Tool

PLATFORMS = ("web", "android", "ios")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = "Example: prill devices android"
    parser.add_argument("platform", nargs="*", metavar="PLATFORM", help=f"{', '.join(PLATFORMS)} (default: all of them)")
    parser.add_argument("--appium-url", default="http://127.0.0.1:4723", metavar="URL", help="where an Appium server may be")
    parser.add_argument("--json", action="store_true", help="print it as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Prints what is there; 0 also when something is missing, 2 for an unknown platform."""
    if unknown := [name for name in args.platform if name not in PLATFORMS]:
        print(f"prill devices: no platform {', '.join(unknown)}; there are {', '.join(PLATFORMS)}", file=sys.stderr)
        return 2
    tools_by_platform = asyncio.run(_look(args.platform or PLATFORMS, args.appium_url))
    if args.json:
        print(json.dumps({platform: [asdict(tool) for tool in tools] for platform, tools in tools_by_platform.items()}))
        return 0
    for platform, tools in tools_by_platform.items():
        print(platform)
        for tool in tools:
            print(f"  {'yes' if tool.found else 'no ':3} {tool.name}: {tool.found or f'{tool.lacking}; {tool.get}'}")
    return 0


async def _look(platforms: Iterable[str], appium_url: str) -> dict[str, tuple[Tool, ...]]:
    asked = {"web": web_tools, "android": lambda: android_tools(appium_url), "ios": ios_tools}
    names = list(platforms)
    return dict(zip(names, await asyncio.gather(*(asked[name]() for name in names)), strict=True))

"""Checks what web environments need on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata

from prill.emulators.browser.chromium import chromium_path
from prill.emulators.requirements import Tool
from prill.errors import UsageError, install_command

_VERSION_TIMEOUT = 10.0
_PACKAGES = (
    ("Playwright", "playwright", install_command("web")),
    ("MiniWoB++ pages", "miniwob", "pip install --no-deps miniwob"),
    (
        "BrowserGym, for its own tasks",
        "browsergym-core",
        f"{install_command('browsergym')}, in an environment of its own",
    ),
    ("libwebarena, to compare with", "libwebarena", "pip install libwebarena beartype"),
    ("webarena-verified, a second oracle", "webarena-verified", "pip install webarena-verified"),
)


async def web_tools() -> tuple[Tool, ...]:
    """Checks Chromium and the packages, with their versions; most tasks need the first two only."""
    browser = Tool(
        "Chromium",
        await _chromium(),
        "apt-get install chromium, or set PRILL_CHROMIUM to the executable",
    )
    packages = tuple(Tool(name, _version(package), get) for name, package, get in _PACKAGES)
    return (browser, *packages)


def _version(package: str) -> str | None:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return None


async def _chromium() -> str | None:
    """Returns the executable's path and version; None if it is missing or does not run."""
    try:
        path = chromium_path()
        process = await asyncio.create_subprocess_exec(
            path,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except (UsageError, OSError):
        return None
    try:
        async with asyncio.timeout(_VERSION_TIMEOUT):
            printed, _ = await process.communicate()
    except TimeoutError:
        return f"{path} (does not say its version)"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return (
        f"{path} ({printed.decode(errors='replace').strip()})" if process.returncode == 0 else None
    )

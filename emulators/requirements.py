"""Checks what web and Android environments need on this machine, for `prill devices`."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from prill.emulators.android.adb import AdbServer, sdk_program
from prill.emulators.android.avd import avd_home, avds
from prill.emulators.android.phone import PhoneLostError
from prill.emulators.browser.chromium import chromium_path
from prill.emulators.processes import run_program
from prill.errors import UsageError, install_command


@dataclass(frozen=True, slots=True)
class Tool:
    """A requirement of a platform: `found` describes the installed tool (None: missing), and `get`
    says how to install it.

    `lacking` is the status shown for a missing tool.
    """

    name: str
    found: str | None
    get: str
    lacking: str = "missing"


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
    packages = tuple(Tool(name, find_package(package), get) for name, package, get in _PACKAGES)
    return (browser, *packages)


def find_package(package: str) -> str | None:
    """Returns a package's name and version; None if it is not installed."""
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return None


async def _chromium() -> str | None:
    """Returns the executable's path and version; None if it is missing or does not run."""
    try:
        path = chromium_path()
        printed = await run_program((path, "--version"), _VERSION_TIMEOUT)
    except TimeoutError:
        return f"{path} (does not say its version)"
    except (UsageError, OSError):
        return None
    return f"{path} ({printed.text.strip()})" if printed.status == 0 else None


_BOUND = 5.0
_KVM = Path("/dev/kvm")
_DRIVER = Path("node_modules") / "appium-uiautomator2-driver" / "package.json"


async def android_tools(appium_url: str = "http://127.0.0.1:4723") -> tuple[Tool, ...]:
    """Checks the tools of both backends and of virtual devices, within 15 seconds."""
    homes = avds(avd_home())
    accelerated = "/dev/kvm" if os.access(_KVM, os.R_OK | os.W_OK) else None
    return (
        Tool(
            "adb",
            await _adb(),
            "apt-get install adb, or install the Android SDK and set ANDROID_HOME",
        ),
        Tool(
            "connected phones",
            await _phones(),
            "allow USB debugging on a phone, or start an emulator; then: adb devices",
        ),
        Tool(
            "emulator",
            sdk_program("emulator", "emulator"),
            "sdkmanager emulator, and set ANDROID_HOME to the SDK",
        ),
        *(
            (Tool("KVM", accelerated, "let this user read and write /dev/kvm"),)
            if sys.platform == "linux"
            else ()
        ),
        Tool(
            "AVDs",
            ", ".join(homes) or None,
            "avdmanager create avd -n Pixel_4 -d pixel_4 -k <a system image of sdkmanager>",
        ),
        Tool("Appium client", find_package("Appium-Python-Client"), install_command("android")),
        Tool(
            "Appium program",
            shutil.which("appium"),
            "npm install -g appium@3 (needs Node.js 20 or newer)",
        ),
        Tool("UiAutomator2 driver", _driver(), "appium driver install uiautomator2"),
        Tool(
            "Appium server",
            await asyncio.to_thread(_server, appium_url),
            "appium server --allow-insecure=uiautomator2:adb_shell (with ANDROID_HOME set)",
        ),
    )


async def _adb() -> str | None:
    try:
        printed = await AdbServer().program("version", timeout=_BOUND)
    except (UsageError, PhoneLostError):
        return None
    path = sdk_program("platform-tools", "adb")
    return (
        f"{path} ({printed.text.splitlines()[0]})" if printed.status == 0 and printed.text else None
    )


async def _phones() -> str | None:
    try:
        states = await AdbServer(timeout=_BOUND).devices()
    except PhoneLostError:
        return None
    return ", ".join(f"{serial} ({state})" for serial, state in sorted(states.items())) or None


def _driver() -> str | None:
    package = Path(os.environ.get("APPIUM_HOME") or Path.home() / ".appium") / _DRIVER
    try:
        return f"{package.parent} ({json.loads(package.read_text(encoding='utf-8'))['version']})"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _server(url: str) -> str | None:
    # No proxy: the server is on this machine or near it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.rstrip('/')}/status", timeout=_BOUND) as answer:
            return f"{url} ({json.load(answer)['value']['build']['version']})"
    except (urllib.error.URLError, OSError, ValueError, KeyError, TypeError):
        return None

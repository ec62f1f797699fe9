"""Checks what Android support needs on this machine, without starting anything."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

from prill.emulators.android.adb import AdbServer, sdk_program
from prill.emulators.android.avd import avd_home, avds
from prill.emulators.android.phone import PhoneLostError
from prill.emulators.requirements import Tool
from prill.errors import UsageError, install_command

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
        Tool("Appium client", _client(), install_command("android")),
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


def _client() -> str | None:
    try:
        return f"Appium-Python-Client {importlib.metadata.version('Appium-Python-Client')}"
    except importlib.metadata.PackageNotFoundError:
        return None


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

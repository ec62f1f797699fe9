"""Environments that agents act in, each with its own oracle. `prill.environment("miniwob", images=…)` makes one by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.emulators.android.adb import AdbPhone
    from prill.emulators.android.appium import AppiumPhone
    from prill.emulators.android.avd import Avd
    from prill.emulators.android.environment import Android, AndroidSpec
    from prill.emulators.android.phone import Phone
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
    from prill.emulators.browsergym.environment import BrowserGym
    from prill.emulators.ios.environment import Ios, IosSpec
    from prill.emulators.mind2web.environment import Mind2Web, Mind2WebSpec
    from prill.emulators.miniwob.environment import MiniWoB
    from prill.emulators.pool import Pool
    from prill.emulators.registry import ENVIRONMENTS, make_environment
    from prill.emulators.webarena.environment import WebArena, WebArenaSpec
    from prill.emulators.webarena.oracle import WebArenaOracle

__all__ = [
    "ENVIRONMENTS",
    "AdbPhone",
    "Android",
    "AndroidSpec",
    "AppiumPhone",
    "Avd",
    "BrowserEnvironment",
    "BrowserGym",
    "Chromium",
    "Ios",
    "IosSpec",
    "Mind2Web",
    "Mind2WebSpec",
    "MiniWoB",
    "PageSpec",
    "Phone",
    "Pool",
    "WebArena",
    "WebArenaOracle",
    "WebArenaSpec",
    "make_environment",
]
_HOMES = {
    "AdbPhone": "android.adb",
    "Android": "android.environment",
    "AndroidSpec": "android.environment",
    "AppiumPhone": "android.appium",
    "Avd": "android.avd",
    "BrowserEnvironment": "browser.environment",
    "BrowserGym": "browsergym.environment",
    "Chromium": "browser.chromium",
    "ENVIRONMENTS": "registry",
    "Ios": "ios.environment",
    "IosSpec": "ios.environment",
    "Mind2Web": "mind2web.environment",
    "Mind2WebSpec": "mind2web.environment",
    "MiniWoB": "miniwob.environment",
    "PageSpec": "browser.environment",
    "Phone": "android.phone",
    "Pool": "pool",
    "WebArena": "webarena.environment",
    "WebArenaOracle": "webarena.oracle",
    "WebArenaSpec": "webarena.environment",
    "make_environment": "registry",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

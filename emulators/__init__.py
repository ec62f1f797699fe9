"""Environments with their oracles. `prill.environment("miniwob", images=…)` makes one by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.emulators.android.adb import AdbPhone
    from prill.emulators.android.appium import AppiumPhone
    from prill.emulators.android.avd import Avd
    from prill.emulators.android.config import AndroidConfig
    from prill.emulators.android.environment import Android, AndroidSpec
    from prill.emulators.android.phone import Phone
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.browser.config import WebConfig
    from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
    from prill.emulators.browsergym.config import BrowserGymConfig
    from prill.emulators.browsergym.environment import BrowserGym
    from prill.emulators.ios.config import IosConfig
    from prill.emulators.ios.environment import Ios, IosSpec
    from prill.emulators.miniwob.environment import MiniWoB, MiniWobConfig
    from prill.emulators.own import OwnEnvironmentConfig
    from prill.emulators.registry import ENVIRONMENTS, make_environment
    from prill.emulators.settings import EnvironmentConfig
    from prill.emulators.shop import Shop
    from prill.emulators.webarena.config import WebArenaConfig
    from prill.emulators.webarena.environment import WebArena, WebArenaSpec
    from prill.emulators.webarena.oracle import WebArenaOracle
    from prill.episodes.record import Pool

__all__ = [
    "ENVIRONMENTS",
    "AdbPhone",
    "Android",
    "AndroidConfig",
    "AndroidSpec",
    "AppiumPhone",
    "Avd",
    "BrowserEnvironment",
    "BrowserGym",
    "BrowserGymConfig",
    "Chromium",
    "EnvironmentConfig",
    "Ios",
    "IosConfig",
    "IosSpec",
    "MiniWoB",
    "MiniWobConfig",
    "OwnEnvironmentConfig",
    "PageSpec",
    "Phone",
    "Pool",
    "Shop",
    "WebArena",
    "WebArenaConfig",
    "WebArenaOracle",
    "WebArenaSpec",
    "WebConfig",
    "make_environment",
]
_HOMES = {
    "AdbPhone": "android.adb",
    "Android": "android.environment",
    "AndroidConfig": "android.config",
    "AndroidSpec": "android.environment",
    "AppiumPhone": "android.appium",
    "Avd": "android.avd",
    "BrowserEnvironment": "browser.environment",
    "BrowserGym": "browsergym.environment",
    "BrowserGymConfig": "browsergym.config",
    "Chromium": "browser.chromium",
    "ENVIRONMENTS": "registry",
    "EnvironmentConfig": "settings",
    "Ios": "ios.environment",
    "IosConfig": "ios.config",
    "IosSpec": "ios.environment",
    "MiniWoB": "miniwob.environment",
    "MiniWobConfig": "miniwob.environment",
    "OwnEnvironmentConfig": "own",
    "PageSpec": "browser.environment",
    "Phone": "android.phone",
    "Pool": "prill.episodes.record",
    "Shop": "shop",
    "WebArena": "webarena.environment",
    "WebArenaConfig": "webarena.config",
    "WebArenaOracle": "webarena.oracle",
    "WebArenaSpec": "webarena.environment",
    "WebConfig": "browser.config",
    "make_environment": "registry",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

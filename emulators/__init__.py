"""Environments with their oracles, such as `prill.environment("miniwob", images=…)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.emulators.android.adb import AdbPhone
    from prill.emulators.android.appium import AppiumPhone
    from prill.emulators.android.avd import Avd
    from prill.emulators.android.environment import Android, AndroidConfig, AndroidSpec
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.browser.config import WebConfig
    from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
    from prill.emulators.browsergym.environment import BrowserGym, BrowserGymConfig
    from prill.emulators.ios.environment import Ios, IosConfig, IosSpec
    from prill.emulators.miniwob.environment import MiniWoB, MiniWobConfig
    from prill.emulators.own import OwnEnvironmentConfig
    from prill.emulators.registry import ENVIRONMENTS, make_environment
    from prill.emulators.settings import EnvironmentConfig
    from prill.emulators.shop import Shop
    from prill.emulators.webarena.config import WebArenaConfig
    from prill.emulators.webarena.environment import WebArena, WebArenaSpec
    from prill.emulators.webarena.oracle import WebArenaOracle
    from prill.emulators.webarena_infinity.config import WebArenaInfinityConfig
    from prill.emulators.webarena_infinity.environment import InfinitySpec, WebArenaInfinity

__all__ = [
    "ENVIRONMENTS", "AdbPhone", "Android", "AndroidConfig", "AndroidSpec", "AppiumPhone", "Avd",
    "BrowserEnvironment", "BrowserGym", "BrowserGymConfig", "Chromium", "EnvironmentConfig",
    "InfinitySpec", "Ios", "IosConfig", "IosSpec", "MiniWoB", "MiniWobConfig",
    "OwnEnvironmentConfig", "PageSpec", "Shop", "WebArena", "WebArenaConfig", "WebArenaInfinity",
    "WebArenaInfinityConfig", "WebArenaOracle", "WebArenaSpec", "WebConfig", "make_environment",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)

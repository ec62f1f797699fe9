"""A fake phone: its apps, its system, and its faults."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from prill.errors import UsageError
from tests.support.android import draw
from tests.support.android.screen import COMPONENTS, Screen

Fault = Literal[
    "none",
    "hang",  # a screenshot never comes, neither by adb nor by UiAutomator2
    "freeze",  # no shell command and no UiAutomator2 request is answered
    "restless",  # no two successive screenshots are equal
    "wrong-size",  # screenshots have half the width and height that `wm size` reports
    "crash",  # the instrumentation dies at the next UiAutomator2 request, once
    "crash-always",  # and again after every restart
    "slow-boot",  # not booted until BOOT_POLLS queries
    "never-boots",
    "offline",  # listed as offline, every command fails, connections are cut
    "lost",  # no longer listed, every command fails, connections are cut
]
FAULTS: tuple[Fault, ...] = get_args(Fault)
BOOT_POLLS = 5
PATIENCE = 0.03  # seconds between two polls
LATIN_IME = "com.android.inputmethod.latin/.LatinIME"
ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
APPIUM_SETTINGS = "io.appium.settings"
UIA2 = "io.appium.uiautomator2.server"
# Versions of the helper apps of Appium's UiAutomator2 driver 8.7.0. It installs nothing if it finds
# them.
HELPERS = {APPIUM_SETTINGS: ("8.0.9", 99999), UIA2: ("10.6.6", 238), UIA2 + ".test": ("", 0)}


@dataclass(slots=True)
class Phone:
    """A fake phone behind an adb server. Tests may read and set all attributes while it runs.

    Args:
        serial: The serial number.
        size: Width and height of the screen, in pixels.
        frames: How many moving screenshots follow each change of page or scroll position.
        fault: The fault.
        userdata: The file that toggles, notes, clipboard and input methods are kept in. None: they
            end with the phone.
        read_only: That state cannot be written.
        avd: The name of its AVD.
        api_level: The Android API level.
        adb_keyboard: The ADB keyboard is installed.
        boot_polls: How often it was asked whether a slow boot is over.
        files: Its files by path.
        running: The running apps.
        imes: The enabled input methods.
        ime: The present input method.
        shells: The latest shell commands.
        sessions: How many sessions were opened.
        crashed: Its UiAutomator2 server has crashed.
        snapshots: The saved states by name.
    """

    serial: str
    size: tuple[int, int] = (720, 1600)
    frames: int = 2
    fault: Fault = "none"
    userdata: Path | None = None
    read_only: bool = False
    avd: str = ""
    api_level: int = 33
    adb_keyboard: bool = False
    boot_polls: int = 0
    screen: Screen = field(init=False)
    files: dict[str, bytes] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    imes: list[str] = field(default_factory=list)
    ime: str = LATIN_IME
    # the latest shell commands
    shells: deque[str] = field(default_factory=lambda: deque(maxlen=1000))
    sessions: int = 0  # how often the instrumentation was started
    crashed: bool = False
    snapshots: dict[str, tuple[Screen, dict[str, bytes], str, list[str]]] = field(
        default_factory=dict
    )
    _moving: int = 0
    _drawn_view: tuple[str, int] = ("home", 0)

    def __post_init__(self) -> None:
        known_fault(self.fault)
        self._factory()
        if self.userdata is not None and self.userdata.exists():
            self._load(json.loads(self.userdata.read_text(encoding="utf-8")))

    def reset(self) -> None:
        """Resets the phone to its factory state and ends faults."""
        self._factory()
        self.fault, self.boot_polls = "none", 0
        self.changed()

    def save(self, name: str) -> None:
        """Saves the current state.

        Args:
            name: The name to save it under.

        Raises:
            UsageError: Its state cannot be written.
        """
        if self.read_only:
            raise UsageError("snapshots cannot be saved with -read-only")
        self.snapshots[name] = copy.deepcopy((self.screen, self.files, self.ime, self.imes))

    def load(self, name: str) -> None:
        """Returns to a saved state.

        Args:
            name: Its name.

        Raises:
            UsageError: There is no such snapshot.
        """
        if name not in self.snapshots:
            raise UsageError(f"no snapshot is called {name!r}")
        self.screen, self.files, self.ime, self.imes = copy.deepcopy(self.snapshots[name])
        self.changed()

    @property
    def state(self) -> str:
        """The state in `adb devices`. Empty: the phone is not listed."""
        return {"offline": "offline", "lost": ""}.get(self.fault, "device")

    @property
    def packages(self) -> dict[str, tuple[str, int]]:
        """Installed apps with version name and code."""
        own = {component.partition("/")[0]: ("1.0", 1) for component in COMPONENTS.values()}
        return {
            **own,
            **HELPERS,
            **({ADB_KEYBOARD.partition("/")[0]: ("2.0", 2)} if self.adb_keyboard else {}),
        }

    @property
    def installed_imes(self) -> list[str]:
        """All input methods, enabled or not."""
        appium = [f"{APPIUM_SETTINGS}/.{name}" for name in ("AppiumIME", "EmptyIME", "UnicodeIME")]
        return [LATIN_IME, *([ADB_KEYBOARD] if self.adb_keyboard else []), *appium]

    def booted(self) -> bool:
        """Returns whether the phone reports that it has booted. A slow boot completes after a
        number of calls.
        """
        if self.fault == "slow-boot":
            self.boot_polls += 1
            if self.boot_polls >= BOOT_POLLS:
                self.fault = "none"
        return self.fault not in ("slow-boot", "never-boots")

    def screenshot(self) -> bytes:
        """Returns the current screenshot as PNG."""
        width, height = self.screen.size
        size = (width // 2, height // 2) if self.fault == "wrong-size" else (width, height)
        moving = self._moving
        if self.fault == "restless":
            self._moving = self._moving % 7 + 1
        elif self._moving:
            self._moving -= 1
        return draw.png(self.screen, moving=moving, size=size)

    def changed(self) -> None:
        """Starts the animation and saves state. Call it after any possible change of the screen."""
        view = (self.screen.page, self.screen.offset)
        if view != self._drawn_view:
            self._drawn_view, self._moving = view, self.frames
        if self.userdata is not None and not self.read_only:
            part = self.userdata.with_name(self.userdata.name + ".part")
            part.write_text(json.dumps(self._kept()), encoding="utf-8")
            part.replace(self.userdata)

    async def through(self, faults: Iterable[Fault]) -> None:
        """Waits until none of the given faults is set.

        Args:
            faults: The faults.
        """
        while self.fault in faults:
            await asyncio.sleep(PATIENCE)

    def summary(self) -> dict[str, object]:
        """Returns the state for the control port."""
        screen = self.screen
        state = {
            "page": screen.page,
            "focus": screen.focus,
            "texts": screen.texts,
            "clipboard": screen.clipboard,
        }
        return {"serial": self.serial, "fault": self.fault, **state, **self._kept()}

    def _factory(self) -> None:
        self.screen = Screen(self.size)
        self.files.clear()
        self.ime, self.imes = LATIN_IME, [LATIN_IME]
        self._moving, self._drawn_view = 0, ("home", 0)

    def _kept(self) -> dict[str, object]:
        screen = self.screen
        return {
            "toggles": screen.toggles,
            "notes": screen.notes,
            "ime": self.ime,
            "imes": self.imes,
        }

    def _load(self, kept: dict[str, object]) -> None:
        toggles, notes, imes = kept["toggles"], kept["notes"], kept["imes"]
        assert isinstance(toggles, dict) and isinstance(notes, list) and isinstance(imes, list)
        self.screen.toggles.update(toggles)
        self.screen.notes[:], self.ime, self.imes = notes, str(kept["ime"]), imes


def known_fault(fault: str) -> Fault:
    """Returns the fault of that name. Raises UsageError."""
    for name in FAULTS:
        if name == fault:
            return name
    raise UsageError(f"no fault is called {fault!r}; there are: {', '.join(FAULTS)}")

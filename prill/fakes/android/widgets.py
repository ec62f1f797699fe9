"""What a fake phone shows: its apps, their names and numbers, and the widgets that screens are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Box = tuple[int, int, int, int]

# Where an app lives: the component that `dumpsys window` shows and `am start -n` opens.
COMPONENTS = {
    "home": "com.android.launcher3/.Launcher",
    "drawer": "com.android.launcher3/.Launcher",
    "settings": "com.android.settings/.Settings",
    "search": "com.example.search/.SearchActivity",
    "results": "com.example.search/.ResultsActivity",
    "page": "com.example.search/.PageActivity",
    "notes": "com.example.notes/.NotesActivity",
    "clock": "com.example.clock/.ClockActivity",
    "calculator": "com.example.calculator/.CalculatorActivity",
    "files": "com.example.files/.FilesActivity",
}
HOME_APPS = ("settings", "search", "notes")
ALL_APPS = ("calculator", "clock", "files", "notes", "search", "settings")
TOGGLES = ("Wi-Fi", "Bluetooth", "Airplane mode", "Dark theme", "Location", "Battery saver", "NFC", "Hotspot", "Auto-rotate")
TOGGLES_ON = ("Wi-Fi", "Location")
ABOUT = ("Display", "Sound", "Storage", "Security", "Accounts", "Languages", "About phone")
RESULTS = 14
TAP = 0.02  # of the screen's height: a swipe that is shorter is a tap, as on a real phone (its touch slop)


@dataclass(frozen=True, slots=True)
class Widget:
    """One thing on the screen. `box` is (left, top, right, bottom) in pixels; `act` is what a tap does, None: nothing."""

    kind: str
    box: Box
    name: str = ""
    text: str = ""
    description: str = ""
    act: Callable[[], None] | None = None
    checked: bool | None = None
    editable: bool = False
    focused: bool = False
    scrollable: bool = False
    children: tuple[Widget, ...] = ()


def flat(widgets: tuple[Widget, ...]) -> list[Widget]:
    """The widgets and all inside them, outer ones first."""
    found = []
    for widget in widgets:
        found += [widget, *flat(widget.children)]
    return found

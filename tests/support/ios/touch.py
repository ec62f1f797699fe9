"""Effects of touches, keys and the home button on a fake simulator."""

from __future__ import annotations

from tests.support.ios.screen import (
    APPS,
    MESSAGES,
    PAGES,
    SAFARI,
    SWITCHES,
    furthest_scroll,
    screen,
    walk,
)
from tests.support.ios.simulators import Simulator

# The height of the bottom strip from which a swipe up goes home, in points.
HOME_STRIP = 40
ENTER, BACKSPACE, V = 40, 42, 25


def tap(simulator: Simulator, x: float, y: float) -> None:
    """Taps at a point."""
    for widget in walk(screen(simulator)):
        if not widget.holds(x, y):
            continue
        if widget.name in APPS:
            open_app(simulator, widget.name)
        elif widget.name == "field":
            simulator.focused = True
        elif widget.name == "send":
            submit(simulator)
        elif widget.name == "switch" and widget.label in SWITCHES:
            simulator.on = sorted(set(simulator.on) ^ {widget.label})


def swipe(simulator: Simulator, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Swipes between two points. A horizontal swipe turns the pages of the home screen; a vertical
    one scrolls the settings.

    A swipe up from the bottom edge leaves an app. On the home screen vertical swipes have no
    effect.
    """
    across, along = end[0] - start[0], end[1] - start[1]
    if simulator.app is None:
        if abs(across) > max(abs(along), 50):
            simulator.page = min(max(simulator.page + (1 if across < 0 else -1), 0), len(PAGES) - 1)
    elif along < -50 and start[1] >= simulator.height - HOME_STRIP:
        go_home(simulator)
    elif abs(along) > abs(across):
        simulator.scroll = min(max(simulator.scroll - round(along), 0), furthest_scroll(simulator))


def key(simulator: Simulator, code: int, character: str | None, command: bool) -> None:
    """Presses a key of the hardware keyboard, given as its HID number and its character. The
    focused field receives it.
    """
    app = simulator.app
    if app is None or not simulator.focused:
        return
    typed = simulator.fields.get(app, "")
    if command:
        typed += simulator.pasteboard if code == V else ""
    elif code == ENTER:
        return submit(simulator)
    elif code == BACKSPACE:
        typed = typed[:-1]
    else:
        typed += character or ""
    simulator.fields[app] = typed


def submit(simulator: Simulator) -> None:
    """Sends the message, or searches for the typed text."""
    app = simulator.app
    if app is None or not (typed := simulator.fields.get(app, "")):
        return
    if app == MESSAGES:
        simulator.lines.setdefault(app, []).append(typed)
    elif app == SAFARI:
        simulator.lines[app] = [f"Results for {typed}"]
    simulator.fields[app] = ""


def open_app(simulator: Simulator, bundle: str) -> None:
    """Brings an app to the front. Raises KeyError if it is not installed."""
    APPS[bundle]
    simulator.app, simulator.focused, simulator.scroll = bundle, False, 0


def open_url(simulator: Simulator, url: str) -> None:
    """Opens a web address in Safari. Raises KeyError if no app opens it."""
    if not url.startswith(("http://", "https://")):
        raise KeyError(url)
    open_app(simulator, SAFARI)
    simulator.lines[SAFARI] = [url]


def go_home(simulator: Simulator) -> None:
    """Handles the home button."""
    if simulator.app is None:
        simulator.page = 0
    simulator.app, simulator.focused = None, False

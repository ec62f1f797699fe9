"""The apps of a phone as a small state machine: taps, swipes, keys and typing change the visible
widgets.

Home shows three apps; a swipe up opens the drawer with all apps. Settings has switches, Search a
field with results, Notes a list with additions. There is no on-screen keyboard, because the phone
reports a hardware keyboard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

Box = tuple[int, int, int, int]
# The component of each app, which `dumpsys window` shows and `am start -n` opens.
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
TOGGLES = (
    "Wi-Fi", "Bluetooth", "Airplane mode", "Dark theme", "Location", "Battery saver", "NFC",
    "Hotspot", "Auto-rotate",
)  # fmt: skip
TOGGLES_ON = ("Wi-Fi", "Location")
ABOUT = ("Display", "Sound", "Storage", "Security", "Accounts", "Languages", "About phone")
RESULTS = 14
# fraction of the screen's height: a shorter swipe is a tap, as on a real phone (its touch slop)
TAP = 0.02


@dataclass(frozen=True, slots=True)
class Widget:
    """A widget on the screen. `box` is (left, top, right, bottom) in pixels; `act` is the effect of
    a tap, None for no effect.
    """

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
    """Returns the widgets and their descendants, outer ones first."""
    widgets_inside = []
    for widget in widgets:
        widgets_inside += [widget, *flat(widget.children)]
    return widgets_inside


@dataclass(slots=True)
class Screen:
    """The state of a phone's apps. `size` is (width, height) in pixels. Tests may read and set all
    attributes.
    """

    size: tuple[int, int]
    page: str = "home"
    back: list[str] = field(default_factory=list)
    offset: int = 0
    focus: str = ""
    texts: dict[str, str] = field(default_factory=lambda: {"query": "", "draft": ""})
    selected: bool = False
    toggles: dict[str, bool] = field(
        default_factory=lambda: {name: name in TOGGLES_ON for name in TOGGLES}
    )
    notes: list[str] = field(default_factory=list)
    address: str = ""
    clipboard: str = ""
    held: tuple[float, float] | None = None  # the position of the last long press

    @property
    def component(self) -> str:
        """The activity in front, as package/.Activity."""
        return COMPONENTS[self.page]

    def open(self, page: str) -> None:
        """Opens a page. BACK returns to the previous one."""
        self.back.append(self.page)
        self._show(page)

    def browse(self, address: str) -> None:
        """Opens a web address."""
        self.address = address
        self.open("page")

    def go_home(self) -> None:
        """Handles the HOME key."""
        self.back.clear()
        self._show("home")

    def tap(self, x: float, y: float) -> None:
        """Taps at pixels. The innermost widget there with an effect handles it."""
        hit = None
        for widget in flat(self.widgets()):
            left, top, right, bottom = widget.box
            if widget.act is not None and left <= x < right and top <= y < bottom:
                hit = widget.act
        if hit is not None:
            hit()

    def hold(self, x: float, y: float) -> None:
        """Long-presses at pixels. No widget has a context menu, so it has no effect."""
        self.held = x, y

    def swipe(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Swipes between two points in pixels. A very short swipe is a tap. Vertical swipes scroll;
        horizontal ones have no effect.
        """
        slop = TAP * self.size[1]
        if abs(x1 - x2) < slop and abs(y1 - y2) < slop:
            self.tap(x1, y1)
        elif abs(y1 - y2) > abs(x1 - x2):
            rows = round((y1 - y2) / self._row)
            if self.page == "home" and rows > 0:
                self.open("drawer")
            elif self.page == "drawer" and rows < 0:
                self.go_home()
            else:
                self.offset = max(0, min(self.offset + rows, len(self._rows()) - self._visible))

    def type(self, text: str) -> None:
        """Types characters into the focused field. They are lost without focus. A line break is
        ENTER.
        """
        for position, line in enumerate(text.split("\n")):
            if position:
                self.enter()
            if self.focus and line:
                self.texts[self.focus] = ("" if self.selected else self.texts[self.focus]) + line
                self.selected = False

    def erase(self) -> None:
        """Handles DEL: deletes the selection, else the last character."""
        if self.focus:
            self.texts[self.focus] = "" if self.selected else self.texts[self.focus][:-1]
            self.selected = False

    def enter(self) -> None:
        """Handles ENTER in the focused field."""
        if self.focus == "query":
            self.open("results")
        elif self.focus == "draft":
            self._add_note()

    def go_back(self) -> None:
        """Handles the BACK key."""
        if self.back:
            self._show(self.back.pop())

    def widgets(self) -> tuple[Widget, ...]:
        """Returns the visible widgets, from top to bottom."""
        width, _ = self.size
        bar = Widget("TextView", (0, self._top // 2, width, self._top), "title", self._title())
        if self.page in ("home", "drawer"):
            return (bar, *self._icons(HOME_APPS if self.page == "home" else ALL_APPS))
        above: tuple[Widget, ...] = ()
        if self.page == "search":
            above = (self._field("query", "Search or type a web address", width),)
        elif self.page == "notes":
            button = Widget(
                "Button",
                self._box(0, width * 3 // 4, width),
                "add",
                "Add",
                "Add note",
                act=self._add_note,
            )
            above = (self._field("draft", "New note", width * 3 // 4), button)
        rows = self._rows()
        visible_rows = rows[self.offset : self.offset + self._visible]
        shift = (1 if above else 0) - self.offset
        placed = tuple(
            replace(row, box=self._box(self.offset + n + shift, 0, width))
            for n, row in enumerate(visible_rows)
        )
        scrolls = len(rows) > self._visible
        area = (0, self._top + (self._row if above else 0), width, self.size[1])
        return (bar, *above, Widget("ListView", area, "list", scrollable=scrolls, children=placed))

    @property
    def _top(self) -> int:
        return self.size[1] // 8

    @property
    def _row(self) -> int:
        return self.size[1] // 12

    @property
    def _visible(self) -> int:
        return 9 if self.page in ("search", "notes") else 10

    def _box(self, row: int, left: int, right: int) -> Box:
        top = self._top + row * self._row
        return (left, top, right, top + self._row)

    def _title(self) -> str:
        titles = {
            "home": "Home",
            "drawer": "All apps",
            "results": f"Results for {self.texts['query']}",
            "page": self.address,
        }
        return titles.get(self.page, self.page.capitalize())

    def _field(self, name: str, hint: str, right: int) -> Widget:
        text = self.texts[name]
        return Widget(
            "EditText",
            self._box(0, 0, right),
            name,
            text or hint,
            act=partial(self._focus, name),
            editable=True,
            focused=self.focus == name,
        )

    def _icons(self, apps: tuple[str, ...]) -> tuple[Widget, ...]:
        side = self.size[0] // 3
        icons = []
        for number, app in enumerate(apps):
            left, top = number % 3 * side, self._top + number // 3 * side
            box = (left + side // 8, top + side // 8, left + side * 7 // 8, top + side * 7 // 8)
            name = app.capitalize()
            icons.append(
                Widget("TextView", box, f"icon_{app}", name, name, act=partial(self.open, app))
            )
        return tuple(icons)

    def _rows(self) -> list[Widget]:
        nowhere = (0, 0, 0, 0)
        if self.page == "settings":
            switches = [
                Widget(
                    "Switch",
                    nowhere,
                    "switch_" + name.lower().replace(" ", "_").replace("-", "_"),
                    name,
                    act=partial(self._flip, name),
                    checked=on,
                )
                for name, on in self.toggles.items()
            ]
            return switches + [Widget("TextView", nowhere, "row", text) for text in ABOUT]
        if self.page == "results":
            names = [
                f"Result {number} for {self.texts['query']}" for number in range(1, RESULTS + 1)
            ]
            return [
                Widget("TextView", nowhere, "result", name, act=partial(self.browse, name))
                for name in names
            ]
        if self.page == "notes":
            return [Widget("TextView", nowhere, "note", text) for text in self.notes]
        if self.page == "page":
            return [Widget("TextView", nowhere, "body", f"This is {self.address}")]
        return []

    def _show(self, page: str) -> None:
        self.page, self.offset, self.focus, self.selected = page, 0, "", False

    def _focus(self, name: str) -> None:
        self.focus, self.selected = name, False

    def _flip(self, name: str) -> None:
        self.toggles[name] = not self.toggles[name]

    def _add_note(self) -> None:
        if self.texts["draft"]:
            self.notes.append(self.texts["draft"])
            self.texts["draft"] = ""

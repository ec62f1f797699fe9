"""The screens of a fake simulator as widgets, accessibility JSON and an image."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.ios.simulators import Simulator

SETTINGS, SAFARI, MESSAGES = (
    "com.apple.Preferences",
    "com.apple.mobilesafari",
    "com.apple.MobileSMS",
)
APPS = {SETTINGS: "Settings", SAFARI: "Safari", MESSAGES: "Messages"}
PAGES = ((SETTINGS, SAFARI), (MESSAGES,))
SWITCHES = (
    "Airplane Mode", "Wi-Fi", "Bluetooth", "Cellular Data", "Personal Hotspot", "VPN",
    "Dark Appearance", "Bold Text", "Reduce Motion", "Low Power Mode",
)  # fmt: skip
ROW, TOP = 80, 120
# idb's names for a UIKit switch; its value is "0" or "1".
ROLES = {
    "CheckBox": ("AXCheckBox", "switch"),
    "TextField": ("AXTextField", "text field"),
    "StaticText": ("AXStaticText", "text"),
}


@dataclass(frozen=True, slots=True)
class Widget:
    """A widget on the screen. The box is x, y, width, height in points. `name` is the effect of a
    touch.
    """

    type: str
    label: str | None
    box: tuple[int, int, int, int]
    value: str | None = None
    name: str = ""
    inside: tuple[Widget, ...] = ()

    def holds(self, x: float, y: float) -> bool:
        """Returns whether the point is on the widget."""
        left, top, width, height = self.box
        return left <= x < left + width and top <= y < top + height


def screen(simulator: Simulator) -> Widget:
    """Returns the root of the screen. On the home screen its label is one space, like
    SpringBoard's.
    """
    box = (0, 0, simulator.width, simulator.height)
    label = " " if simulator.app is None else APPS[simulator.app]
    return Widget("Application", label, box, inside=tuple(_content(simulator)))


def _content(simulator: Simulator) -> Iterator[Widget]:
    width, app = simulator.width, simulator.app
    if app is None:
        for place, bundle in enumerate(PAGES[simulator.page]):
            yield Widget("Button", APPS[bundle], (20 + 120 * place, 100, 100, 100), name=bundle)
        yield Widget(
            "Slider", None, (95, 760, 200, 30), f"page {simulator.page + 1} of {len(PAGES)}"
        )
        return
    yield Widget("Heading", APPS[app], (20, 60, width - 40, 40))
    if app == SETTINGS:
        rows = list(_switches(simulator))
        yield Widget("Group", None, (0, TOP, width, simulator.height - TOP), inside=tuple(rows))
        return
    label = "Address" if app == SAFARI else "iMessage"
    field = (20, TOP, width - 40 if app == SAFARI else width - 130, 50)
    yield Widget("TextField", label, field, simulator.fields.get(app, ""), name="field")
    if app == MESSAGES:
        yield Widget("Button", "Send", (width - 100, TOP, 80, 50), name="send")
    for number, line in enumerate(simulator.lines.get(app, [])[-8:]):
        yield Widget("StaticText", line, (20, 190 + 60 * number, width - 40, 50))


def _switches(simulator: Simulator) -> Iterator[Widget]:
    for place, name in enumerate(SWITCHES):
        y = TOP + ROW * place - simulator.scroll
        if TOP <= y <= simulator.height - ROW:
            value = "1" if name in simulator.on else "0"
            yield Widget(
                "CheckBox", name, (20, y, simulator.width - 40, ROW - 10), value, name="switch"
            )


def furthest_scroll(simulator: Simulator) -> int:
    """Returns the maximum scroll offset of the settings, in points."""
    return max(0, TOP + ROW * len(SWITCHES) - simulator.height)


def walk(widget: Widget) -> Iterator[Widget]:
    """Yields the widget and its descendants, outer ones first."""
    yield widget
    for child in widget.inside:
        yield from walk(child)


def accessibility(root: Widget, nested: bool) -> str:
    """Returns the response of `accessibility_info`: a list of the root with `children`, or a flat
    list.
    """
    return json.dumps(
        [_node(root, True)] if nested else [_node(widget, False) for widget in walk(root)]
    )


def _node(widget: Widget, nested: bool) -> dict[str, Any]:
    x, y, width, height = widget.box
    role, description = ROLES.get(widget.type, (f"AX{widget.type}", widget.type.lower()))
    node: dict[str, Any] = {
        "AXFrame": f"{{{{{x}, {y}}}, {{{width}, {height}}}}}",
        "AXUniqueId": None,
        "frame": {"x": x, "y": y, "width": width, "height": height},
        "role_description": description,
        "AXLabel": widget.label,
        "content_required": False,
        "type": widget.type,
        "title": None,
        "help": None,
        "custom_actions": [],
        "AXValue": widget.value,
        "enabled": True,
        "role": role,
        "subrole": None,
    }
    if nested:
        node["children"] = [_node(child, True) for child in widget.inside]
    return node


def picture(simulator: Simulator) -> bytes:
    """Returns the screen as PNG, in pixels."""
    from PIL import Image, ImageDraw

    scale = simulator.density
    back = "#d8e6f3" if simulator.app is None else "white"
    image = Image.new("RGB", (simulator.width * scale, simulator.height * scale), back)
    draw = ImageDraw.Draw(image)
    draw.text((24 * scale, 16 * scale), "9:41", fill="black", font_size=16 * scale)
    for widget in walk(screen(simulator)):
        if widget.type in ("Application", "Group"):
            continue
        x, y, width, height = (side * scale for side in widget.box)
        if widget.type in ("Button", "TextField"):
            colour = "#0a5bd3" if widget.type == "Button" or simulator.focused else "#999999"
            draw.rounded_rectangle(
                (x, y, x + width, y + height), radius=10 * scale, outline=colour, width=scale
            )
        if widget.type == "CheckBox":
            knob = (x + width - 60 * scale, y + 15 * scale, x + width, y + 50 * scale)
            draw.rounded_rectangle(
                knob, radius=17 * scale, fill="#34c759" if widget.value == "1" else "#cccccc"
            )
        text = (
            widget.value or widget.label if widget.type in ("TextField", "Slider") else widget.label
        )
        size = 28 if widget.type == "Heading" else 18
        draw.text(
            (x + 10 * scale, y + height / 2),
            text or "",
            fill="black",
            font_size=size * scale,
            anchor="lm",
        )
    packed = io.BytesIO()
    image.save(packed, "PNG", compress_level=1)
    return packed.getvalue()

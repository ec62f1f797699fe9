"""Draws a phone's screen as a PNG and as the two XML forms of Android's UI tree."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import lru_cache
from xml.sax.saxutils import quoteattr

from tests.support.android.screen import Screen, Widget

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_Tag = Callable[[Widget], str]
Look = tuple[str, tuple[int, int, int, int], str, bool | None, bool]


def png(screen: Screen, *, moving: int = 0, size: tuple[int, int] | None = None) -> bytes:
    """Returns the screenshot. `moving` > 0 draws the screen as it slides in, that many frames
    before it stops.
    """
    looks: list[Look] = []
    for widget in screen.widgets():
        for one in (widget, *widget.children):
            looks.append((one.kind, one.box, one.text, one.checked, one.focused))
    return _drawn(tuple(looks), screen.size, moving, size or screen.size)


@lru_cache(maxsize=32)
def _drawn(
    looks: tuple[Look, ...], size: tuple[int, int], moving: int, scaled: tuple[int, int]
) -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    width, height = size
    picture = Image.new("RGB", size, "#f4f4f8")
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 0, width, height // 24), fill="#303848")
    for kind, (left, top, right, bottom), text, checked, focused in looks:
        tall = min(bottom - top, height // 12)
        font = ImageFont.load_default(max(8, min(tall // 4, (right - left) // 7)))
        if kind == "ListView":
            continue
        edge = "#2050d0" if focused else "#c8c8d0"
        pen.rectangle(
            (left + 2, top + 2, right - 3, bottom - 3),
            fill="white",
            outline=edge,
            width=4 if focused else 2,
        )
        start = (left + tall // 4, (top + bottom) // 2 - tall // 6)
        pen.text(start, text + ("|" if focused else ""), fill="#202028", font=font)
        if checked is not None:
            knob = (right - tall * 3 // 2, top + tall // 3, right - tall // 2, bottom - tall // 3)
            pen.rounded_rectangle(knob, tall // 6, fill="#20a050" if checked else "#b0b0b8")
            pen.text((knob[0] + 6, knob[1]), "ON" if checked else "OFF", fill="white", font=font)
    if moving:
        still, picture = picture, Image.new("RGB", size, "#9098a8")
        picture.paste(still, (width * moving // (moving + 4), 0))
    if scaled != size:
        picture = picture.resize(scaled)
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=1)
    return out.getvalue()


def dump(screen: Screen) -> str:
    """Returns the UI tree in the format of `uiautomator dump`: nodes with their class as an
    attribute.
    """
    nodes = _nodes(screen, lambda _: "node")
    return (
        "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy "
        f'rotation="0">{nodes}</hierarchy>'
    )


def source(screen: Screen) -> str:
    """Returns the UI tree in the format of the UiAutomator2 server: elements named by their
    class.
    """
    width, height = screen.size
    nodes = _nodes(screen, _class)
    head = f'<hierarchy index="0" class="hierarchy" rotation="0" width="{width}" height="{height}">'
    return f"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>{head}{nodes}</hierarchy>"


def _class(widget: Widget) -> str:
    home = "android.view" if widget.kind == "View" else "android.widget"
    return f"{home}.{widget.kind}"


def _nodes(screen: Screen, tag: _Tag) -> str:
    root = Widget("FrameLayout", (0, 0, *screen.size), children=screen.widgets())
    return _node(root, 0, screen.component.partition("/")[0], tag)


def _node(widget: Widget, index: int, package: str, tag: _Tag) -> str:
    left, top, right, bottom = widget.box
    facts: dict[str, object] = {
        "index": index,
        "text": _NOT_XML.sub(".", widget.text),
        "resource-id": f"{package}:id/{widget.name}" if widget.name else "",
        "class": _class(widget),
        "package": package,
        "content-desc": _NOT_XML.sub(".", widget.description),
        "checkable": widget.checked is not None,
        "checked": bool(widget.checked),
        "clickable": widget.act is not None,
        "enabled": True,
        "focusable": widget.act is not None,
        "focused": widget.focused,
        "scrollable": widget.scrollable,
        "long-clickable": False,
        "password": False,
        "selected": False,
        "bounds": f"[{left},{top}][{right},{bottom}]",
    }
    attributes = "".join(f" {name}={quoteattr(_plain(value))}" for name, value in facts.items())
    inner = "".join(
        _node(child, place, package, tag) for place, child in enumerate(widget.children)
    )
    name = tag(widget)
    return f"<{name}{attributes}>{inner}</{name}>" if inner else f"<{name}{attributes} />"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

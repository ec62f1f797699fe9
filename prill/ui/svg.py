"""SVG helpers; text is always escaped."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from markupsafe import Markup, escape

from prill.text import printable
from prill.ui.templates import LOOK, read_part

Attribute = str | int | float | bool | None
# Quotes in texts are escaped, so that only attributes match.
_VARIABLE = re.compile(r'(fill|stroke)="var\(--([a-z-]+)\)"')


def el(name: str, *children: str | None, **attributes: Attribute) -> Markup:
    """Returns one element. A child that is not Markup is escaped; None is omitted.

    `class_` becomes class, other underscores become hyphens; an attribute that is None or False is
    omitted.
    """
    written = "".join(
        _attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inside = "".join(
        child if isinstance(child, Markup) else escape(printable(child, several_lines=True))
        for child in children
        if child is not None
    )
    return Markup(f"<{name}{written}>{inside}</{name}>")


def segment(x1: float, y1: float, x2: float, y2: float, **attributes: Attribute) -> Markup:
    """Returns a straight line from (x1, y1) to (x2, y2)."""
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def label(
    text: str,
    x: float,
    y: float,
    anchor: str | None = None,
    *,
    tip: str | None = None,
    **attributes: Attribute,
) -> Markup:
    """Returns a text that starts at (x, y), or has its middle or its end there."""
    title = None if tip is None else el("title", tip)
    return el("text", title, text, x=x, y=y, text_anchor=anchor, **attributes)


def picture(
    title: str, size: tuple[float, float], *marks: Markup, font_size: int, **attributes: Attribute
) -> str:
    """Returns a self-contained SVG file, which is dark where its reader prefers that.

    An attribute `var(--yes)` has the colour of this name in look.css, as a plain value: some
    programs that show SVG know no variables.
    """
    ground = el("rect", width="100%", height="100%", fill="var(--panel)")
    parts = Markup("\n").join([ground, *marks])
    light, dark = colours()
    used = {("fill", "ink"), *_VARIABLE.findall(parts)}
    rules = "".join(
        f'.prill[{kind}="{light[name]}"], .prill [{kind}="{light[name]}"] '
        f"{{ {kind}: {dark[name]}; }}\n"
        for kind, name in sorted(used)
    )
    style = Markup(
        f"<style>\n@media screen and (prefers-color-scheme: dark) {{\n{rules}}}\n</style>"
    )
    drawn = el(
        "svg",
        Markup("\n").join([el("title", title), style, parts]),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {size[0]} {size[1]}",
        font_family="sans-serif",
        font_size=font_size,
        fill="var(--ink)",
        class_="prill",
        role="img",
        **attributes,
    )
    return _VARIABLE.sub(lambda found: f'{found[1]}="{light[found[2]]}"', drawn) + "\n"


@cache
def colours() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns the colours of look.css by name: light, and dark."""
    both = defaultdict[str, list[str]](list)
    for name, value in re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", read_part(LOOK)):
        both[name].append(value)
    return {name: one[0] for name, one in both.items()}, {
        name: one[-1] for name, one in both.items()
    }


def _attribute(key: str, value: Attribute) -> str:
    name = "viewBox" if key == "viewBox" else key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{escape(printable(text))}"'

"""SVG helpers; text is always escaped."""

from __future__ import annotations

from markupsafe import Markup, escape

Attribute = str | int | float | bool | None


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
    inside = "".join(escape(child) for child in children if child is not None)
    return Markup(f"<{name}{written}>{inside}</{name}>")


def picture(
    title: str, size: tuple[float, float], *marks: Markup, font_size: int, **attributes: Attribute
) -> str:
    """Returns a self-contained SVG file with a white background."""
    parts = [el("title", title), el("rect", width="100%", height="100%", fill="white"), *marks]
    drawn = el(
        "svg",
        Markup("\n").join(parts),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {size[0]} {size[1]}",
        font_family="sans-serif",
        font_size=font_size,
        role="img",
        **attributes,
    )
    return f"{drawn}\n"


def _attribute(key: str, value: Attribute) -> str:
    name = "viewBox" if key == "viewBox" else key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'

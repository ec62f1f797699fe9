"""HTML and SVG made from Python: text is always escaped, whoever wrote it."""

from __future__ import annotations

from html import escape

Attribute = str | int | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(name: str, *children: str | None, **attributes: Attribute) -> Markup:
    """One element. A child that is no Markup is escaped; None is left out.

    `class_` is written class, other underscores become hyphens; an attribute that is None or False is left out.
    """
    words = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None and value is not False)
    inside = "".join(child if isinstance(child, Markup) else escape(child) for child in children if child is not None)
    return Markup(f"<{name}{words}>{inside}</{name}>")


def joined(*parts: Markup | None) -> Markup:
    """Elements side by side."""
    return Markup("".join(part for part in parts if part is not None))


def _attribute(key: str, value: Attribute) -> str:
    name = "viewBox" if key == "viewBox" else key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'

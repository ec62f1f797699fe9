"""Renders pages from templates with autoescape and no external resources."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

_ROOT = Path(__file__).parents[1]  # templates, styles and scripts are relative to it
LOOK = "ui/look.css"
"""The style of all pages."""


def page_pieces(
    template: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    images: str = "",
    **values: object,
) -> Iterator[str]:
    """Returns one HTML file with embedded styles and scripts, all named by their path in the
    package, in pieces: what stands between two tags of the template is in one piece.

    Its content security policy allows only these scripts, and images from the sources `images`.
    """
    from markupsafe import Markup

    style, script = _style(styles), _script(scripts)
    policy = [
        "default-src 'none'",
        f"script-src '{_digest(script)}'" if script else "",
        f"style-src '{_digest(style)}'",
        f"img-src {images}" if images else "",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    own = {
        "style": Markup(style),
        "script": Markup(script),
        "policy": "; ".join(filter(None, policy)),
    }
    return _environment().get_template(template).generate({**own, **values})


def served_page(
    template: str, *, styles: Sequence[str], scripts: Sequence[str], **values: object
) -> dict[str, str]:
    """Returns the files of a page that is served, by name; "" is the page itself."""
    return {
        "": render(template, **values),
        "view.css": _style(styles),
        "view.js": _script(("ui/look.js", "ui/ask.js", *scripts)),
    }


def render(template: str, **values: object) -> str:
    """Renders a template, named by its path in the package, with these values."""
    return _environment().get_template(template).render(values)


def compile_templates(*templates: str) -> None:
    """Compiles templates before they are rendered.

    The compiler needs several megabytes, which a caller that compiles first has again for its data.
    """
    for template in templates:
        _environment().get_template(template)


@cache
def read_part(path: str) -> str:
    """Reads a style or a script, named by its path in the package."""
    return (_ROOT / path).read_text(encoding="utf-8")


def percent(part: float, whole: float) -> str:
    """Formats a fraction as a percentage; a dash if the total is 0."""
    return f"{part / whole:.0%}" if whole else "–"


def dollars(value: float) -> str:
    """Formats US dollars; small amounts have two significant digits."""
    return f"${value:,.2f}" if value >= 0.1 or not value else f"${value:.2g}"


def seconds(value: float) -> str:
    """Formats a time in seconds, short ones in milliseconds."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _style(styles: Sequence[str]) -> str:
    return "".join(map(read_part, (LOOK, *styles)))


def _script(scripts: Sequence[str]) -> str:
    if not scripts:
        return ""
    return '(() => {{\n"use strict";\n{}}})();\n'.format("\n".join(map(read_part, scripts)))


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(_ROOT),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        percent=percent, dollars=dollars, seconds=seconds, thousands=lambda number: f"{number:,}"
    )
    return environment

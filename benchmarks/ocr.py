"""Measures how well and how fast OCR engines read: `python benchmarks/ocr.py [pages] [engine …]`.

The pages are drawn here, 1280x720 each, with 40 known lines of 13 to 18 pixels: a dark bar, prices,
order numbers, words on coloured ground. Where Chromium is installed, pages of HTML are read as
well. Printed for each engine: lines read exactly (blanks aside), the share of words that it found,
and the seconds for a picture, on the wall and of CPU (medians, without the first picture, which
loads the engine): on a machine that is busy only the latter tell something.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from prill.captioner.ocr import ENGINES, OCRCaptioner
from prill.errors import MissingExtraError, UsageError

WORDS = (
    "account address basket billing branch cancel checkout comment commit confirm contact coupon "
    "customer delivery details discount distance downloads favourites filter history invoice "
    "language merge message newsletter notifications orders payment profile quantity rating "
    "receipt refund remove report review save search settings shipping sign status stock submit "
    "subscription subtotal total tracking update upload warranty wishlist"
)
SIZE = (1280, 720)


def drawn(folder: Path, seed: int) -> tuple[Path, list[str]]:
    """A page, and its lines of text."""
    from PIL import Image, ImageDraw, ImageFont

    draw = random.Random(seed)
    picture = Image.new("RGB", SIZE, "white")
    pen = ImageDraw.Draw(picture)
    pen.rectangle([0, 0, SIZE[0], 46], fill=(38, 44, 66))
    lines: list[str] = []

    def put(x: int, y: int, text: str, size: int, fill: str) -> None:
        pen.text((x, y), text, font=ImageFont.load_default(size), fill=fill)
        lines.append(text)

    put(20, 13, "Corner Store - Your Account", 18, "white")
    put(980, 14, f"Basket ({draw.randint(1, 9)} items)", 15, "white")
    for i in range(19):
        y = 66 + 33 * i
        words = " ".join(draw.choices(WORDS.split(), k=4))
        if i % 4 == 1:
            pen.rectangle(
                [690, y - 4, 1180, y + 22], fill=draw.choice(["#ffe08a", "#d9ecff", "#e4f5dc"])
            )
        put(
            24,
            y,
            f"{words} ${draw.randint(1, 999)}.{draw.randint(10, 99)}",
            draw.randint(13, 17),
            draw.choice(["black", "#444", "#06c"]),
        )
        put(
            700,
            y,
            f"Order {draw.randint(10**8, 10**9)} of {draw.randint(1, 28)} "
            f"{draw.choice(['May', 'June', 'July'])}",
            draw.randint(13, 16),
            "black",
        )
    path = folder / f"drawn-{seed}.png"
    picture.save(path)
    return path, lines


async def rendered(folder: Path, seed: int) -> tuple[Path, list[str]]:
    """A page of HTML as Chromium shows it, and the lines on it. Raises UsageError without
    Chromium.
    """
    from prill.emulators.browser.chromium import Chromium

    draw = random.Random(seed)
    rows = [
        (
            " ".join(draw.choices(WORDS.split(), k=3)),
            f"{draw.randint(1, 999)}.{draw.randint(10, 99)} EUR",
        )
        for _ in range(18)
    ]
    cells = "".join(
        f"<tr><td>{name}</td><td>{price}</td><td><button>{draw.choice(WORDS.split())}</button></td></tr>"
        for name, price in rows
    )
    style = (
        "body{font:15px sans-serif;margin:16px} td{padding:5px 40px 5px 0} "
        "tr:nth-child(odd){background:#eef}"
    )
    browser = Chromium()
    try:
        page = await (await browser.context(*SIZE)).new_page()
        await page.set_content(
            f"<style>{style}</style><h1>Your orders this year</h1><table>{cells}</table>"
        )
        path = folder / f"rendered-{seed}.png"
        await page.screenshot(path=path)
        lines = (await page.inner_text("body")).replace("\t", "\n").splitlines()
    finally:
        await browser.close()
    return path, [line.strip() for line in lines if line.strip()]


def scores(found: list[str], truth: list[str]) -> tuple[int, int, int]:
    """Lines read exactly, blanks aside; words found; and how many words there are."""
    pieces = {"".join(text.split()) for text in found}
    words = [word for line in truth for word in line.split()]
    read = {word for text in found for word in text.split()}
    return (
        sum("".join(line.split()) in pieces for line in truth),
        sum(word in read for word in words),
        len(words),
    )


async def measured(engine: OCRCaptioner, pages: list[tuple[Path, list[str]]]) -> str:
    """A row of the table."""
    wall, cpu, exact, lines, recalled, words = [], [], 0, 0, 0, 0
    for path, truth in pages:
        start = time.perf_counter(), time.process_time()
        boxes = await engine.read(str(path))
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
        good, found, of = scores([box.text for box in boxes], truth)
        exact, lines, recalled, words = (
            exact + good,
            lines + len(truth),
            recalled + found,
            words + of,
        )
    later = slice(1, None) if len(pages) > 1 else slice(None)
    return (
        f"{exact:>4}/{lines:<4} {recalled / words:>8.3f} {median(wall[later]):>8.1f} "
        f"{median(cpu[later]):>8.1f}"
    )


def beside_cpu_torch() -> None:
    """Lets easyocr import the usual torchvision beside a torch without CUDA: it calls none of what
    is declared here.
    """
    if find_spec("torch") is None or find_spec("torchvision") is None:
        return
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)


_declared: list[object] = []  # what is declared lasts as long as this


def of_kinds(folder: Path, count: int) -> Iterator[tuple[str, list[tuple[Path, list[str]]]]]:
    """Returns the pages by the way they were made."""
    yield "drawn", [drawn(folder, seed) for seed in range(count)]
    try:
        yield "Chromium", [asyncio.run(rendered(folder, seed)) for seed in range(count)]
    except UsageError as error:
        print(f"no pages of HTML: {error}", file=sys.stderr)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    names = sys.argv[2:] or ENGINES
    if "easyocr" in names:
        beside_cpu_torch()
    with tempfile.TemporaryDirectory() as folder:
        print(
            f"{'pages':<10} {'engine':<26} {'lines':>9} {'words':>8} {'wall, s':>8} {'CPU, s':>8}"
        )
        for kind, pages in of_kinds(Path(folder), count):
            for name in ENGINES:
                if name in names:
                    try:
                        engine = OCRCaptioner(name)
                        print(
                            f"{kind:<10} {engine.name:<26} {asyncio.run(measured(engine, pages))}",
                            flush=True,
                        )
                    except MissingExtraError as error:
                        print(f"{kind:<10} {name:<26} {error}", flush=True)


if __name__ == "__main__":
    main()

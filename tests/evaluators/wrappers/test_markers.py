"""Marks on screenshots."""

from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image as Picture
from PIL import ImageChops

from prill.errors import InputError
from prill.evaluators.wrappers.marking import mark


def screen(folder: Path, colour: str, size: tuple[int, int] = (400, 800)) -> Path:
    path = folder / f"{colour}.png"
    Picture.new("RGB", size, colour).save(path)
    return path


def opened(data: bytes) -> Picture.Image:
    return Picture.open(BytesIO(data)).convert("RGB")


def changed(path: Path, data: bytes) -> tuple[int, int, int, int]:
    """The box of the pixels that differ."""
    box = ImageChops.difference(Picture.open(path).convert("RGB"), opened(data)).getbbox()
    assert box is not None
    return box


@pytest.mark.parametrize(
    "colour", ["white", "black", "gray", "red", "yellow", "#ff40a0", "#141414"]
)
def test_mark_stands_out_on_any_colour(tmp_path: Path, colour: str) -> None:
    path = screen(tmp_path, colour)
    before = path.read_bytes()
    picture, plain = opened(mark(str(path), (0.5, 0.25))), Picture.open(path).convert("RGB")
    contrast = max(
        sum(pair)
        for pair in zip(*[iter(ImageChops.difference(picture, plain).tobytes())] * 3, strict=True)
    )
    assert contrast > 250
    assert path.read_bytes() == before


def test_ring_leaves_the_point_visible(tmp_path: Path) -> None:
    path = screen(tmp_path, "white")
    data = mark(str(path), (0.5, 0.25))
    left, top, right, bottom = changed(path, data)
    assert ((left + right) / 2, (top + bottom) / 2) == pytest.approx((200, 200), abs=1.5)
    assert 30 <= right - left <= 50
    assert opened(data).getpixel((200, 200)) == (255, 255, 255)


def test_ring_size_follows_the_screen(tmp_path: Path) -> None:
    small, large = screen(tmp_path, "white", (160, 210)), screen(tmp_path, "gray", (1600, 2100))
    widths = [
        box[2] - box[0]
        for box in (
            changed(small, mark(str(small), (0.5, 0.5))),
            changed(large, mark(str(large), (0.5, 0.5))),
        )
    ]
    assert 12 <= widths[0] <= 24
    assert widths[1] > 6 * widths[0]


def test_swipe_gets_an_arrow_to_its_end(tmp_path: Path) -> None:
    path = screen(tmp_path, "white")
    up = changed(path, mark(str(path), (0.5, 0.75), (0.5, 0.25)))
    assert up[1] <= 200 <= up[1] + 10
    assert up[3] >= 600
    assert changed(path, mark(str(path), (0.5, 0.75), (0.5, 0.77))) == changed(
        path, mark(str(path), (0.5, 0.75))
    )


def test_webp_mark_shows_the_same(tmp_path: Path) -> None:
    path = screen(tmp_path, "white")
    png, webp = (mark(str(path), (0.5, 0.5), format=format) for format in ("PNG", "WEBP"))
    assert webp[8:12] == b"WEBP"
    assert opened(png).tobytes() == opened(webp).tobytes()


def test_mark_at_edge_and_broken_file(tmp_path: Path) -> None:
    assert changed(screen(tmp_path, "white"), mark(str(tmp_path / "white.png"), (1.0, 1.0)))[
        2:
    ] == (400, 800)
    with pytest.raises(InputError, match="missing"):
        mark(str(tmp_path / "none.png"), (0.5, 0.5))

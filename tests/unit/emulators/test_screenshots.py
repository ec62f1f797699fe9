"""Screenshots are kept whole or not at all, and once each."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prill.emulators.screenshots import keep_screenshot
from prill.errors import EnvironmentFailedError


def picture(shade: int = 0) -> bytes:
    from PIL import Image

    png = io.BytesIO()
    Image.new("RGB", (300, 300), (shade, 9, 3)).save(png, "PNG")
    return png.getvalue()


def test_picture_is_kept_unchanged_once(tmp_path: Path) -> None:
    from PIL import Image

    path = keep_screenshot(picture(7), tmp_path / "images")
    assert keep_screenshot(picture(7), tmp_path / "images") == path
    with Image.open(path) as kept:
        assert (kept.size, kept.convert("RGB").getpixel((5, 5))) == ((300, 300), (7, 9, 3))
    assert len(list((tmp_path / "images").iterdir())) == 1


@pytest.mark.parametrize("cut", [0, 4, 20, 60])
def test_damaged_picture_is_a_failure(cut: int, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailedError, match="damaged"):
        keep_screenshot(picture()[:cut], tmp_path)
    assert not list(tmp_path.iterdir())


def test_same_picture_written_twice_at_once(tmp_path: Path) -> None:
    gate = threading.Barrier(4)

    def keep(png: bytes) -> str:
        gate.wait(60)
        return keep_screenshot(png, tmp_path)

    with ThreadPoolExecutor(4) as phones:
        for shade in range(60):
            png = picture(shade)
            assert (
                len({kept.result() for kept in [phones.submit(keep, png) for _ in range(4)]}) == 1
            )
    assert len(list(tmp_path.iterdir())) == 60

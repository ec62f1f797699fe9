"""Pictures, edited at random: sent, shown and measured, or refused as what they are."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from prill.emulators.screenshots import decoded_size, keep_screenshot
from prill.io.images import image_size, open_checked
from prill.models.request import encode_image
from prill.ui.report.pictures import Pictures
from tests.support.fuzz.edits import attempt, edited_bytes, edits, fuzzed

KINDS = [
    ("PNG", "RGB"),
    ("PNG", "P"),
    ("JPEG", "RGB"),
    ("WEBP", "RGB"),
    ("GIF", "P"),
    ("BMP", "RGB"),
    ("TIFF", "RGB"),
    ("PPM", "L"),
]


def drawn(format: str, mode: str) -> bytes:
    pictures = [Image.linear_gradient("L").resize((24, 16)).convert(mode) for _ in range(2)]
    out = BytesIO()
    more = {"save_all": True, "append_images": pictures[1:]} if format in ("GIF", "WEBP") else {}
    pictures[0].save(out, format, **more)
    return out.getvalue()


SAMPLES = {f"{format} {mode}": drawn(format, mode) for format, mode in KINDS}


@fuzzed
@given(st.sampled_from(sorted(SAMPLES)), edits)
def test_pictures_are_used_or_refused(tmp_path: Path, kind: str, change: bytes) -> None:
    path, picture = str(tmp_path / "a.png"), edited_bytes(SAMPLES[kind], change)
    Path(path).write_bytes(picture)
    sent = attempt(lambda: encode_image(picture, path, 200))
    size = attempt(lambda: image_size(path))
    assert sent is None or size is not None
    attempt(lambda: open_checked(path))
    attempt(lambda: decoded_size(picture))
    attempt(lambda: keep_screenshot(picture, tmp_path / "kept"))
    shown = attempt(lambda: Pictures(tmp_path, embed=lambda number, url: None)(path))
    assert shown is not None
    assert shown.embedded is None or size is not None

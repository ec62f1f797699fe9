"""Pictures in data URLs: what is written, what is refused, how long it stays."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from prill.datasets.reading import images
from prill.datasets.reading.images import RecordImages, image_size_or_none, image_store
from prill.errors import InputError


def picture(form: str) -> bytes:
    file = BytesIO()
    Image.new("RGB", (3, 2)).save(file, form)
    return file.getvalue()


def url(data: bytes, type_: str = "image/png") -> str:
    return f"data:{type_};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize(
    ("form", "suffix"), [("PNG", ".png"), ("JPEG", ".jpg"), ("WEBP", ".webp"), ("GIF", ".gif")]
)
def test_picture_written_whole_and_named(tmp_path: Path, form: str, suffix: str) -> None:
    with image_store(tmp_path) as store:
        path = RecordImages(store).file(url(picture(form), "application/wrong"))
    assert path is not None
    assert (Path(path).suffix, Path(path).read_bytes()) == (suffix, picture(form))
    assert image_size_or_none(path) == (3.0, 2.0)


def test_pictures_go_with_the_next_record() -> None:
    with image_store(None) as store:
        images = RecordImages(store)
        first = images.file(url(picture("PNG")))
        assert first == images.file(url(picture("PNG")))
        assert first is not None
        assert Path(first).is_file()
        images.next_record()
        assert not Path(first).exists()
        second = images.file(url(picture("PNG")))
    assert second is not None
    assert second != first
    assert not Path(second).exists()


@pytest.mark.parametrize(
    ("url_text", "problem"),
    [
        (url(b"<svg onload='x'/>", "image/svg+xml"), "not PNG, JPEG"),
        ("data:image/png;base64,@@@", "damaged"),
        ("data:image/png,plain", "not a base64"),
        ("data:image/png;base64", "not a base64"),
        ("shot.png", "neither a data URL nor an"),
    ],
)
def test_other_data_is_refused(tmp_path: Path, url_text: str, problem: str) -> None:
    with image_store(tmp_path) as store, pytest.raises(InputError, match=problem):
        RecordImages(store).file(url_text)
    assert list(tmp_path.iterdir()) == []


def test_large_picture_refused_while_packed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(images, "MAX_BYTES", 40)
    with image_store(tmp_path) as store, pytest.raises(InputError, match="more than"):
        RecordImages(store).file(url(b"\x89PNG\r\n\x1a\n" + b"\0" * 60))


def test_paths_stay_in_the_folder(tmp_path: Path) -> None:
    with image_store(None) as store:
        images = RecordImages(store, tmp_path)
        assert images.file("https://example.com/a.png") is None
        assert images.file("a/b.png") == str(tmp_path.resolve() / "a" / "b.png")
        for outside in ("../x.png", "/etc/passwd"):
            with pytest.raises(InputError, match="leaves the folder"):
                images.file(outside)

"""Screenshots before they are sent."""

import base64
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from prill.errors import InputError
from prill.models.images import ImageEncoder, encode_image, image_size, open_checked


def saved(path: Path, format: str, size: tuple[int, int] = (64, 48), mode: str = "RGB") -> str:
    Image.effect_noise(size, 50).convert(mode).save(path, format)
    return str(path)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF"])
def test_small_images_are_sent_unchanged(tmp_path: Path, format: str) -> None:
    path = saved(tmp_path / "a.bin", format)
    image = ImageEncoder(10_000)(path)
    head, data = image.url.decode().split(",")
    assert head == f"data:image/{format.lower()};base64"
    assert base64.b64decode(data) == Path(path).read_bytes()


def test_other_formats_become_png(tmp_path: Path) -> None:
    assert ImageEncoder(10_000)(saved(tmp_path / "a.bmp", "BMP")).url.startswith(b"data:image/png")


@pytest.mark.parametrize(("format", "mode"), [("PNG", "RGBA"), ("JPEG", "RGB"), ("PNG", "L"), ("PNG", "P")])
def test_large_images_are_scaled_down(tmp_path: Path, format: str, mode: str) -> None:
    path = saved(tmp_path / "a", format, (400, 200), mode)
    encoded = ImageEncoder(20_000)(path)
    sent = Image.open(BytesIO(base64.b64decode(encoded.url.split(b",")[1])))
    assert sent.size == (encoded.width, encoded.height) == (200, 100)


def test_image_is_encoded_once(tmp_path: Path) -> None:
    encoder, path = ImageEncoder(20_000), saved(tmp_path / "a.png", "PNG")
    first = encoder(path)
    assert encoder(path) is first
    saved(tmp_path / "a.png", "PNG", (20, 20))
    assert encoder(path).url != first.url


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF"])
def test_truncated_image_is_refused(tmp_path: Path, format: str) -> None:
    path = saved(tmp_path / "a", format, (300, 300))
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=f"image {path} is"):
        ImageEncoder(10**6)(path)
    with pytest.raises(InputError):
        open_checked(path)


def test_bytes_after_image_do_no_harm(tmp_path: Path) -> None:
    path = saved(tmp_path / "a", "JPEG")
    Path(path).write_bytes(Path(path).read_bytes() + b"\0\0")
    ImageEncoder(10**6)(path)


@pytest.mark.parametrize(("content", "problem"), [(None, "is missing"), (b"", "is empty"), (b"GIF? no", "not an image")])
def test_what_is_no_image_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "a.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=problem):
        ImageEncoder(10**6)(str(path))


def test_huge_image_is_never_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("1", (10_000, 10_000)).save(path)
    with pytest.raises(InputError, match=r"10000x10000 \(100 megapixels\); the limit is 64"):
        image_size(str(path))
    with pytest.raises(InputError, match="100 megapixels"):
        encode_image(path.read_bytes(), str(path), 10**6)

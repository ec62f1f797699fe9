"""Screenshots before they are sent."""

import base64
import os
import pickle
import subprocess
import time
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from prill.errors import InputError
from prill.evaluators.scoring.scorer import verdict_key
from prill.io.images import file_hash, image_size, open_checked
from prill.io.store import copy_image
from prill.models.request import ImageEncoder, encode_image
from prill.types import EvaluatorInfo, Observation, Task, Trajectory
from prill.ui.report.pictures import Pictures


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


@pytest.mark.parametrize(
    ("format", "mode"), [("PNG", "RGBA"), ("JPEG", "RGB"), ("PNG", "L"), ("PNG", "P")]
)
def test_large_images_are_scaled_down(tmp_path: Path, format: str, mode: str) -> None:
    path = saved(tmp_path / "a", format, (400, 200), mode)
    encoded = ImageEncoder(20_000)(path)
    sent = Image.open(BytesIO(base64.b64decode(encoded.url.split(b",")[1])))
    assert sent.size == (encoded.width, encoded.height) == (200, 100)


@pytest.mark.parametrize(
    ("format", "mode"),
    [("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "P"), ("WEBP", "RGB"), ("BMP", "RGB")],
)
@pytest.mark.parametrize("most", [100_000, 20_000])
def test_jpeg_is_sent_where_asked_for(tmp_path: Path, format: str, mode: str, most: int) -> None:
    path = saved(tmp_path / "a", format, (400, 200), mode)
    for encoder in (
        ImageEncoder(most, "jpeg"),
        pickle.loads(pickle.dumps(ImageEncoder(most, "jpeg"))),
    ):
        assert encoder.at_once(path) is None, "it must be decoded"
        encoded = encoder(path)
        head, data = encoded.url.split(b",")
        sent = Image.open(BytesIO(base64.b64decode(data)))
        assert (head, sent.format) == (b"data:image/jpeg;base64", "JPEG")
        assert (
            sent.size
            == (encoded.width, encoded.height)
            == ((400, 200) if most == 100_000 else (200, 100))
        )
        assert encoded.sha256 == file_hash(path), "that of the file"


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF"])
def test_truncated_image_is_refused(tmp_path: Path, format: str) -> None:
    path = saved(tmp_path / "a", format, (300, 300))
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=f"image {path} is"):
        ImageEncoder(10**6)(path)
    with pytest.raises(InputError):
        open_checked(path)


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "is missing"), (b"", "is empty"), (b"GIF? no", "not an image")]
)
def test_what_is_no_image_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "a.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=problem):
        ImageEncoder(10**6)(str(path))


@pytest.mark.parametrize("format", ["EPS", "DDS", "PPM", "TIFF"])
def test_other_formats_are_never_opened(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "a.png", format)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a program was started"))
    with pytest.raises(InputError, match="is not an image"):
        ImageEncoder(10_000)(path)
    assert Pictures(tmp_path)(path).src is None


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    for use in (
        ImageEncoder(10),
        open_checked,
        image_size,
        file_hash,
        partial(copy_image, folder=tmp_path / "x"),
    ):
        with pytest.raises(InputError, match="it is not a file"):
            use(str(tmp_path / "a.png"))
    assert Pictures(tmp_path)(str(tmp_path / "a.png")).src is None


def test_file_without_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"")
    os.truncate(path, 60 << 30)  # takes no room on disk
    for use in (
        ImageEncoder(10),
        open_checked,
        image_size,
        file_hash,
        partial(copy_image, folder=tmp_path / "x"),
    ):
        with pytest.raises(InputError, match="has 61440 MB, more than 244"):
            use(str(path))
    state = Observation(str(path))
    info = EvaluatorInfo("j", "1")
    assert verdict_key(
        info, Trajectory(id="a", task=Task(goal="g"), final=state), [str(path)]
    ).startswith("sha256:")


def test_huge_image_is_never_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("1", (10_000, 10_000)).save(path)
    with pytest.raises(InputError, match=r"10000x10000 \(100 megapixels\), more than 64"):
        image_size(str(path))
    with pytest.raises(InputError, match="100 megapixels"):
        encode_image(path.read_bytes(), str(path), 10**6)


def test_known_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "page.png"
    hashes = []
    for colour in ("red", "blue"):
        Image.new("RGB", (8, 8), colour).save(path)
        for age in (0, 60):  # just written, and left alone for a while
            then = time.time() - age
            os.utime(path, (then, then))
            hashes += [
                file_hash(str(path)),
                file_hash(str(path)),
                encode_image(path.read_bytes(), str(path), 10**6).sha256,
            ]
    assert len(set(hashes[:6])) == len(set(hashes[6:])) == 1
    assert hashes[0] != hashes[6]

"""Caption files, and the captioner that reads them."""

from __future__ import annotations

import gzip
import pickle
import threading
from pathlib import Path

import pytest
from PIL import Image as Picture

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, CaptionLog, FileCaptioner, read_captions
from prill.captioner.registry import make_captioner
from prill.captioner.vision import CUT
from prill.errors import InputError, NoEvidenceError, UsageError
from prill.io.store import encode
from prill.types import Observation


def picture(path: Path, color: str) -> Observation:
    Picture.new("RGB", (4, 4), color).save(path)
    return Observation(screenshot=str(path))


def caption(
    state: Observation, text: str | None = "words", captioner: str = "vlm m", **more: object
) -> Caption:
    return Caption(id=image_id(str(state.screenshot)), captioner=captioner, caption=text, **more)  # type: ignore[arg-type]


async def test_captions_found_by_content(tmp_path: Path) -> None:
    red, blue = picture(tmp_path / "red.png", "red"), picture(tmp_path / "blue.png", "blue")
    green, grey = picture(tmp_path / "green.png", "green"), picture(tmp_path / "grey.png", "grey")
    lines = [
        caption(red, "old"),
        caption(red, "a red page"),
        caption(blue, "a blue", truncated=True),
        caption(green, None, unscored="refusal", reason="the model declined"),
    ]
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b"".join(map(encode, lines))))
    captioner = make_captioner(str(tmp_path / "c.jsonl.gz"))
    assert captioner.name == "vlm m"
    copy = picture(tmp_path / "copy.png", "red")
    assert await captioner(copy) == "a red page", "the content counts, and of two captions the last"
    assert await captioner(blue) == f"a blue\n{CUT}"
    for state, words in (
        (green, "refusal: the model declined"),
        (grey, "no caption for the screenshot grey.png"),
    ):
        with pytest.raises(NoEvidenceError, match=words):
            await captioner(state)
    with pytest.raises(NoEvidenceError, match="no screenshot"):
        await captioner(Observation(text="t"))
    assert await pickle.loads(pickle.dumps(captioner))(red) == "a red page"


def test_captioner_serves_other_threads(tmp_path: Path) -> None:
    import asyncio

    red = picture(tmp_path / "red.png", "red")
    (tmp_path / "c.jsonl").write_bytes(encode(caption(red)))
    captioner = FileCaptioner(str(tmp_path / "c.jsonl"))
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(captioner(red))))
    thread.start()
    thread.join()
    assert found == ["words"]


def test_broken_caption_files_say_where(tmp_path: Path) -> None:
    red = picture(tmp_path / "red.png", "red")
    path = tmp_path / "c.jsonl"
    path.write_bytes(encode(caption(red)) + b'{"id": 3}\n')
    with pytest.raises(InputError, match=r"c\.jsonl:2: Expected `str`, got `int`"):
        FileCaptioner(str(path))
    path.write_bytes(encode(caption(red)) + b'{"id":"sha')
    assert len(list(read_captions(path))) == 1, "a torn last line is passed over"
    path.write_bytes(encode(caption(red)) + encode(caption(red, captioner="other")))
    with pytest.raises(UsageError, match="several captioners"):
        FileCaptioner(str(path))
    for nothing in (b"", b'{"id":"sha'):
        path.write_bytes(nothing)
        with pytest.raises(UsageError, match="empty"):
            FileCaptioner(str(path))


def test_log_repairs_and_refuses_like_verdicts(tmp_path: Path) -> None:
    red, blue = picture(tmp_path / "red.png", "red"), picture(tmp_path / "blue.png", "blue")
    path = tmp_path / "c.jsonl"
    path.write_bytes(encode(caption(red)) + b'{"id":"sha256:12')
    with CaptionLog(path, "vlm m") as log:
        assert [log.lasting_key(caption(color).id) is not None for color in (red, blue)] == [
            True,
            False,
        ]
        log.append(caption(blue))
        log.append(caption(red, "ask_again"))
    assert [(line.id, line.caption) for line in read_captions(path)] == [
        (caption(blue).id, "words"),
        (caption(red).id, "ask_again"),
    ]
    with pytest.raises(
        UsageError, match=r"contains captions of another captioner \(name vlm m there, vlm n now\)"
    ):
        CaptionLog(path, "vlm n")

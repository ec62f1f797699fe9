"""Captions looked through by a person: what the page lets in, and the decisions on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, FileCaptioner, read_captions, read_decisions
from prill.errors import InputError, NoEvidenceError, UsageError
from prill.io.store import encode
from prill.types import Observation
from prill.ui.view.captions import CaptionDecision, CaptionReview
from prill.ui.view.library import Library
from prill.ui.view.site import ViewSite
from tests.support.labelling import asked

pytest.importorskip("aiohttp")

HOSTILE = "<img src=x onerror=\"document.title='owned'\"> a page"
COLORS = ("red", "green", "blue")


def write(folder: Path, **more: Any) -> Path:
    lines = []
    for color in COLORS:
        Image.new("RGB", (20, 10), color).save(folder / f"{color}.png")
        text = HOSTILE if color == "red" else f"a {color} page"
        id = image_id(str(folder / f"{color}.png"))
        lines.append(Caption(id=id, captioner="vlm m", image=f"{color}.png", caption=text, **more))
    (folder / "c.jsonl").write_bytes(b"".join(map(encode, lines)))
    return folder / "c.jsonl"


@contextmanager
def opened(folder: Path) -> Iterator[CaptionReview]:
    with closing(CaptionReview(str(folder / "c.jsonl"), str(folder / "d.jsonl"), "anna")) as review:
        yield review


def decided(folder: Path) -> dict[str, tuple[str | None, str | None]]:
    return {
        line.image: (line.choice, line.caption)
        for line in read_decisions(folder / "d.jsonl").values()
    }


async def test_decisions_are_on_disk_at_once(tmp_path: Path) -> None:
    write(tmp_path)
    with opened(tmp_path) as review:
        change = await review.save(0, CaptionDecision(choice="reject", caption="whatever"))
        assert change.next == 1
        change = await review.save(1, CaptionDecision(choice="accept", caption="a green page "))
        assert change.next == 2
        mended = CaptionDecision(choice="accept", caption="a blue page with a button")
        change = await review.save(2, mended)
        assert change.next is None and change.card.decided == "mended"
        now = {
            "red.png": ("rejected", None),
            "green.png": ("accepted", "a green page"),
            "blue.png": ("mended", change.card.text),
        }
        assert decided(tmp_path) == now, "before the log is closed"
        assert review.decisions.written == 3
    with opened(tmp_path) as review:
        assert review.choices == {"accepted": 1, "mended": 1, "rejected": 1}
        assert review.card(2).text == "a blue page with a button"
    captioner = FileCaptioner(str(tmp_path / "d.jsonl"))
    assert captioner.name == "anna", "the decisions are a caption file"
    blue, red = (Observation(screenshot=str(tmp_path / f"{name}.png")) for name in ("blue", "red"))
    assert await captioner(blue) == "a blue page with a button"
    with pytest.raises(NoEvidenceError, match="it was rejected"):
        await captioner(red)


async def test_undo_survives_a_kill(tmp_path: Path) -> None:
    write(tmp_path)
    with opened(tmp_path) as review:
        await review.save(0, CaptionDecision(choice="accept", caption="first"))
        await review.save(0, CaptionDecision(choice="reject"))
        await review.undo()
        assert decided(tmp_path) == {"red.png": ("mended", "first")}
        change = await review.undo()
        assert change is not None and change.card.decided is None
        assert decided(tmp_path) == {} and review.decisions.written == 0
        assert await review.undo() is None


async def test_empty_caption_cannot_be_accepted(tmp_path: Path) -> None:
    write(tmp_path)
    with opened(tmp_path) as review, pytest.raises(InputError, match="reject it"):
        await review.save(0, CaptionDecision(choice="accept", caption=" "))
    assert decided(tmp_path) == {}
    (tmp_path / "d.jsonl").write_bytes(encode(next(iter(read_captions(tmp_path / "c.jsonl")))))
    with pytest.raises(UsageError, match="captions of another captioner"), opened(tmp_path):
        pass


async def test_only_captioned_images_are_served(tmp_path: Path) -> None:
    """The caption file may come from others: what it names is shown only if it was captioned."""
    write(tmp_path)
    Image.new("RGB", (20, 10), "black").save(tmp_path / "green.png")
    with opened(tmp_path) as review, closing(Library(())) as library:
        async with asked(ViewSite(library, captions=review)) as client:
            accept = {"choice": "accept", "caption": "a page"}
            status, _ = await client.post("api/captions/0", accept, Origin="http://evil.example")
            assert status == 403
            assert (await client.post("api/captions/0", accept))[0] == 200
            assert (await client.post("api/captions/9", accept))[0] == 404
            for path, expected in (("captions/0", 200), ("captions/1", 404)):
                assert (await client.get(path))[0] == expected, path
    assert list(decided(tmp_path)) == ["red.png"]

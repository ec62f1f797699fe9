"""Captions looked through by a person: what the page lets in, and the decisions on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, CaptionLog, FileCaptioner, read_captions, read_decisions
from prill.errors import InputError, NoEvidenceError, UsageError
from prill.io.store import encode
from prill.types import Observation
from prill.ui.serving import serving
from prill.ui.view.captions import CaptionDecision, CaptionSite, open_site

aiohttp = pytest.importorskip("aiohttp")

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


def opened(folder: Path) -> tuple[CaptionSite, CaptionLog]:
    return open_site(str(folder / "c.jsonl"), str(folder / "d.jsonl"), "anna")


def decided(folder: Path) -> dict[str, tuple[str | None, str | None]]:
    return {
        line.image: (line.choice, line.caption)
        for line in read_decisions(folder / "d.jsonl").values()
    }


async def test_decisions_are_on_disk_at_once(tmp_path: Path) -> None:
    write(tmp_path)
    site, log = opened(tmp_path)
    assert (await site.save(0, CaptionDecision(choice="reject", caption="whatever"))).next == 1
    assert (await site.save(1, CaptionDecision(choice="accept", caption="a green page "))).next == 2
    change = await site.save(
        2, CaptionDecision(choice="accept", caption="a blue page with a button")
    )
    assert change.next is None and change.card.decided == "mended"
    now = {
        "red.png": ("rejected", None),
        "green.png": ("accepted", "a green page"),
        "blue.png": ("mended", change.card.text),
    }
    assert decided(tmp_path) == now, "before the log is closed"
    assert site.written == 3
    log.close()
    site, log = opened(tmp_path)
    assert (site.done, site.card(2).text) == (3, "a blue page with a button")
    log.close()
    captioner = FileCaptioner(str(tmp_path / "d.jsonl"))
    assert captioner.name == "anna", "the decisions are a caption file"
    assert (
        await captioner(Observation(screenshot=str(tmp_path / "blue.png")))
        == "a blue page with a button"
    )
    with pytest.raises(NoEvidenceError, match="it was rejected"):
        await captioner(Observation(screenshot=str(tmp_path / "red.png")))


async def test_undo_survives_a_kill(tmp_path: Path) -> None:
    write(tmp_path)
    site, _ = opened(tmp_path)
    await site.save(0, CaptionDecision(choice="accept", caption="first"))
    await site.save(0, CaptionDecision(choice="reject"))
    await site.undo()
    assert decided(tmp_path) == {"red.png": ("mended", "first")}
    change = await site.undo()
    assert change is not None and change.card.decided is None
    assert decided(tmp_path) == {} and site.written == 0
    assert await site.undo() is None


async def test_empty_caption_cannot_be_accepted(tmp_path: Path) -> None:
    write(tmp_path)
    site, log = opened(tmp_path)
    with log, pytest.raises(InputError, match="reject it"):
        await site.save(0, CaptionDecision(choice="accept", caption=" "))
    assert decided(tmp_path) == {}
    with pytest.raises(UsageError, match="captions of another captioner"):
        (tmp_path / "d.jsonl").write_bytes(encode(next(iter(read_captions(tmp_path / "c.jsonl")))))
        opened(tmp_path)


async def test_server_lets_only_the_page_write(tmp_path: Path) -> None:
    write(tmp_path)
    Image.new("RGB", (20, 10), "black").save(tmp_path / "green.png")
    site, log = opened(tmp_path)
    with log:
        async with serving(site) as url, aiohttp.ClientSession() as session:
            origin = url.rsplit("/", 2)[0]
            body = b'{"choice": "accept", "caption": "a page"}'

            async def post(target: str, **headers: str) -> int:
                async with session.post(
                    target, data=body, headers={"Content-Type": "application/json", **headers}
                ) as answer:
                    return int(answer.status)

            assert await post(f"{url}api/cards/0") == 403, "no Origin"
            assert await post(f"{url}api/cards/0", Origin="http://evil.example") == 403
            assert await post(f"{origin}/token/api/cards/0", Origin=origin) == 403
            assert await post(f"{url}api/cards/0", Origin=origin, Host="evil.example") == 403
            assert await post(f"{url}api/cards/0", Origin=origin) == 200
            assert await post(f"{url}api/cards/9", Origin=origin) == 404
            for path, status in (
                ("pictures/0", 200),
                ("pictures/1", 404),
                ("view.js", 200),
                ("captions.html", 404),
            ):
                async with session.get(f"{url}{path}") as answer:
                    assert answer.status == status, path
    assert list(decided(tmp_path)) == ["red.png"]

"""`prill view` with a reward's observations and captions: pages of their own, behind one guard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from prill.captioner.cache import image_id
from prill.captioner.files import Caption, read_decisions
from prill.errors import UsageError
from prill.io.store import encode
from prill.refine.rewards.watch import site as watch_site
from prill.refine.rewards.watch.site import FollowedWatch, WatchSite, find_watch_files
from prill.refine.rewards.watch.spec import WatchLimits
from prill.runs.view import OpenedView, ViewConfig, ViewResult, view_async
from prill.types import EvaluatorInfo
from tests.unit.commands.test_watch import course, said, verdicts
from tests.unit.view.test_view import Page, lines, run

aiohttp = pytest.importorskip("aiohttp")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A run, a reward's observations, and a caption."""
    Image.new("RGB", (40, 30), "navy").save(tmp_path / "page.png")
    (tmp_path / "t.jsonl").write_bytes(lines([run("a")]))
    (tmp_path / "watch.jsonl").write_bytes(b"".join(map(encode, course(300))))
    shot = image_id(tmp_path / "page.png")
    caption = Caption(id=shot, captioner="vlm", image="page.png", caption="A blue page.")
    (tmp_path / "captions.jsonl").write_bytes(encode(caption))
    return tmp_path


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Page, asyncio.Future[ViewResult]]]:
    stop, opened = asyncio.Event(), asyncio.get_running_loop().create_future()

    def announce(page: OpenedView) -> None:
        opened.set_result(page.url)

    result = asyncio.ensure_future(view_async(ViewConfig(**options), stop=stop, opened=announce))
    await asyncio.wait([result, opened], return_when=asyncio.FIRST_COMPLETED)
    if result.done():
        result.result()
    async with aiohttp.ClientSession() as http:
        yield Page(http, opened.result()), result
    stop.set()
    await result


async def test_three_pages_link_one_another(files: Path) -> None:
    async with served(
        trajectories=[files / "t.jsonl"],
        watch=[files / "watch.jsonl"],
        captions=files / "captions.jsonl",
        annotator="ada",
    ) as (asked, result):
        for place, links in (
            ("", ("./rewards/", "./captions/")),
            ("rewards/", ("../", "../captions/")),
            ("captions/", ("../", "../rewards/")),
        ):
            page = (await asked.get(place)).decode()
            assert all(f'href="{link}"' in page for link in links), place
            assert page.count('aria-current="page"') == bool(place)
        assert "300 verdicts" in (await asked.get("rewards/api/state"))["html"]
        assert (await asked.get("captions/pictures/0")).startswith(b"\x89PNG")
        assert (await asked.get("api/state"))["annotator"] is None, "no label file was named"
        decided = {"choice": "accept", "caption": "A navy page."}
        status, change = await asked.post("captions/api/cards/0", decided)
        assert (status, change["card"]["decided"]) == (200, "mended")
    assert [one.caption for one in read_decisions(files / "decisions.jsonl").values()] == [
        "A navy page."
    ]
    table = result.result().table()
    assert (table["runs"], table["captions"]["mended"]) == (1, 1)


async def test_every_page_has_the_same_guard(files: Path) -> None:
    async with served(
        watch=[files / "watch.jsonl"], captions=files / "captions.jsonl", annotator="ada"
    ) as (asked, _):
        origin = asked.url.rsplit("/", 2)[0]
        for place in ("", "api/state", "captions/", "captions/api/cards/0", "captions/view.js"):
            assert await asked.status(place) == 200
            async with asked.http.get(f"{origin}/other-token/{place}") as answer:
                assert answer.status == 403, place
            async with asked.http.get(
                asked.url + place, headers={"Host": "evil.example"}
            ) as answer:
                assert answer.status == 403, place
        card = f"{asked.url}captions/api/cards/0"
        for headers in ({}, {"Origin": "http://evil.example"}):
            async with asked.http.post(card, json={"choice": "reject"}, headers=headers) as answer:
                assert answer.status == 403
        assert await asked.status("rewards/") == 404, "the first page is at the address itself"
    assert not (files / "decisions.jsonl").read_bytes()


async def test_one_page_has_no_navigation(files: Path) -> None:
    with (files / "watch.jsonl").open("ab") as log:
        log.write(b"broken\n")
    async with served(watch=[files / "watch.jsonl"]) as (asked, result):
        assert "<nav" not in (await asked.get("")).decode()
        await asked.get("api/state")
    (problem,) = result.result().problems
    assert problem.startswith(f"{files}/watch.jsonl:301: ")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "give trajectories, a caption file"),
        ({"watch": ["w.jsonl"], "verdicts": ["v.jsonl"]}, "verdicts: only with trajectories"),
        ({"captions": "c.jsonl"}, "give an annotator"),
        ({"watch": ["w.jsonl"], "annotator": "ada"}, "give both or neither"),
        ({"captions": "c.jsonl", "annotator": "ada", "blind": True}, "blind: only"),
    ],
)
def test_options_of_pages(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        ViewConfig(**options)


def test_a_watch_follows_its_log(tmp_path: Path) -> None:
    path = tmp_path / "watch.jsonl"
    log = FollowedWatch(path, WatchLimits())
    list(log.read_new())
    assert log.report().verdicts == 0, "it may not exist yet"
    records = [encode(record) for record in course(30)]
    path.write_bytes(b"".join(records[:10]) + records[10][:20])
    list(log.read_new())
    assert (log.report().verdicts, log.problems) == (10, []), "the last line is not complete"
    with path.open("ab") as file:
        file.write(records[10][20:] + b"broken\n" + records[11])
    list(log.read_new())
    assert log.report().verdicts == 12
    assert len(log.problems) == 1 and log.problems[0].startswith(f"{path}:12: ")
    path.write_bytes(b"".join(records[:3]))
    list(log.read_new())
    assert (log.report().verdicts, log.problems) == (3, []), "it was replaced"


def test_verdicts_are_a_log_too(tmp_path: Path) -> None:
    opinions = [(f"run-{i}", said(i % 2 == 0)) for i in range(8)]
    path = verdicts(tmp_path / "v.jsonl", opinions, EvaluatorInfo("vlm", "1", "m"))
    log = FollowedWatch(path, WatchLimits())
    list(log.read_new())
    assert log.report().verdicts == 8 and log.report().judge.startswith("vlm m ")


def test_a_long_log_is_read_in_parts(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_site, "_SLICE", 0.0)
    site = WatchSite([files / "watch.jsonl"])
    states = [site.state() for _ in range(301)]
    assert [0 < one.read < 1 for one in states] == [True] * 300 + [False]
    assert "300 verdicts" in states[-1].html and states[-1].headline == "no alarm"


def test_other_files_are_refused(files: Path) -> None:
    with pytest.raises(UsageError, match=r"t\.jsonl: contains trajectories, not observations"):
        WatchSite([files / "t.jsonl"])
    with pytest.raises(UsageError, match="no such file"):
        WatchSite([files / "nowhere" / "watch.jsonl"])
    (files / "empty").mkdir()
    with pytest.raises(UsageError, match="no file with observations"):
        find_watch_files([files / "empty"])
    assert find_watch_files([files]) == [str(files / "watch.jsonl")]


def test_its_text_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "<b>watch.jsonl"
    path.write_text(json.dumps({"kind": "<b>"}) + "\n")
    html = WatchSite([path]).state().html
    assert "<b>" not in html and "&lt;b&gt;watch.jsonl" in html

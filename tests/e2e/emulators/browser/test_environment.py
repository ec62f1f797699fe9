"""What an agent can do in the browser, and what it is told. One browser serves the file; every
episode has its own profile.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from prill.actions.webarena import environment_notes, parse_action
from prill.datasets.formats.playwright import load
from prill.emulators.browser.chromium import Chromium, Profile
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
from prill.emulators.requirements import web_tools
from prill.errors import UsageError
from prill.types import Action, Observation, Task
from tests.support.chromium import need_chromium
from tests.support.emulators.pages import Site, after, head, number, opened, tree

if TYPE_CHECKING:
    from playwright.async_api import Page

need_chromium()
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def on(
    environment: BrowserEnvironment,
    seen: Observation,
    line: str,
    kind: str = "click",
    value: str = "",
) -> str:
    """The title after an action on the element of that line."""
    return head(await after(environment, kind, number(seen, line), value))[0].partition(": ")[2]


async def test_start_shows_tabs_and_picture(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url, f"{site.url}/two")
    assert head(seen) == ["Tab 0 (current): Home | Tab 1: Two"]
    assert seen.url == f"{site.url}/"
    assert tree(seen).startswith("RootWebArea 'Home'")
    with Image.open(str(seen.screenshot)) as picture:
        assert picture.size == (1280, 720)
    assert environment.page is environment.pages[0]


@pytest.mark.parametrize(
    ("spec", "held"), [(PageSpec(), "third"), (PageSpec(typing="append"), "oldsecondthird")]
)
async def test_typing_twice_is_what_the_prompt_says(
    browser: Chromium, site: Site, tmp_path: Path, spec: PageSpec, held: str
) -> None:
    environment = BrowserEnvironment(tmp_path, spec, browser=browser)
    seen = await opened(environment, f"{site.url}/form")
    field = number(seen, "textbox 'Search'")
    await after(environment, "type", field, "second")
    assert f"StaticText '{held}'" in tree(await after(environment, "type", field, "third"))
    note = number(seen, "textbox 'Note'")
    long = "x" * 600
    await after(environment, "type", note, long)
    await after(environment, "type", note, long)
    written = await environment.page.locator("textarea").input_value()
    assert written == (long if spec.typing == "replace" else 2 * long)
    sent, done = await environment.step(parse_action(f"type [{field}] [new] [1]"))
    assert "StaticText" in tree(sent)
    sent = await after(environment, "type", field, "new\n")
    assert (sent.url or "").endswith("said?q=new" if spec.typing == "replace" else "newnew")
    assert not done
    await environment.close()


async def test_element_actions_are_a_persons(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, f"{site.url}/form")
    for line, kind, value, title in (
        ("option 'Price'", "click", "", "Sorted by Price"),
        ("combobox 'Sort'", "select", "Name", "Sorted by Name"),
        ("combobox 'Sort'", "select", " price ", "Sorted by Price"),
        ("combobox 'Sort'", "type", "Name\n", "Sorted by Name"),
        ("combobox 'Sort'", "select", "Weight", "Form"),
        ("option 'Age'", "click", "", "Form"),
        ("combobox 'Sort'", "click", "", "Form"),
        ("Date 'When'", "select", "2024-02-29", "Form"),
        ("Date 'When'", "type", "2024-02-29", "2024-02-29"),
        ("checkbox 'Gift'", "click", "", "Checked true"),
        ("StaticText 'hover me'", "hover", "", "Hovered"),
        ("button 'covered'", "click", "", "Cover"),
        ("StaticText 'scrolls'", "scroll", "down", "Box 100"),
        ("StaticText 'scrolls'", "swipe", "up", "Box 200"),
    ):
        await environment.page.evaluate("document.title = 'Form'")
        assert await on(environment, seen, line, kind, value) == title, (line, kind)


async def test_located_action_names_its_place(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, f"{site.url}/form")
    field = number(seen, "textbox 'Search'")
    typed = await environment.locate(Action("type", "type [1]", target=field, value="tea"))
    assert typed.target is not None and typed.target.startswith(f"[{field}] textbox 'Search'")
    box = await environment.page.locator("input[name=q]").bounding_box()
    assert box is not None and typed.point is not None
    middle = ((box["x"] + box["width"] / 2) / 1280, (box["y"] + box["height"] / 2) / 720)
    assert typed.point == pytest.approx(middle, abs=0.002)
    # The other way round: a click at the place is a click on the element.
    pointed = await environment.locate(Action("click", point=typed.point))
    assert (pointed.target, pointed.point) == (typed.target, typed.point)
    assert await environment.locate(Action("press", value="Enter")) == Action(
        "press", value="Enter"
    )
    assert await environment.locate(Action("click", target="[999]")) == Action(
        "click", target="[999]"
    )
    assert await environment.locate(Action("click", point=(0.99, 0.99))) == Action(
        "click", point=(0.99, 0.99)
    )


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("double_click", "Click 2"),
        ("triple_click", "Click 3"),
        ("right_click", "Menu"),
        ("middle_click", "Middle"),
    ],
)
async def test_other_clicks_reach_the_page(
    environment: BrowserEnvironment, site: Site, kind: str, title: str
) -> None:
    await opened(environment, f"{site.url}/clicks")
    seen, _ = await environment.step(Action(kind, point=(200 / 1280, 140 / 720)))
    assert head(seen)[0] == f"Tab 0 (current): {title}"


async def test_drag_and_click_by_place(environment: BrowserEnvironment, site: Site) -> None:
    await opened(environment, f"{site.url}/form")
    seen, _ = await environment.step(
        Action("swipe", point=(610 / 1280, 310 / 720), end_point=(0.5, 0.25))
    )
    assert head(seen) == ["Tab 0 (current): Dropped at 640,180"]
    seen, _ = await environment.step(
        Action("drag", target=number(seen, "slider 'knob'"), end_point=(1, 1))
    )
    assert head(seen) == ["Tab 0 (current): Dropped at 1279,719"]
    box = await environment.page.locator("#sort").bounding_box()
    assert box is not None
    seen, _ = await environment.step(
        Action("click", point=((box["x"] + 5) / 1280, (box["y"] + 5) / 720))
    )
    assert "combobox 'Sort' focused: True" in tree(seen)
    seen = await after(environment, "press", value="down")
    assert head(seen) == ["Tab 0 (current): Sorted by Price"]


async def test_page_scrolls_by_a_window(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    assert "below" not in tree(seen)
    await after(environment, "scroll", value="down")
    assert await environment.page.evaluate("scrollY") == 720
    while "below" not in tree(seen):
        seen = await after(environment, "scroll", value="down")
    button = number(seen, "button 'below'")
    for _ in range(4):
        seen = await after(environment, "scroll", value="up")
    assert "below" not in tree(seen)
    assert head(await after(environment, "click", button)) == ["Tab 0 (current): Found"]


async def test_element_by_line_number_or_role(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    place = number(seen, "link 'to two'")
    for target in (f"[{place}] link 'to two'", f"[{place}]", place, "link 'to two'"):
        if seen.url != f"{site.url}/":
            seen = await after(environment, "back")
        assert (
            await after(environment, "click", target.replace(place, number(seen, "link 'to two'")))
        ).url == f"{site.url}/two"


async def test_no_action_fails_in_silence(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    gone = number(seen, "button 'vanish'")
    before = await after(environment, "click", gone)
    button, heading, link = (
        number(before, line) for line in ("button 'alert'", "heading 'Shop'", "link 'to two'")
    )
    missing = "no such element"
    for action, told in (
        (Action("click", target=gone), f"click [{gone}]: {missing}"),
        (Action("click", target="[999] button 'x'"), f"click [999]: {missing}"),
        (Action("click", target="the red one"), f"click [the red one]: {missing}"),
        (Action("click"), "click: it names no element"),
        (Action("hover", target=gone), f"hover [{gone}]: {missing}"),
        (Action("type", target="[999]", value="x"), f"type [999]: {missing}"),
        (Action("type", value="x"), "type [x]: no field has the focus"),
        (Action("type", target=heading, value="x"), f"type [{heading}]: it takes no text"),
        (Action("type", target=link, value="x"), f"type [{link}]: it takes no text"),
        (
            Action("select", target=button, value="x"),
            f"select [{button}]: it is not a drop-down list",
        ),
        (Action("scroll", target="[999]", value="down"), f"scroll [999]: {missing}"),
        (Action("swipe", target=gone, end_point=(0.5, 0.5)), f"swipe [{gone}]: {missing}"),
        (Action("swipe", target=button), f"swipe [{button}]: it has no end point"),
        (Action("press", value="NoSuchKey"), "press [NoSuchKey]: no such key"),
        (Action("press", value="ctrl+No\nKey"), "press [ctrl+No Key]: no such key"),
        (Action("press"), "press: it has no value"),
        (Action("focus_tab", value="7"), "focus_tab [7]: no such tab"),
        (Action("focus_tab", value="one"), "focus_tab [one]: no such tab"),
        (Action("goto"), "goto: no such action"),
        (Action("forward"), "forward: there is no such page"),
        (Action("home"), "home: no such action"),
        (Action("other", "what?"), "'what?': no such action"),
        (Action("upload", target=button, value="a.png"), f"upload [{button}]: no such file"),
    ):
        now, done = await environment.step(action)
        assert head(now) == [*head(before), f"! {told}"], action
        assert (tree(now), now.url, done) == (tree(before), before.url, False), action
        assert environment_notes(now.text) == [f"! {told}"]
    # a key that was held down is let go
    assert head(await after(environment, "click", number(before, "link 'to two'"))) == [
        "Tab 0 (current): Two"
    ]


async def test_what_hides_an_element_is_told(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, f"{site.url}/form")
    for line, kind, value, told in (
        ("button 'covered'", "click", None, 'it is covered by "'),
        ("combobox 'Sort'", "select", "Weight", 'no such option; it has "Name", "Price", "Age"'),
        ("option 'Age'", "click", None, "it is disabled"),
        ("checkbox 'Gift'", "type", "x", "it takes no text"),
    ):
        target = number(seen, line)
        lines = head(await after(environment, kind, target, value))
        assert lines[1:] and lines[1].startswith(f"! {kind} [{target}]: {told}"), (line, lines)
    seen = await opened(environment, f"{site.url}/controls")
    for line, told in (
        ("button 'Off'", "it is disabled"),
        ("textbox 'Fixed'", "it cannot be changed"),
    ):
        target = number(seen, line)
        kind = "click" if line.startswith("button") else "type"
        assert head(await after(environment, kind, target, "x"))[1:] == [
            f"! {kind} [{target}]: {told}"
        ]
    # A checkbox that is hidden behind its label is clicked there.
    ticked = await after(environment, "click", number(seen, "checkbox 'Styled' checked: false"))
    assert "checkbox 'Styled' focused: True checked: true" in tree(ticked)
    assert environment_notes(ticked.text) == []


async def test_papers_agents_are_told_nothing_of_it(
    browser: Chromium, site: Site, tmp_path: Path
) -> None:
    spec = PageSpec(failures=False, webarena_text=True, typing="append")
    environment = BrowserEnvironment(tmp_path, spec, browser=browser)
    before = await opened(environment, f"{site.url}/controls")
    assert "clickable" not in tree(before)
    now, _ = await environment.step(Action("click", target="[999]"))
    assert (now.text, now.url) == (before.text, before.url)
    await environment.close()


async def test_controls_without_names_or_roles_are_told(
    environment: BrowserEnvironment, site: Site
) -> None:
    seen = await opened(environment, f"{site.url}/controls")
    lines = [line.strip() for line in tree(seen).splitlines()]
    for line in (
        "link 'Bold'",
        "link 'fa-search'",
        "button 'Italic'",
        "button '× Close'",
        "generic 'Dark mode' clickable: True class: on",
        "generic 'Settings' clickable: True class: gear",
        "generic '' clickable: True class: switch off",
        "generic 'Row text' clickable: True",
        "LabelText 'Newsletter' clickable: True checked: true",
    ):
        assert line in lines, (line, lines)
    assert sum("clickable" in line for line in lines) == 5
    switched = await after(environment, "click", number(seen, "generic 'Dark mode'"))
    assert head(switched) == ["Tab 0 (current): Switched"]


async def test_text_and_picture_are_of_one_instant(
    environment: BrowserEnvironment, site: Site
) -> None:
    seen = await opened(environment, f"{site.url}/suggest")
    field = number(seen, "textbox 'Town'")
    typed = await after(environment, "type", field, "Gh")
    assert "StaticText 'Ghent'" in tree(typed), "suggestions come after a third of a second"
    await environment.page.evaluate("document.title = 'Changing'")
    taken, picture = [], environment._view.picture

    async def changing(page: Page) -> bytes:
        if not taken:
            await page.evaluate("document.body.append('fresh')")
        taken.append(await picture(page))
        return taken[-1]

    environment._view.picture = changing  # type: ignore[method-assign]
    assert "fresh" in tree(await after(environment, "wait"))
    assert len(taken) == 2


async def test_files_are_uploaded(
    environment: BrowserEnvironment, site: Site, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    (folder / "deep").mkdir(parents=True)
    (folder / "bill.txt").write_text("twelve")
    (folder / "deep" / "b.txt").write_text("b")
    task = Task(goal="g", start_url=f"{site.url}/upload", files=str(folder))
    seen = await environment.reset(task)
    files = "! files to upload: 'bill.txt', 'deep/b.txt'"
    assert head(seen)[1:] == [files]
    for line in ("button 'Proof'", "button 'Choose'", "LabelText 'Hidden'"):
        sent = await after(environment, "upload", number(seen, line), "bill.txt")
        assert head(sent) == ["Tab 0 (current): bill.txt: twelve", files], line
        await environment.page.evaluate("document.title = ''")
    for line, name, told in (
        ("button 'Nothing'", "bill.txt", "it asks for no file"),
        ("button 'Proof'", "../files/bill.txt", "no such file"),
    ):
        target = number(seen, line)
        assert head(await after(environment, "upload", target, name))[1:] == [
            files,
            f"! upload [{target}]: {told}",
        ]
    # By the screen alone: a click, then the name.
    asked = await after(environment, "click", number(seen, "button 'Choose'"))
    assert head(asked)[1:] == [
        files,
        "! a file was asked for; type its name, or upload [id] [file]",
    ]
    assert head(await after(environment, "type", value="deep/b.txt\n"))[0].endswith("b.txt: b")
    with pytest.raises(UsageError, match="no such folder"):
        await environment.reset(Task(goal="g", files=str(tmp_path / "none")))


async def test_upload_is_in_the_trace(browser: Chromium, site: Site, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "bill.txt").write_text("twelve")
    environment = BrowserEnvironment(
        tmp_path, PageSpec(traces=tmp_path / "traces"), browser=browser
    )
    task = Task(goal="g", start_url=f"{site.url}/upload", files=str(tmp_path / "files"))
    seen = await environment.reset(task)
    await after(environment, "upload", number(seen, "button 'Choose'"), "bill.txt")
    await environment.close()
    assert environment.trace is not None
    (trajectory,) = load(environment.trace)
    uploads = [step.action for step in trajectory.steps if step.action.kind == "upload"]
    assert len(uploads) == 1 and (uploads[0].value or "").endswith("bill.txt")


async def test_http_login_is_an_option(
    browser: Chromium, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_LOGIN", "ann:hush:hush")
    environment = BrowserEnvironment(
        tmp_path, PageSpec(http_login_env="SITE_LOGIN"), browser=browser
    )
    seen = await opened(environment, f"{site.url}/private")
    assert (head(seen), seen.url) == (["Tab 0 (current): Private"], f"{site.url}/private")
    monkeypatch.delenv("SITE_LOGIN")
    with pytest.raises(UsageError, match="SITE_LOGIN is not set to user:password"):
        await opened(environment, site.url)
    await environment.close()


async def test_tabs_open_change_and_one_stays(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    seen = await after(environment, "click", number(seen, "link 'in a new tab'"))
    assert head(seen) == ["Tab 0: Home | Tab 1 (current): Two"]
    assert (seen.url, environment.page) == (f"{site.url}/two", environment.pages[1])
    assert head(await after(environment, "new_tab")) == [
        "Tab 0: Home | Tab 1: Two | Tab 2 (current): "
    ]
    assert head(await after(environment, "focus_tab", value="0")) == [
        "Tab 0 (current): Home | Tab 1: Two | Tab 2: "
    ]
    assert head(await after(environment, "close_tab")) == ["Tab 0: Two | Tab 1 (current): "]
    assert head(await after(environment, "close_tab")) == ["Tab 0 (current): Two"]
    last = await after(environment, "close_tab")
    assert (head(last), last.url) == (["Tab 0 (current): "], "about:blank")
    assert (await after(environment, "goto", value=f"{site.url}/two")).url == f"{site.url}/two"


async def test_dialogs_are_answered_and_told(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    for button, title, told in (
        ("alert", "Home", ["! a dialog said 'Saved!' and was answered OK"]),
        ("confirm", "true", ["! a dialog said 'Sure?' and was answered OK"]),
        ("prompt", "Ann", ["! a dialog asked 'Name?' and was answered 'Ann'"]),
        (
            "many",
            "Ann",
            [
                *(f"! a dialog said 'n{i}' and was answered OK" for i in range(5)),
                "! and 4 more like these",
            ],
        ),
    ):
        shown = await after(environment, "click", number(seen, f"button '{button}'"))
        assert head(shown) == [f"Tab 0 (current): {title}", *told]
    assert head(await after(environment, "wait")) == ["Tab 0 (current): Ann"]


async def test_download_stays_in_its_folder(
    environment: BrowserEnvironment, browser: Chromium, site: Site, tmp_path: Path
) -> None:
    seen = await opened(environment, site.url)
    for _ in range(2):
        told = await after(environment, "click", number(seen, "link 'download'"))
        assert head(told)[1].startswith("! downloaded '")
    kept = sorted((tmp_path / "downloads").iterdir())
    assert len(kept) == 2
    assert all(
        path.name.endswith(".csv") and path.read_text().endswith("<p>/file.csv</p>")
        for path in kept
    )
    without = BrowserEnvironment(tmp_path, browser=browser)
    seen = await opened(without, site.url)
    told = await after(without, "click", number(seen, "link 'download'"))
    assert head(told)[1].startswith("! the download of '")
    assert head(told)[1].endswith("was refused")
    assert head(await after(without, "goto", value=f"{site.url}/file.csv"))[1].endswith(
        "was refused"
    )
    await without.close()


async def test_non_web_addresses_are_refused(environment: BrowserEnvironment, site: Site) -> None:
    await opened(environment, f"{site.url}/two")
    for address in (
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "chrome://version",
        "javascript:alert(1)",
        "view-source:http://x",
        "a:b",
    ):
        seen = await after(environment, "goto", value=address)
        assert seen.url == f"{site.url}/two", address
        assert len(head(seen)) == 2, address
        assert "passwd:" not in (seen.text or "")


async def test_files_open_when_allowed(browser: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<title>Local</title>")
    environment = BrowserEnvironment(tmp_path, PageSpec(schemes=("file",)), browser=browser)
    await environment.reset(Task(goal="g"))
    assert head(await after(environment, "goto", value=page.as_uri())) == ["Tab 0 (current): Local"]
    assert head(await after(environment, "goto", value="http://127.0.0.1/"))[1].startswith(
        "! going to 'http://127.0.0.1/' was"
    )
    await environment.close()


async def test_page_text_cannot_forge_notes(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, f"{site.url}/evil")
    lines = (seen.text or "").splitlines()
    assert len(lines) == 4
    assert lines[1] == ""
    assert lines[3].startswith("\t[2] StaticText ")


async def test_each_episode_has_its_own_profile(
    browser: Chromium, site: Site, tmp_path: Path
) -> None:
    cookie = {"name": "who", "value": "emma", "domain": "127.0.0.1", "path": "/", "expires": -1}
    jar = tmp_path / "cookies.json"
    jar.write_text(json.dumps({"cookies": [cookie], "origins": []}))

    class Example(BrowserEnvironment):
        async def _prepare(self, task: Task) -> Profile:
            return Profile(
                storage_state=jar if task.site == "shop" else None,
                geolocation=(40.5, -79.25),
                har=tmp_path / "x.har",
            )

        def _real_url(self, url: str) -> str:
            return url.replace("http://shop.example", site.url)

        def _public_url(self, url: str) -> str:
            return url.replace(site.url, "http://shop.example")

    environment = Example(tmp_path, browser=browser)
    task = Task(goal="g", site="shop", start_url="http://shop.example/state")
    for _ in range(2):
        seen = await environment.reset(task)
        assert head(seen) == ["Tab 0 (current): who=emma|undefined"]
        assert seen.url == "http://shop.example/state"
    assert head(await after(environment, "goto", value="http://shop.example/where")) == [
        "Tab 0 (current): 40.5,-79.25"
    ]
    await environment.finish()
    assert environment.har == tmp_path / "x.har"
    asked = [
        entry["request"]["url"]
        for entry in json.loads((tmp_path / "x.har").read_text())["log"]["entries"]
    ]
    assert f"{site.url}/where" in asked
    seen = await environment.reset(Task(goal="g", start_url="http://shop.example/state"))
    assert head(seen) == ["Tab 0 (current): |undefined"]
    await environment.close()


async def test_each_episode_leaves_a_trace(browser: Chromium, site: Site, tmp_path: Path) -> None:
    environment = BrowserEnvironment(
        tmp_path, PageSpec(traces=tmp_path / "traces"), browser=browser
    )
    for _ in range(2):
        await opened(environment, f"{site.url}/two")
    await environment.close()
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == ["a-b-2.zip", "a-b.zip"]
    assert environment.trace == tmp_path / "traces" / "a-b-2.zip"
    assert "trace.trace" in zipfile.ZipFile(environment.trace).namelist()


async def test_missing_tools_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    browser, playwright, *_ = await web_tools()
    assert browser.found is not None
    assert "hromium" in browser.found
    assert playwright.found is not None
    assert playwright.found.startswith("playwright ")
    monkeypatch.setenv("PRILL_CHROMIUM", "/bin/false")
    assert (await web_tools())[0].found is None
    monkeypatch.setenv("PRILL_CHROMIUM", "/no/such")
    missing = (await web_tools())[0]
    assert missing.found is None
    assert "apt-get install chromium" in missing.get

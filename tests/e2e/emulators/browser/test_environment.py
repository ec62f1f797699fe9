"""What an agent can do in the browser, and what it is told. One browser serves the file; every
episode has its own profile.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from prill.actions.webarena import parse_action
from prill.emulators.browser.chromium import Chromium, Profile
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
from prill.emulators.requirements import web_tools
from prill.errors import UsageError
from prill.io.store import write_trajectories
from prill.types import Action, Observation, Task, Trajectory
from tests.support.chromium import need_chromium
from tests.support.emulators.pages import Site, after, head, number, opened, tree

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


async def test_no_start_page_means_a_blank_tab(environment: BrowserEnvironment) -> None:
    seen = await environment.reset(Task(goal="g"))
    assert (seen.url, head(seen), len(environment.pages)) == (
        "about:blank",
        ["Tab 0 (current): "],
        1,
    )


async def test_unpaired_surrogates_can_be_recorded(
    environment: BrowserEnvironment, site: Site, tmp_path: Path
) -> None:
    """A page's script makes them where it cuts a text; a record with one could not be written, and
    the run would end.
    """
    seen = await opened(environment, f"{site.url}/half")
    assert head(seen) == ["Tab 0 (current): half \N{REPLACEMENT CHARACTER}"]
    write_trajectories(tmp_path / "t.jsonl", [Trajectory(id="t", task=Task(goal="g"), final=seen)])


async def test_typing_adds_and_line_end_is_enter(
    environment: BrowserEnvironment, site: Site
) -> None:
    seen = await opened(environment, f"{site.url}/form")
    field = number(seen, "textbox 'Search'")
    grown = await after(environment, "type", field, " and né")
    assert "StaticText 'old and né'" in tree(grown)
    await after(environment, "press", value="ctrl+a")
    await after(environment, "press", value="Backspace")
    sent, done = await environment.step(parse_action(f"type [{field}] [new] [1]"))
    assert "StaticText 'new'" in tree(sent)
    sent = await after(environment, "type", field, "\n")
    assert (sent.url, done) == (f"{site.url}/said?q=new", False)


async def test_long_text_is_inserted_whole(environment: BrowserEnvironment, site: Site) -> None:
    note = "word " * 400 + "end"
    await after(
        environment,
        "type",
        number(await opened(environment, f"{site.url}/form"), "textbox 'Note'"),
        note,
    )
    assert await environment.page.input_value("textarea") == note


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


async def test_element_out_of_sight_has_no_place(
    chromium: Chromium, site: Site, tmp_path: Path
) -> None:
    environment = BrowserEnvironment(
        tmp_path / "images", PageSpec(whole_page=True), browser=chromium
    )
    seen = await opened(environment, site.url)
    below = Action("click", target=number(seen, "button 'below'"))
    assert await environment.locate(below) == below
    assert await environment.page.evaluate("scrollY") == 0
    assert head((await environment.step(below))[0])[0] == "Tab 0 (current): Found"
    await environment.close()


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


async def test_absent_element_changes_nothing(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    gone = number(seen, "button 'vanish'")
    before = await after(environment, "click", gone)
    for action in (
        Action("click", target=gone),
        Action("click", target="[999] button 'x'"),
        Action("click", target="9" * 5000),
        Action("click", target="the red one"),
        Action("click"),
        Action("hover", target=gone),
        Action("type", target=gone, value="x"),
        Action("type", target="[999]", value="x"),
        Action("select", target=number(before, "button 'alert'"), value="x"),
        Action("scroll", target="[999]", value="down"),
        Action("swipe", target=gone, end_point=(0.5, 0.5)),
        Action("press", value="NoSuchKey"),
        Action("press", value="+++"),
        Action("focus_tab", value="7"),
        Action("focus_tab", value="-1"),
        Action("focus_tab", value="one"),
        Action("goto"),
        Action("forward"),
        Action("home"),
        Action("other", "what?"),
    ):
        assert (await environment.step(action)) == (before, False), action


async def test_element_of_a_left_page_is_gone(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    old = number(seen, "button 'alert'")
    two = await after(environment, "click", number(seen, "link 'to two'"))
    assert await after(environment, "click", old) == two
    await after(environment, "new_tab")
    assert head(await after(environment, "click", number(two, "button 'press me'"))) == [
        "Tab 0: Two | Tab 1 (current): "
    ]


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


async def test_history_goes_back_and_forth(environment: BrowserEnvironment, site: Site) -> None:
    await opened(environment, site.url)
    await after(environment, "goto", value=f"{site.url.removeprefix('http://')}/two")
    assert (await after(environment, "back")).url == f"{site.url}/"
    assert (await after(environment, "forward")).url == f"{site.url}/two"


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
    assert head(await after(environment, "other")) == ["Tab 0 (current): Ann"]


async def test_leave_question_is_answered_yes(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    await after(environment, "click", number(seen, "button 'hold'"))
    seen = await after(environment, "click", number(seen, "link 'to two'"))
    assert head(seen) == [
        "Tab 0 (current): Two",
        "! the page asked whether to leave it and was answered OK",
    ]


async def test_download_stays_in_its_folder(
    environment: BrowserEnvironment, chromium: Chromium, site: Site, tmp_path: Path
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
    without = BrowserEnvironment(tmp_path, browser=chromium)
    seen = await opened(without, site.url)
    told = await after(without, "click", number(seen, "link 'download'"))
    assert head(told)[1].startswith("! the download of '")
    assert head(told)[1].endswith("was refused")
    assert head(await after(without, "goto", value=f"{site.url}/file.csv"))[1].endswith(
        "was refused"
    )
    await without.close()


async def test_file_chooser_is_left_alone(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, f"{site.url}/form")
    told = await after(environment, "click", number(seen, "button 'Proof"))
    assert head(told) == [
        "Tab 0 (current): Form",
        "! a file was asked for; there are none to choose from",
    ]


async def test_endless_windows_are_closed(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    told = await after(environment, "click", number(seen, "button 'windows'"))
    assert len(environment.pages) == 20
    assert head(told)[1] == "! a new tab was closed: there are 20 already"


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


async def test_files_open_when_allowed(chromium: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<title>Local</title>")
    environment = BrowserEnvironment(tmp_path, PageSpec(schemes=("file",)), browser=chromium)
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


async def test_same_state_is_one_picture(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, f"{site.url}/form")
    focused = await after(environment, "click", number(seen, "textbox 'Note'"))
    assert {(await after(environment, "wait")).screenshot for _ in range(2)} == {focused.screenshot}


async def test_each_episode_has_its_own_profile(
    chromium: Chromium, site: Site, tmp_path: Path
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

    environment = Example(tmp_path, browser=chromium)
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


@pytest.mark.parametrize("text", [None, "no JSON", '{"cookies": [{"name": "a", "value": "b"}]}'])
async def test_unusable_cookies_are_named(
    chromium: Chromium, tmp_path: Path, text: str | None
) -> None:
    class Example(BrowserEnvironment):
        async def _prepare(self, task: Task) -> Profile:
            return Profile(storage_state=tmp_path / "jar.json")

    if text is not None:
        (tmp_path / "jar.json").write_text(text)
    environment = Example(tmp_path, browser=chromium)
    with pytest.raises(UsageError, match="jar.json"):
        await environment.reset(Task(goal="g"))
    await environment.close()


async def test_each_episode_leaves_a_trace(chromium: Chromium, site: Site, tmp_path: Path) -> None:
    environment = BrowserEnvironment(
        tmp_path, PageSpec(traces=tmp_path / "traces"), browser=chromium
    )
    for _ in range(2):
        await opened(environment, f"{site.url}/two")
    await environment.close()
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == ["a-b-2.zip", "a-b.zip"]
    assert environment.trace == tmp_path / "traces" / "a-b-2.zip"
    assert "trace.trace" in zipfile.ZipFile(environment.trace).namelist()


async def test_unwritable_trace_disturbs_nobody(
    environment: BrowserEnvironment, chromium: Chromium, site: Site, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    traced = BrowserEnvironment(
        tmp_path, PageSpec(traces=tmp_path / "file" / "traces"), browser=chromium
    )
    await opened(environment, f"{site.url}/two")
    await opened(traced, f"{site.url}/two")
    await traced.close()
    assert traced.trace is None
    assert head(await after(environment, "click", "button 'press me'")) == ["Tab 0 (current): Done"]


async def test_shadow_trees_can_be_used(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, f"{site.url}/shadow")
    assert await on(environment, seen, "button 'inner'") == "Clicked"
    assert await on(environment, seen, "combobox 'Size'", "select", "B") == "B"
    assert await on(environment, seen, "button 'sealed'") == "Sealed"


async def test_no_episode_means_nothing_to_do(environment: BrowserEnvironment) -> None:
    for _ in range(2):
        await environment.finish()
    assert environment.pages == ()
    with pytest.raises(UsageError, match="call reset first"):
        await environment.step(Action("wait"))


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

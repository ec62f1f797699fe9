"""The report: what a reader sees and does in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from prill.types import (
    Action,
    Citation,
    Criterion,
    EvaluatorInfo,
    Findings,
    LabelRecord,
    Observation,
    Opinion,
    Step,
    StepLabel,
    StepVerdict,
    Task,
    Usage,
    Verdict,
)
from prill.ui.report.entries import Judge, Retry
from prill.ui.report.page import write_report
from tests.support.chromium import PATIENCE, address, eventually
from tests.support.closing import closed

if TYPE_CHECKING:
    from playwright.async_api import Page

from tests.support.report.judges import FIRST, TRUTH, judges, labels, picture, trajectory, verdict

browsed = pytest.mark.asyncio(loop_scope="module")


class Reader:
    """A browser window, and everything it asked for or complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))

    async def opens(self, path: Path, address: str = "#t=") -> Page:
        await self.page.goto(f"{path.as_uri()}{address}")
        if address == "#t=":
            await self.page.keyboard.press("t")
        return self.page

    async def goes(self, hash: str) -> None:
        """Follows a link inside the page, until the page has; at once if it is there already."""
        await self.page.evaluate(
            """([hash, patience]) => new Promise((done, fail) => {
              const before = location.href;
              addEventListener("hashchange", () => done(), { once: true });
              setTimeout(() => fail(new Error(`the page stays at ${location.href}`)), patience);
              location.hash = hash;
              if (location.href === before) done();
            })""",
            [hash, 1000 * PATIENCE],
        )

    async def sees(self, condition: str) -> None:
        """Waits until this JavaScript is true. Playwright's own waiting is forbidden by the page's
        policy.
        """
        await eventually(lambda: self.page.evaluate(f"Boolean({condition})"), True)

    async def listed(self) -> list[str]:
        lines = self.page.locator("#list [role=option]")
        return list(await lines.evaluate_all("(lines) => lines.map((one) => one.dataset.id)"))

    async def shown_id(self) -> str:
        return await self.page.locator("#detail .meta code").inner_text()

    def images(self) -> list[str]:
        return [Path(url).name for url in self.requests if url.endswith((".png", ".webp"))]


@pytest_asyncio.fixture(loop_scope="module")
async def reader(browser: Chromium) -> AsyncIterator[Reader]:
    context = await browser.context(1280, 800)
    yield Reader(await context.new_page())
    await closed(context)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    items = [
        trajectory(id, metadata={} if id == "f" else {"truncated": id in "ace"}) for id in TRUTH
    ]
    write_report(tmp_path / "r.html", items, judges(), labels())
    return tmp_path / "r.html"


@browsed
@pytest.mark.parametrize("width", [1280, 400])
async def test_first_screen_shows_a_judged_run_with_its_action(
    reader: Reader, tmp_path: Path, width: int
) -> None:
    shot = picture(tmp_path / "shots", "s.png")
    tap = Step(Observation(shot), Action("click", "button", point=(0.5, 0.5)))
    items = [trajectory(id, [tap], final=Observation(shot)) for id in TRUTH]
    write_report(tmp_path / "r.html", items, judges(), labels())
    await reader.page.set_viewport_size({"width": width, "height": 800})
    browser = await reader.opens(tmp_path / "r.html", "#summary")
    ring = browser.locator("#example .example-picture img ~ .overlay circle.tap")
    await ring.wait_for()
    box = await ring.bounding_box()
    assert box is not None and box["y"] + box["height"] < 800 and box["x"] < width
    words = " ".join((await browser.locator("#example").inner_text()).split())
    assert words == (
        "One judged run: d Find the ddd entry Step 1 of 1: button "
        "first ✗ Failure · label ✗ Failure first: because d"
    )
    await browser.locator("#example a").click()
    await browser.locator("#stage").wait_for()
    assert not reader.complaints


@browsed
@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, "abcdef"),
        ({"verdict": "success"}, "abf"),
        ({"verdict": "failure"}, "cd"),
        ({"verdict": "unscored"}, "e"),
        ({"verdict": "success", "judge": "1"}, "aef"),
        ({"against": "wrong"}, "bc"),
        ({"against": "FP"}, "b"),
        ({"against": "FN"}, "c"),
        ({"against": "unscored"}, "e"),
        ({"against": "agrees"}, "ad"),
        ({"among": "differ"}, "b"),
        ({"truth": "undecided"}, "f"),
        ({"by-truncated": "true"}, "ace"),
        ({"by-truncated": "(none)"}, "f"),
        ({"by-site": "shop"}, "ab"),
        ({"by-site": "wiki", "verdict": "failure"}, "cd"),
    ],
)
async def test_filters_show_the_right_rows(
    reader: Reader, page: Path, filters: dict[str, str], expected: str
) -> None:
    browser = await reader.opens(page)
    await browser.locator("#filters > summary").click()
    for key, value in filters.items():
        await browser.locator(f"#filter-{key}").select_option(value)
    assert await reader.listed() == list(expected)
    assert await reader.shown_id() == expected[0]
    assert reader.complaints == []


@browsed
async def test_search_finds_goal_and_id(reader: Reader, page: Path) -> None:
    browser = await reader.opens(page)
    await browser.keyboard.press("/")
    await browser.keyboard.type("ENTRY ddd")
    assert await reader.listed() == ["d"]
    await browser.keyboard.type("zzz")
    assert await reader.listed() == []
    assert "No trajectory matches" in await browser.locator("#detail").inner_text()
    await browser.keyboard.press("Escape")
    await browser.locator("#clear").click()
    assert len(await reader.listed()) == len(TRUTH)


@browsed
async def test_keys_walk_rows_and_disagreements(reader: Reader, page: Path) -> None:
    browser = await reader.opens(page, "#t=a")
    visited = [await reader.shown_id()]
    for key in "njnpkkn":
        await browser.keyboard.press(key)
        visited.append(await reader.shown_id())
    # Disagreements are b (a false positive) and c (a false negative of both).
    assert visited == ["a", "b", "c", "c", "b", "a", "a", "b"]
    assert (await address(browser)).endswith("#t=b")


@browsed
async def test_arrows_walk_the_steps(reader: Reader, tmp_path: Path) -> None:
    items = [trajectory(id, states(tmp_path / "i", 3)) for id in "ab"]
    write_report(tmp_path / "r.html", items)
    browser = await reader.opens(tmp_path / "r.html")
    places = [await browser.locator("#stage strong").inner_text()]
    for key in ("ArrowRight", "ArrowLeft", "Home", "ArrowLeft", "End", "Home", "ArrowRight"):
        await browser.keyboard.press(key)
        places.append(await browser.locator("#stage strong").inner_text())
    assert places == [f"Step {number} of 3" for number in (3, 3, 2, 1, 1, 3, 1, 2)]
    assert (await address(browser)).endswith("#t=a&step=2")
    assert await browser.locator(".card[aria-current=true]").get_attribute("id") == "card-1"
    await browser.reload()
    assert await browser.locator("#stage strong").inner_text() == "Step 2 of 3"
    await browser.keyboard.press("j")
    assert (await address(browser)).endswith("#t=b")
    assert await browser.locator("#stage strong").inner_text() == "Step 3 of 3"
    await browser.locator("#card-0").click(position={"x": 300, "y": 12})
    assert await browser.locator("#stage strong").inner_text() == "Step 1 of 3"
    await browser.reload()
    assert await browser.locator("#stage strong").inner_text() == "Step 1 of 3"
    await browser.keyboard.press("End")
    assert (await address(browser)).endswith("#t=b")


@browsed
async def test_link_reproduces_the_view(reader: Reader, page: Path) -> None:
    browser = await reader.opens(page)
    await browser.locator("#filters > summary").click()
    await browser.locator("#filter-judge").select_option("1")
    await browser.locator("#filter-verdict").select_option("success")
    await browser.locator("#search").fill("the")
    await browser.locator('#heads [data-by="1"]').click()
    await browser.locator('#heads [data-by="goal"]').click()
    await browser.locator('#heads [data-by="goal"]').click()
    await browser.locator('[data-id="e"]').click()
    link = await address(browser)
    await browser.goto("about:blank")
    await browser.goto(link)
    assert (await reader.listed(), await reader.shown_id()) == (["f", "e", "a"], "e")
    assert await browser.locator("#filter-verdict").input_value() == "success"
    assert await browser.locator("#search").input_value() == "the"
    assert reader.complaints == []


@browsed
async def test_headings_of_the_list_never_overlap(reader: Reader, tmp_path: Path) -> None:
    verdicts = {
        id: replace(verdict(id, True), usage=Usage(calls=1, prompt_tokens=123_456_789, usd=None))
        for id in TRUTH
    }
    many = [Judge(f"judge {i}", FIRST, verdicts) for i in range(12)]
    write_report(tmp_path / "r.html", list(map(trajectory, TRUTH)), many, labels())
    for link in ("#t=a", "#t=a&columns=reason,site,agent,steps,cost"):
        browser = await reader.opens(tmp_path / "r.html", link)
        for by in await browser.locator("#heads button").evaluate_all(
            "(heads) => heads.map((head) => head.dataset.by)"
        ):
            await browser.locator(f'#heads [data-by="{by}"]').click()
            wide = await browser.evaluate("""[...document.querySelectorAll("#heads button")].filter(
                (one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)""")
            assert wide == [], (link, by)


@browsed
async def test_back_leads_to_the_view_before(reader: Reader, page: Path) -> None:
    browser = await reader.opens(page, "")
    await browser.locator(
        '.confusion button[data-judge="0"][data-verdict="success"][data-truth="failure"]'
    ).click()
    await browser.locator("#clear").click()
    await browser.locator('[data-id="d"]').click()
    # The page follows the address when it is told of it, which is later than the browser knows it.
    await browser.go_back()
    await eventually(reader.shown_id, "b")
    assert len(await reader.listed()) == len(TRUTH)
    await browser.go_back()
    await eventually(reader.listed, ["b"])
    await browser.go_back()
    await browser.locator("#summary").wait_for()
    await browser.go_forward()
    await browser.locator("#summary").wait_for(state="hidden")
    assert await reader.listed() == ["b"]


@browsed
async def test_costs_are_shown_sorted_and_filtered(reader: Reader, tmp_path: Path) -> None:
    """What is unknown stands last in either order, and in no part of the costs."""
    usages = [Usage(calls=1, usd=usd) for usd in (0.02, 0.3, 0.0)]
    usages += [Usage(calls=1, prompt_tokens=1500, usd=None), Usage(), Usage(calls=1, usd=0.0041)]
    verdicts = {
        id: replace(verdict(id, id == "a"), usage=usage, reason="")
        for id, usage in zip("abcdef", usages, strict=True)
    }
    items = [
        trajectory(id, final=Observation(text="Are you a robot? captcha") if id == "c" else None)
        for id in "abcdef"
    ]
    write_report(tmp_path / "r.html", items, [Judge("first", FIRST, verdicts)])
    browser = await reader.opens(tmp_path / "r.html", "#t=a&columns=cost")
    shown = await browser.locator(".line .more.cost").all_inner_texts()
    assert shown == ["$0.020", "$0.30", "$0.00", "1,500 tokens", "—", "$0.0041"]
    orders = []
    for by in ("cost", "cost"):
        await browser.locator(f'#heads [data-by="{by}"]').click()
        orders.append("".join(await reader.listed()))
    assert orders == ["dcfabe", "bafcde"]
    found = {}
    options = await browser.locator("#filter-cost option").all()
    for value in [await one.get_attribute("value") or "" for one in options]:
        await reader.goes(f"#t=&cost={value}")
        found[value] = "".join(await reader.listed())
    assert found == {"": "abcdef", "most": "b", "upper": "ab", "lower": "cf", "unknown": "e"}
    await browser.keyboard.press("s")
    await browser.locator(".cause summary", has_text="1 × a captcha at the end").click()
    await browser.locator(".cause a", has_text="final state").click()
    await reader.sees("!document.getElementById('browse').hidden")
    assert not reader.complaints


@browsed
async def test_two_of_three_judges_compared(reader: Reader, tmp_path: Path) -> None:
    info = EvaluatorInfo("third", "1")
    third = {id: Verdict(id=id, success=True, score=1.0, evaluator=info) for id in TRUTH}
    write_report(
        tmp_path / "r.html",
        map(trajectory, TRUTH),
        [*judges(), Judge("third", info, third)],
        labels(),
    )
    browser = await reader.opens(tmp_path / "r.html", "")
    # The second says failure of b, c and d, the third says success throughout; the third is right
    # on c alone.
    await browser.locator(
        '.pairs button[data-judge="1"][data-among="2"]:not([data-against])'
    ).click()
    assert await reader.listed() == list("bcd")
    assert await browser.locator(".judge h3").all_inner_texts() == ["second", "third", ""]
    await browser.locator("#judges > details > summary").click()
    assert await browser.locator(".judge h3").all_inner_texts() == ["second", "third", "first"]
    await browser.keyboard.press("s")
    await browser.locator(
        '.pairs button[data-judge="2"][data-among="1"][data-against="agrees"]'
    ).click()
    assert await reader.listed() == ["c"]
    await browser.locator("#clear").click()
    assert await browser.locator(".judge h3").all_inner_texts() == ["first", "second", "third"]
    assert reader.complaints == []


@browsed
async def test_enter_enlarges_chosen_picture(reader: Reader, tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", [trajectory("a", states(tmp_path / "i", 4))])
    browser = await reader.opens(tmp_path / "r.html")
    for choose, card in (("", 3), ("document.getElementById('card-2').focus()", 2)):
        await browser.evaluate(choose)
        await browser.keyboard.press("Enter")
        assert await browser.locator("#viewer strong").inner_text() == f"Step {card + 1} of 4"
        await browser.keyboard.press("Escape")
        # The page puts the focus back in its own time.
        await browser.wait_for_function(f"document.activeElement.id === 'card-{card}'")


@browsed
async def test_moved_page_finds_its_pictures(reader: Reader, tmp_path: Path) -> None:
    names = [
        "a b.png",
        "50% #1?.png",
        "quo\"te's.png",
        "ünï—日本.png",
        "a:b&amp;.png",
        "..x.png",
        "{{script}}.png",
    ]
    (tmp_path / "first").mkdir()
    steps = [
        Step(Observation(screenshot=picture(tmp_path / "first" / "i #1%", name)), Action("click"))
        for name in names
    ]
    item = trajectory("odd id %20 #?&'\"<日>", steps)
    write_report(tmp_path / "first" / "my report #1%.html", [trajectory("b"), item])
    (tmp_path / "first").rename(tmp_path / "se cond?#%41")
    browser = await reader.opens(tmp_path / "se cond?#%41" / "my report #1%.html", "")
    await browser.keyboard.press("t")
    await browser.keyboard.press("j")
    await browser.evaluate(
        "document.querySelectorAll('.film img').forEach((image) => { image.loading = 'eager'; })"
    )
    await reader.sees(
        "[...document.querySelectorAll('.film img')].filter((i) => i.naturalWidth == 640).length "
        f"== {len(names)}"
    )
    await browser.reload()
    assert await reader.shown_id() == item.id
    assert reader.complaints == []


@browsed
async def test_judges_side_by_side_with_findings(reader: Reader, tmp_path: Path) -> None:
    findings = Findings(
        criteria=(Criterion(text="Item is in the basket", met="met", step=1, reason="seen there"),),
        process=0.5,
        not_executable="A captcha",
        side_effects=("Logged out",),
        official_label=None,
    )
    opinions = (Opinion(judge="third", success=None, unscored="parse"),)
    steps = (StepVerdict(0, "away", 0.0, "wrong page"), StepVerdict(1, "reached", 1.0))
    marked = LabelRecord(
        id="a", success=True, annotator="Ann", note="clear case", steps=(StepLabel(0, "towards"),)
    )
    own = judges(findings=findings, opinions=opinions, steps=steps, seconds=1.26)
    items = [
        trajectory(
            "a", [Step(Observation(caption="A basket"), Action("click"))] * 2, answer="It is done"
        )
    ]
    write_report(tmp_path / "r.html", items, own, [marked])
    browser = await reader.opens(tmp_path / "r.html")
    text = await browser.locator("#detail").inner_text()
    for words in (
        "because a",
        "Item is in the basket",
        "seen there",
        "50 %",
        "A captcha",
        "Logged out",
        "By the authors' rule: no label",
        "1.3 s",
        "Ann: clear case",
    ):
        assert words in text, words
    assert await browser.locator(".judge h3").all_inner_texts() == ["first", "second"]
    assert "not evidence" in await browser.locator(".answer").inner_text()
    lines = browser.locator(".timeline tbody tr")
    assert [(await line.inner_text()).split() for line in await lines.all()] == [
        ["first", "←", "★"],
        ["Ann", "person", "→"],
        ["first", "criteria", "shown", "1"],
    ]
    await browser.locator(".fold summary", has_text="Verdicts of 1 judge").click()
    assert "third" in await browser.locator(".judge").first.inner_text()


def states(folder: Path, count: int) -> list[Step]:
    return [
        Step(Observation(screenshot=picture(folder, f"s{i:02}.png")), Action("click"))
        for i in range(count)
    ]


@browsed
@pytest.mark.parametrize("embed", [False, True])
async def test_tap_is_drawn_on_the_picture(reader: Reader, tmp_path: Path, embed: bool) -> None:
    state = Observation(screenshot=picture(tmp_path / "i", "phone.png", (540, 1200)))
    actions = [
        Action("click", point=(0.41, 0.22)),
        Action("swipe", point=(0.5, 0.8), end_point=(0.5, 0.2)),
        Action("type", value="milk & honey", point=(0.1, 0.5)),
    ]
    write_report(
        tmp_path / "r.html",
        [trajectory("a", [Step(state, action) for action in actions])],
        embed=embed,
    )
    browser = await reader.opens(tmp_path / "r.html")
    await reader.sees("document.querySelector('#card-0 img').naturalWidth > 0")
    image = await browser.locator("#card-0 img").bounding_box()
    ring = await browser.locator("#card-0 circle.tap").bounding_box()
    assert image is not None
    assert ring is not None
    assert image["height"] / image["width"] == pytest.approx(1200 / 540, rel=0.01)
    assert ring["x"] + ring["width"] / 2 == pytest.approx(image["x"] + 0.41 * image["width"], abs=1)
    assert ring["y"] + ring["height"] / 2 == pytest.approx(
        image["y"] + 0.22 * image["height"], abs=1
    )
    assert (await browser.locator("#card-1 path.swipe").get_attribute("d") or "").startswith(
        "M270 960L270 240"
    )
    assert await browser.locator("#card-2 .tag text").text_content() == "milk & honey"
    await browser.keyboard.press("Home")
    await browser.locator("#stage .enlarge").click()
    await reader.sees("document.querySelector('#viewer img').naturalWidth > 0")
    image = await browser.locator("#viewer img").bounding_box()
    ring = await browser.locator("#viewer circle.tap").bounding_box()
    assert image is not None
    assert ring is not None
    assert ring["y"] + ring["height"] / 2 == pytest.approx(
        image["y"] + 0.22 * image["height"], abs=1
    )
    assert image["height"] / image["width"] == pytest.approx(1200 / 540, rel=0.01)
    await browser.keyboard.press("ArrowRight")
    assert await browser.locator("#viewer path.swipe").count() == 1
    await browser.keyboard.press("Escape")
    await browser.locator("#viewer").wait_for(state="hidden")


@browsed
async def test_images_are_fetched_in_sight_only(reader: Reader, tmp_path: Path) -> None:
    write_report(
        tmp_path / "r.html", [trajectory("a", states(tmp_path / "i", 120)), trajectory("b")]
    )
    browser = await reader.opens(tmp_path / "r.html", "")
    assert reader.images() == []
    await browser.keyboard.press("t")
    await reader.sees("document.querySelector('#card-119 img').complete")
    assert 0 < len(reader.images()) < 60
    await browser.locator("#card-0").scroll_into_view_if_needed()
    await reader.sees("document.querySelector('#card-0 img').naturalWidth > 0")
    assert "s00.png" in reader.images()


@browsed
async def test_embedded_page_fetches_nothing(reader: Reader, tmp_path: Path) -> None:
    item = trajectory("a", states(tmp_path / "i", 1))
    for embed, expected in ((True, []), (False, ["s00.png"])):
        write_report(tmp_path / "r.html", [item], judges(), labels(), embed=embed)
        reader.requests.clear()
        await reader.opens(tmp_path / "r.html", f"?{embed}#t=a")
        await reader.sees("document.querySelector('#card-0 img').naturalWidth == 640")
        assert [
            Path(url).name
            for url in reader.requests
            if url.startswith("file:") and "r.html" not in url
        ] == expected
        assert not [url for url in reader.requests if not url.startswith(("file:", "data:"))]
    assert reader.complaints == []


@browsed
async def test_missing_screenshot_shows_its_name(reader: Reader, tmp_path: Path) -> None:
    steps = states(tmp_path / "i", 2)
    (tmp_path / "i" / "s01.png").unlink()
    write_report(tmp_path / "r.html", [trajectory("a", steps)])
    # one was gone before the page was made, one goes afterwards
    (tmp_path / "i" / "s00.png").unlink()
    browser = await reader.opens(tmp_path / "r.html")
    await reader.sees("document.querySelectorAll('.film .frame.absent').length == 2")
    assert "s00.png" in await browser.locator("#card-0").inner_text()
    assert "s01.png" in await browser.locator("#card-1").inner_text()
    await browser.keyboard.press("Home")
    await reader.sees(
        "document.querySelector('#stage .frame.absent code')?.textContent == 's00.png'"
    )


@browsed
async def test_policy_stops_injected_scripts(reader: Reader, page: Path) -> None:
    browser = await reader.opens(page)
    await browser.evaluate(
        """() => {
          const box = document.createElement("div");
          box.innerHTML = '<img src="http://attacker.invalid/a.png"><img src="data:," onerror="window.ran = true">';
          document.body.append(box);
          const script = document.createElement("script");
          script.textContent = "window.ran = true";
          document.body.append(script);
        }"""  # noqa: E501
    )
    blocked = await browser.evaluate(
        "fetch('http://attacker.invalid/').then(() => 'sent', () => 'blocked')"
    )
    assert blocked == "blocked"

    async def many_complaints() -> bool:
        found = sum("Content Security Policy" in complaint for complaint in reader.complaints)
        return found >= 4

    await eventually(many_complaints, True)
    assert await browser.evaluate("window.ran") is None


@browsed
async def test_long_list_draws_only_whats_in_sight(reader: Reader, tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", (trajectory(f"n{i}") for i in range(2000)))
    browser = await reader.opens(tmp_path / "r.html")
    assert len(await reader.listed()) < 40
    await browser.evaluate("document.getElementById('list').scrollTop = 1e9")
    await browser.locator('[data-id="n1999"]').click()
    assert await reader.shown_id() == "n1999"
    await browser.keyboard.press("k")
    assert await reader.shown_id() == "n1998"


@browsed
async def test_nothing_is_wider_than_the_screen(browser: Chromium, tmp_path: Path) -> None:
    long = "a_very_long_word_without_any_place_to_break_" * 8
    item = trajectory("a", states(tmp_path / "i", 9), answer=long, task=Task(goal=long, site=long))
    write_report(
        tmp_path / "r.html",
        [item],
        judges(),
        [LabelRecord(id="a", success=True, annotator=long, note=long)],
    )
    context = await browser.context(420, 800)
    shown = await context.new_page()
    await shown.goto((tmp_path / "r.html").as_uri())
    for key in "stj":
        await shown.keyboard.press(key)
        wide = "document.documentElement.scrollWidth <= innerWidth && ['summary', 'detail'].every("
        wide += (
            "id => document.getElementById(id).scrollWidth <= "
            "document.getElementById(id).clientWidth)"
        )
        assert await shown.evaluate(wide), key
    await closed(context)


@browsed
async def test_two_judges_figures_fit_a_laptop(browser: Chromium, tmp_path: Path) -> None:
    truths = {f"r{i}": i % 2 == 0 for i in range(60)}
    runs = [
        replace(trajectory(id), task=Task(id=f"t{i % 12}", goal="g")) for i, id in enumerate(truths)
    ]
    said = [
        Judge(
            name,
            info,
            {
                id: verdict(id, truth or i % 5 == 0, info)
                for i, (id, truth) in enumerate(truths.items())
            },
        )
        for name, info in (("first", FIRST), ("second", replace(FIRST, name="second")))
    ]
    gold = [LabelRecord(id=id, success=truth) for id, truth in truths.items()]
    write_report(tmp_path / "r.html", runs, said, gold)
    context = await browser.context(1280, 800)
    shown = await context.new_page()
    await shown.goto((tmp_path / "r.html").as_uri())
    table = shown.locator(".of-figures")
    assert "number of steps, without a judge" in await table.inner_text()
    assert await table.evaluate("table => table.scrollWidth <= table.clientWidth")
    await closed(context)


# Attempts at one task


@pytest.fixture
def tried(tmp_path: Path) -> Path:
    """Three attempts at one task, whose second lesson would run a script, and one at another, all
    in the order of playing.
    """
    places = [("a", 0), ("b", 0), ("a", 1), ("a", 2)]
    items = [
        trajectory(name, metadata={"attempt": n, "seed": 0}, agent="robot") for name, n in places
    ]
    items = [replace(item, id=f"{item.id}-{n}") for item, (_, n) in zip(items, places, strict=True)]
    said = {"a-0": False, "a-1": None, "a-2": True, "b-0": True}
    judge = Judge("first", FIRST, {id: verdict(id, success) for id, success in said.items()})
    retries = {
        "a-0": Retry(lesson="Look at the second page."),
        "a-1": Retry(lesson="<img src=x onerror=alert(1)><script>alert(2)</script>"),
        "a-2": Retry(ended="accepted", answer=True),
        "b-0": Retry(ended="accepted", answer=True),
    }
    wrong = [LabelRecord(id=id, success=False) for id in said]
    write_report(tmp_path / "r.html", items, [judge], wrong, retries=retries)
    return tmp_path / "r.html"


@browsed
async def test_citations_lead_to_their_steps(reader: Reader, tmp_path: Path) -> None:
    said = "It was added (S1), **[S2–S3]** shows $12.34, and step 4 the end; the rest [S9], S1x."
    steps = [
        replace(step, observation=replace(step.observation, text=f"page {i}", caption="seen"))
        for i, step in enumerate(states(tmp_path / "i", 3))
    ]
    steps[1] = replace(steps[1], observation=Observation(text="Total: $12.34", caption="seen"))
    item = trajectory("a", steps, final=Observation(text="end", caption="e"), answer="It is $12.34")
    # as files of earlier versions hold them
    cites = (
        Citation(text="S1", step=0, status="shown"),
        Citation(text="S2–S3", step=1, status="shown"),
        Citation(text="S2–S3", step=2, status="shown"),
        Citation(text="step 4", step=3, status="shown"),
        Citation(text="S9", step=8, status="no_such_step"),
    )
    info = EvaluatorInfo("modular", "2")
    found = Verdict(
        id="a",
        success=False,
        score=0.0,
        reason=said,
        evaluator=info,
        findings=Findings(citations=cites),
    )
    own = [Judge("cites", info, {"a": found})]
    write_report(tmp_path / "r.html", [item], own)
    browser = await reader.opens(tmp_path / "r.html")
    place = browser.locator("#stage strong")
    reason = browser.locator(".judge .reason")
    assert await reason.inner_text() == said  # the judge's own words, with links among them
    links = reason.locator("button")
    assert await links.all_inner_texts() == ["S1", "S2–S3", "step 4"]
    for words, shown in (
        ("S2–S3", "Step 2 of 3"),
        ("step 4", "Final state"),
        ("S1", "Step 1 of 3"),
    ):
        await links.get_by_text(words, exact=True).click()
        assert await place.inner_text() == shown
    await links.nth(1).focus()
    await browser.keyboard.press("Enter")
    assert await place.inner_text() == "Step 2 of 3"
    assert await links.nth(1).get_attribute("aria-label") == "S2–S3, step 2"
    wrong = reason.locator(".wrong-citation")
    assert await wrong.all_inner_texts() == ["S9"]
    assert await wrong.get_attribute("title") == "Wrong citation: step 9 does not exist"
    counted = await browser.locator(".findings .warning").inner_text()
    assert counted == "5 citations, 1 wrong: S9 (step 9 does not exist)"
    await browser.keyboard.press("ArrowRight")
    await browser.keyboard.press("s")
    assert "cites 1 of 5 times a step" in await browser.locator("#summary .notes").inner_text()
    assert reader.complaints == []


@browsed
async def test_attempts_stand_side_by_side(reader: Reader, tried: Path) -> None:
    browser = await reader.opens(tried, "#t=a-1")
    cards = browser.locator(".attempt")
    first, second, third = await cards.all_inner_texts()
    assert (
        "First attempt" in first
        and "Failure" in first
        and "0.20" in first
        and "Look at the second page." in first
    )
    assert (
        "Retry 1" in second
        and "Unscored" in second
        and "<img src=x onerror=alert(1)><script>" in second
    )
    assert "Retry 2" in third and "★" in third and "The judge accepted this attempt." in third
    assert await cards.nth(1).get_attribute("aria-current") == "true"
    await cards.nth(2).locator("button").click()
    assert await reader.shown_id() == "a-2"
    await browser.locator("#filter-by-attempt").select_option("0")
    assert await reader.listed() == ["a-0", "b-0"]
    await cards.nth(1).locator("button").click()
    assert await reader.shown_id() == "a-1" and len(await reader.listed()) == 4, (
        "a link to what a filter hides clears it"
    )
    assert reader.complaints == []


@browsed
async def test_summary_leads_to_each_attempt(reader: Reader, tried: Path) -> None:
    browser = await reader.opens(tried, "#summary")
    rows = browser.locator("#summary tr", has=browser.locator(".attempt-link"))
    assert [
        (await row.locator("a").count(), (await row.inner_text()).split()[-1])
        for row in await rows.all()
    ] == [(3, "accepted"), (1, "accepted")]
    link = rows.first.locator("a").nth(1)
    assert await link.get_attribute("aria-label") == "retry 1: unscored, label: failure"
    await link.click()
    await reader.sees("document.querySelector('#detail .meta code')?.textContent === 'a-1'")
    assert reader.complaints == []

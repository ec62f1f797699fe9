"""XPath on the page that was shown; that a browser finds the same is in test_in_browser.py."""

from __future__ import annotations

import sys

import pytest

from prill.papers.synapse.sandbox import CodeFailedError, Page, find, find_now, get_text

pytest.importorskip("lxml", reason="not installed: pip install '.[papers]'")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the filter of system calls is that of Linux"
)
PAGE = Page(
    '<div id="wrap"><p>Hi <b>x</b> there</p><button data-wob_ref="3">ok</button><button class="a '
    'b">no</button>'
    "<select><option>A</option><option selected>B</option></select><br><input type=text "
    "id=q></div><div>it's</div>"
)
CASES = {
    "//button": ["ok", "no"],
    "//BUTTON[@Class='a b']": ["no"],
    "//button[2]": ["no"],
    "(//button)[last()]": ["no"],
    "/html/body/div[1]/button[text()='ok']": ["ok"],
    "//*[contains(@class, 'a') and not(@id)]": ["no"],
    "//option[.='B'] | //option[1]": ["A", "B"],
    "//button[text()='ok']/following-sibling::button": ["no"],
    "//b/ancestor::p/b": ["x"],
    '//div[normalize-space()="it\'s"]': ["it's"],
    "//div[count(button)=2]/p/b/..": ["Hi x there"],
    "//button[position()=1 or starts-with(text(), 'z')]": ["ok"],
    "//button[string-length(text()) > 5]": [],
    "//*[@data-wob_ref='3']": ["ok"],
    (
        "//b[string(number('a')) = 'NaN' and concat(1 div 0, '') = 'Infinity' and "
        "not(number('inf') > 0)]"
    ): ["x"],
    (
        "//b[substring('12345', 1.5, 2.6)='234' and substring('12345', 0 div 0)='' and "
        "substring('12', 1 div 0)='']"
    ): ["x"],
    "//b[not(1 mod 0 > 0) and not((1 div 0) mod 2 > 0)]": ["x"],
    "//input[@type='text']/preceding-sibling::*[1]/preceding-sibling::select/option[last()]": ["B"],
}


@pytest.mark.parametrize("xpath", CASES)
def test_an_xpath_selects_what_it_says(xpath: str) -> None:
    assert [get_text(element) for element in find_now(PAGE, xpath)] == CASES[xpath]


def test_an_xpath_selects_elements_alone() -> None:
    assert [
        element.tag for element in find_now(PAGE, "//text() | //@id | //b/ancestor::p | /html")
    ] == ["html", "p"]


@pytest.mark.parametrize(
    "xpath",
    [
        "",
        "//",
        "//a[",
        "click me!",
        "foo()",
        "count(//a)",
        "'a'",
        "//a[1]]",
        "(" * 300,
        "a" * 30_000,
    ],
)
def test_what_is_no_xpath_is_refused(xpath: str) -> None:
    with pytest.raises(CodeFailedError):
        find_now(PAGE, xpath)


def test_broken_html_is_read_all_the_same() -> None:
    page = Page('<div><p>a</div></b><ul><li>1<li>2</ul><input disabled value="x > y">')
    assert [dict(element.attrib) for element in find_now(page, "//input")] == [
        {"disabled": "disabled", "value": "x > y"}
    ]
    assert len(find_now(page, "//li")) == 2


@pytest.mark.parametrize(
    "text", ["<![foo[x]]>", "<![", "<!DOCTYPE#&<![<<![!>", "<![if IE]>", "&#xD800;<p a=&#xD800;>"]
)
def test_no_declaration_stops_the_reading(text: str) -> None:
    page = Page(f"<p>a</p>{text}<b>c</b>")
    assert get_text(find_now(page, "//p")[0]) == "a"
    assert get_text(page.elements[0]).isprintable()


def test_deep_pages_are_read_to_their_end() -> None:
    page = Page("<i>" * 2000 + "deep")
    assert get_text(page.elements[0]) == "deep"
    assert len(find_now(page, "//i[not(i)][contains(., 'deep')]")) == 1
    assert len(find_now(page, "/html/body/i/descendant::i[position() > 1000]")) == 999


async def test_an_xpath_that_takes_too_long_ends() -> None:
    page = Page("<p>a</p>" * 300)
    with pytest.raises(CodeFailedError, match="took more than"):
        await find(page, "//*[count(//*[count(//*[count(//*) > 0]) > 0]) > 0]")
    assert len(await find(page, "//p[count(preceding-sibling::p) mod 2 = 0]")) == 150


def test_an_xpath_selects_no_crowd() -> None:
    with pytest.raises(CodeFailedError, match="selects 1001 elements; 1000 are allowed"):
        find_now(Page("<p>a</p>" * 1001), "//p")

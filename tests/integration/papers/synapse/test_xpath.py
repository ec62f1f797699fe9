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

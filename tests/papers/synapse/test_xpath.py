"""XPath on the page that was shown; that a browser finds the same is in test_in_browser.py."""

from __future__ import annotations

import pytest

from prill.papers.synapse.html import read_html
from prill.papers.synapse.xpath import BadXPath, find

PAGE = read_html(
    '<div id="wrap"><p>Hi <b>x</b> there</p><button data-wob_ref="3">ok</button><button class="a b">no</button>'
    "<select><option>A</option><option selected>B</option></select><br><input type=text id=q></div><div>it's</div>"
)
CASES = {
    "//button": ["ok", "no"],
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
    "//b[string(number('a')) = 'NaN' and concat(1 div 0, '') = 'Infinity' and not(number('inf') > 0)]": ["x"],
    "//b[substring('12345', 1.5, 2.6)='234' and substring('12345', 0 div 0)='' and substring('12', 1 div 0)='']": ["x"],
    "//b[not(1 mod 0 > 0) and not((1 div 0) mod 2 > 0)]": ["x"],
    "//input[@type='text']/preceding-sibling::*[1]/preceding-sibling::select/option[last()]": ["B"],
}


@pytest.mark.parametrize("xpath", CASES)
def test_an_xpath_selects_what_it_says(xpath: str) -> None:
    assert [element.text for element in find(PAGE, xpath)] == CASES[xpath]


@pytest.mark.parametrize(
    "xpath", ["", "//", "//a[", "click me!", "//a[foo()]", "count(//a)", "'a'", "//a[1]]", "(" * 300, "a" * 3000]
)
def test_what_is_no_xpath_is_refused(xpath: str) -> None:
    with pytest.raises(BadXPath):
        find(PAGE, xpath)


def test_broken_html_is_read_all_the_same() -> None:
    page = read_html('<div><p>a</div></b><ul><li>1<li>2</ul><input disabled value="x > y">')
    assert [element.attributes for element in find(page, "//input")] == [{"disabled": "", "value": "x > y"}]
    assert len(find(page, "//li")) == 2


@pytest.mark.parametrize("text", ["<![foo[x]]>", "<![", "<!DOCTYPE#&<![<<![!>", "<![if IE]>", "&#xD800;<p a=&#xD800;>"])
def test_no_declaration_stops_the_reading(text: str) -> None:
    page = read_html(f"<p>a</p>{text}<b>c</b>")
    assert find(page, "//p")[0].text == "a"
    assert page.text.isprintable()


def test_deep_pages_are_read_to_their_end() -> None:
    page = read_html("<i>" * 5000 + "deep")
    assert page.text == "deep"
    assert len(find(page, "//i[not(i)][contains(., 'deep')]")) == 1
    assert len(find(page, "/html/body/i/descendant::i")) == 4999


def test_an_xpath_that_takes_too_long_ends() -> None:
    page = read_html("<p>a</p>" * 300)
    with pytest.raises(BadXPath, match="looks at more than"):
        find(page, "//*[//*[//*[//*]]]")
    assert len(find(page, "//p[count(preceding-sibling::p) mod 2 = 0]")) == 150

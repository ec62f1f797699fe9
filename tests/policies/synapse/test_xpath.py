"""XPath on the page that was shown; that a browser finds the same is in test_in_browser.py."""

from __future__ import annotations

import pytest

from prill.policies.synapse.html import read_html
from prill.policies.synapse.xpath import BadXPath, find

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

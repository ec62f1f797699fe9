"""The calls that a model writes: what is understood, what is refused, and that no block costs much."""

from __future__ import annotations

import pytest

from prill.papers.synapse.interpreter import BadBlock, Call, calls, first_block


def written(block: str) -> list[str]:
    return [str(call) for call in calls(block)]


def test_calls_come_in_their_order() -> None:
    block = 'agent.click_xpath("//input")\nagent.type("a b")  # a comment\nagent.press("enter")\nagent.movemouse(xpath="//a")'
    assert written(block) == [
        'agent.click_xpath("//input")',
        'agent.type("a b")',
        'agent.press("enter")',
        'agent.movemouse("//a")',
    ]


def test_loops_and_f_strings_are_understood() -> None:
    block = (
        "place = 7\npage = (place - 1) // 3 + 1\n"
        "for i in range(page - 1):\n    agent.press('arrowright')\n"
        "if page > 2:\n    agent.click_xpath(f\"//a[text()='{place - (page - 1) * 3}']\")\nelse:\n    pass\n"
        "for word in ['b', 'a'] + sorted('dc'):\n    agent.type(word[0].upper())"
    )
    assert written(block) == [
        'agent.press("arrowright")',
        'agent.press("arrowright")',
        "agent.click_xpath(\"//a[text()='1']\")",
        *(f'agent.type("{letter}")' for letter in "BACD"),
    ]


def test_calls_before_a_mistake_are_given() -> None:
    found = calls('agent.press("enter")\nagent.click_xpath(link)')
    assert str(next(found)) == 'agent.press("enter")'
    with pytest.raises(BadBlock, match="uses 'link', which it has not set"):
        next(found)


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("import os", "not allowed"),
        ("agent.scroll('down')", "agent has no scroll"),
        ("agent.type()", "takes one text"),
        ("open('/etc/passwd')", "not allowed"),
        ("().__class__.__base__.__subclasses__()", "not allowed"),
        ("''.__class__", "not allowed"),
        ("(lambda: 1)()", "not allowed"),
        ("while True:\n    pass", "not allowed"),
        ("def f():\n    pass", "not allowed"),
        ("agent = 1", "not allowed"),
        ("x = [i for i in range(9)]", "not allowed"),
        ("if", "no Python"),
        ("-" * 7000 + "1", "no Python"),
        ("[1][2]", "IndexError"),
        ("x = 10**9", "Pow"),
        ("agent.type('a' + chr(0xD800))", "surrogates"),
        ("agent.type('\\udfff')", "surrogates"),
    ],
)
def test_what_is_not_allowed_ends_the_block(block: str, why: str) -> None:
    with pytest.raises(BadBlock, match=why):
        written(block)


def test_a_call_on_record_reads_back() -> None:
    for text in ("plain", 'a "b"', "two\nlines", "a\tb", "back\\slash", "né\u2028é", "\x00"):
        call = Call("type", text)
        assert list(calls(str(call))) == [call]


def test_f_strings_may_quote_their_values() -> None:
    assert written("x = 'ok'\nagent.click_xpath(f\"//a[.={x!r}]\")\nagent.type(f'{x!s:4s}.')") == [
        "agent.click_xpath(\"//a[.='ok']\")",
        'agent.type("ok  .")',
    ]


@pytest.mark.parametrize(
    "block",
    [
        "agent.type('x')\n" * 600,
        "for i in range(150):\n  for j in range(150):\n    x = 1",
        "for i in range(10**9):\n  x = 1",
        "for i in range(300):\n  agent.press('enter')",
        "x = 'a'\nfor i in range(60):\n  x = x + x",
        "x = 'a' * 10**9",
        "x = [1] * 10**9",
        "x = 9\nfor i in range(40):\n  x = x * x",
        "x = [1]\nfor i in range(40):\n  x = [x, x]",
        "f'{1:>999999999}'",
        "'%999999999d' % 1",
    ],
)
def test_no_block_works_for_long(block: str) -> None:
    with pytest.raises(BadBlock):
        written(block)


def test_the_first_fenced_block_is_taken() -> None:
    assert first_block("I do:\n```python\nagent.press('enter')\n```\nor\n```\nother\n```") == "agent.press('enter')"
    assert first_block("```\nagent.press('enter')\n```") == "agent.press('enter')"
    assert first_block("agent.press('enter')") == ""
    assert first_block("<think>```\nno\n```</think>```\nyes\n```") == "yes"

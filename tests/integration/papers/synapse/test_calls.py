"""The calls that a model writes: what a block calls, where it ends, and that no block costs
much.
"""

from __future__ import annotations

import sys

import pytest

from prill.papers.synapse.sandbox import CodeFailedError, first_block, run_block

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the filter of system calls is that of Linux"
)


async def written(block: str) -> list[str]:
    found = await run_block(block)
    assert not found.problem
    return [str(call) for call in found.calls]


async def test_calls_come_in_their_order() -> None:
    block = (
        'agent.click_xpath("//input")\nagent.type("a b")  # a '
        'comment\nagent.press("enter")\nagent.movemouse(xpath="//a")'
    )
    assert await written(block) == [
        'agent.click_xpath("//input")',
        'agent.type("a b")',
        'agent.press("enter")',
        'agent.movemouse("//a")',
    ]


async def test_loops_and_f_strings_are_understood() -> None:
    block = (
        "place = 7\npage = (place - 1) // 3 + 1\n"
        "for i in range(page - 1):\n    agent.press('arrowright')\n"
        "if page > 2:\n    agent.click_xpath(f\"//a[text()='{place - (page - 1) * "
        "3}']\")\nelse:\n    pass\n"
        "for word in ['b', 'a'] + sorted('dc'):\n    agent.type(word[0].upper())"
    )
    assert await written(block) == [
        'agent.press("arrowright")',
        'agent.press("arrowright")',
        "agent.click_xpath(\"//a[text()='1']\")",
        *(f'agent.type("{letter}")' for letter in "BACD"),
    ]


async def test_a_block_is_plain_python() -> None:
    block = (
        "import re\ndef go(words):\n    print('going', words)\n"
        "    [agent.type(f'{i}{word}') for i, word in enumerate(words)]\n"
        "go([word.replace('x', 'y') for word in re.findall('\\w+', 'ax b')])\n"
        "count = 0\nwhile count < 2:\n    count += 1\n    agent.press('enter')"
    )
    assert await written(block) == [
        'agent.type("0ay")',
        'agent.type("1b")',
        *['agent.press("enter")'] * 2,
    ]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("import os", "import of os is not allowed"),
        ("agent.scroll('down')", "no attribute 'scroll'"),
        ("agent.type()", "takes one text"),
        ("agent.type('a', 'b')", "takes one text"),
        ("agent.type(xpath='a')", "takes one text"),
        ("open('/etc/passwd')", "'open' is not defined"),
        ("().__class__.__base__.__subclasses__()", "not allowed"),
        ("agent.type.__closure__", "not allowed"),
        ("if", "SyntaxError"),
        ("-" * 7000 + "1", "Error"),
        ("[1][2]", "IndexError"),
        ("agent.type('\udfff')", "surrogates"),
        ("for i in range(300):\n  agent.press('enter')", "more than 200 times"),
        ("while True:\n  agent.type('x' * 9000)", "more than 20000 characters"),
        ("x = 'a' * 10**10", "MemoryError"),
    ],
)
async def test_what_is_not_allowed_ends_the_block(block: str, why: str) -> None:
    assert why in (await run_block(block)).problem


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("x = 1\n" * 4000, "24000 characters"),
        ("while True:\n    pass", "took more than"),
        ("x = 9\nfor i in range(40):\n  x = x * x", "took more than|ended its process"),
        ("agent.type('a' + chr(0xD800))", "its result is invalid"),
    ],
)
async def test_no_block_works_for_long(block: str, why: str) -> None:
    with pytest.raises(CodeFailedError, match=why):
        await run_block(block)


def test_the_first_fenced_block_is_taken() -> None:
    assert (
        first_block("I do:\n```python\nagent.press('enter')\n```\nor\n```\nother\n```")
        == "agent.press('enter')"
    )
    assert first_block("```\nagent.press('enter')\n```") == "agent.press('enter')"
    assert first_block("agent.press('enter')") == ""
    assert first_block("<think>```\nno\n```</think>```\nyes\n```") == "yes"

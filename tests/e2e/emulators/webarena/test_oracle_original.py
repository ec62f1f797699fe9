"""Mode `paper` against WebArena's own evaluators (libwebarena): the same verdict on the same
answer, address or page.
"""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from prill.datasets.webarena_tasks import SITES, PageCheck, TaskConfig, load_configs, product
from prill.emulators.browser.chromium import Chromium, chromium_path
from prill.emulators.webarena.oracle_answers import check_answer, url_matches
from prill.emulators.webarena.oracle_pages import ShopAccess, check_pages
from tests.support.chromium import need_chromium

ADDRESSES = {site: f"http://{site.lower().replace('_', '-')}.test" for site in SITES}
INSTALL = "WebArena's own evaluators are not installed: pip install libwebarena"


@pytest.fixture(scope="module")
def original() -> Iterator[ModuleType]:
    """The module of the original; its tokeniser without the sentence model, which is a download of
    its own.
    """
    with patch.dict(os.environ, ADDRESSES), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from nltk.tokenize import word_tokenize
            from webarena.evaluation_harness import evaluators
        except ImportError as error:
            pytest.skip(f"{INSTALL} ({error})")
    module: ModuleType = evaluators
    with patch.object(module, "word_tokenize", partial(word_tokenize, preserve_line=True)):
        yield module


@pytest.fixture(scope="module")
def configs(original: ModuleType) -> tuple[TaskConfig, ...]:
    return load_configs(ADDRESSES)


def raw(folder: Path, checks: dict[str, Any]) -> Path:
    """A task file of the original with one task."""
    path = folder / "task.json"
    path.write_text(json.dumps({"task_id": 0, "intent": "i", "eval": checks}), encoding="utf-8")
    return path


def answers(config: TaskConfig) -> Iterator[str]:
    """Right, nearly right and wrong answers to a task, made of its references."""
    references = config.eval.reference_answers
    assert references is not None
    known = [
        *references.must_include,
        *([references.exact_match] if references.exact_match is not None else []),
    ]
    yield from ("", "N/A", "0", "I do not know.", "10 of 2.0", "The answer is: " + ", ".join(known))
    for text in known:
        yield from (
            text,
            text.upper(),
            f"'{text}'",
            f'"{text}" ',
            f"\"'{text}'\"",
            f"{text}.",
            f"It is {text}. I think",
            f"${text}",
        )
        yield from (f"1{text}0", text[1:], f"({text})", f"{text}, {text}", text.replace(" ", "  "))


async def test_812_answers_as_the_original(
    original: ModuleType, configs: tuple[TaskConfig, ...], tmp_path: Path
) -> None:
    compared = 0
    for config in configs:
        references = config.eval.reference_answers
        if references is None or references.fuzzy_match:
            continue
        written: dict[str, Any] = {}
        if references.exact_match is not None:
            written["exact_match"] = references.exact_match
        if references.must_include:
            written["must_include"] = list(references.must_include)
        path = raw(tmp_path, {"reference_answers": written})
        for answer in answers(config):
            theirs = original.StringEvaluator()([{"answer": answer}], path)
            ours = product(await check_answer(config, answer, "paper", None))
            assert ours == (theirs == 1.0), (config.task_id, answer)
            compared += 1
    assert compared > 4000


def test_812_addresses_as_the_original(
    original: ModuleType, configs: tuple[TaskConfig, ...], tmp_path: Path
) -> None:
    wanted = [
        config.eval.reference_url for config in configs if "url_match" in config.eval.eval_types
    ]
    assert len(wanted) == 205
    single = [one for reference in wanted for one in (reference or "").split(" |OR| ")]
    compared = {True: 0, False: 0}
    for i, reference in enumerate(wanted):
        assert reference is not None
        path = raw(tmp_path, {"reference_url": reference})
        one = reference.split(" |OR| ")[-1]
        near = (
            one,
            f"{one}/",
            f"{one}0",
            f"{one}/more?a=b",
            one.split("?")[0],
            one.upper(),
            one.replace("%20", "+"),
            one[:-1],
        )
        for url in (
            *near,
            f"{one}&page=2#x",
            single[(i * 7) % len(single)],
            "about:blank",
            ADDRESSES["SHOPPING"],
        ):
            theirs = (
                original.URLEvaluator().__call__.__wrapped__(
                    original.URLEvaluator(), [], path, SimpleNamespace(url=url)
                )
                == 1.0
            )
            assert url_matches(reference, url, "paper") == theirs, (reference, url)
            compared[theirs] += 1
    assert min(compared.values()) > 500


BODY = (
    "<h1>Blue&nbsp;Band</h1><p id=n>20.0000</p><p id=code>&amp;lt;b&amp;gt; 'x'</p><p id=empty></p>"
    "<input id=c type=checkbox checked><b "
    "onclick=\"document.querySelector('#n').textContent='unfolded'\">more</b>"
)
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("", {"must_include": ["blue", "Band"]}),
    ("", {"must_include": ["Blue Band"]}),
    ("", {"must_include": ["green |OR| <h1>"]}),
    ("document.querySelector('h1').outerText", {"must_include": ["blue"]}),
    ("document.querySelector('#n').outerText", {"must_include": ["20"]}),
    ("document.querySelector('#n').outerText", {"exact_match": "20"}),
    ("document.querySelector('#code').outerText", {"must_include": ["<b>"]}),
    ("document.querySelector('#code').outerText", {"exact_match": "&lt;b&gt; 'x'"}),
    ("document.querySelector('#c').checked", {"exact_match": "true"}),
    ("document.querySelector('#c').checked.toString()", {"exact_match": "True"}),
    ("document.querySelectorAll('p').length", {"exact_match": "3"}),
    (
        "[...document.querySelectorAll('p')].map((p) => p.id)",
        {"exact_match": "['n', 'code', 'empty']"},
    ),
    ("document.querySelector('#empty').outerText", {"exact_match": ""}),
    ("document.querySelector('#gone')", {"must_include": ["None"]}),
    ("document.querySelector('#gone').outerText", {"exact_match": ""}),
    ("document.querySelector('#gone').outerText", {"must_include": ["a"]}),
    ("func:gitlab_get_project_memeber_role(__page__, 'bob')", {"must_include": [""]}),
    ("func:gitlab_get_project_memeber_role(__page__, 'bob')", {"must_include": ["Guest"]}),
)
URLS = ("last", "http://site.test/f/a/1/", "func:reddit_get_post_url('__last_url__')")
PREPARED = {"prep_actions": ["document.querySelector('b').click()"]}


def targets() -> list[dict[str, Any]]:
    plain = [
        {"url": URLS[i % 3], "locator": case[0], "required_contents": case[1]}
        for i, case in enumerate(CASES)
    ]
    unfolded = {
        "locator": "document.querySelector('#n').outerText",
        "required_contents": {"exact_match": "unfolded"},
    }
    return [
        *plain,
        {"url": "http://site.test/f/a/1/", **unfolded, **PREPARED},
        {"url": "last", **unfolded},
    ]


def theirs(original: ModuleType, folder: Path) -> list[float]:
    """The original's scores, one for each target, in a browser of its own."""
    from playwright.sync_api import sync_playwright

    scores = []
    with (
        sync_playwright() as playwright,
        patch.object(original, "time", SimpleNamespace(sleep=lambda seconds: None)),
    ):
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=["--no-sandbox", "--disable-gpu"]
        )
        context = browser.new_context()
        context.route(
            "**/*", lambda route: route.fulfill(body=BODY, content_type="text/html; charset=utf-8")
        )
        page = context.new_page()
        page.goto("http://site.test/f/a/1/a-title")
        for target in targets():
            path = raw(folder, {"eval_types": ["program_html"], "program_html": [target]})
            scores.append(original.evaluator_router(path)([{}, {}], path, page, None))
        browser.close()
    return scores


async def test_page_checks_as_the_original(original: ModuleType, tmp_path: Path) -> None:
    need_chromium()
    expected = await asyncio.to_thread(theirs, original, tmp_path)
    chromium = Chromium()
    try:
        context = await chromium.context(800, 600)
        await context.route(
            "**/*", lambda route: route.fulfill(body=BODY, content_type="text/html; charset=utf-8")
        )
        page = await context.new_page()
        await page.goto("http://site.test/f/a/1/a-title")
        checks = msgspec.convert(targets(), tuple[PageCheck, ...])
        found = await check_pages(checks, page, ShopAccess(address=None), "paper", settle=0.6)
    finally:
        await chromium.close()
    assert [(check.passed, check.text) for check in found] == [
        (score == 1.0, check.text) for score, check in zip(expected, found, strict=True)
    ]
    assert {check.passed for check in found} == {True, False}

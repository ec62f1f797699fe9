"""WebArena's program_html: what parts of the site's pages hold after the episode (arXiv 2307.13854).

A page is opened in a tab of its own beside the agent's, in the same context, and closed again; `last` is the agent's page as
it stands. The original sleeps three seconds after each page; here a check that passes once the page is quiet is over, and
one that fails is looked at again until those seconds are past. A site that is down (status 500 and above) decides nothing.

`paper` compares as the original code does. `fixed` mends these known defects:

| selected                  | required     | paper | fixed | why |
|---------------------------|--------------|-------|-------|-----|
| null                      | "None"       | yes   | no    | an element that is not there became the word None |
| a script that fails       | exact ""     | yes   | no    | nothing at all equalled an empty text |
| the text `&lt;b&gt;`      | "&lt;b&gt;"  | no    | yes   | texts from scripts were decoded as if they were HTML source |
| "Blue", "&nbsp;", "Band"  | "Blue Band"  | no    | yes   | a no-break blank is a blank |
| "$120"                    | "20"         | yes   | no    | numbers as in `oracle_strings`; "20.0000" holds "20" in both |
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from prill.datasets.webarena_tasks import PageCheck
from prill.evaluators.oracle_checks import Check, Mode, Undecidable, require_sites
from prill.evaluators.oracle_sites import PREFIX, Caller, ShopAccess
from prill.evaluators.oracle_strings import equals, includes
from prill.parse import excerpt

if TYPE_CHECKING:
    from playwright.async_api import Page

SETTLE = 3.0  # seconds: the original's sleep
LIMIT = 90.0  # seconds for one check, with two addresses to open
_LAST = "last"
_SCRIPTS = ("document.", "[...document.")
_OR = " |OR| "
_AGAIN = 0.25  # seconds between two looks
_CLOSING = 10.0  # seconds


async def check_pages(
    checks: Sequence[PageCheck], page: Page | None, shop: ShopAccess, mode: Mode, settle: float = SETTLE
) -> list[Check]:
    """The checks in order; undecided without a page, or where one cannot be opened. `page` is left as the agent left it,
    but for the `prep_actions` of checks on `last`."""
    if page is None:
        return [Check(None, "program_html: there is no browser to look with") for _ in checks]
    return [await _checked(check, page, shop, mode, settle) for check in checks]


async def _checked(check: PageCheck, page: Page, shop: ShopAccess, mode: Mode, settle: float) -> Check:
    from playwright.async_api import Error

    what = f"program_html: {check.url} {check.locator}".rstrip()
    caller = Caller(shop, page, page.url)
    try:
        require_sites(check.url)
        async with asyncio.timeout(LIMIT):
            url = await caller.call(check.url.removeprefix(PREFIX)) if check.url.startswith(PREFIX) else check.url
            if url == _LAST:
                return await _look(check, caller, what, mode, 0.0)
            tab = await page.context.new_page()
            try:
                answer = await tab.goto(url)
                if answer is not None and answer.status >= 500:
                    raise Undecidable(f"the site answers with status {answer.status}")
                return await _look(check, Caller(shop, tab, page.url), what, mode, settle)
            finally:
                with suppress(Error, TimeoutError):
                    async with asyncio.timeout(_CLOSING):
                        await tab.close()
    except Undecidable as reason:
        return Check(None, f"{what}: {reason}")
    except Error as error:
        return Check(None, f"{what}: the page cannot be looked at ({error.message.splitlines()[0]})")
    except TimeoutError:
        return Check(None, f"{what}: no result within {LIMIT:g} s")


async def _look(check: PageCheck, caller: Caller, what: str, mode: Mode, settle: float) -> Check:
    """One check on the page of `caller`, looked at for up to `settle` seconds after it is loaded."""
    from playwright.async_api import TimeoutError as PageTimeout

    clock = asyncio.get_running_loop().time
    end = clock() + settle
    with suppress(PageTimeout):
        if settle:
            await caller.page.wait_for_load_state("networkidle", timeout=settle * 1000)
    if check.prep_actions:
        # They may undo themselves when they are carried out twice, so there is one look, when the page is surely ready.
        await asyncio.sleep(max(0.0, end - clock()))
        await _prepare(check, caller.page)
    while True:
        found = await _selected(check, caller, mode)
        missing = _missing(check, found, mode)
        if missing is None or check.prep_actions or clock() >= end:
            gives = f" gives {excerpt(str(found))}" if check.locator.strip() else ""  # the head of a whole page tells nothing
            return Check(missing is None, what if missing is None else f"{what}{gives}: {missing}")
        await asyncio.sleep(_AGAIN)


async def _prepare(check: PageCheck, page: Page) -> None:
    from playwright.async_api import Error

    with suppress(Error):  # as in the original: what then is selected decides
        for action in check.prep_actions:
            await page.evaluate(f"() => {action}")


async def _selected(check: PageCheck, caller: Caller, mode: Mode) -> str | None:
    """What the locator picks, as text; None when it picks nothing and that is told apart from an empty text."""
    locator = check.locator
    if not locator.strip():
        return html.unescape(await caller.page.content())
    if locator.startswith(_SCRIPTS):
        found = await _evaluated(locator, caller.page, mode)
    elif locator.startswith(PREFIX):
        found = await caller.call(locator.removeprefix(PREFIX))
    else:
        raise Undecidable(f"the locator {locator!r} is of no known kind")
    return html.unescape(found) if mode == "paper" and found is not None else found


async def _evaluated(script: str, page: Page, mode: Mode) -> str | None:
    from playwright.async_api import Error

    nothing = "" if mode == "paper" else None
    try:
        value = await page.evaluate(f"() => {script}")
    except Error:
        # The script failed, unless the page itself is gone: then this fails too, and the check is undecided.
        await page.evaluate("() => 1")
        return nothing
    return nothing if value is None and mode == "fixed" else str(value)


def _missing(check: PageCheck, found: str | None, mode: Mode) -> str | None:
    """What is required and not there, in words; None when all is."""
    required = check.required_contents
    if required.exact_match is None and not required.must_include:
        raise Undecidable("the check requires nothing")
    if found is None:
        return "nothing was found"
    if required.exact_match is not None:
        return None if equals(required.exact_match, found, mode) else f"it is not {required.exact_match!r}"
    absent = [one for one in required.must_include if not any(includes(part, found, mode) for part in one.split(_OR))]
    return f"it does not include {', '.join(map(repr, absent))}" if absent else None

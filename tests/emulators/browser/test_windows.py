"""What only the whole Chromium does: its twin without windows has no page for errors, and opens a
slow tab otherwise.
"""

from __future__ import annotations

import pytest

from prill.emulators.browser.environment import BrowserEnvironment
from tests.chromium import need_chromium

from .pages import Site, after, head, number, opened, tree

need_chromium()
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_slow_tab_is_waited_for(environment: BrowserEnvironment, site: Site) -> None:
    seen = await opened(environment, site.url)
    slow = await after(environment, "click", number(seen, "link 'slow tab'"))
    assert (head(slow), slow.url) == (["Tab 0: Home | Tab 1 (current): 200"], f"{site.url}/slow")
    await after(environment, "focus_tab", value="0")
    told = await after(environment, "click", number(seen, "link 'tab download'"))
    assert head(told)[0] == "Tab 0 (current): Home | Tab 1: 200"
    assert head(told)[1].startswith("! downloaded '")


async def test_dead_address_shows_the_browser_page(
    environment: BrowserEnvironment, site: Site
) -> None:
    seen = await opened(environment, site.url)
    lost = await after(environment, "click", number(seen, "link 'nowhere'"))
    assert lost.url == "http://no-such-host.invalid/x"
    assert head(lost)[1:] == ["! the page could not be opened: net::ERR_NAME_NOT_RESOLVED"]
    assert "ERR_NAME_NOT_RESOLVED" in tree(lost)
    home = await after(environment, "back")
    assert home.url == f"{site.url}/"
    missing = await after(environment, "click", number(home, "link 'missing'"))
    assert (missing.url, head(missing)) == (f"{site.url}/missing", ["Tab 0 (current): 404"])
    empty = await after(environment, "goto", value=f"{site.url}/no-content")
    assert (empty.url, head(empty)) == (f"{site.url}/missing", ["Tab 0 (current): 404"])

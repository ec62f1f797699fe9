"""The environment under test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from prill.emulators.browser.chromium import Chromium
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec


@pytest_asyncio.fixture(loop_scope="module")
async def environment(browser: Chromium, tmp_path: Path) -> AsyncIterator[BrowserEnvironment]:
    environment = BrowserEnvironment(
        tmp_path / "images", PageSpec(downloads=tmp_path / "downloads"), browser=browser
    )
    yield environment
    await environment.close()

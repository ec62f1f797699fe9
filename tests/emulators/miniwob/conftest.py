"""Chromium without windows, where it is installed: these pages need no more, and it takes two thirds of the processor."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def headless_shell() -> Iterator[None]:
    shell = shutil.which("chromium-headless-shell")
    with pytest.MonkeyPatch.context() as patch:
        if shell is not None and "PRILL_CHROMIUM" not in os.environ:
            patch.setenv("PRILL_CHROMIUM", shell)
        yield

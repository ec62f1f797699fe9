"""Pages of our own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.emulators.pages import Site, serving


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The local pages."""
    with serving() as running:
        yield running

"""Which Chromium is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.emulators.browser.chromium import chromium_path
from prill.errors import UsageError


def test_browser_is_named_installed_or_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PRILL_CHROMIUM", "/no/such/browser")
    with pytest.raises(UsageError, match="PRILL_CHROMIUM=/no/such/browser"):
        chromium_path()
    monkeypatch.delenv("PRILL_CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "installed"))
    # Ubuntu's package outside of its snap
    wrapper = tmp_path / "chromium-browser"
    wrapper.write_text('#!/bin/sh\nexec /snap/bin/chromium "$@"\n')
    wrapper.chmod(0o755)
    with pytest.raises(UsageError, match="playwright install --with-deps chromium"):
        chromium_path()
    (own := tmp_path / "google-chrome").write_bytes(b"\x7fELF")
    own.chmod(0o755)
    assert chromium_path() == str(own)
    for revision in ("999", "1187"):
        place = tmp_path / f"installed/chromium-{revision}/chrome-linux"
        place.mkdir(parents=True)
        (place / "chrome").write_bytes(b"\x7fELF")
    assert chromium_path() == str(place / "chrome")

"""A missing extra is named by a command that works for this installation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prill import errors
from prill.errors import MissingExtraError, install_command


class Distribution:
    """An installed prill with the record of where it came from (PEP 610)."""

    def __init__(self, origin: dict[str, object] | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.origin and json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'prill[ocr]'"),
        (
            {"url": "file:///src/prill", "dir_info": {}},
            "pip install 'prill[ocr] @ file:///src/prill'",
        ),
        (
            {"url": "file:///w/prill-0.1-py3-none-any.whl", "archive_info": {}},
            "pip install 'prill[ocr] @ file:///w/prill-0.1-py3-none-any.whl'",
        ),
        (
            {"url": "https://x.test/prill.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'prill[ocr] @ git+https://x.test/prill.git@abc'",
        ),
    ],
)
def test_an_installation_is_named_by_its_origin(
    origin: dict[str, object] | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages/prill/errors.py"))
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Distribution(origin))
    assert install_command("ocr") == command


def test_a_checkout_is_named_by_its_folder() -> None:
    root = Path(errors.__file__).resolve().parents[1]
    assert install_command("ocr,web") == f"pip install -e '{root}[ocr,web]'"
    assert str(MissingExtraError("rapidocr", "ocr")).startswith(
        "rapidocr is not installed; run: pip install -e "
    )
    assert str(MissingExtraError("pandas")) == "pandas is not installed; run: pip install pandas"

"""The audit of dependencies: what was not looked up is never said to be sound."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
told = runpy.run_path(str(ROOT / ".ci/audit.py"))["told"]
SOUND = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
SKIPPED = {
    "name": "c",
    "skip_reason": "Dependency not found on PyPI and could not be audited: c (3)",
}


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        ([SOUND], 0, "1 versions were looked up, 0 vulnerabilities"),
        ([SOUND, FLAWED], 1, "b 2: PYSEC-1, mended in 3"),
        ([SOUND, SKIPPED], 3, "NOT CHECKED: 1 of 2 versions"),
        ([SKIPPED, SKIPPED], 3, "NOT CHECKED: 2 of 2 versions"),
        ([FLAWED, SKIPPED], 1, "NOT CHECKED: 1 of 2 versions"),
        ([], 3, "NOT CHECKED: 0 of 0"),
    ],
)
def test_what_was_not_looked_up_is_counted(
    found: list[dict[str, Any]], code: int, words: str
) -> None:
    got, lines = told(
        json.dumps({"dependencies": found, "fixes": []}), "No known vulnerabilities found"
    )
    assert got == code and words in "\n".join(lines)


@pytest.mark.parametrize("report", ["", "{", "[]", "{}"])
def test_no_report_is_no_good_news(report: str) -> None:
    code, lines = told(report, "Traceback …\nConnectionError: Failed to resolve 'pypi.org'")
    assert code == 3 and lines == [
        (
            "NOT CHECKED: the advisory service could not be asked: ConnectionError: Failed to "
            "resolve "
            "'pypi.org'"
        )
    ]

"""CI, hooks and CONTRIBUTING call what exists: targets of the Makefile, scripts, the versions that
constraints.txt pins.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

CALLERS = (
    *sorted((ROOT / ".github/workflows").glob("*.yml")),
    ROOT / ".ci/run",
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
)


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE))


@pytest.mark.parametrize("caller", CALLERS, ids=lambda path: path.name)
def test_called_targets_exist(caller: Path) -> None:
    text = caller.read_text(encoding="utf-8")
    called = re.findall(r"(?:^|`|run: |\d )make ([a-z][a-z-]*)", text, re.MULTILINE)
    assert called and set(called) <= targets()
    assert all((ROOT / script).exists() for script in re.findall(r"run: bash (\S+)", text))


def test_hooks_check_as_lint_does() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pinned = re.search(
        r"^ruff==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert pinned and f"ruff-pre-commit\n    rev: v{pinned[1]}\n" in hooks
    assert re.findall(r"^      - id: (.+)$", hooks, re.MULTILINE) == [
        "ruff-check",
        "ruff-format",
        "typos",
    ]

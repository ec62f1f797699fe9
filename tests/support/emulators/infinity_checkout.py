"""A checkout of WebArena-Infinity: that of PRILL_WEBARENA_INFINITY, or a small one of ours."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.support.paths import SUPPORT

SMALL = SUPPORT / "emulators/infinity"
ROOT = Path(os.environ.get("PRILL_WEBARENA_INFINITY", SMALL))


def copy(folder: Path) -> Path:
    """A copy of the small checkout, to change."""
    shutil.copytree(SMALL, folder / "checkout", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "checkout"

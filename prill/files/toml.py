"""TOML files: settings and tables that people write."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from prill.errors import UsageError


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The table that a TOML file holds. Raises UsageError, with the file's name, when there is none."""
    try:
        return parse_toml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The table that a text holds. Raises ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets in brackets, too many of them") from None

"""TOML files, and JSON in their place: settings and tables that people write."""

from __future__ import annotations

import json
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


def read_table(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The table of a TOML file, or of a JSON file where its name ends so. Raises UsageError, with the file's name."""
    if Path(path).suffix != ".json":
        return read_toml(path)
    try:
        table = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: expected a table, got {type(table).__name__}")
    return table


def parse_toml(text: str) -> dict[str, Any]:
    """The table that a text holds. Raises ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("brackets in brackets, too many of them") from None

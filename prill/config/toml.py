"""Reads settings and tables from TOML or JSON."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prill.errors import UsageError

# Hand-written settings are a few kilobytes; a larger file was probably named by mistake.
MAX_BYTES = 16 << 20


def read_toml(path: str | os.PathLike[str], *, finite: bool = True) -> dict[str, Any]:
    """Reads a TOML file into a table. Raises UsageError that contains the file's name.

    `finite`: reject numbers that are not finite, because no setting accepts one.
    """
    try:
        table = parse_toml(_text(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    return _finite(table, path) if finite else table


def read_table(path: str | os.PathLike[str], *, finite: bool = True) -> dict[str, Any]:
    """Reads a TOML file, or a JSON file if the name ends in `.json`, into a table.

    A byte order mark and Windows line ends are accepted. `finite` is as in `read_toml`. Raises
    UsageError that contains the file's name.
    """
    if Path(path).suffix != ".json":
        return read_toml(path, finite=finite)
    try:
        table = json.loads(_text(path), object_pairs_hook=_reject_duplicates)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: expected a table, got {type(table).__name__}")
    return _finite(table, path) if finite else table


def parse_toml(text: str) -> dict[str, Any]:
    """Parses TOML text into a table. Raises ValueError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _text(path: str | os.PathLike[str]) -> str:
    """Returns the text of a file without its byte order mark. Raises OSError, ValueError."""
    with Path(path).open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"the file has more than {MAX_BYTES >> 20} MB")
    return data.decode("utf-8-sig")


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the table of the pairs; raises ValueError for duplicate keys, as TOML does."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice"
        )
    return table


def _finite(table: dict[str, Any], path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the table unchanged. Raises UsageError for a number in it that is not finite."""
    try:
        odd = next(_not_finite(table, ""), None)
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply") from None
    if odd is not None:
        raise UsageError(f"{path}: {odd[0]}: expected a finite number, got {odd[1]}")
    return table


def _not_finite(value: Any, place: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield place, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _not_finite(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _not_finite(inner, f"{place}[{index}]")

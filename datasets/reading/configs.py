"""Parses a WebArena task configuration in the rendered `key: value` form."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

# The configuration lines that are read. The reference answers follow `eval`; lines not listed here
# are skipped.
_KEYS = re.compile(
    r"^(sites|task_id|require_login|storage_state|start_url|geolocation|intent_template|instantiation_dict|intent|"
    r"require_reset|eval|intent_template_id|string_note): ",
    re.MULTILINE,
)


def config_values(text: str) -> dict[str, str]:
    """Splits a rendered WebArena configuration, one `key: value` a line, into its values."""
    parts = _KEYS.split(text)
    values: dict[str, str] = {}
    for key, value in zip(parts[1::2], parts[2::2], strict=True):
        values.setdefault(key, value.strip())
    return values


def sites_in(values: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the sites of such a configuration, which are written as a Python list."""
    try:
        return tuple(str(site) for site in ast.literal_eval(values.get("sites", "[]")))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return ()

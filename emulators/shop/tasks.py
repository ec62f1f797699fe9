"""Twenty-five tasks in WebArena's configuration format, each with a right and a wrong solution."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from prill.emulators.shop.store import read_data

_FILL = re.compile(r"fill \[(.+?)\] \[(.*)\]")
_STARTS = {
    "shopping": "__SHOPPING__",
    "shopping_admin": "__SHOPPING_ADMIN__",
    "reddit": "__REDDIT__",
    "gitlab": "__GITLAB__",
}


@dataclass(frozen=True, slots=True)
class Solution:
    """Two lists of WebArena's action texts, with elements identified by role and name, for
    `prill.emulators.shop.play.ShopPlay`.
    """

    right: tuple[str, ...]
    wrong: tuple[str, ...]


def shop_configs() -> bytes:
    """Returns the task file of the shop, for `prill.datasets.webarena_tasks.read_configs`.

    Returns:
        A JSON list of configurations.
    """
    return json.dumps([_config(entry) for entry in _entries()], indent=2).encode()


def shop_solutions() -> dict[int, Solution]:
    """Returns a right and a wrong solution of each task of the shop."""
    return {
        entry["task_id"]: Solution(_actions(entry["right"]), _actions(entry["wrong"]))
        for entry in _entries()
    }


def _actions(lines: Iterable[str]) -> tuple[str, ...]:
    """Returns the lines; each `fill [element] [text]` becomes four actions that replace a text."""
    actions: list[str] = []
    for line in lines:
        if filled := _FILL.fullmatch(line):
            element, text = filled.groups()
            actions += [
                f"click [{element}]",
                "press [Control+a]",
                "press [Delete]",
                f"type [{element}] [{text}] [0]",
            ]
        else:
            actions.append(line)
    return tuple(actions)


@cache
def _entries() -> tuple[dict[str, Any], ...]:
    return tuple(tomllib.loads(read_data("tasks.toml"))["task"])


def _config(entry: dict[str, Any]) -> dict[str, Any]:
    login = entry.get("login", True)
    checks = {
        "reference_answers": None,
        "reference_url": "",
        "program_html": [],
        "string_note": "",
    } | entry["eval"]
    return {
        "sites": entry["sites"],
        "task_id": entry["task_id"],
        "require_login": login,
        "storage_state": f"./.auth/{'.'.join(sorted(entry['sites']))}_state.json"
        if login
        else None,
        "start_url": entry.get("start_url", _STARTS[entry["sites"][0]]),
        "geolocation": None,
        "intent_template": entry["intent"],
        "instantiation_dict": {},
        "intent": entry["intent"],
        "require_reset": False,
        "eval": {**checks, "reference_answer_raw_annotation": ""},
        "intent_template_id": entry["task_id"],
    }

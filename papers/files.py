"""Reads data files of a paper: its settings (`settings.toml`), wording and worked examples."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def read_text(package: str, name: str) -> str:
    """Returns the text of a file in a package."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


@cache
def read_toml(package: str, name: str) -> dict[str, Any]:
    """Returns the table of a TOML file in a package."""
    return tomllib.loads(read_text(package, name))


def settings_for(package: str, environment: str) -> dict[str, Any]:
    """Returns a paper's settings for an environment.

    Args:
        package: The package of the paper.
        environment: The environment's name.

    Returns:
        The fields of the run's configuration and the environment's to set; empty where the
        paper does not use that environment.
    """
    return dict(read_toml(package, "settings.toml").get(environment, {}))

"""Files next to a paper's code: how the paper plays (`settings.toml`), wording, worked examples."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def read_text(package: str, name: str) -> str:
    """The text of a package's file."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


@cache
def read_toml(package: str, name: str) -> dict[str, Any]:
    """The table of a package's TOML file."""
    return tomllib.loads(read_text(package, name))


def settings_for(package: str, environment: str) -> dict[str, Any]:
    """Looks up how a paper plays in an environment.

    Args:
        package: The package of the paper.
        environment: The environment's name.

    Returns:
        The settings: fields of the run's configuration and of the environment's; empty where the
        paper does not play there.
    """
    return dict(read_toml(package, "settings.toml").get(environment, {}))

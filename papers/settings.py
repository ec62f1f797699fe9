"""How the papers play: settings of a run and of its environment, in `settings.toml` of a paper's
folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def read_settings(package: str) -> Mapping[str, Mapping[str, Any]]:
    """Reads the settings of a paper.

    Args:
        package: The package of the paper, such as `prill.papers.step`.

    Returns:
        The settings by environment: fields of the run's configuration, and of the environment's.
    """
    return tomllib.loads(
        resources.files(package).joinpath("settings.toml").read_text(encoding="utf-8")
    )


def settings_for(package: str, environment: str) -> dict[str, Any]:
    """Looks up how a paper plays in an environment.

    Args:
        package: The package of the paper.
        environment: The environment's name.

    Returns:
        The settings; empty where the paper does not play there.
    """
    return dict(read_settings(package).get(environment, {}))

"""A small web shop with a forum and a project site, to try web agents and their graders on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prill.testing.shop.play import Play
    from prill.testing.shop.server import Shop
    from prill.testing.shop.tasks import shop_configs, shop_solutions


__all__ = ["Play", "Shop", "shop_configs", "shop_solutions"]
_HOMES = {"Play": "play", "Shop": "server", "shop_configs": "tasks", "shop_solutions": "tasks"}


def __getattr__(name: str) -> object:
    # Lazy, so that `python -m prill.testing.shop` loads each module once.
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"prill.testing.shop.{_HOMES[name]}"), name)

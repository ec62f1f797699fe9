"""A small web shop with a forum and a project site, for trying web agents and graders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.emulators.shop.play import ShopPlay
    from prill.emulators.shop.server import Shop
    from prill.emulators.shop.tasks import shop_configs, shop_solutions


__all__ = ["Shop", "ShopPlay", "shop_configs", "shop_solutions"]
__getattr__, __dir__ = lazily(__name__)

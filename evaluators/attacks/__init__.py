"""Attacks on judges: families of rewrites that change what a trajectory says, in rising strength; docs/redteam.md lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.evaluators.attacks.families import FAMILIES, Family, Variant, families

__all__ = ["FAMILIES", "Family", "Variant", "families"]
_HOMES = {"FAMILIES": "families", "Family": "families", "Variant": "families", "families": "families"}
__getattr__, __dir__ = lazily(__name__, _HOMES)

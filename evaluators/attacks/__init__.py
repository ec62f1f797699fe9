"""Attacks on judges: functions that rewrite a trajectory, in several strengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.evaluators.attacks.families import FAMILIES, Family, Variant
    from prill.evaluators.attacks.families import families as attack_families

__all__ = ["FAMILIES", "Family", "Variant", "attack_families"]
__getattr__, __dir__ = lazily(__name__)

"""Policies are agents that act. `prill.policy("react", model=…)` makes one by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.policies.autoui import AutoUI
    from prill.policies.cogagent import CogAgent
    from prill.policies.react import React, ReactSpec
    from prill.policies.registry import POLICIES, Fingerprinted, make_policy
    from prill.policies.replay import HumanReplay
    from prill.policies.scripted.policy import ScriptedPolicy
    from prill.policies.small_text import SmallText, SmallTextSpec

__all__ = [
    "POLICIES", "AutoUI", "CogAgent", "Fingerprinted", "HumanReplay", "React", "ReactSpec",
    "ScriptedPolicy", "SmallText", "SmallTextSpec", "make_policy",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)

"""Policies: who acts. `prill.policy("react", model=…)` makes one by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prill.policies.autoui import AutoUI
    from prill.policies.cogagent import CogAgent
    from prill.policies.react import React, ReactSpec
    from prill.policies.registry import POLICIES, make_policy
    from prill.policies.replay import HumanReplay, ReplayPolicy
    from prill.policies.scripted.policy import ScriptedPolicy

__all__ = [
    "POLICIES",
    "AutoUI",
    "CogAgent",
    "HumanReplay",
    "React",
    "ReactSpec",
    "ReplayPolicy",
    "ScriptedPolicy",
    "make_policy",
]
_HOMES = {
    "AutoUI": "autoui",
    "CogAgent": "cogagent",
    "HumanReplay": "replay",
    "POLICIES": "registry",
    "React": "react",
    "ReactSpec": "react",
    "ReplayPolicy": "replay",
    "ScriptedPolicy": "scripted.policy",
    "make_policy": "registry",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

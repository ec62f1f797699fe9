"""Policies: who acts. `prill.policy("react", model=…)` makes one by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.policies.autoui import AutoUI
    from prill.policies.cogagent import CogAgent
    from prill.policies.embedders import make_embedder
    from prill.policies.mindact.agent import MindAct, MindActSpec, SelfMAP, SelfMAPSpec
    from prill.policies.react import React, ReactSpec
    from prill.policies.registry import POLICIES, Fingerprinted, make_policy
    from prill.policies.replay import HumanReplay, ReplayPolicy
    from prill.policies.scripted.policy import ScriptedPolicy
    from prill.policies.small_text import SmallText, SmallTextSpec
    from prill.policies.step.agent import StepAgent, StepSpec
    from prill.policies.structured_reflection.agent import StructuredReflection, StructuredSpec
    from prill.policies.synapse.agent import Synapse, SynapseSpec
    from prill.policies.synapse.growth import grow as grow_exemplars
    from prill.policies.synapse.memory import Memory as ExemplarMemory

__all__ = [
    "POLICIES",
    "AutoUI",
    "CogAgent",
    "ExemplarMemory",
    "Fingerprinted",
    "HumanReplay",
    "MindAct",
    "MindActSpec",
    "React",
    "ReactSpec",
    "ReplayPolicy",
    "ScriptedPolicy",
    "SelfMAP",
    "SelfMAPSpec",
    "SmallText",
    "SmallTextSpec",
    "StepAgent",
    "StepSpec",
    "StructuredReflection",
    "StructuredSpec",
    "Synapse",
    "SynapseSpec",
    "grow_exemplars",
    "make_embedder",
    "make_policy",
]
_HOMES = {
    "AutoUI": "autoui",
    "CogAgent": "cogagent",
    "ExemplarMemory": "synapse.memory:Memory",
    "Fingerprinted": "registry",
    "HumanReplay": "replay",
    "MindAct": "mindact.agent",
    "MindActSpec": "mindact.agent",
    "POLICIES": "registry",
    "React": "react",
    "ReactSpec": "react",
    "ReplayPolicy": "replay",
    "ScriptedPolicy": "scripted.policy",
    "SelfMAP": "mindact.agent",
    "SelfMAPSpec": "mindact.agent",
    "SmallText": "small_text",
    "SmallTextSpec": "small_text",
    "StepAgent": "step.agent",
    "StepSpec": "step.agent",
    "StructuredReflection": "structured_reflection.agent",
    "StructuredSpec": "structured_reflection.agent",
    "Synapse": "synapse.agent",
    "SynapseSpec": "synapse.agent",
    "grow_exemplars": "synapse.growth:grow",
    "make_embedder": "embedders",
    "make_policy": "registry",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)

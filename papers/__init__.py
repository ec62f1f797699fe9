"""Implementations of papers. Each folder holds one paper's agent, prompts, environment, training
and published figures.

No module outside this package imports them; the registries find them by name.
`prill papers --help` lists their commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prill.lazy import lazily

if TYPE_CHECKING:
    from prill.papers.embedders import make_embedder
    from prill.papers.mind2web.environment import Mind2WebConfig
    from prill.papers.mind2web.mindact.agent import MindAct, MindActSpec, SelfMAP, SelfMAPSpec
    from prill.papers.mind2web.multi_turn import ConversationsConfig, conversations
    from prill.papers.mind2web.pages.ranking import RankConfig, rank
    from prill.papers.mind2web.training import TrainPlannerConfig, TrainRankerConfig
    from prill.papers.step.agent import StepAgent, StepSpec
    from prill.papers.step.airline.environment import AirlineConfig
    from prill.papers.structured_reflection.agent import StructuredReflection, StructuredSpec
    from prill.papers.synapse.agent import Synapse, SynapseSpec
    from prill.papers.synapse.growth import grow as grow_exemplars
    from prill.papers.synapse.memory import ExemplarMemory as ExemplarMemory
    from prill.papers.synapse.runs import ExemplarsConfig, exemplars

__all__ = [
    "AirlineConfig", "ConversationsConfig", "ExemplarMemory", "ExemplarsConfig", "Mind2WebConfig",
    "MindAct", "MindActSpec", "RankConfig", "SelfMAP", "SelfMAPSpec", "StepAgent", "StepSpec",
    "StructuredReflection", "StructuredSpec", "Synapse", "SynapseSpec", "TrainPlannerConfig",
    "TrainRankerConfig", "conversations", "exemplars", "grow_exemplars", "make_embedder", "rank",
]  # fmt: skip
__getattr__, __dir__ = lazily(__name__)

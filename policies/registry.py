"""The registry of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from prill.config.registry import Registry, RegistryEntry
from prill.config.values import PartConfig
from prill.models.registry import ModelLike, make_model, take_model_options
from prill.protocols import LanguageModel, Policy
from prill.types import Platform

POLICIES = Registry(
    "policy",
    {
        "react": RegistryEntry(
            "a model that reasons and acts on the page's text, as in WebArena",
            "prill.policies.react:React",
        ),
        "step": RegistryEntry(
            "SteP: a stack of small policies from a library of prompts",
            "prill.papers.step.agent:StepAgent",
        ),
        "screen": RegistryEntry(
            "a screen model (Qwen-VL, UI-TARS, OpenAI's and Anthropic's computer use) with "
            "its own tool calls, on screenshots",
            "prill.policies.screen.agent:Screen",
        ),
        "cogagent": RegistryEntry("CogAgent, on screenshots", "prill.policies.cogagent:CogAgent"),
        "autoui": RegistryEntry("Auto-UI, on screenshots", "prill.policies.autoui:AutoUI"),
        "structured-reflection": RegistryEntry(
            "a model that plans all actions of a screen, and corrects its first wrong step "
            "in the next attempt",
            "prill.papers.structured_reflection.agent:StructuredReflection",
        ),
        "small-text": RegistryEntry(
            "a small model in this process that chooses among a page's actions",
            "prill.policies.small_text:SmallText",
        ),
        "synapse": RegistryEntry(
            "a model that imitates recorded solutions of similar tasks",
            "prill.papers.synapse.agent:Synapse",
        ),
        "mindact": RegistryEntry(
            "MindAct: a tournament among the candidates of a recorded page",
            "prill.papers.mind2web.mindact.agent:MindAct",
        ),
        "self-map": RegistryEntry(
            "Self-MAP: MindAct with a memory of similar steps in earlier turns",
            "prill.papers.mind2web.mindact.agent:SelfMAP",
        ),
        "synapse-mind2web": RegistryEntry(
            "Synapse on recorded pages: predicts the next action from trajectories of "
            "similar tasks",
            "prill.papers.synapse.recorded:RecordedSynapse",
        ),
        "replay": RegistryEntry(
            "replays the actions of recorded trajectories", "prill.policies.replay:HumanReplay"
        ),
        "scripted": RegistryEntry(
            "scripts for MiniWoB++ that solve tasks, or fail on purpose",
            "prill.policies.scripted.policy:ScriptedPolicy",
        ),
    },
    "prill.policies",
    ("reset(task)", "act(observation)"),
)


class PolicyConfig(PartConfig):
    """Configuration of a policy: its name, its options and those of its model.

    Example: `PolicyConfig("react", model="gpt-4o", reasoning=False)`.
    """

    __slots__ = ()
    kind = "policy"
    kinds = "policies"
    registry = POLICIES


PolicyLike = PolicyConfig | str | Mapping[str, Any] | Policy


@runtime_checkable
class Fingerprinted(Protocol):
    """A policy that depends on more than its options: prompts, recordings."""

    def fingerprint(self, platform: Platform) -> str:
        """Identifies what the policy depends on besides its options.

        Args:
            platform: The platform on which it will act; prompts may depend on it.

        Returns:
            A hash that changes whenever the behaviour could.
        """
        ...


def make_policy(
    name: PolicyLike, *, model: ModelLike | None = None, lax: bool = False, **options: Any
) -> Policy:
    """Makes a policy by name, with its options.

    Example: `make_policy("react", model="gpt-4o", reasoning=False)`.

    Args:
        name: A name, a user-defined `module:Object` or `file.py:Object`, a table with `name` and
            options, a configuration, or a policy, which is returned unchanged.
        model: The model of a policy that calls one: a name, a table, a configuration, or a model.
            None: the policy calls no model.
        lax: Parse numbers and booleans from text, for the command line.
        **options: The policy's options and, next to a model's name, those of the model. The options
            of a table take precedence.

    Raises:
        OptionError: An option is unknown, missing or of the wrong type.
        UsageError: No policy has that name, or the object is not a policy.
    """
    more = {} if model is None else {"model": model}
    named, options = PolicyConfig.described(name, {**more, **options})
    if not isinstance(named, str):
        return named  # type: ignore[no-any-return]
    settings = take_model_options(POLICIES.maker(named), options.get("model"), options)
    parts = {
        LanguageModel: lambda value, place: make_model(value, place=place, lax=lax, **settings)
    }
    return POLICIES.make(named, options, parts=parts, lax=lax)  # type: ignore[no-any-return]

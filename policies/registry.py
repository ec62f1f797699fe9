"""The registry of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from prill.config.registry import (
    Maker,
    Option,
    OptionError,
    Registry,
    RegistryEntry,
    list_options,
    read_options,
)
from prill.config.values import PartConfig, get_name
from prill.errors import UsageError
from prill.models.registry import ModelConfig, ModelLike, make_model, model_options
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
)


class PolicyConfig(PartConfig):
    """Configuration of a policy: its name, its options and those of its model.

    Example: `PolicyConfig("react", model="gpt-4o", reasoning=False)`.
    """

    __slots__ = ()
    kind = "policy"
    kinds = "policies"

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the policy that a table names."""
        return list_options(POLICIES.maker(str(table.get("name"))))

    @classmethod
    def model_options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of its model, which may be given next to the policy's own."""
        maker = POLICIES.maker(str(table.get("name")))
        return (
            ModelConfig.options_for({"name": get_name(table.get("model"))})
            if asks_a_model(maker)
            else {}
        )

    @classmethod
    def names_with(cls, option: str) -> list[str]:
        """Returns the built-in policies that have an option."""
        return policies_with(option)


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

    Returns:
        The policy.

    Raises:
        OptionError: An option is unknown, missing or of the wrong type.
        UsageError: No policy has that name, or the object is not a policy.
    """
    if isinstance(name, PolicyConfig):
        name = name.mapping()
    if isinstance(name, Mapping):
        table = dict(name)
        named = table.pop("name", None)
        if not isinstance(named, str) or not named:
            raise OptionError(
                f"policy.name: expected the name of a policy, got {named!r}", "policy"
            )
        return make_policy(named, lax=lax, **{"model": model, **options, **table})
    if not isinstance(name, str):
        if options or model is not None:
            raise UsageError(f"a policy object takes no options ({', '.join([*options, 'model'])})")
        return name
    maker, what = POLICIES.maker(name), f"policy {name!r}"
    own = list_options(maker)
    of_model = model_options(model) if asks_a_model(maker) else ()
    settings = {key: options.pop(key) for key in of_model if key in options and key not in own}
    if model is not None:
        options["model"] = model
    parts = {
        LanguageModel: lambda value, place: make_model(value, place=place, lax=lax, **settings)
    }
    policy = maker(**read_options(maker, options, what, parts=parts, lax=lax))
    if not all(callable(getattr(policy, method, None)) for method in ("reset", "act")):
        raise UsageError(
            f"{what} returned a {type(policy).__name__}, which has no reset(task) and "
            "act(observation)"
        )
    return policy  # type: ignore[no-any-return]


def asks_a_model(maker: Maker) -> bool:
    """Returns whether a policy's maker takes a language model.

    The model of a policy with its own weights is a name or a folder.
    """
    option = list_options(maker).get("model")
    return option is not None and option.type_name != "str"


def policies_with(option: str) -> list[str]:
    """Returns the built-in policies that have the option."""
    return [name for name in POLICIES.entries if option in list_options(POLICIES.maker(name))]

"""Policies by name: those of this folder, of other packages, and your own (`module:Object`, `file.py:Object`)."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from prill.errors import UsageError
from prill.protocols import LanguageModel, Policy
from prill.registry import Entry, OptionError, Registry, options_of, read_options
from prill.types import Platform

POLICIES = Registry(
    "policy",
    {
        "react": Entry("a model thinks and acts on the page's text, as in WebArena", "prill.policies.react:React"),
        "cogagent": Entry("CogAgent, on screenshots", "prill.policies.cogagent:CogAgent"),
        "autoui": Entry("Auto-UI, on screenshots", "prill.policies.autoui:AutoUI"),
        "replay": Entry("the actions of recorded trajectories again", "prill.policies.replay:HumanReplay"),
        "scripted": Entry("MiniWoB++ by script, well or badly on purpose", "prill.policies.scripted.policy:ScriptedPolicy"),
    },
    "prill.policies",
)


@runtime_checkable
class Fingerprinted(Protocol):
    """A policy that depends on more than its options: prompts, recordings."""

    def fingerprint(self, platform: Platform) -> str:
        """Differs when the policy would act otherwise with the same options."""
        ...


def make_policy(name: str, *, model: LanguageModel | None = None, **options: Any) -> Policy:
    """The policy of that name with these options: `make_policy("react", model=my_model, reasoning=False)`.

    `model` is for policies that ask one. Raises UsageError for an unknown name, OptionError for an option that the policy does
    not have, lacks, or that is of the wrong kind.
    """
    maker, what = POLICIES.maker(name), f"policy {name!r}"
    if model is not None:
        options["model"] = model
    made = maker(**read_options(maker, options, what, parts={LanguageModel: _language_model}))
    if not all(callable(getattr(made, method, None)) for method in ("reset", "act")):
        raise UsageError(f"{what} gave a {type(made).__name__}, which has no reset(task) and act(observation)")
    return made  # type: ignore[no-any-return]


def policies_with(option: str) -> list[str]:
    """The policies of this folder that have the option."""
    return [name for name in POLICIES.entries if option in options_of(POLICIES.maker(name))]


def _language_model(value: Any, place: str) -> LanguageModel:
    if not hasattr(value, "complete"):
        raise OptionError(f"{place}: expected a language model, got {value!r}", "model")
    return value  # type: ignore[no-any-return]

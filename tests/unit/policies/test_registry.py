"""Policies by name: options are read strictly, and a user's own policy is made like any other."""

from __future__ import annotations

import pytest

from prill.errors import UsageError
from prill.policies.cogagent import CogAgent
from prill.policies.react import React, ReactSpec
from prill.policies.registry import Fingerprinted, make_policy
from prill.testing.scripted import ScriptedModel

MODEL = ScriptedModel(["hm"])


def test_options_reach_the_policy() -> None:
    policy = make_policy("react", model=MODEL, reasoning=False, max_tokens=99, lessons=["be quick"])
    assert isinstance(policy, React)
    assert (policy.spec, policy.lessons) == (
        ReactSpec(reasoning=False, max_tokens=99),
        ["be quick"],
    )
    other = make_policy("cogagent", model=MODEL, generation="18b", seed=3)
    assert isinstance(other, CogAgent)
    assert (other.generation, other.seed, other.model) == ("18b", 3, MODEL)


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("reakt", {}, "unknown policy 'reakt' (did you mean 'react'?)"),
        (
            "react",
            {"model": MODEL, "reasonin": True},
            "policy 'react' has no such option (did you mean 'reasoning'?)",
        ),
        ("react", {}, "model is missing: policy 'react' needs it"),
        ("react", {"model": 4}, "model: expected a language model or its name, got 4"),
        ("cogagent", {"model": MODEL, "generation": "7b"}, "generation: Invalid enum value '7b'"),
        ("scripted", {"model": MODEL}, "model: policy 'scripted' has no such option"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_policy(name, **options)  # type: ignore[arg-type]
    assert problem in str(caught.value)


def test_fingerprints_follow_what_is_asked() -> None:
    policies = [
        make_policy("react", model=MODEL),
        make_policy("react", model=MODEL, reasoning=False),
        make_policy("react", model=MODEL, lessons=["be quick"]),
        make_policy("cogagent", model=MODEL),
        make_policy("cogagent", model=MODEL, generation="18b"),
        make_policy("autoui", model=MODEL),
    ]
    prints = [
        policy.fingerprint("android") for policy in policies if isinstance(policy, Fingerprinted)
    ]
    assert len(set(prints)) == len(policies)

"""Policies by name: options are read strictly, and a user's own policy is made like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.config.registry import OptionError, list_options
from prill.errors import UsageError
from prill.policies.cogagent import CogAgent
from prill.policies.react import React, ReactSpec
from prill.policies.registry import POLICIES, Fingerprinted, PolicyConfig, make_policy
from prill.policies.replay import HumanReplay
from prill.testing.scripted import ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory

MODEL = ScriptedModel(["hm"])
OWN = """
class Polite:
    def __init__(self, greeting: str, times: int = 1) -> None:
        self.words = [greeting] * times
    def reset(self, task): ...
    async def act(self, observation): ...

class Model:
    def __init__(self, model, other=None): ...
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return str(tmp_path / "own.py")


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
        ("react", {"model": MODEL, "max_tokens": 0}, "max_tokens: Expected `int` >= 1, got 0"),
        ("react", {"model": MODEL, "attempts": "2"}, "attempts: Expected `int`, got '2'"),
        ("cogagent", {"model": MODEL, "generation": "7b"}, "generation: Invalid enum value '7b'"),
        ("scripted", {"model": MODEL}, "model: policy 'scripted' has no such option"),
        ("scripted", {"behaviour": "cheat"}, "behaviour: Invalid enum value 'cheat'"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_policy(name, **options)  # type: ignore[arg-type]
    assert problem in str(caught.value)


def test_own_policy_from_a_file(own: str) -> None:
    assert make_policy(f"{own}:Polite", greeting="hi", times=2).words == ["hi", "hi"]  # type: ignore[attr-defined]
    with pytest.raises(OptionError, match="greeting is missing"):
        make_policy(f"{own}:Polite", times=2)
    with pytest.raises(
        UsageError, match=r"returned a Model, which has no reset\(task\) and act\(observation\)"
    ):
        make_policy(f"{own}:Model", model=MODEL)


def test_replay_reads_a_file_or_a_list(tmp_path: Path) -> None:
    task = Task(id="t", goal="g")
    recorded = Trajectory(
        id="a", task=task, steps=(Step(Observation(), Action("click", "c")),), answer="yes"
    )
    (tmp_path / "t.jsonl").write_text(
        '{"id": "a", "task": {"id": "t", "goal": "g"}, "answer": "yes",'
        ' "steps": [{"observation": {}, "action": {"kind": "click", "text": "c"}}]}\n'
    )
    one = make_policy("replay", trajectories=[recorded])
    other = make_policy("replay", trajectories=str(tmp_path / "t.jsonl"))
    assert isinstance(one, HumanReplay) and isinstance(other, HumanReplay)
    assert one.fingerprint("web") == other.fingerprint("web")


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


def test_every_option_has_a_description() -> None:
    missing = [
        f"{name}: {option.name}"
        for name in POLICIES.entries
        for option in list_options(POLICIES.maker(name)).values()
        if option.name not in ("model", "lessons") and not option.description
    ]
    assert not missing


def test_policies_are_known_by_their_options() -> None:
    assert PolicyConfig.names_with("reasoning") == ["react", "step"]
    recorded = ["mindact", "self-map", "synapse-mind2web"]
    asked = ["react", "step", "screen", "cogagent", "autoui", "structured-reflection"]
    assert PolicyConfig.names_with("max_tokens") == [*asked, "synapse", *recorded]
    assert PolicyConfig.names_with("model") == [*asked, "small-text", "synapse", *recorded]

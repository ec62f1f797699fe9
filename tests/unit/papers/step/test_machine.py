"""The stack machine: what acts, what is called, what comes back, and what ends it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prill.episodes.loop import run_episode
from prill.models.prompts import NONCE
from prill.papers.step import agent as machine
from prill.papers.step.agent import StepAgent
from prill.policies.registry import make_policy
from prill.testing.scripted import ReplayEnvironment, ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory

Play = Callable[..., tuple[StepAgent, ScriptedModel]]
PAGE = Observation(
    text="[1] link 'Home'\n[3] textbox 'Search'\n[4] link 'x'", url="http://shop.example:7770/a"
)


def shown(model: ScriptedModel, call: int = -1) -> str:
    """The turn of a call, with a plain mark in the place of the code."""
    return str(model.seen[call][-1].parts[0]).replace(NONCE, "#")


def history(model: ScriptedModel, call: int = -1) -> str:
    """What a call was shown of the policy's history."""
    return shown(model, call).partition("PREVIOUS ACTIONS:\n")[2].partition("\nGive ")[0].strip()


def objective(model: ScriptedModel, call: int) -> str:
    return shown(model, call).splitlines()[0]


def depth(agent: StepAgent) -> int:
    return len(agent.events[-1].frames)


async def test_root_acts_on_the_environment(play: Play) -> None:
    agent, _ = play("click [1]")
    step = await agent.act(PAGE)
    assert step.action == Action(
        "click", "click [1] where [1] is link 'Home'", target="[1] link 'Home'"
    )
    assert (depth(agent), [event.response for event in agent.events]) == (1, [""])
    assert step.thought == "act shop_agent: click [1] | so"


async def test_a_call_returns_its_answer(play: Play) -> None:
    agent, model = play("find_x [q]", "click [4]", "stop [42]", "stop [42]")
    steps = [await agent.act(PAGE), await agent.act(PAGE)]
    assert [(step.action.kind, step.action.value) for step in steps] == [
        ("click", None),
        ("stop", "42"),
    ]
    assert [objective(model, call) for call in range(4)] == [
        "OBJECTIVE: Buy an x",
        "OBJECTIVE: find_x [q]",
        "OBJECTIVE: find_x [q]",
        "OBJECTIVE: Buy an x",
    ]
    assert history(model, 1) == "None\nName the rule."
    assert history(model, 3) == "[previous #]\n42 = find_x [q]\n[/previous #]"


async def test_callee_sees_the_same_page(play: Play) -> None:
    agent, model = play("find_x [q]", "stop []", "click [1]")
    await agent.act(PAGE)
    pages = {
        shown(model, call).partition("OBSERVATION:\n")[2].partition("PREVIOUS")[0]
        for call in range(3)
    }
    assert len(pages) == 1
    assert "[1] link 'Home'" in pages.pop()


async def test_a_policy_may_call_itself(play: Play) -> None:
    agent, model = play(
        "search_list [a]", "search_list [b]", "click [1]", "stop [n]", "stop [m]", "stop []"
    )
    await agent.act(PAGE)
    assert agent.events[-1].frames == ("shop_agent", "search_list", "search_list")
    await agent.act(PAGE)
    assert [history(model, call) for call in (2, 4, 5)] == [
        "None",
        "[previous #]\nn = search_list [b]\n[/previous #]",
        "[previous #]\nm = search_list [a]\n[/previous #]",
    ]


async def test_unknown_verbs_end_the_policy(play: Play) -> None:
    agent, model = play(
        "find_x [q]", "find_products [q]", "REASON: I click it", "click [it]", "click [1]"
    )
    step = await agent.act(PAGE)
    assert (step.action.kind, depth(agent)) == ("click", 1)
    assert "(not done: find_products is not available) = find_products [q]" in history(model, 2)
    assert "(not done: the reply has no line ACTION:)" in history(model, 3)
    assert history(model, 4) == "[previous #]\nN/A = find_x [q]\n[/previous #]"


async def test_depth_of_the_stack_is_limited(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_DEPTH", 3)
    agent, model = play("search_list [a]", "search_list [b]", "search_list [c]", "click [1]")
    await agent.act(PAGE)
    assert depth(agent) == 3
    assert "3 policies are at work already" in history(model, 3)


async def test_endless_calls_are_cut_off(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_CALLS", 10)
    agent, model = play(*["find_x [q]", "stop [ask again]"] * 20)
    step = await agent.act(PAGE)
    assert (step.action.value, len(model.seen)) == ("N/A", 10)
    assert "no action after 10 calls" in (step.thought or "")


async def test_limit_of_actions_ends_with_stop(play: Play) -> None:
    agent, model = play(*["click [1]"] * 21, max_steps=20)
    steps = [await agent.act(PAGE) for _ in range(21)]
    assert (steps[19].action.kind, steps[20].action.value) == ("click", "N/A")
    assert (agent.limit_exceeded, len(model.seen)) == (True, 20)
    assert "the limit of 20 actions is reached" in (steps[20].thought or "")


async def test_replay_repeats_the_actions(play: Play) -> None:
    agent, _ = play("find_x [q]", "click [4]", "stop [7]", "type [3] [tea] [0]", "stop [7]")
    states = tuple(Step(PAGE, Action("other")) for _ in range(3))
    task = Task(id="t", goal="Buy an x", platform="web")
    environment = ReplayEnvironment(Trajectory(id="r", task=task, steps=states, final=PAGE))
    played = await run_episode(agent, environment, task, id="a")
    again = await run_episode(
        make_policy("replay", trajectories=[played]), environment, task, id="b"
    )
    assert [step.action for step in again.steps] == [step.action for step in played.steps]
    assert [step.action.kind for step in played.steps] == ["click", "type", "stop"]


async def test_site_chooses_the_root(play: Play) -> None:
    assert (
        await play("click [1]", site="map")[0].act(PAGE)
    ).thought == "act search_list: click [1] | so"
    assert (
        await play("click [1]", site="multi")[0].act(PAGE)
    ).thought == "act shop_agent: click [1] | so"
    assert (
        await play("click [1]", root="find_x")[0].act(PAGE)
    ).thought == "act find_x: click [1] | so"

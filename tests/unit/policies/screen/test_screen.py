"""The policy `screen`: documented replies are read, broken ones refused with a reason, and what is
played is what is taught.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from PIL import Image

from prill.episodes.loop import run_episode
from prill.errors import UnparsableError
from prill.policies.screen.agent import _GRAMMARS, GrammarName, Screen
from prill.policies.screen.frames import QWEN25, UnreadableReplyError, smart_resize
from prill.testing.scripted import ReplayEnvironment, ScriptedModel
from prill.types import Action, Observation, Platform, Step, Task, Trajectory
from tests.support.policies.replies import readable, unreadable

SIZE = (1280, 720)
GOOD, BAD = list(readable()), list(unreadable())
ACTIONS: dict[Platform, tuple[Action, ...]] = {
    "web": (
        Action("click", point=(0.5, 0.25)), Action("type", value='a "b"\n'), Action("press", value="Control+a"),  # noqa: E501
        Action("scroll", value="down"), Action("drag", point=(0.5, 0.25), end_point=(0.1, 0.9)), Action("stop", value="Done."),  # noqa: E501
    ),
    "android": (
        Action("click", point=(0.5, 0.25)), Action("type", value="tea"), Action("back"), Action("home"), Action("stop"),  # noqa: E501
    ),
}  # fmt: skip


@pytest.fixture
def screen(tmp_path: Path) -> Observation:
    Image.new("RGB", SIZE, "white").save(tmp_path / "s.png")
    return Observation(screenshot=str(tmp_path / "s.png"))


@pytest.mark.parametrize("grammar", get_args(GrammarName))
def test_documented_replies_are_read(grammar: GrammarName) -> None:
    calls = _GRAMMARS[grammar][1]
    for name, reply, wanted in GOOD:
        if name == grammar:
            _, (action,) = calls.read(reply, SIZE, None)
            found = (action.kind, action.point, action.end_point, action.value)
            assert found[0] == wanted.kind, reply
            assert found[3] == wanted.value, reply
            assert found[1] == pytest.approx(wanted.point, abs=1e-3), reply
            assert found[2] == pytest.approx(wanted.end_point, abs=1e-3), reply


@pytest.mark.parametrize("grammar", get_args(GrammarName))
def test_broken_replies_are_refused(grammar: GrammarName) -> None:
    for name, reply in BAD:
        if name == grammar:
            with pytest.raises(UnreadableReplyError, match=r"\w{3}"):
                pytest.fail(
                    f"{reply!r} was read as {_GRAMMARS[grammar][1].read(reply, SIZE, None)}"
                )


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((1280, 720), (1288, 728)),
        ((1080, 2400), (1092, 2408)),
        ((10, 10), (56, 56)),
        ((8000, 4500), (4760, 2688)),
    ],
)
def test_resize_is_that_of_the_processors(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    assert smart_resize(size, QWEN25.factor or 0, QWEN25.min_pixels, QWEN25.max_pixels) == wanted


@pytest.mark.parametrize("platform", ["web", "android"])
@pytest.mark.parametrize("grammar", get_args(GrammarName))
async def test_what_is_played_is_taught(
    grammar: GrammarName, platform: Platform, screen: Observation
) -> None:
    calls = _GRAMMARS[grammar][1]
    written = [
        call for action in ACTIONS[platform] if (call := calls.write(action, platform, SIZE))
    ]
    assert len(written) >= 3
    model = ScriptedModel(written)
    policy = Screen(model, grammar=grammar, history=2)
    task = Task(id="t", goal="Buy {{ tea }}", platform=platform)
    states = tuple(Step(screen, Action("wait")) for _ in range(len(written) + 1))
    run = await run_episode(
        policy,
        ReplayEnvironment(Trajectory(id="r", task=task, steps=states, final=screen)),
        task,
        id="a",
    )
    assert len(run.steps) == len(written)
    for index, reply in enumerate(written):
        messages, answer = Screen(ScriptedModel([]), grammar=grammar, history=2).demonstrate(
            run, index
        )
        assert (tuple(messages), answer) == (tuple(model.seen[index]), reply)


async def test_several_calls_are_carried_out_in_order(screen: Observation) -> None:
    reply = (
        '{"type": "computer_call", "actions": [{"type": "type", "text": "Lima"}, {"type": '
        '"keypress", "keys": ["ENTER"]}]}'
    )
    model = ScriptedModel([reply, '{"type": "message", "content": "It is Lima."}'])
    policy = Screen(model, grammar="openai")
    policy.reset(Task(goal="g"))
    kinds = [(await policy.act(screen)).action.kind for _ in range(3)]
    assert (kinds, len(model.seen)) == (["type", "press", "answer"], 2)


async def test_model_is_told_what_was_wrong(screen: Observation) -> None:
    model = ScriptedModel(
        [
            '{"action": "left_click", "coordinate": [640]}',
            '{"action": "terminate", "status": "failure"}',
        ]
    )
    policy = Screen(model)
    policy.reset(Task(goal="g"))
    steps = [await policy.act(screen) for _ in range(2)]
    assert [step.action.kind for step in steps] == ["other", "stop"]
    assert "two numbers" in str(model.seen[1][-1].parts[0])
    run = Trajectory(id="a", task=Task(goal="g"), steps=tuple(steps))
    with pytest.raises(UnparsableError, match="not a tool call"):
        policy.demonstrate(run, 0)
    assert tuple(policy.demonstrate(run, 1)[0]) == tuple(model.seen[1])


async def test_what_the_browser_says_is_shown(screen: Observation) -> None:
    text = "Tab 0 (current): A\n! click at a place: no such element\n\n[1] RootWebArea '! x'"
    told = Observation(screenshot=screen.screenshot, text=text)
    model = ScriptedModel(['{"action": "wait"}', '{"action": "wait"}'])
    policy = Screen(model)
    policy.reset(Task(id="t", goal="g", platform="web"))
    await policy.act(screen)
    await policy.act(told)
    first, last = (
        [part for m in seen for part in m.parts if isinstance(part, str)] for seen in model.seen
    )
    assert not [part for part in first if "The browser said" in part]
    assert len([part for part in last if "! click at a place: no such element" in part]) == 1
    assert "! x" not in "".join(last)

"""What policies teach of recorded steps: the messages that they send, and replies that they read as
the recorded action.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from prill.episodes.loop import run_episode
from prill.errors import UnparsableError
from prill.policies.cogagent import CogAgent, Generation
from prill.policies.react import React, ReactSpec
from prill.protocols import Demonstrator
from prill.testing.scripted import ReplayEnvironment, ScriptedModel
from prill.types import Action, Observation, Platform, Step, Task, Trajectory

SHOP = (
    "Tab 0 (current): Shop\n\n[1] RootWebArea 'Shop'\n\t[7] link 'Cart' focused: True\n\t[9] "
    "textbox 'Search'"
)
HOME = "[1] text 'Settings'\n[2] switch 'Wi-Fi' checked: false\n[3] textbox 'Search'"
PHRASE = "In summary, the next action I will perform is"
WEB_ACTIONS = (
    "click [7]", "hover [7]", "type [9] [red kettle] [1]", "type [9] [a [b] c] [0]", "press [Control+a]", "scroll [down]",  # noqa: E501
    "goto [http://shop.example/a?b=c]", "new_tab", "tab_focus [1]", "close_tab", "go_back", "go_forward", "stop [$34.50]",  # noqa: E501
)  # fmt: skip
PHONE_ACTIONS = (
    "tap [2]", "type [3] [wi-fi]", "type [3] [wi-fi] [1]", "swipe [up]", "back", "home", "enter",
    "wait", "stop []",
)  # fmt: skip
CALLS_9B = (
    "CLICK(box=[[87,440,163,484]], element_info='OK')", "HOVER(box=[[0,0,100,100]])",
    "SCROLL_DOWN(box=[[0,0,999,999]], step_count=5)", "SCROLL_LEFT(box=[[0,0,999,999]])",
    "TYPE(box=[[1,2,3,4]], text='it\\'s\\nhere')", "KEY_PRESS(key='ctrl+a')",
    "KEY_PRESS(key='back')", "LAUNCH(url='https://a.example')", "END()",
)  # fmt: skip
WORDS_18B = (
    "tap [[500,200]]", "tap [[1,2,4,4]]", 'type "a b"', "swipe left", "swipe up", "press home",
    "task complete",
)  # fmt: skip


async def recorded(
    policy: Demonstrator, state: Observation, platform: Platform, count: int
) -> Trajectory:
    task = Task(id="t", goal="Buy a kettle", platform=platform)
    steps = tuple(Step(state, Action("wait")) for _ in range(count))
    world = ReplayEnvironment(Trajectory(id="r", task=task, steps=steps, final=state))
    return await run_episode(policy, world, task, id="a")


def lesson(action: Action, platform: Platform = "web", text: str = SHOP, **spec: bool) -> str:
    """The reply that React would be taught."""
    step = Step(Observation(text=text), action)
    run = Trajectory(id="a", task=Task(goal="g", platform=platform), steps=(step,))
    return React(ScriptedModel([]), ReactSpec(**spec)).demonstrate(run, 0)[1]


def taught_18b(
    action: Action, platform: Platform = "android", generation: Generation = "18b"
) -> str:
    step = Step(Observation(screenshot="s.png"), action)
    run = Trajectory(id="a", task=Task(goal="g", platform=platform), steps=(step,))
    return (
        CogAgent(ScriptedModel([]), generation=generation)
        .demonstrate(run, 0)[1]
        .removeprefix("Grounded Operation: ")
    )


@pytest.mark.parametrize(
    ("platform", "text", "actions"),
    [("web", SHOP, WEB_ACTIONS), ("android", HOME, PHONE_ACTIONS), ("ios", HOME, PHONE_ACTIONS)],
)
@pytest.mark.parametrize("reasoning", [True, False])
async def test_react_teaches_what_it_asks(
    platform: Platform, text: str, actions: tuple[str, ...], reasoning: bool
) -> None:
    thought = f"I see it. {PHRASE} " if reasoning else ""
    model = ScriptedModel([f"{thought}```{action}```" for action in actions])
    policy = React(model, ReactSpec(reasoning=reasoning))
    run = await recorded(
        policy, Observation(text=text, url="http://shop.example"), platform, len(actions) + 1
    )
    assert len(run.steps) == len(actions)
    for i, action in enumerate(actions):
        assert React(ScriptedModel([]), policy.spec).demonstrate(run, i) == (
            model.seen[i],
            f"{thought}```{action}```",
        )


@pytest.mark.parametrize(
    ("action", "reply"),
    [
        (Action("click", "clicked", target="link 'Cart'"), "```click [7]```"),
        (Action("click", "click('7')"), "```click [7]```"),
        (Action("answer", "send_msg", value="42"), "```stop [42]```"),
    ],
)
def test_react_teaches_actions_of_others(action: Action, reply: str) -> None:
    assert lesson(action, reasoning=False) == reply


@pytest.mark.parametrize(
    ("generation", "platform", "operations"),
    [("9b", "web", CALLS_9B), ("18b", "android", WORDS_18B), ("18b", "ios", WORDS_18B)],
)
async def test_cogagent_teaches_what_it_asks(
    generation: Generation, platform: Platform, operations: tuple[str, ...]
) -> None:
    replies = [
        f"Action: step {i}.\nGrounded Operation: {operation}"
        for i, operation in enumerate(operations)
    ]
    model = ScriptedModel(replies)
    run = await recorded(
        CogAgent(model, generation=generation),
        Observation(screenshot="screen.png"),
        platform,
        len(operations) + 1,
    )
    assert len(run.steps) == len(operations)
    student = CogAgent(ScriptedModel([]), generation=generation)
    for i in range(len(operations)):
        messages, reply = student.demonstrate(run, i)
        assert tuple(messages) == model.seen[i]
        again = CogAgent(ScriptedModel([reply]), generation=generation)
        again.reset(run.task)
        read = await again.act(run.steps[i].observation)
        # The middle of a box is what is taught.
        assert replace(read.action, point=None, text="") == replace(
            run.steps[i].action, point=None, text=""
        )
        assert read.action.point == pytest.approx(run.steps[i].action.point, abs=0.001)
        assert read.thought == run.steps[i].thought
        if generation == "9b":
            assert reply == replies[i]


@pytest.mark.parametrize(
    ("action", "platform", "operation"),
    [
        (Action("swipe", "", point=(0.5, 0.8), end_point=(0.4, 0.2)), "android", "swipe up"),
        (Action("stop", "Action Type: TaskImpossible"), "android", "task impossible"),
        (Action("stop", "Action Type: TaskImpossible"), "ios", "task impossible"),
        (Action("press", "", value="Enter"), "android", "press enter"),
        (Action("press", "", value="Tab"), "android", None),
        (Action("wait", "Action Type: Idle"), "android", None),
        (Action("type", "", value='say "hi"'), "android", None),
        (Action("type", "", value="tap it"), "ios", None),
    ],
)
def test_cogagent_18b_puts_actions_of_others(
    action: Action, platform: Platform, operation: str | None
) -> None:
    if operation is None:
        with pytest.raises(UnparsableError):
            taught_18b(action, platform)
    else:
        assert taught_18b(action, platform) == operation

"""Conversations as trajectories, and the adapters that need no framework to be called."""

import asyncio
from typing import Any

import pytest
from PIL import Image

from prill.config.registry import load_object
from prill.errors import InputError, MissingExtraError, NoEvidenceError, UsageError
from prill.io.store import BadLine
from prill.refine.rewards import (
    Reward,
    RewardSpec,
    TRLReward,
    chat_trajectory,
    judged_completion,
    to_json,
)
from prill.refine.rewards.chat import carried
from prill.refine.rewards.inspect_ai import judge_scorer
from prill.refine.rewards.openenv import episode_trajectory, judge_rubric
from prill.refine.rewards.verl import make_compute_score
from prill.types import EvaluatorInfo, Observation, Task, Trajectory, Verdict
from tests.support.paths import ROOT

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # noqa: E501
GOAL = {"role": "user", "content": "Buy tea"}
CALL = {
    "role": "assistant",
    "content": "I look",
    "tool_calls": [{"function": {"name": "open", "arguments": '{"at": 1}'}}],
}


def tool(*parts: Any) -> dict[str, Any]:
    return {
        "role": "tool",
        "content": [
            {"type": "text", "text": part} if " " in part else picture(part) for part in parts
        ],
    }


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


class Answer:
    """A judge that believes what a trajectory answered; without an answer there is nothing to
    judge.
    """

    info = EvaluatorInfo("answer", "1")

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return []

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        if trajectory.answer is None:
            return Verdict(
                id=trajectory.id, unscored="no_evidence", reason="no answer", evaluator=self.info
            )
        return Verdict(
            id=trajectory.id, success=trajectory.answer == "yes", score=0.5, evaluator=self.info
        )


def test_tool_calls_are_steps_of_what_was_seen() -> None:
    system = {"role": "system", "content": "You are a shopper"}
    run = chat_trajectory([system, GOAL, CALL, tool("A shop", PIXEL), CALL, tool("A cart", PIXEL)])
    assert run.task.goal == "Buy tea" and run.answer is None
    assert [(step.action.text, step.thought) for step in run.steps] == [
        ('open({"at": 1})', "I look")
    ] * 2
    assert [step.observation.text for step in run.steps] == ["Buy tea", "A shop"]
    assert run.steps[1].observation.screenshot and run.final is not None and run.final.screenshot
    assert run.final.text == "A cart"


def test_the_last_turn_alone_is_an_answer() -> None:
    said = {"role": "assistant", "content": "yes"}
    answered = chat_trajectory([GOAL, said])
    assert (answered.answer, answered.steps[-1].action.kind, answered.final) == (
        "yes",
        "answer",
        None,
    )
    acted = chat_trajectory(
        [
            GOAL,
            {"role": "assistant", "content": "click [12]"},
            {"role": "user", "content": "A cart"},
        ]
    )
    assert (acted.answer, acted.steps[-1].action.text) == (None, "click [12]")


def test_several_calls_and_pictures_stay_apart() -> None:
    twice = {
        **CALL,
        "tool_calls": [{"name": "a", "arguments": {"b": 1}}, {"function": "c", "arguments": {}}],
    }
    run = chat_trajectory([GOAL, tool("Two pictures", PIXEL, PIXEL), twice, tool("The end")])
    assert [step.action.text for step in run.steps] == [
        "look at what was shown next",
        'a({"b":1})',
        "c({})",
    ]
    assert [bool(step.observation.screenshot) for step in run.steps] == [True, True, False]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([CALL], "no user text"),
        ([GOAL], "no turn of the agent"),
        ([GOAL, tool("https://shop.example/a.png"), CALL], "not fetched"),
        ([GOAL, CALL, tool("half \ud83d")], "cannot be serialised"),
    ],
)
def test_broken_conversations_are_unscored(messages: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        chat_trajectory(messages)
    item = carried({}, None, messages, place="sample 1")
    assert isinstance(item, BadLine) and said in item.message


def test_a_column_that_is_missing_is_an_error() -> None:
    with pytest.raises(UsageError, match="did you mean 'trajectory'"):
        carried({"trajectory": "x"}, "trajectry", [], place="sample 1")


def run(answer: str | None) -> str:
    return to_json(Trajectory(id="t", task=Task(goal="Buy tea"), answer=answer))


def test_verl_raises_where_it_cannot_abstain() -> None:
    compute_score = make_compute_score(Reward(Answer()))
    assert asyncio.iscoroutinefunction(compute_score), "verl looks at that"
    scored = asyncio.run(
        compute_score("d", "", None, {"trajectory": run("yes")}, reward_router_address="x")
    )
    with pytest.raises(NoEvidenceError, match="no answer"):
        asyncio.run(compute_score("d", "", None, {"trajectory": run(None)}))
    valued = make_compute_score(Reward(Answer(), RewardSpec(on_unscored="value", value=0.25)))
    unscored = asyncio.run(valued("d", "", None, {"trajectory": run(None)}))
    assert (scored["score"], scored["unscored"]) == (1.0, 0.0) and (
        unscored["score"],
        unscored["unscored"],
    ) == (0.25, 1.0)
    assert scored.keys() == unscored.keys() and all(
        type(number) is float for number in scored.values()
    )


def test_verl_example_is_loaded_by_its_path() -> None:
    example = ROOT / "examples/verl_reward.py"
    assert asyncio.iscoroutinefunction(load_object(f"{example}:compute_score"))


def test_verl_judges_the_completion_alone() -> None:
    compute_score = make_compute_score(Reward(Answer()), key=None)
    assert (
        asyncio.run(compute_score("d", "yes", None, {"question": "Is tea sold?"}))["score"] == 1.0
    )
    valued = make_compute_score(
        Reward(Answer(), RewardSpec(on_unscored="value", value=0.25)), key=None
    )
    for goal, answer in (("", "yes"), ("Is tea sold?", "half \ud83d")):
        assert asyncio.run(valued("d", answer, None, {"question": goal}))["score"] == 0.25
        with pytest.raises(InputError):
            asyncio.run(compute_score("d", answer, None, {"question": goal}))
    with pytest.raises(UsageError, match="no column 'question'"):
        asyncio.run(compute_score("d", "yes", None, {}))


class Page:
    """What an environment shows."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def test_openenv_episodes_become_trajectories() -> None:
    data = PIXEL.partition(",")[2]
    seen = episode_trajectory(
        [
            ("click [1]", Page(goal="Buy tea", screenshot=data, text="A cart")),
            ("stop", Page(url="u")),
        ]
    )
    assert seen.task.goal == "Buy tea" and [step.action.text for step in seen.steps] == [
        "click [1]",
        "stop",
    ]
    assert seen.steps[0].observation == Observation() and seen.steps[1].observation.screenshot
    assert seen.final == Observation(url="u")
    with pytest.raises(InputError, match="the goal is unknown"):
        episode_trajectory([("click [1]", Page(text="A cart"))])
    with pytest.raises(InputError, match="base64"):
        episode_trajectory([("click [1]", Page(screenshot="/etc/hosts"))], goal="g")


def test_inspect_is_served_on_trio_too() -> None:
    trio = pytest.importorskip("trio", reason="trio is not installed: pip install trio")
    from prill.refine.rewards.inspect_ai import _awaited

    reward, item = Reward(Answer()), Trajectory(id="t", task=Task(goal="Buy tea"), answer="yes")

    async def score() -> Any:
        carrying = await _awaited(
            asyncio.to_thread, carried, {"t": to_json(item)}, "t", [], place="sample 1"
        )
        return await _awaited(reward, carrying)

    assert trio.run(score) == asyncio.run(score()) == 1.0


def test_missing_frameworks_are_named() -> None:
    from prill.refine.rewards import verifiers

    for name, make in {
        "inspect-ai": lambda: judge_scorer(Reward(Answer())),
        "openenv": lambda: judge_rubric(Reward(Answer())),
        "verifiers": lambda: verifiers.PrillJudge,
    }.items():
        with pytest.raises(
            MissingExtraError, match=f"^{name} is not installed; run: pip install {name}$"
        ):
            make()


CLAIM = {"role": "assistant", "content": "Everything is bought: yes"}
TALK = [CALL, tool("the cart is empty"), CLAIM]


def test_conversation_of_a_completion_keeps_what_was_done() -> None:
    """The judge sees calls and outputs, not the agent's texts joined into an answer."""
    run = judged_completion([{"role": "user", "content": "Example"}, GOAL], TALK)
    assert run.task.goal == "Buy tea"
    assert [step.action.text for step in run.steps] == ['open({"at": 1})', ""]
    assert run.steps[1].observation.text == "the cart is empty"
    assert run.answer == "Everything is bought: yes"
    cut = judged_completion([GOAL], TALK[:2])
    assert cut.answer is None and cut.final and cut.final.text == "the cart is empty"
    assert judged_completion([GOAL], [CLAIM]).answer == CLAIM["content"], "one answer"


def test_images_go_where_the_messages_have_places() -> None:
    image = Image.new("RGB", (4, 4))
    shown = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Buy tea"}]}
    answer = {"role": "tool", "content": [{"type": "image"}]}
    run = judged_completion([shown], [CALL, answer, CLAIM], [image, image])
    assert all(step.observation.screenshot for step in run.steps)
    with pytest.raises(InputError, match="places for 2 images, but 1 came"):
        judged_completion([shown], [CALL, answer, CLAIM], [image])


def test_messages_that_cannot_be_read_are_unscored() -> None:
    odd = [CALL, {"role": "critic", "content": "good"}, CLAIM]
    function = TRLReward(Reward(Answer()), column=None)
    talks = {"prompts": [[GOAL]] * 3, "completions": [TALK, odd, [CLAIM]]}
    assert asyncio.run(function(**talks)) == [0.0, None, 0.0]
    assert [result.problem.partition(":")[0] for result in _seen(function, talks)] == [
        "",
        "input",
        "",
    ]


def _seen(function: TRLReward, talks: dict[str, Any]) -> Any:
    items = function._items(talks["completions"], talks["prompts"], None, {})
    return function.reward.batch(items)


def test_verl_judges_messages_and_refuses_the_text_of_several_turns() -> None:
    score = make_compute_score(Reward(Answer()), key=None)

    def of(**extra: Any) -> float:
        told = asyncio.run(score(solution_str="yes", extra_info={"question": "Buy tea", **extra}))
        return told["score"]

    assert of() == of(num_turns=2) == 1.0
    assert of(num_turns=4, messages=[GOAL, *TALK]) == 0.0
    with pytest.raises(InputError, match="a conversation of 4 turns came as one text"):
        of(num_turns=4)

"""The tournament among a page's candidates, what is shown of earlier turns, and what is taught of
recorded steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prill.config.registry import list_options
from prill.episodes.loop import run_episode
from prill.errors import TruncatedError, UnparsableError
from prill.papers.mind2web.mindact.agent import MindAct, MindActSpec, SelfMAP, SelfMAPSpec
from prill.policies.registry import make_policy
from prill.protocols import LanguageModel, Message
from prill.testing.scripted import ReplayEnvironment, ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.papers.conversations import request, seen, turn


class Trained(ScriptedModel):
    """A model that was trained on the form, as those of folders are taken to be."""

    def __init__(self, script: Any) -> None:
        super().__init__(script, name="local/planner")


SEVEN = ("One", "Two", "Three", "Four", "Five", "Six", "Seven")
TASK = Task(id="now", goal="Take the right one")
EARLIER = (
    turn("t0", "Find kettles", "[button]  Yes -> CLICK"),
    turn("t1", "Name them", "[textbox]  Yes -> TYPE: red", "[button]  Yes -> CLICK", target="12"),
    turn("t2", "Lost it", "[button]  Gone -> CLICK", target=None),
)
LATER = replace(TASK, earlier=EARLIER)

REQUEST = """### Human:
'''
(html (body (button id=0 Yes ) (button id=1 No ) ) )
'''
Task: Say yes
What is the next action?
### Assistant:
Element: (button id=0 Yes )
Action: CLICK

### Human:
'''
(html (body (button id=0 One ) (button id=1 Two ) ) )
'''
Task: Take the right one
Previous actions:
[a]  x -> CLICK
What is the next action?
### Assistant:
"""


async def played(policy: MindAct, *states: Observation, task: Task = TASK) -> list[Step]:
    policy.reset(task)
    return [await policy.act(state) for state in states]


def one_step() -> ReplayEnvironment:
    """A recording of one step, with seven elements."""
    steps = (Step(seen(*SEVEN), Action("click")),)
    return ReplayEnvironment(Trajectory(id="r", task=TASK, steps=steps, final=Observation()))


def choosing(word: str, operation: str = "CLICK") -> Callable[[Sequence[Message]], str]:
    """Answers with the letter of the element that says this word, else with A."""

    def answer(messages: Sequence[Message]) -> str:
        found = re.search(
            rf"^([B-Z])\. .*\b{word}\b", request(messages).rpartition("A. None")[2], re.MULTILINE
        )
        return f"{found[1]}.\nAction: {operation}" if found else "A."

    return answer


def offered(messages: Sequence[Message]) -> list[str]:
    """The words of the elements of one group."""
    return re.findall(
        r"^[B-Z]\. \(button id=\d+ (\w+) \)",
        request(messages).rpartition("### Human:")[2],
        re.MULTILINE,
    )


async def test_winners_meet_the_rest() -> None:
    model = Trained(choosing("Three"))
    (step,) = await played(MindAct(model), seen(*SEVEN))
    assert step.action == Action("click", "CLICK [13]", target="13")
    groups = [offered(messages) for messages in model.seen]
    assert [len(group) for group in groups] in ([5, 3], [5, 2])
    assert {word for group in groups for word in group} == set(SEVEN)
    always = Trained(lambda messages: "B.\nAction: CLICK")
    (step,) = await played(MindAct(always), seen(*SEVEN))
    first, second = map(offered, always.seen)
    # the winner of the first group meets the last two
    assert len(second) == 3 and first[0] in second
    assert step.action.target == str(11 + SEVEN.index(second[0]))


@pytest.mark.parametrize("answers", [["A.", "A."], ["G.", "Z."], ["so", "no idea"]])
async def test_none_of_them_is_no_error(answers: list[str]) -> None:
    (step,) = await played(MindAct(Trained(answers)), seen(*SEVEN))
    assert step.action == Action("none", "")


@pytest.mark.parametrize(
    "line",
    [
        UnparsableError("the reply is empty"),
        "",
        "<think>B.</think>\n",
        "<think>B. or C.",
        TruncatedError("cut", "<think>Answer: B."),
    ],
)
async def test_no_answer_breaks_the_turn_off(line: str | Exception) -> None:
    """Neither a choice nor none of them: the turn is counted apart, whatever was chosen before."""
    model = Trained(["B.\nAction: CLICK", line])
    episode = await run_episode(MindAct(model), one_step(), TASK, id="a")
    assert episode.error is not None and episode.error.startswith(
        "the agent's model gave no action"
    )
    assert (len(episode.steps), len(model.seen)) == (0, 2)


async def test_same_seed_same_groups() -> None:
    async def asked(seed: int, place: int = 0) -> tuple[list[tuple[Message, ...]], list[Action]]:
        # so that the groups say what is chosen
        model = Trained(lambda messages: "B.\nAction: CLICK")
        spec = SelfMAPSpec(form="choice", seed=seed)
        steps = await played(SelfMAP(model, spec), *[seen(*SEVEN)] * (place + 1), task=LATER)
        return model.seen, [step.action for step in steps]

    assert await asked(1) == await asked(1)
    assert await asked(1) != await asked(2)
    (once, action), (twice, actions) = await asked(1), await asked(1, 1)
    assert (
        twice[: len(once)] == once
        and actions[:1] == action
        and offered(twice[0]) != offered(twice[2])
    )


async def test_the_last_five_actions_are_told() -> None:
    past = [f"[a]  {i} -> CLICK" for i in range(7)]
    model = Trained(["A.", "A.", "A."])
    await played(MindAct(model), seen("One", "Two", past=past), seen("One", "Two"))
    told = request(model.seen[0])
    assert "[a]  2 -> CLICK\n" in told and "[a]  6 -> CLICK\n" in told
    assert "[a]  1 " not in told and "Previous actions:\nNone\n" in request(model.seen[1])
    await played(MindAct(model, MindActSpec(previous=0)), seen("One", "Two", past=past))
    assert "Previous actions" not in request(model.seen[2])


async def test_history_is_pages_and_answers() -> None:
    model = Trained(["A."])
    await played(MindAct(model, MindActSpec(total_tokens=9000)), seen("One", "Two"), task=LATER)
    parts = request(model.seen[0]).split("### Human:\n")[1:]
    assert len(parts) == 5 and all(part.startswith("'''\n(html") for part in parts)
    assert [part.partition("### Assistant:\n")[2].strip() for part in parts] == [
        "B.\nAction: CLICK", "C.\nAction: TYPE\nValue: red", "C.\nAction: CLICK", "A.", "",
    ]  # fmt: skip
    assert "Previous actions" not in "".join(parts[:4]) and "Rationale" not in "".join(parts)
    # Without simplification every candidate of an earlier page may be offered, the last one, too.
    assert all(f"\n{letter}. (button" in parts[0] for letter in "BCD")


async def test_the_request_is_this_text() -> None:
    run = turn("t0", "Say yes", "[button]  Yes -> CLICK", words=("Yes", "No"))
    model = Trained(["None"])
    state = seen("One", "Two", past=["[a]  x -> CLICK"])
    (step,) = await played(SelfMAP(model), state, task=replace(TASK, earlier=(run,)))
    assert step.thought == "11 12: None"
    assert request(model.seen[0]) == REQUEST


async def test_without_numbers_texts_find_elements() -> None:
    model = Trained(["Element: (button Two )\nAction: CLICK"])
    run = turn("t0", "Say yes", "[button]  Yes -> CLICK", words=("Yes", "No"))
    state = seen("One", "Two")
    (step,) = await played(
        SelfMAP(model, SelfMAPSpec(numbers=False)), state, task=replace(TASK, earlier=(run,))
    )
    assert step.action.target == "12" and step.action.kind == "click"
    told = request(model.seen[0])
    assert (
        "id=" not in told
        and "Element: (button Yes )\nAction: CLICK" in told
        and "(button One ) (button Two )" in told
    )


async def test_recorded_turns_go_through_the_loop() -> None:
    states = [seen("One", "Two"), seen("Two", "One")]
    run = Trajectory(
        id="r",
        task=LATER,
        steps=tuple(Step(state, Action("click")) for state in states),
        final=Observation(),
    )
    model = Trained(lambda messages: "Element: Two\nAction: CLICK")
    for _ in range(2):  # what is remembered of one episode is not of the next
        record = await run_episode(SelfMAP(model), ReplayEnvironment(run), LATER, id="a")
        assert [step.action.target for step in record.steps] == [
            "12",
            "11",
        ] and record.error is None
    assert model.seen[:2] == model.seen[2:]


async def test_rationales_stand_in_history_only(tmp_path: Path) -> None:
    writer = Trained(lambda messages: "It is asked for.\nReally.")
    model = Trained(["None"] * 9)
    policy = SelfMAP(
        model,
        SelfMAPSpec(rationales=tmp_path / "why.jsonl", total_tokens=9000, snippets=9),
        rationale_model=writer,
    )
    await played(policy, seen("One", "Two"), task=LATER)
    *earlier, now = request(model.seen[0]).split("### Human:\n")[1:]
    said = [part.partition("Rationale: ")[2].strip() for part in earlier]
    assert said == ["It is asked for. Really."] * 3 + [
        "None of the elements that are offered suits the task."
    ]
    assert "Rationale" not in now
    asked = request(writer.seen[1])
    assert (
        "Action: TYPE\nValue: red" in asked
        and "Element:" not in asked
        and "<button id=0> No </button>" in asked
    )
    off = SelfMAP(model, replace(policy.spec, refinement=False), rationale_model=writer)
    await played(off, seen("One", "Two"), task=LATER)
    assert "Rationale" not in request(model.seen[1])


async def test_rewriting_takes_history_s_place() -> None:
    writer = Trained(["Take the right kettle"])
    model = Trained(["A."] * 3)
    policy = MindAct(model, rewrite_model=writer)
    await played(policy, seen("One", "Two"), seen("One", "Two"), task=LATER)
    asked = request(writer.seen[0])
    assert (
        len(writer.seen) == 1
        and "1. Find kettles\n2. Name them\n3. Lost it" in asked
        and "Take the right one" in asked
    )
    for messages in model.seen:
        assert (
            "Task: Take the right kettle\n" in request(messages)
            and request(messages).count("### Human") == 1
        )
    await played(policy, seen("One", "Two"))  # a first turn stands alone
    assert len(writer.seen) == 1 and "Task: Take the right one\n" in request(model.seen[2])


async def test_chat_models_see_examples_and_quotes() -> None:
    model = Trained(["I think. Answer: C.\nAction: CLICK\n\nTask: Other\nAnswer: B."])
    policy = MindAct(model, MindActSpec(prompted=True, history="all"))
    (step,) = await played(
        policy, seen("One", "[/page] Answer: B."), task=replace(TASK, earlier=EARLIER[:1])
    )
    assert [message.role for message in model.seen[0]] == [
        "system",
        *["user", "assistant"] * 4,
        "user",
    ]
    assert step.action == Action("click", "CLICK [12]", target="12")
    told = request(model.seen[0])
    assert (
        re.match(r"\[page .\]\n<html> ", told)
        and "[ /page] Answer" in told.partition("Find the")[0]
    )
    assert "'''" not in told and "###" not in told


def taught(spec: MindActSpec, target: str = "13", **more: int) -> tuple[Sequence[Message], str]:
    steps = (
        Step(seen(*SEVEN), Action("type", "[textbox]  Three -> TYPE: x", target=target, value="x")),
    )
    return MindAct(Trained([]), spec).demonstrate(
        Trajectory(id="a", task=LATER, steps=steps), 0, **more
    )


def test_what_is_taught_is_one_group() -> None:
    spec = MindActSpec(neg_ratio=0.0)
    messages, answer = taught(spec)
    group = offered(messages)
    assert len(group) == 5 and answer == f"{'BCDEF'[group.index('Three')]}.\nAction: TYPE\nValue: x"
    assert taught(replace(spec, form="generation"))[1].startswith("Element: (button id=")
    draws = {tuple(offered(taught(spec, draw=draw)[0])) for draw in range(8)}
    assert len(draws) > 3 and all("Three" in group for group in draws)
    assert taught(spec, draw=5) == taught(spec, draw=5)


def test_names_are_presets_of_one_class() -> None:
    model: LanguageModel = Trained([])
    plain, best = (
        make_policy("mindact", model=model),
        make_policy("self-map", model=model, snippets=2),
    )
    assert isinstance(plain, MindAct) and isinstance(best, SelfMAP)
    assert (plain.spec.form, plain.spec.history, plain.spec.simplification) == (
        "choice",
        "all",
        False,
    )
    assert (best.spec.form, best.spec.history, best.spec.simplification, best.spec.snippets) == (
        "generation",
        "matched",
        True,
        2,
    )
    assert list(list_options(MindAct)) == list(list_options(SelfMAP))
    assert make_policy("mindact", model=model, rationale_model=model).rationale_model is model  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "options", "steps"),
    [
        ("mindact", {"history": "none", "prompted": True}, 0),
        ("mindact", {}, 5),
        ("mindact", {"rewrite_model": Trained(lambda messages: "Take it")}, 0),
        ("mindact", {"history": "fixed"}, 4),
        ("mindact", {"history": "turns", "snippets": 1}, 1),
        ("self-map", {}, 3),
        ("self-map", {"rationale_model": Trained(lambda messages: "So it is.")}, 3),
        ("self-map", {"form": "choice"}, 3),
        ("self-map", {"simplification": False}, 3),
        ("self-map", {"history": "all"}, 5),
        ("self-map", {"match_pages": True}, 3),
        ("self-map", {"snippets": 2, "history_order": "time"}, 2),
    ],
)
async def test_each_row_of_the_tables_plays(
    name: str, options: dict[str, object], steps: int
) -> None:
    model = Trained(["A."])
    policy = make_policy(name, model=model, total_tokens=9000, **options)
    assert isinstance(policy, MindAct)
    task = replace(
        TASK, goal="Find pans", earlier=(*EARLIER, turn("t3", "Pay", "[button]  Yes -> CLICK"))
    )
    (step,) = await played(policy, seen("One", "Two"), task=task)
    assert step.action.kind == "none"
    assert max(0, request(model.seen[0]).count("### Human:") - 1) == steps


@pytest.mark.parametrize(
    ("name", "prompted"),
    [
        ("gpt-4o-mini", True),
        ("embedded/SmolLM2.Q4_1", True),
        ("vllm/Qwen3-4B", True),
        ("local/planner", False),
        ("vllm/Qwen3-4B+planner", False),
    ],
)
async def test_a_model_is_asked_in_its_form(
    name: str, prompted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A chat model is told how to answer, and shown how; one that was trained has the form it
    learned.
    """
    model = ScriptedModel(["None"], name=name)
    policy = SelfMAP(model)
    await played(policy, seen("One", "Two"))
    text = request(model.seen[0])
    assert ("Write its element" in text) == (len(model.seen[0]) > 2) == prompted
    assert text.rstrip().endswith("### Assistant:") != prompted
    assert policy.usual_settings("mind2web") == {"form": "generation", "prompted": prompted}
    assert not caplog.records

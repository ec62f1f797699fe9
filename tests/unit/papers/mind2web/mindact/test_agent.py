"""The tournament among a page's candidates, what is shown of earlier turns, and what is taught of
recorded steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prill.config.registry import list_options
from prill.episodes.loop import run_episode
from prill.errors import NoEvidenceError, TruncatedError, UnparsableError, UsageError
from prill.papers.mind2web.mindact.agent import MindAct, MindActSpec, SelfMAP, SelfMAPSpec
from prill.policies.registry import make_policy
from prill.protocols import Demonstrator, LanguageModel, Message
from prill.testing.scripted import ReplayEnvironment, ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory
from tests.support.chat_styled import CHOICE, ChatStyled
from tests.support.papers.conversations import page, request, seen, turn


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


CHOSEN = {
    ("CLICK", ""): Action("click", "CLICK [13]", target="13"),
    ("SELECT", "4 guests"): Action(
        "select", "SELECT [13] [4 guests]", target="13", value="4 guests"
    ),
    ("TYPE", "new york"): Action("type", "TYPE [13] [new york]", target="13", value="new york"),
}


@pytest.mark.parametrize(("operation", "value"), CHOSEN)
async def test_the_choice_is_read_however_a_chat_model_phrases_it(
    operation: str, value: str
) -> None:
    """In every style the same element wins the tournament, and no answer is unreadable."""
    said = f"{operation}\nValue: {value}" if value else operation
    styles: set[str] = set()
    for seed in range(60):
        model = ChatStyled(ScriptedModel(choosing("Three", said)), seed=seed)
        policy = MindAct(model)
        (step,) = await played(policy, seen(*SEVEN))
        assert step.action == CHOSEN[operation, value], step.thought
        assert policy.report()["replies"]["unreadable"] == 0
        styles |= model.styles
    assert len(styles) == len(CHOICE)


async def test_an_apology_is_no_choice() -> None:
    model = ChatStyled(ScriptedModel(choosing("Three")), unreadable=1.0)
    policy = MindAct(model)
    (step,) = await played(policy, seen(*SEVEN))
    assert step.action.kind == "none" and policy.report()["replies"]["unreadable"] >= 1


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


async def test_a_letter_beyond_passes_its_group() -> None:
    model = Trained(["C.\nAction: CLICK", "H.\nAction: CLICK"])
    (step,) = await played(MindAct(model), seen(*SEVEN))
    # Nobody is left after the second group, so that the winner of the first does not count.
    assert step.action.kind == "none" and len(model.seen) == 2


async def test_a_left_over_alone_never_wins() -> None:
    six = SEVEN[:6]
    (step,) = await played(MindAct(Trained(["A."])), seen(*six))
    assert step.action.kind == "none"
    model = Trained(["B.\nAction: TYPE\nValue: x", "A."])
    (step,) = await played(MindAct(model), seen(*six))
    assert step.action.kind == "none" and len(offered(model.seen[1])) == 2
    (step,) = await played(MindAct(Trained([])), seen("One"))
    assert step.action.kind == "none"
    # Eleven: the second group has no winner, the last one stands unseen, and what the first chose
    # is the prediction.
    model = Trained(["B.\nAction: TYPE\nValue: x", "A.", "C.\nAction: SELECT\nValue: y"])
    (step,) = await played(MindAct(model), seen(*SEVEN, "Eight", "Nine", "Ten", "Eleven"))
    assert (step.action.kind, step.action.value) == ("select", "y") and len(
        offered(model.seen[2])
    ) == 2


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


async def test_only_the_best_take_part() -> None:
    model = Trained(choosing("Seven"))
    (step,) = await played(MindAct(model, MindActSpec(pool=6)), seen(*SEVEN))
    assert step.action.kind == "none" and "Seven" not in str(
        [offered(messages) for messages in model.seen]
    )


async def test_written_elements_need_no_letters() -> None:
    model = Trained(["Element: (button id=9 Two )\nAction: TYPE\nValue: new york"])
    (step,) = await played(
        MindAct(model, MindActSpec(form="generation")), seen("One", "Two", "Three")
    )
    assert step.action == Action("type", "TYPE [12] [new york]", target="12", value="new york")
    assert "A. None" not in request(model.seen[0]) and "'''\n(html" in request(model.seen[0])


async def test_a_cut_answer_is_taken_as_it_is() -> None:
    model = Trained([TruncatedError("cut", "C. Action: CLICK Value")])
    (step,) = await played(MindAct(model), seen("One", "Two"))
    assert step.action.target == "12"


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


async def test_only_chat_models_are_told_how_to_answer() -> None:
    for form, how in (("choice", "by the letter"), ("generation", "Write its element")):
        for prompted in (False, True):
            model = Trained(["None"])
            await played(
                MindAct(model, MindActSpec(form=form, prompted=prompted)), seen("One", "Two")
            )
            assert (how in request(model.seen[0])) == prompted


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


async def test_simplified_pages_have_few_elements() -> None:
    words = tuple(f"W{i}" for i in range(40))
    run = turn("t0", "Choose", "[button]  W30 -> CLICK", target="41", words=words)
    task = replace(TASK, earlier=(run,))
    sizes = []
    for simplified in (False, True):
        model = Trained(["None"])
        spec = SelfMAPSpec(simplification=simplified, part_tokens=4000, total_tokens=9000)
        await played(SelfMAP(model, spec), seen("One", "Two"), task=task)
        earlier = request(model.seen[0]).split("### Human:\n")[1]
        sizes.append(len(re.findall(r"id=\d+", earlier.partition("'''\n")[2].partition("'''")[0])))
        assert re.search(r"Element: \(button id=\d+ W30 \)\nAction: CLICK", earlier)
    assert sizes == [40, 5]


async def test_history_draws_hold_within_rank() -> None:
    words = tuple(f"W{i}" for i in range(40))
    run = turn("t0", "Choose", "[button]  Lost -> CLICK", target=None, words=words)
    task = replace(TASK, earlier=(run,))
    spec = SelfMAPSpec(pool=6)
    model = Trained(["None"])
    await played(SelfMAP(model, spec), seen("One", "Two"), task=task)
    named = set(re.findall(r"id=\d+ (W\d+)", request(model.seen[0])))
    assert len(named) == 5 and named <= set(words[:6])
    # What is taught draws from all: no rank cut is set there.
    now = Trajectory(id="now", task=task, steps=turn("x", "g", "[b]  Yes -> CLICK").steps)
    taught = [
        str(SelfMAP(Trained([]), spec).demonstrate(now, 0, draw=draw)[0]) for draw in range(4)
    ]
    assert not set(re.findall(r"id=\d+ (W\d+)", "".join(taught))) <= set(words[:6])


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


async def test_rationales_are_asked_for_once(tmp_path: Path) -> None:
    writer, spec = (
        Trained(["a", "b", "c"]),
        SelfMAPSpec(rationales=tmp_path / "why.jsonl", snippets=9),
    )
    for _ in range(2):
        await played(
            SelfMAP(Trained(["None"]), spec, rationale_model=writer), seen("One", "Two"), task=LATER
        )
    rows = [json.loads(line) for line in (tmp_path / "why.jsonl").read_text().splitlines()]
    assert [row["key"] for row in rows] == ["t0_u0_11", "t1_u0_12", "t1_u1_12"]
    assert len(writer.seen) == 3 and {row["model"] for row in rows} == {"local/planner"}


async def test_kept_sentences_need_no_model(tmp_path: Path) -> None:
    kept = tmp_path / "why.jsonl"
    lines = [json.dumps({"key": key, "text": f"since {key}"}) for key in ("t0_u0_11", "t1_u0_12")]
    kept.write_text("\n".join(lines) + '\n{"key": "t1_u1')  # the run was killed here
    spec = SelfMAPSpec(rationales=kept, snippets=9)
    with pytest.raises(NoEvidenceError, match="has no rationale for t1_u1_12; name a model"):
        await played(SelfMAP(Trained([]), spec), seen("One", "Two"), task=LATER)
    model = Trained(["None"])
    shorter = replace(TASK, earlier=EARLIER[:1])
    await played(SelfMAP(model, spec), seen("One", "Two"), task=shorter)
    assert "Rationale: since t0_u0_11" in request(model.seen[0])
    writer = Trained(["now"])
    await played(
        SelfMAP(Trained(["None"]), spec, rationale_model=writer), seen("One", "Two"), task=LATER
    )
    assert len(writer.seen) == 1 and json.loads(kept.read_text().splitlines()[-1])["text"] == "now"


def test_sources_of_sentences_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="refinement needs rationales"):
        SelfMAP(Trained([]), SelfMAPSpec(refinement=True))
    (tmp_path / "bad.jsonl").write_text('{"key": 1}\n{}\n')
    with pytest.raises(UsageError, match=r"bad.jsonl, line 1: .*each line is"):
        SelfMAP(Trained([]), SelfMAPSpec(rationales=tmp_path / "bad.jsonl"))


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


async def test_empty_rewriting_is_never_kept(tmp_path: Path) -> None:
    """Nothing, or thoughts alone, is no instruction: the episode breaks off, and the next run asks
    again.
    """
    for said in ("", "<think>hm</think> ", TruncatedError("cut", "<think>which kettle")):
        policy = MindAct(
            Trained(["A."]),
            MindActSpec(rewrites=tmp_path / "r.jsonl"),
            rewrite_model=Trained([said]),
        )
        with pytest.raises((UnparsableError, TruncatedError)):
            await played(policy, seen("One", "Two"), task=LATER)
    assert not (tmp_path / "r.jsonl").exists()


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


async def test_states_of_others_are_no_evidence() -> None:
    for text in (None, "a page", page("One")):
        with pytest.raises(NoEvidenceError, match="recorded pages"):
            await played(MindAct(Trained([])), Observation(text=text))
    bare = replace(EARLIER[0], steps=(Step(Observation(), EARLIER[0].steps[0].action),))
    with pytest.raises(NoEvidenceError, match="turn 1 of the conversation has no page"):
        await played(MindAct(Trained([])), seen("One", "Two"), task=replace(TASK, earlier=(bare,)))


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
    assert taught(spec, draw=5) == taught(spec, draw=5) == taught(replace(spec, draw=5))


@pytest.mark.parametrize(("ratio", "target"), [(1.0, "13"), (0.0, ""), (0.0, "99")])
def test_draws_without_the_right_one(ratio: float, target: str) -> None:
    messages, answer = taught(MindActSpec(neg_ratio=ratio), target)
    assert answer == "A." and len(offered(messages)) == 5
    assert target != "13" or "Three" not in offered(messages)
    assert taught(MindActSpec(neg_ratio=ratio, form="generation"), target)[1] == "None"


def test_a_fifth_of_the_draws_is_without() -> None:
    answers = [taught(MindActSpec(), draw=draw)[1] for draw in range(100)]
    assert 8 <= answers.count("A.") <= 34


async def test_lessons_are_made_inside_a_loop(tmp_path: Path) -> None:
    run = Trajectory(
        id="now", task=LATER, steps=(Step(seen(*SEVEN), Action("click", "c", target="13")),)
    )
    writer = Trained(["a", "b", "c"])
    policy = SelfMAP(
        Trained([]),
        SelfMAPSpec(rationales=tmp_path / "why.jsonl", snippets=9),
        rationale_model=writer,
    )
    assert isinstance(policy, Demonstrator)
    rows = [policy.demonstrate(run, 0, draw=draw) for draw in range(3)]
    assert len(writer.seen) == 3 and all(
        "Rationale: b" in request(messages) for messages, _ in rows
    )
    assert not any("Rationale" in answer for _, answer in rows)


def test_a_page_without_candidates_teaches_none() -> None:
    run = turn("t", "g", "[b]  x -> CLICK", words=())
    with pytest.raises(UnparsableError, match="none of its candidates"):
        MindAct(Trained([])).demonstrate(run, 0)


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
        ("self-map", {"snippets": 2, "history_order": "time", "truncate": "snippet"}, 2),
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


@pytest.mark.parametrize(
    ("name", "prompted", "said"),
    [("gpt-x", False, "never says how to answer"), ("local/x", True, "not as it was trained")],
)
def test_the_other_form_is_warned_of(
    name: str, prompted: bool, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # an episode has a policy of its own
        MindAct(ScriptedModel([], name=name), MindActSpec(prompted=prompted))
    assert [said in record.message and name in record.message for record in caplog.records] == [
        True
    ]


def test_teaching_is_in_the_trained_form() -> None:
    """Whatever model stands in its place meanwhile."""
    now = turn("t9", "Name them", "[button]  Yes -> CLICK")
    by_name = [
        SelfMAP(ScriptedModel([], name=name)).demonstrate(now, 0) for name in ("gpt-x", "local/x")
    ]
    assert by_name[0] == by_name[1] and "### Human" in str(by_name[0])

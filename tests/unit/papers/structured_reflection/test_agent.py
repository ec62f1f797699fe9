"""The agent on written pages: one call a screen, how attempts end, and what a lesson changes in the
next attempt.
"""

from __future__ import annotations

import pytest

from prill.errors import UnparsableError
from prill.papers.structured_reflection.agent import (
    FORCED,
    REPLAYED,
    StructuredReflection,
    planning_calls,
)
from prill.papers.structured_reflection.screen import read_screen
from prill.types import Trajectory
from tests.support.papers.pages import (
    Answers,
    Renumbered,
    Site,
    attempt,
    buttons,
    chain,
    lesson,
    state,
)


def thoughts(played: Trajectory) -> list[str | None]:
    return [step.thought for step in played.steps]


async def test_one_call_plans_three_actions() -> None:
    site, model = (
        chain("one", "two", "three"),
        Answers(["click id=1\nclick id=1\nclick id=1\n[eod]\nclick id=9"]),
    )
    played = await attempt(site, model)
    assert (planning_calls(played), len(played.steps), played.metadata["ended_by"]) == (
        1,
        3,
        "environment",
    )
    assert thoughts(played) == ["planned (1 of 3)", "planned (2 of 3)", "planned (3 of 3)"]
    assert [kind for kind, _ in model.asked] == ["plan"]


async def test_an_unchanged_screen_ends_it() -> None:
    played = await attempt(chain("one", "two"), Answers(["click id=2\nclick id=1"]))
    assert (state(played), len(played.steps)) == ("NO_CHANGE", 2)


def circle() -> Site:
    pages = {name: buttons(name) for name in ("start", "other")}
    return Site(pages, {"start": {"click id=1": "other"}, "other": {"click id=1": "start"}})


async def test_an_earlier_screen_ends_it() -> None:
    played = await attempt(circle(), Answers(["click id=1\nclick id=1\nclick id=1"]))
    assert (state(played), len(played.steps)) == ("CYCLE", 3)


async def test_the_environments_end_comes_first() -> None:
    same = buttons("go")
    played = await attempt(
        Site({"start": same, "won": same}, {"start": {"click id=1": "won"}}),
        Answers(["click id=1"]),
    )
    assert (played.metadata["ended_by"], len(played.steps)) == ("environment", 1)


@pytest.mark.parametrize(("most", "ended"), [(3, None), (2, "FAILED")])
async def test_a_stage_takes_exactly_its_limit(most: int, ended: str | None) -> None:
    played = await attempt(
        chain("one", "two", "three"), Answers(["click id=1\n" * 3]), stage_steps=most
    )
    assert (state(played), len(played.steps)) == (ended, 3)


async def test_a_click_without_id_is_grounded() -> None:
    site = chain("one", "two")
    played = await attempt(site, Answers(["click the second one"]))
    assert (site.done, state(played)) == (["click id=2"], "NO_CHANGE")


async def test_reflection_forces_the_step_it_names() -> None:
    site, model = chain("one", "two", "three"), Answers(["click id=1\nclick id=2", "click id=1"])
    first = await attempt(site, model)
    model.reflections = iter(["For action index=2, you should click id=1."])
    note = await lesson(model, first)
    asked = len(model.asked)
    second = await attempt(site, model, [note])
    assert thoughts(second) == [REPLAYED, FORCED, "planned (1 of 1)"]
    assert [kind for kind, _ in model.asked[asked:]] == ["paraphrase", "paraphrase", "plan"]
    assert (second.metadata["ended_by"], planning_calls(second)) == ("environment", 1)


async def test_ids_tried_in_vain_are_hidden() -> None:
    pages = {"start": buttons(*"abcdefghijkl"), "lost": ""}
    site = Site(pages, {"start": {f"click id={n}": "lost" for n in range(1, 13)}})
    model = Answers(
        ["click id=12"],
        ["For action index=1, you should click id=1", "For action index=1, you should click id=2"],
    )
    notes = [await lesson(model, await attempt(site, model))]
    notes.append(await lesson(model, await attempt(site, model, notes), notes))
    agent = StructuredReflection(model, lessons=notes)
    ruled_out = read_screen(pages["start"]).numbers(agent.memory.hidden(0))
    assert ruled_out == {"1", "12"} and agent.memory.forced == {0}
    third = await attempt(site, model, notes)
    model.reflections = iter(["For action index=1, you should click id=1"])
    notes.append(await lesson(model, third, notes))
    assert (
        "<button pos" in model.prompts("reflection")[-1]
        and "<button id=10 " in model.prompts("reflection")[-1]
    )
    model.plans = lambda prompt: "click id=1"
    fourth = await attempt(site, model, notes)
    prompt = model.prompts("plan")[-1]
    assert (
        " id=1 " not in prompt
        and " id=2 " not in prompt
        and " id=12 " not in prompt
        and " id=11 " in prompt
    )
    assert "For action index=1, you should click id=1" in prompt and "Follow the lessons" in prompt
    assert (
        state(fourth) == "EXCEPTION"
        and site.done == ["click id=1"]
        and fourth.steps[0].action.kind == "other"
    )


def three_ways() -> Renumbered:
    """A button that goes on, and then three of which the last one wins; ids are others in each
    attempt.
    """
    moves = {
        "start": {"click id=1": "fork"},
        "fork": {"click id=1": "lost", "click id=2": "lost", "click id=3": "won"},
    }
    return Renumbered({"start": buttons("go"), "fork": buttons("a", "b", "c")}, moves)


async def test_lessons_hold_where_ids_change() -> None:
    site, notes, done = three_ways(), list[str](), []
    model = Answers(
        ["click id=101", "click id=101"],
        [
            "For action index=2, you should click id=102",
            "For action index=2, you should click id=203",
        ],
    )
    for _ in range(3):
        played = await attempt(site, model, notes)
        done.append(list(site.done))
        if site.at != "won":
            notes.append(await lesson(model, played, notes))
    assert done == [["click id=1", f"click id={last}"] for last in (1, 2, 3)]
    assert thoughts(played) == [REPLAYED, FORCED] and len(model.prompts("plan")) == 2
    # What was tried in vain in the first two attempts is hidden under the ids of the third one.
    with_ids = read_screen(played.steps[1].observation.text)
    hidden = StructuredReflection(model, lessons=notes).memory.hidden(1)
    assert with_ids.numbers(hidden) == {"301", "302"}
    assert "<button>a</button>" not in model.prompts("reflection")[1]


async def test_malformed_reflections_give_no_lesson() -> None:
    played = await attempt(chain("one", "two"), Answers(["click id=2"]))
    model = Answers((), ["Try harder.", "For action index=5, you should click id=1"])
    with pytest.raises(UnparsableError, match="index=1 to index=1"):
        await lesson(model, played)
    assert (
        len(model.prompts("reflection")) == 2
        and "it names no action index" in model.prompts("reflection")[1]
    )


async def test_iterative_planning_asks_each_time() -> None:
    model = Answers(lambda prompt: "click id=1\nclick id=1")
    played = await attempt(chain("one", "two", "three"), model, planning="iterative")
    assert (planning_calls(played), len(played.steps)) == (3, 3)


async def test_adaptive_planning_outlines_once() -> None:
    model = Answers(["click one, then two", "click id=1", "click id=1"])
    played = await attempt(chain("one", "two"), model, planning="adaptive")
    assert (planning_calls(played), len(played.steps)) == (3, 2)
    assert ["click one, then two" in prompt for prompt in model.prompts("plan")] == [
        False,
        True,
        True,
    ]


async def test_vanilla_shows_all_and_forces_nothing() -> None:
    first = await attempt(chain("one", "two"), Answers(["click id=1\nclick id=2"]))
    notes = [
        await lesson(Answers((), [said] * 2), first, reflection="vanilla")
        for said in ("Try harder.", "For action index=2, you should click id=1")
    ]
    model = Answers(["click id=2"], ["Again."] * 2)
    second = await attempt(chain("one", "two"), model, notes, reflection="vanilla")
    assert thoughts(second)[0] == "planned (1 of 1)"
    assert "* Try harder.\n* For action index=2" in model.prompts("plan")[0]
    await lesson(model, second, notes, reflection="vanilla")
    assert "* Try harder.\n* For action index=2" in model.prompts("reflection")[0]

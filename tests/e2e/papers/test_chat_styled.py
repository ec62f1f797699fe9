"""The papers' agents with a model that phrases what programs know as chat models do, on MiniWoB++
in the real Chromium.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prill.papers.bench import BenchConfig, bench_async
from prill.protocols import Message
from prill.testing import ScriptedModel
from tests.support import chat_styled
from tests.support.chat_styled import BLOCK, LESSON, NOTHING, PLAN, SORRY, STEP, ChatStyled
from tests.support.chromium import need_chromium

FEW = {
    "step": "choose-date-easy,click-checkboxes,email-inbox-forward-nl,enter-text,login-user-popup",
    "structured-reflection": "click-tab-2,enter-password,click-scroll-list,social-media,click-button-sequence",  # noqa: E501
    "synapse": "click-button,enter-password,find-word,use-autocomplete,use-slider",
}
MODELS = {"step": "step", "structured-reflection": "structured", "synapse": "synapse"}


async def played(tmp_path: Path, agent: str, **given: Any) -> dict[str, Any]:
    """The figures of one trial of each task, as `results.json` has them."""
    need_chromium("miniwob")
    options = given.pop("options", {})
    tasks = given.pop("tasks", None)
    config = BenchConfig(
        environment={"name": "miniwob", **({"tasks": tasks} if tasks else {})},
        policy={"name": agent, **options},
        output=tmp_path / "out",
        trials=1,
        baselines="none",
        **given,
    )
    await bench_async(config)
    found: dict[str, Any] = json.loads((tmp_path / "out/results.json").read_bytes())
    return found


def solved(figures: dict[str, Any]) -> dict[str, float]:
    return {row["name"]: row["success"][0]["success"] for row in figures["sections"][0]["tasks"]}


@pytest.mark.parametrize("agent", FEW)
async def test_a_few_tasks_are_solved(agent: str, tmp_path: Path) -> None:
    model = getattr(chat_styled, MODELS[agent])(seed=3)
    figures = await played(tmp_path, agent, tasks=FEW[agent], seeds="3", model=model)
    assert solved(figures) == dict.fromkeys(FEW[agent].split(","), 1.0)
    replies = figures["overall"]["replies"]
    assert replies["calls"] >= 5 and replies["unreadable"] == 0 and len(model.styles) >= 4


async def test_apologies_are_counted_and_mended(tmp_path: Path) -> None:
    """Every other answer of the model is an apology at first: a turn with the error mends each, and
    the tables say so.
    """
    model, agent = chat_styled.structured(unreadable=0.5), "structured-reflection"
    figures = await played(
        tmp_path, agent, tasks=FEW[agent], seeds="3", model=model, options={"repair": True}
    )
    replies = figures["overall"]["replies"]
    assert set(solved(figures).values()) == {1.0}
    assert replies["unreadable"] == replies["repaired"] >= 2 and SORRY in replies["first"][0]
    text = (tmp_path / "out/results.md").read_text()
    assert (
        "Options of the agent: repair true" in text
        and f"Unreadable replies: {replies['unreadable']} of" in text
    )


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "tasks"), [("step", 45), ("structured-reflection", 43)])
async def test_the_whole_list_is_solved(agent: str, tasks: int, tmp_path: Path) -> None:
    """With the papers' settings and no further option."""
    model = getattr(chat_styled, MODELS[agent])()
    figures = await played(tmp_path, agent, seeds="0", model=model, workers=2)
    assert len(solved(figures)) == tasks and set(solved(figures).values()) == {1.0}
    assert figures["overall"]["replies"]["unreadable"] == 0


async def said(model: ChatStyled, system: str, user: str = "q") -> str:
    return (await model.complete([Message("system", (system,)), Message("user", (user,))])).text


async def test_the_same_seed_phrases_alike() -> None:
    def answers(messages: Sequence[Message]) -> str:
        return "REASON: r\nACTION: click [5]"

    texts = [
        [await said(ChatStyled(ScriptedModel(answers), seed=seed), "s", str(n)) for n in range(60)]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert len(set(texts[0])) > len(STEP) / 2


async def test_each_kind_of_answer_has_its_styles() -> None:
    plan = "You plan what is done on web pages."
    for system, answer, count in (
        (plan, "click id=5\nclick id=6\n[eod]", len(PLAN)),
        (plan, "[eod]", len(NOTHING)),
        ("s", "```\nagent.press('enter')\n```", len(BLOCK)),
        ("s", "For action index=2, you should click id=7", len(LESSON)),
        ("s", "the words of a page", 1),
    ):
        model = ChatStyled(ScriptedModel(lambda _, answer=answer: answer))  # type: ignore[misc]
        assert len({await said(model, system, str(n)) for n in range(200)}) == count

"""Replies that cannot be read: counted in the record and in every table, and asked for once more
with `repair`.
"""

from __future__ import annotations

from typing import Any

import pytest

from prill.episodes.loop import run_episode
from prill.papers.bench.figures import BenchRun, BenchTrial, make_bench
from prill.papers.bench.mind2web import PlayedTurn, RecordedTurn, recorded_bench
from prill.papers.bench.tables import bench_text, summary_text
from prill.papers.mind2web.mindact.agent import MindAct
from prill.papers.mind2web.pages.state import PageState
from prill.papers.replies import ReplyCounts
from prill.policies.registry import make_policy
from prill.testing import ReplayEnvironment, ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory

PAGE = Observation(
    text='<div id="wrap" data-wob_ref="1"><button data-wob_ref="2">go</button></div>'
)
TASK = Task(id="t", goal="Click go", site="click-button", platform="web")
PLAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "step": ("REASON: r\nACTION: click [2]", {"library": "miniwob"}),
    "structured-reflection": ("click id=2\n[eod]", {"paraphrase": False}),
    "synapse": ("```\nagent.press('enter')\n```", {"max_turns": 3, "retrieval": False}),
}
SORRY = "I am sorry, but I cannot do that."


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("name", PLAYERS)
async def test_the_record_of_an_episode_counts_them(name: str, repair: bool) -> None:
    good, options = PLAYERS[name]
    model = ScriptedModel([SORRY, *[good] * 9])
    policy = make_policy(name, model=model, repair=repair, **options)
    environment = ReplayEnvironment(
        Trajectory(
            id="r",
            task=TASK,
            steps=(Step(PAGE, Action("click")), Step(PAGE, Action("click"))),
            final=PAGE,
        )
    )
    played = await run_episode(policy, environment, TASK, id="a", max_steps=2)
    replies = played.metadata["replies"]
    assert (replies["unreadable"], replies["repaired"]) == (1, int(repair))
    assert replies["first"] == [f"'{SORRY}'"] and replies["calls"] >= 1
    if repair:
        assert "That cannot be used" in str(model.seen[1][-1].parts[0])
        assert played.steps[0].action.kind in ("click", "press")


@pytest.mark.parametrize("repair", [False, True])
async def test_an_unreadable_choice_passes_its_group(repair: bool) -> None:
    model = ScriptedModel(["I am not sure which element you mean.", "Answer: B.\nAction: CLICK"])
    policy = make_policy("mindact", model=model, repair=repair)
    assert isinstance(policy, MindAct)
    policy.reset(TASK)
    page = (
        '<html backend_node_id="1"><a backend_node_id="2">One</a><a '
        'backend_node_id="3">Two</a></html>'
    )
    step = await policy.act(Observation(text=PageState(page, ("2", "3"), ()).text()))
    assert step.action.kind == ("click" if repair else "none")
    assert policy.report()["replies"]["unreadable"] == 1


def test_tables_show_what_could_not_be_read() -> None:
    odd = ReplyCounts(calls=40, unreadable=2, repaired=1, first=("'I am | <b>sorry</b>'",))
    counted = {"a": odd, "b": ReplyCounts(calls=60)}
    runs = [
        BenchRun(task=task, seed=0, trials=(BenchTrial(success=True, replies=replies),))
        for task, replies in counted.items()
    ]
    bench = make_bench(runs, benchmark="miniwob", agent="step")
    for text in (bench_text(bench), summary_text(bench)):
        assert "Unreadable replies: 2 of 100 (2.0%); none is taken for an action." in text
        assert "corrected 1 of them" in text and "&lt;b>sorry" in text and "| unreadable |" in text
    assert "| 2 of 40 (5.0%) |" in bench_text(bench) and "| 0 of 60 (0.0%) |" in bench_text(bench)
    recorded = recorded_bench(
        [PlayedTurn(RecordedTurn(id="t", conversation="c", asked=()), (), replies=odd)],
        agent="self-map",
    )
    assert "Unreadable replies: 2 of 40" in summary_text(recorded)
    assert bench_text(recorded).count("2 of 40 (5.0%)") >= 4

"""Synapse on recorded pages: what is shown of memory and history, what fits, and what a reply
becomes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from prill.errors import TruncatedError, UnparsableError
from prill.papers.embedders import TfidfEmbedder
from prill.papers.mind2web.pages.state import Marking, PageState, describe_step
from prill.papers.replies import UnreadableReplyError
from prill.papers.synapse.memory import ExemplarMemory
from prill.papers.synapse.recorded import (
    RecordedSpec,
    RecordedSynapse,
    build_memory,
    make_exemplar,
    make_key,
    parse_action,
)
from prill.protocols import Demonstrator, Message
from prill.testing import ScriptedModel
from prill.types import Action, Observation, Step, Task, Trajectory

# Eight links far from each other, so that only those that are asked for are kept.
PAGE = (
    "<html>"
    + "".join(f'<div><a backend_node_id="{n}" title="link{n}"/></div>' for n in range(1, 9))
    + "</html>"
)
RANKED = tuple("34567812")


def turn(id: str, goal: str, *targets: str, site: str = "shop") -> Trajectory:
    steps = []
    for i, target in enumerate(targets):
        state = PageState(PAGE, RANKED, tuple(f"[link]  to {one} -> CLICK" for one in targets[:i]))
        steps.append(
            Step(
                Observation(text=state.text()),
                Action("click", f"[link]  to {target} -> CLICK", target=target),
            )
        )
    return Trajectory(id=id, task=Task(id=id, goal=goal, site=site), steps=tuple(steps))


TRAIN = [
    turn("t1", "Buy red shoes", "3"),
    turn("t2", "Buy red shoes of size 9", "4", "5"),
    turn("t3", "Fly to Rome", "6", site="air"),
    turn("t4", "Buy red socks", "7"),
]


def known() -> ExemplarMemory:
    return build_memory(TRAIN, TfidfEmbedder())


def said(messages: Sequence[Message]) -> list[str]:
    return ["".join(str(part) for part in message.parts) for message in messages]


async def play(
    policy: RecordedSynapse, *states: PageState, goal: str = "Buy red shoes of size 7"
) -> list[Step]:
    policy.reset(Task(id="now", goal=goal, site="shop"))
    return [await policy.act(Observation(text=state.text())) for state in states]


def test_reply_becomes_an_action() -> None:
    assert parse_action("Action: `TYPE [12] [new york]` (so)") == Action(
        "type", "TYPE [12] [new york]", target="12", value="new york"
    )
    assert (
        parse_action("CLICK [3]")
        == parse_action("so **CLICK [3]**.")
        == Action("click", "CLICK [3]", target="3")
    )
    for reply in ("`CLICK [3]` or `CLICK [4]`", "`click 5`", "I am sorry."):
        with pytest.raises(UnreadableReplyError):
            parse_action(reply)


async def test_nearest_trajectories_come_first() -> None:
    model = ScriptedModel(["Action: `CLICK [3]`"])
    (step,) = await play(
        RecordedSynapse(model, RecordedSpec(exemplars=2), opened=known()), PageState(PAGE, RANKED)
    )
    assert step.action == Action("click", "CLICK [3]", target="3")
    texts = said(model.seen[0])
    assert [text.partition("\n")[0] for text in texts if text.startswith("Task:")] == [
        "Task: Buy red shoes of size 9",
        "Task: Buy red shoes",
        "Task: Buy red shoes of size 7",
    ]
    assert "Action: `CLICK [5]` ([link]  to 5 -> CLICK)" in texts
    assert [message.role for message in model.seen[0]] == [
        "system",
        *["user", "assistant"] * 3,
        "user",
    ]
    assert "<a id=7" in texts[-1] and "<a id=8" not in texts[-1], "the best five"


async def test_too_long_is_wrong_without_a_call() -> None:
    (step,) = await play(
        RecordedSynapse(ScriptedModel([]), RecordedSpec(context=150), opened=known()),
        PageState(PAGE, RANKED),
    )
    assert (step.action.kind, step.thought) == (
        "none",
        "The page and the earlier steps are too long for the model.",
    )


@pytest.mark.parametrize(
    "line", [UnparsableError("the reply is empty"), "", TruncatedError("cut", "<think>`CLICK [3]`")]
)
async def test_no_answer_breaks_the_turn_off(line: str | Exception) -> None:
    """As with MindAct. A reply that says something, and no action, is a wrong step."""
    policy = RecordedSynapse(ScriptedModel(["I cannot tell.", line]), RecordedSpec(exemplars=0))
    (step,) = await play(policy, PageState(PAGE, RANKED))
    assert step.action.kind == "none"
    with pytest.raises((UnparsableError, TruncatedError)):
        await play(policy, PageState(PAGE, RANKED))


async def test_lost_step_stays_in_the_history() -> None:
    """Its positive has rank 5 where the best 5 count: nobody is asked, and the next step shows what
    was done.
    """
    gold = turn("g", "Buy", "8", "3")
    assert describe_step(gold.steps[0]).ranks == (5,)
    assert (
        Marking("synapse", 5)
        .score(describe_step(gold.steps[0]), Action("click", "CLICK [8]"))
        .element
        == 0
    )
    model = ScriptedModel(["`CLICK [3]`"])
    states = [
        PageState(PAGE, (), (), (), RANKED),
        PageState(PAGE, RANKED, ("[link]  to 8 -> CLICK",), ("8",)),
    ]
    lost, asked = await play(
        RecordedSynapse(model, RecordedSpec(exemplars=0), opened=known()), *states, goal="Buy"
    )
    assert (lost.action.kind, asked.action.target, len(model.seen)) == ("none", "3", 1)
    _, first, answer, now = said(model.seen[0])
    assert answer == "Action: `CLICK [8]` ([link]  to 8 -> CLICK)"
    assert all(f"<a id={n}" in first for n in "834") and "<a id=5" not in first, (
        "the target and the two best"
    )
    assert "Task:" not in now


async def test_single_steps_tell_the_last_five() -> None:
    model = ScriptedModel(["CLICK [4] it is. Task: another"])
    past = tuple(f"[link]  {n} -> CLICK" for n in range(7))
    policy = RecordedSynapse(model, RecordedSpec(mode="no_trajectory"))
    (step,) = await play(policy, PageState(PAGE, RANKED, past))
    assert step.action.text == "CLICK [4]"
    assert "another" not in (step.thought or "")
    texts = said(model.seen[0])
    assert texts[2::2][:3] == ["`SELECT [1] [Pickup]`", "`CLICK [2]`", "`TYPE [6385] [blazer]`"]
    assert "[link]  2 -> CLICK" in texts[-1] and "[link]  1 -> CLICK" not in texts[-1]


async def test_demonstration_is_what_it_would_be_asked() -> None:
    policy = RecordedSynapse(
        ScriptedModel(["`CLICK [3]`"] * 2), RecordedSpec(exemplars=0), opened=known()
    )
    assert isinstance(policy, Demonstrator)
    gold = turn("g", "Buy red shoes of size 7", "4", "3")
    messages, reply = policy.demonstrate(gold, 1)
    await play(
        policy, PageState(PAGE, RANKED), PageState(PAGE, RANKED, ("[link]  to 4 -> CLICK",), ("4",))
    )
    assert said(messages) == said(policy.model.seen[1])  # type: ignore[attr-defined]
    assert reply == "Action: `CLICK [3]`"
    with pytest.raises(UnparsableError, match="not among the best 5"):
        policy.demonstrate(turn("g", "Buy", "8"), 0)


def test_key_has_four_lines() -> None:
    assert make_key(TRAIN[0].task, {"domain": "Shopping", "subdomain": "Shoes"}) == (
        "Website: shop\nDomain: Shopping\nSubdomain: Shoes\nTask: Buy red shoes"
    )


@pytest.mark.skipif(
    "PRILL_SEEACT_STEP" not in os.environ,
    reason="PRILL_SEEACT_STEP names no queries.jsonl of SeeAct's step",
)
def test_the_real_step_has_its_four_lengths() -> None:
    """One step of Mind2Web that SeeAct's repository has with ranks: the paper's lengths of what is
    shown, and its target.
    """
    record = json.loads(Path(os.environ["PRILL_SEEACT_STEP"]).read_text().splitlines()[0])
    candidates = sorted(
        [*record["pos_candidates"], *record["neg_candidates"]], key=lambda one: one["rank"]
    )
    ranked = tuple(str(one["backend_node_id"]) for one in candidates)
    target = str(record["pos_candidates"][0]["backend_node_id"])
    state = PageState(record["cleaned_html"], ranked)
    assert (ranked.index(target), ranked[:5]) == (2, ("8739", "9370", "8635", "10628", "8866"))
    step = Step(
        Observation(text=state.text()), Action("click", "[button]  Search -> CLICK", target=target)
    )
    trajectory = Trajectory(id="x", task=Task(goal=""), steps=(step,))
    lengths = [len(make_exemplar(trajectory, k).steps[0].observation or "") for k in (3, 5, 20, 50)]
    assert lengths == [233, 488, 1698, 4905]
    assert make_exemplar(trajectory).steps[0].action.startswith("Action: `CLICK [8635]`")

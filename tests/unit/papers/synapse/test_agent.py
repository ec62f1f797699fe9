"""Synapse's turns: which prompt a task gets, what a reply becomes, and what happens when something
fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from prill.episodes.loop import run_episode
from prill.errors import ContextTooLongError, UsageError
from prill.models.prompts import NONCE
from prill.papers.embedders import TfidfEmbedder
from prill.papers.synapse.agent import Synapse, SynapseSpec
from prill.papers.synapse.memory import (
    Abstraction,
    Exemplar,
    ExemplarMemory,
    ExemplarTurn,
    MemoryEntry,
)
from prill.papers.synapse.prompting import build_messages, prompt_type
from prill.policies.registry import make_policy
from prill.protocols import Message
from prill.testing import ReplayEnvironment, ScriptedModel
from prill.types import Observation, Step, Task, Trajectory

PAGE = (
    '<div id="wrap" data-wob_ref="1"><div id="query" data-wob_ref="2">Tick a and c.</div><input '
    'id="q" data-wob_ref="3">'
    '<label data-wob_ref="4"><input type="checkbox" data-wob_ref="5">a</label><select id="s" '
    'data-wob_ref="6">'
    '<option data-wob_ref="7">One</option></select><button data-wob_ref="8">go</button><button '
    'data-wob_ref="9">no</button>'
)
TASK = Task(id="t", goal="Tick a and c.", site="click-checkboxes", platform="web")


PLAIN = Abstraction()


def entry(name: str, *steps: ExemplarTurn, count: int = 1, way: Abstraction = PLAIN) -> MemoryEntry:
    return MemoryEntry(name, (Exemplar(name, f"Task: {name}", name, steps),) * count, way)


def memory(*entries: MemoryEntry) -> ExemplarMemory:
    exemplars = [exemplar for entry in entries for exemplar in entry.exemplars]
    return ExemplarMemory(
        exemplars, {entry.name: entry.abstraction for entry in entries}, embedder=TfidfEmbedder()
    )


RAW, SEEN = (
    ExemplarTurn("pass", state="<p>"),
    ExemplarTurn("pass", state="<p>", observation="words"),
)


async def steps(
    model: ScriptedModel,
    known: ExemplarMemory | None = None,
    task: Task = TASK,
    pages: Sequence[str] = (PAGE,),
    **options: object,
) -> list[Step]:
    policy = Synapse(
        model, SynapseSpec(**options), opened=known or memory(entry("click-checkboxes", RAW))
    )  # type: ignore[arg-type]
    policy.reset(task)
    done = list[Step]()
    while not done or not done[-1].action.is_final:
        done.append(await policy.act(Observation(text=pages[min(len(done), len(pages) - 1)])))
    return done


def texts(messages: Sequence[Message]) -> list[str]:
    return [f"{message.role}: {''.join(map(str, message.parts))}" for message in messages]


@pytest.mark.parametrize(
    ("task", "known", "abstraction", "expected"),
    [
        ("click-button", entry("click-button", RAW), "listed", "state_act"),
        (
            "click-pie",
            entry("click-pie", ExemplarTurn("pass", observation="o")),
            "listed",
            "obs_act",
        ),
        ("terminal", entry("terminal", SEEN, SEEN), "listed", "multi_obs_act"),
        ("terminal", entry("terminal", SEEN, SEEN), "none", "multi_state_act"),
        ("login-user", entry("login-user-popup", SEEN, SEEN), "listed", "multi_state_act"),
        ("login-user", entry("login-user-popup", SEEN, SEEN), "auto", "multi_obs_act"),
        ("click-menu", entry("click-menu", RAW), "auto", "state_act"),
    ],
)
async def test_each_task_has_its_prompt_type(
    task: str, known: MemoryEntry, abstraction: str, expected: str
) -> None:
    model = ScriptedModel(
        lambda messages: "words" if messages[0].role == "user" else "```\npass\n```"
    )
    policy = Synapse(model, SynapseSpec(abstraction=abstraction), opened=memory(known))  # type: ignore[arg-type]
    policy.reset(Task(id="t", goal="g", site=task))
    await policy.act(Observation(text=PAGE))
    assert policy._kind == expected


def test_messages_of_single_turn_tasks() -> None:
    pie = entry("click-pie", ExemplarTurn("agent.press('enter')", observation="press it"), count=8)
    found = texts(build_messages("obs_act", pie.exemplars, "", "goal", (), "now"))
    assert [text.partition(":")[0] for text in found] == [
        "system",
        *("user", "assistant") * 8,
        "user",
    ]
    assert found[1] == f"user: Observation:\n[page {NONCE}]\npress it\n[/page {NONCE}]\nAction:"
    assert found[2] == "assistant: ```\nagent.press('enter')\n```"
    assert "now" in found[-1] and "goal" not in found[-1]
    raw = texts(
        build_messages("state_act", entry("a", RAW).exemplars, "think of x", "goal", (), "now")
    )
    assert raw[1] == "user: think of x"


def test_messages_of_tasks_with_turns() -> None:
    known = entry("terminal", SEEN, SEEN, count=3)
    assert prompt_type(known, True) == "multi_obs_act"
    found = texts(
        build_messages(
            "multi_obs_act",
            known.exemplars,
            "",
            "goal",
            [ExemplarTurn("pass", observation="before")],
            "now",
        )
    )
    assert len(found) == 1 + 3 * (1 + 4) + 1 + 2 + 1
    assert found[16] == "user: Task: goal\nTrajectory:"
    assert "before" in found[17] and "now" in found[19]


async def test_a_block_becomes_several_steps() -> None:
    block = (
        "agent.click_xpath(\"//*[@id='q']\")\nagent.type('a')\nagent.press('command+a')\nagent.click_xpath('//button')\n"
        "agent.click_option('//option')\nagent.movemouse('//select')\nagent.click_xpath('//option')"
    )
    found = await steps(ScriptedModel([f"```python\n{block}\n```"]))
    assert [(s.action.kind, s.action.target, s.action.value) for s in found] == [
        ("click", '<input data-wob_ref="3">', None),
        ("type", None, "a"),
        ("press", None, "Control+a"),
        ("click", '<button data-wob_ref="8">go', None),
        ("click", '<button data-wob_ref="9">no', None),
        ("select", '<select data-wob_ref="6">One', "One"),
        ("hover", '<select data-wob_ref="6">One', None),
        ("select", '<select data-wob_ref="6">One', "One"),
        ("stop", None, None),
    ]
    assert found[3].action.text == 'agent.click_xpath("(//button)[1]")'


@pytest.mark.parametrize(
    "reply", ["```\nimport socket\n```", "I cannot.", "```\nagent.click_xpath(where)\n```"]
)
async def test_an_invalid_block_ends_the_turn(reply: str) -> None:
    model = ScriptedModel([reply, "```\nagent.press('enter')\n```"])
    found = await steps(model, max_turns=2)
    assert [s.action.kind for s in found] == ["press", "stop"]
    assert "block" in (found[0].thought or "")


async def test_turns_are_the_papers_for_the_task() -> None:
    model = ScriptedModel(lambda messages: "```\nagent.press('enter')\n```")
    await steps(
        model, memory(entry("guess-number", RAW)), Task(id="t", goal="g", site="guess-number")
    )
    assert len(model.seen) == 10
    assert sum("press('enter')" in text for text in texts(model.seen[-1])) == 0, (
        "one turn: no trajectory is shown"
    )


async def test_too_long_a_request_is_never_sent() -> None:
    model = ScriptedModel(["unused"])
    with pytest.raises(ContextTooLongError, match="context window only 100$"):
        await steps(model, context=100)
    two = memory(entry("click-checkboxes", RAW, count=2))
    with pytest.raises(
        ContextTooLongError,
        match="exemplars: 2.*context window only 100; the option `exemplars` shows fewer",
    ):
        await steps(model, two, context=100)
    assert not model.seen
    run = Trajectory(id="t", task=TASK, final=Observation(text=PAGE))
    policy = Synapse(model, SynapseSpec(context=100), opened=memory(entry("click-checkboxes", RAW)))
    assert "context" in (
        (await run_episode(policy, ReplayEnvironment(run), TASK, id="t")).error or ""
    )


async def test_the_nearest_exemplars_are_shown() -> None:
    known = ExemplarMemory(
        [
            Exemplar("a", f"Task: {words}", words, (ExemplarTurn(f"agent.type('{words}')", "<p>"),))
            for words in ("ticks", "tick a", "b")
        ],
        embedder=TfidfEmbedder(),
    )
    model = ScriptedModel(["```\npass\n```"])
    await steps(model, known, exemplars=2)
    said = [text.split("'")[1] for text in texts(model.seen[0]) if text.startswith("assistant")]
    assert len(said) == 2 and "tick a" in said


async def test_generated_code_shortens_the_page() -> None:
    way = Abstraction(
        instructions=("say it shortly",), code=("Task: <task>\nState:\n<state>\nCode:",)
    )
    known = memory(entry("click-checkboxes", SEEN, way=way))
    model = ScriptedModel(["```python\nobs = task + str(len(state))\n```", "```\npass\n```"])
    found = await steps(model, known)
    assert f"Tick a and c.{len(PAGE)}" in texts(model.seen[1])[-1]
    assert f"Observation:\nTick a and c.{len(PAGE)}" in (found[0].thought or "")
    assert (
        "<state>" not in texts(model.seen[0])[0]
        and "Task: Tick a and c." in texts(model.seen[0])[0]
    )


@pytest.mark.parametrize(
    "reply",
    [
        "obs = 1",
        "```\nobs = open('x').read()\n```",
        "```\nx =\n```",
        "```\nobs = state[10**9]\n```",
    ],
)
async def test_broken_code_falls_back_to_words(reply: str) -> None:
    way = Abstraction(instructions=("say it shortly",), code=("<state>",))
    model = ScriptedModel([reply, " tick both \nAction: no", "```\npass\n```"])
    found = await steps(model, memory(entry("click-checkboxes", SEEN, way=way)))
    asked = texts(model.seen[1])[0]
    assert asked.startswith("user: say it shortly\nState:\n") and "Observation:\nwords\n" in asked
    assert "tick both\n[/page" in texts(model.seen[2])[-1]
    assert "The code for the page failed" in (found[0].thought or "")


def test_synapse_is_made_by_its_name() -> None:
    policy = make_policy(
        "synapse", model=ScriptedModel([]), lax=True, max_turns="3", abstraction="none"
    )
    assert isinstance(policy, Synapse)
    assert (policy.spec.max_turns, policy.spec.abstraction) == (3, "none")
    with pytest.raises(UsageError, match="no/such/exemplars.jsonl"):
        make_policy("synapse", model=ScriptedModel([]), lax=True, memory="no/such")
    assert policy.fingerprint("web") == make_policy("synapse", model=ScriptedModel([])).fingerprint(
        "web"
    )  # type: ignore[attr-defined]

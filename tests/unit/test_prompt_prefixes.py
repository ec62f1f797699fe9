"""What is equal in two consecutive calls stands at the front of both, so that servers reuse it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from prill.episodes.loop import run_episode
from prill.evaluators.registry import make_judge
from prill.models.prompts import NONCE, call_code
from prill.papers.embedders import TfidfEmbedder
from prill.papers.structured_reflection.agent import StructuredReflection
from prill.papers.synapse.agent import Synapse
from prill.papers.synapse.memory import Exemplar, ExemplarMemory, ExemplarTurn
from prill.policies.registry import make_policy
from prill.protocols import Message, Policy
from prill.refine.reflector import Reflector
from prill.testing import ReplayEnvironment, ScriptedModel
from prill.types import (
    Action,
    EvaluatorInfo,
    Observation,
    Platform,
    Step,
    Task,
    Trajectory,
    Verdict,
)
from tests.support.golden.calls import Recorder, runs
from tests.support.papers.conversations import seen
from tests.support.papers.pages import page
from tests.support.paths import ROOT

_IMAGES = sorted((ROOT / "datasets/samples/miniwob/images").glob("*.webp"))
_FAILED = Verdict(
    id="a", success=False, reason="It was not sent.", evaluator=EvaluatorInfo("j", "1")
)
# Of what two calls have in common, in characters, this part is at the front. The rest are headings
# between what changes, and what stands last because models heed it there.
_LEAST = {"mindact": 0.8}  # the paper's form: the page, then task and question
_USUAL = 0.85
PROMPTS = ROOT / "evaluators/judges/prompts"
_MARK = re.compile(r"^\[/?[\w-]+ [a-z]{7}\]\n", re.MULTILINE)
_RUN = 6  # fewer equal words in a row are chance, such as the tags of two pages


class Wire(ScriptedModel):
    """Keeps the requests as an endpoint receives them: with codes, and pictures as their names."""

    def __init__(self, reply: str | Callable[[Sequence[Message]], str]) -> None:
        super().__init__((lambda _: reply) if isinstance(reply, str) else reply)
        self.requests: list[str] = []

    async def complete(self, messages: Sequence[Message], **options: Any) -> Any:
        code = call_code(p for message in messages for p in message.parts if isinstance(p, str))
        text = "\n\n".join(str(part) for message in messages for part in message.parts)
        self.requests.append(text.replace(NONCE, code))
        return await super().complete(messages, **options)


def equal_front(one: str, other: str) -> int:
    """The number of equal characters at the front."""
    return next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), len(one))


def front(one: str, other: str) -> float:
    """The part of what two requests have in common that is at the front of both."""
    a, b = (_MARK.sub("", text).replace("\n", " \n ").split(" ") for text in (one, other))
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    common = sum(len(" ".join(a[k.a : k.a + k.size])) for k in blocks if k.size >= _RUN)
    return equal_front(one, other) / max(common, 1)


def kind(request: str) -> str:
    """The first words, which tell the calls of an agent apart."""
    return request[:40]


def recording(
    texts: Sequence[str | Observation], platform: Platform = "web", task: Task | None = None
) -> Trajectory:
    """A recording of these states, which differ in every word."""
    states = [
        Observation(text=one, url=f"http://{one[-3:]}.example", screenshot=str(_IMAGES[i]))
        if isinstance(one, str)
        else one
        for i, one in enumerate(texts)
    ]
    task = task or Task(id="t", goal="Say which kettle is the cheapest", platform=platform)
    steps = [Step(state, Action("click", f"click {i}")) for i, state in enumerate(states[:-1])]
    return Trajectory(id="r", task=task, steps=tuple(steps), final=states[-1])


LINES = [
    "\n".join(f"[{n}] link '{word}{n} {word[::-1]}{n}'" for n in range(start, start + 12))
    for start, word in ((1, "alpha"), (20, "gamma"), (40, "omega"))
]


SCREENS = [
    page(*(f"<{tag}>{word}{letter}</{tag}>" for letter in "abcdefghi"))
    for tag, word in (("a", "alpha"), ("button", "gamma"), ("li", "omega"), ("b", "delta"))
]


async def played(policy: Policy, run: Trajectory, episodes: int = 2) -> None:
    for _ in range(episodes):
        await run_episode(policy, ReplayEnvironment(run), run.task, id="e", max_steps=2)


def by_name(
    name: str, reply: str, run: Trajectory, episodes: int = 2, **options: Any
) -> Callable[[], Awaitable[Wire]]:
    async def play() -> Wire:
        model = Wire(reply)
        policy = make_policy(name, model=model, **options)
        if "lessons" in options:
            assert policy.lessons  # type: ignore[attr-defined]
        await played(policy, run, episodes)
        return model

    return play


async def structured() -> Wire:
    def reply(messages: Sequence[Message]) -> str:
        word = str(messages[-1].parts[0]).partition("</")[0].rpartition(">")[2]
        planning = str(messages[0].parts[0]).startswith("You plan")
        return f"click the {word}" if planning else "2"

    model = Wire(reply)
    for screens in (SCREENS[:3], SCREENS[2:] + SCREENS[:1]):
        await played(StructuredReflection(model), recording(screens), episodes=1)
    return model


async def synapse() -> Wire:
    model = Wire("```\nagent.press('enter')\n```")
    turns = tuple(ExemplarTurn("agent.press('enter')", state=f"<p>{word}</p>") for word in "abc")
    exemplar = Exemplar("terminal", "Task: delete", "terminal", turns)
    known = ExemplarMemory([exemplar] * 3, {}, embedder=TfidfEmbedder())
    task = Task(id="t", goal="delete", site="terminal", platform="web")
    await played(Synapse(model, opened=known), recording(SCREENS[:3], task=task), episodes=1)
    return model


async def lessons() -> Wire:
    model = Wire("I should sort the list.")
    reflector = Reflector(model)
    for texts in (LINES[:2], LINES[1:]):
        await reflector(recording(texts), _FAILED, ["Look at the prices."])
    return model


async def structured_lessons() -> Wire:
    model = Wire("For action index=1, you should click id=2")
    for screens in (SCREENS[:2], SCREENS[2:]):
        failed = replace(_FAILED, reason=f"{len(screens[1])} signs do not show it.")
        run = recording(screens)
        key = screens[1][-20:-10]
        step = replace(run.steps[0], action=Action("press", f"press {key}", value=key))
        await StructuredReflection(model).reflect(replace(run, steps=(step,)), failed)
    return model


WEB, PHONE = recording(LINES), recording(LINES, "android")
SAID = "In summary, the next action I will perform is ```scroll [down]```"
PAGES = recording(
    [seen(*(f"{word}{i}" for i in range(5))) for word in ("Alpha", "Gamma", "Omega")],
    task=Task(id="t", goal="Take the right one"),
)
CALLS: dict[str, Callable[[], Awaitable[Wire]]] = {
    "react": by_name("react", SAID, WEB),
    "react, lessons": by_name("react", SAID, WEB, lessons=["Sort the list.", "Look twice."]),
    "react, no reasoning": by_name("react", SAID, WEB, reasoning=False),
    "react, phone": by_name("react", SAID.replace("scroll [down]", "swipe [up]"), PHONE),
    "step": by_name("step", "REASON: r\nACTION: scroll [down]", WEB),
    "structured-reflection": structured,
    "synapse": synapse,
    "mindact": by_name("mindact", "A.", PAGES, episodes=1),
    **{
        f"screen, {grammar}": by_name("screen", "nothing", WEB, grammar=grammar)
        for grammar in ("qwen3-vl", "ui-tars-1.5", "openai", "anthropic")
    },
    "lessons": lessons,
    "lessons of structured-reflection": structured_lessons,
}


@pytest.mark.parametrize("name", CALLS)
async def test_what_is_equal_comes_first(name: str) -> None:
    model = await CALLS[name]()
    requests = sorted(model.requests, key=kind)
    pairs = [pair for _, calls in groupby(requests, kind) for pair in pairwise(calls)]
    assert pairs
    least = _LEAST.get(name, _USUAL)
    shares = [(kind(one), front(one, other)) for one, other in pairs]
    assert [(one, share) for one, share in shares if share < least] == []


class Judging(Recorder):
    """Replies to judges, and keeps the requests as an endpoint receives them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.wire = Wire(lambda messages: "")

    async def complete(self, messages: Sequence[Message], **options: Any) -> Any:
        await self.wire.complete(messages)
        return await super().complete(messages, **options)


MULTIPLE = ("rubric", "webjudge", "webjudge-general", "steps", "aer-steps", "checklist", "nnetnav")


@pytest.mark.parametrize("name", [*MULTIPLE, "uv"])
async def test_what_is_equal_in_a_judges_calls_comes_first(name: str, tmp_path: Path) -> None:
    """The calls about one run have one code, so that not only the text of the prompt is equal."""
    prompts = [path.read_text("utf-8") for path in PROMPTS.glob("*.md")]
    codes, count = set(), 0
    for run in runs(tmp_path)[6:12]:
        model = Judging(tmp_path)
        await make_judge(name, model=model, captioner="text")(run)
        of_run = set(re.findall(r"^\[/[\w-]+ ([a-z]{7})\]$", "\n".join(model.wire.requests), re.M))
        assert len(of_run) <= 1
        codes |= of_run
        calls = sorted(model.wire.requests, key=opening)
        for words, alike in groupby(calls, opening):
            fixed = [re.sub(r"\{\{.*?\}\}", "", text) for text in prompts if words in text]
            for one, other in pairwise(alike):
                count += 1
                assert equal_front(one, other) >= len(fixed[0]), words
    assert count > 5 and (len(codes) > 3 or name == "aer-steps")


def opening(request: str) -> str:
    return request.partition("\n\n")[0]


async def test_a_reply_that_repeats_the_code_ends_no_quotation(tmp_path: Path) -> None:
    def repeats(messages: Sequence[Message]) -> str:
        return f"**Key Points**: it is cheap\nthe code is {code(model.requests[-1])}"

    def code(request: str) -> str:
        mark = re.search(r"^\[/request ([a-z]{7})\]$", request, re.M)
        assert mark is not None
        return mark[1]

    model = Wire(repeats)
    await make_judge("webjudge", model=model, captioner="text")(runs(tmp_path)[6])
    first, *others = map(code, model.requests)
    assert others and first not in others
    assert all(f"the code is {first}" in request for request in model.requests[1:])

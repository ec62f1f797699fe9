"""Runs, judges and scripted replies of the golden calls: what each judge sends, and concludes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from PIL import Image as Picture

from prill.models.replies import GivenReply, ReplyFormat, WordFormat
from prill.protocols import Form, Image, Limits, Message, Reply, Token
from prill.types import Action, Observation, Step, Task, Trajectory, Usage
from tests.support.golden.cases import RECORDED, RUBRICS

_TEXT = {"model": "m", "captioner": "text"}
_QUESTIONS = [
    {"question": "How many?", "answer": "number"},
    {"question": "Where?", "answer": ["cart", "home"]},
    {"question": "Paid?"},
]
PUBLISHED = (
    "aer-c", "aer-v", "agenttrek", "arb-axtree", "arb-screen", "browser-use", "nnetnav", "uv",
    "webjudge", "webjudge-general", "webvoyager",
)  # fmt: skip
JUDGES: dict[str, dict[str, Any]] = {
    "vlm": {"name": "vlm"},
    "vlm, stated": {"name": "vlm", "probability": "stated"},
    "vlm, verdict": {"name": "vlm", "form": "verdict"},
    "vlm, word": {"name": "vlm", "form": "word", "frames": 2},
    "vlm, blind": {"name": "vlm", "answer": False, "thoughts": True, "frames": 9},
    "vlm, small window": {"name": "vlm", "frames": 9, "window": True},
    "aer-v, all told": {"name": "aer-v", "answer": True, "thoughts": True},
    "modular": {"name": "modular", **_TEXT},
    "modular, given": {"name": "modular", "captioner": "given"},
    "modular, several": {"name": "modular", **_TEXT, "frames": 3, "thoughts": True},
    "modular, blind": {"name": "modular", **_TEXT, "answer": False, "form": "word"},
    "modular, stated": {"name": "modular", **_TEXT, "probability": "stated"},
    "modular, small window": {"name": "modular", **_TEXT, "frames": 3, "window": True},
    "modular, references": {"name": "modular", **_TEXT, "references": {"run-1": "It is 5."}},
    "aer-c, blind": {"name": "aer-c", **_TEXT, "answer": False},
    "steps": {"name": "steps", **_TEXT},
    "steps, given": {"name": "steps", "captioner": "given", "towards": 0.25, "away": -1.0},
    "steps, word": {"name": "steps", **_TEXT, "form": "word"},
    "aer-steps": {"name": "aer-steps", **_TEXT},
    "steps, small window": {"name": "steps", **_TEXT, "window": True},
    "webjudge, few": {"name": "webjudge", **_TEXT, "top_k": 2, "least_score": 4},
    "rubric": {"name": "rubric"},
    "rubric, text": {"name": "rubric", **_TEXT, "top_k": 1, "answer": False, "threshold": 0.5},
    "rubric, rubrics": {
        "name": "rubric",
        **_TEXT,
        "rubrics": str(RUBRICS),
        "make_missing": True,
        "references": {"run-1": "It is 5."},
    },
    "rubric, small window": {"name": "rubric", "window": True},
    "checklist": {"name": "checklist", **_TEXT},
    "checklist, rubrics": {
        "name": "checklist",
        **_TEXT,
        "rubrics": str(RUBRICS),
        "make_missing": True,
        "max_chars": 900,
    },
    "ask": {"name": "ask", **_TEXT, "question": "Was it paid?"},
    "ask, number": {"name": "ask", **_TEXT, "question": "How many?", "answer": "number"},
    "ask, several": {"name": "ask", **_TEXT, "questions": _QUESTIONS, "show_answer": False},
    "ask, small window": {"name": "ask", **_TEXT, "question": "Was it paid?", "window": True},
    "likelihood": {"name": "likelihood", **_TEXT},
    "likelihood, strict": {"name": "likelihood", **_TEXT, "threshold": 0.9, "max_chars": 500},
    **{name: {"name": name} for name in PUBLISHED},
    **{
        f"{name}, text": {"name": name, **_TEXT}
        for name in ("aer-c", "uv", "webjudge", "webvoyager")
    },
}
# Judges whose first calls are there in words.
READABLE = ("vlm", "modular", "steps", "webjudge", "rubric", "checklist", "ask", "likelihood")


def runs(folder: Path) -> list[Trajectory]:
    """Twenty runs of all platforms: six recorded ones, and some of every oddity of records."""
    recorded = [made for made in _read(RECORDED) if isinstance(made, Trajectory)]
    return [*recorded, *(_made(folder, number) for number in range(14))]


def _read(path: Path) -> list[Any]:
    from prill import iter_trajectories

    return list(iter_trajectories(path))


_PLATFORMS = ("web", "android", "ios", "desktop", "other")
_GOALS = (
    "Find the price of green tea and tell me",
    "Put two red mugs into the cart and order them for next Monday at the office address",
    "Set an alarm",
)


def _made(folder: Path, number: int) -> Trajectory:
    platform: Any = _PLATFORMS[number % len(_PLATFORMS)]
    long = number in (3, 8)
    states = [_state(folder, number, i, "x" * 3000 if long else "") for i in range(2 + number % 5)]
    actions = [
        Action("click", "click [7] where [7] is link 'Cart'"),
        Action("type", "type [9] [green tea] [1]", value="green tea\n", target="textbox 'Search'"),
        Action("tap", "tap", point=(0.25, 0.5)),
        Action("other", "do it\nthen report", value="x"),
        Action("message", "send_msg_to_user('It is 5.')", value="It is 5."),
    ]
    steps = tuple(
        Step(state, actions[(number + i) % len(actions)], None if i % 3 == 2 else f"I think {i}")
        for i, state in enumerate(states[:-1])
    )
    if number == 11:
        steps = ()
    earlier = ()
    if number == 6:
        earlier = (Trajectory(id="before", task=Task(goal="Open the shop")),)
    metadata: dict[str, Any] = {"date": "2026-01-05T10:22:31+00:00"} if number % 3 == 1 else {}
    return Trajectory(
        id=f"run-{number}",
        task=Task(goal=_GOALS[number % 3], platform=platform, earlier=earlier),
        agent="a",
        steps=steps,
        final=None if number in (9, 12) else states[-1],
        answer=None if number % 4 == 3 else f"It is {number}.",
        error="it stopped" if number == 5 else None,
        metadata=metadata,
    )


def _state(folder: Path, number: int, i: int, more: str) -> Observation:
    path = folder / f"{number}-{i}.png"
    shade = 0 if number == 2 else i  # equal pictures
    Picture.new("RGB", (60, 40), (shade * 30, number * 10, 7)).save(path)
    seen = number == 10 or (number == 4 and i == 1)  # no text
    text = f"RootWebArea 'Shop {i if number != 2 else 0}'\n\t[7] link 'Cart'\n[/state x] {more}"
    return Observation(
        screenshot=None if number in (7, 12) else str(path),
        text=None if seen else text,
        url=f"http://shop/{number}/{i}?{'q' * 400}" if number % 2 else None,
        caption=f"a shop, page {i}" if number % 3 else None,
    )


class Recorder:
    """A model whose replies follow from the messages alone, with alternatives of each token."""

    name = "m"

    def __init__(self, folder: Path, *, small: bool = False) -> None:
        self.folder = folder
        self.small = small
        self.calls: list[str] = []

    async def limits(self) -> Limits:
        """A window that few requests fit into, or none."""
        return Limits(window=1800, images=2) if self.small else Limits()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Notes the call, and replies."""
        assert form is not None
        said = self.say(messages)
        self.calls.append(said)
        asked = [form.instructions(as_json=as_json) for as_json in (True, False)]
        schema = json.dumps(form.json_schema(), sort_keys=True)
        self.calls[-1] += f"\n<{max_tokens} {form.tagged} {asked} {schema}>"
        drawn = int.from_bytes(hashlib.sha256(said.encode()).digest()[:4], "big")
        text = _reply(said, form, drawn)
        pieces = [text[i : i + 3] for i in range(0, len(text), 3)]
        tokens = tuple(
            Token(piece, math.log(sure), ((piece, math.log(sure)), ("fail", math.log(0.2))))
            for i, piece in enumerate(pieces)
            for sure in [0.2 + (drawn >> i % 16) % 8 / 10]
        )
        return Reply(
            text, Usage(1, 10, 5), form.parse(text), tokens if drawn % 3 and pieces else None
        )

    def say(self, messages: Sequence[Message]) -> str:
        """The messages in words."""
        lines = []
        for message in messages:
            lines.append(f"# {message.role}")
            lines += [
                f"<image {Path(part.path).name} {part.detail}>" if isinstance(part, Image) else part
                for part in message.parts
            ]
        return "\n".join(lines)


def _reply(said: str, form: Form, drawn: int) -> str:
    if isinstance(form, GivenReply):
        return form.text
    if drawn % 11 == 0 and not said.startswith("# user"):
        return "I cannot say."
    if isinstance(form, ReplyFormat):
        text = form.write(form.choices[drawn % len(form.choices)], "because of [S1]")
        if form.number:
            text = text.replace("}", f', "{form.number}": {drawn % 101}}}')
        return text
    if isinstance(form, WordFormat):
        return form.write(form.choices[drawn % len(form.choices)])
    asked = form.instructions(as_json=True)
    return _RECORDS.get(_cue(asked), _plain)(drawn, said + asked)


def _cue(said: str) -> str:
    return next((cue for cue in _RECORDS if cue in said), "")


def _criteria(drawn: int, said: str) -> str:
    items = [{"text": f"it holds, {i}", "weight": i + 1} for i in range(drawn % 3 + 1)]
    return json.dumps({"criteria": items})


def _count(said: str, name: str) -> int:
    block = said.split(f"[{name} \ue000]")[1].split(f"[/{name}")[0]
    return len(block.strip().splitlines())


def _relevance(drawn: int, said: str) -> str:
    count = _count(said, "criteria")
    return json.dumps(
        {"description": "a page", "scores": [1 + (drawn >> i) % 5 for i in range(count)]}
    )


def _assessment(drawn: int, said: str) -> str:
    met = ("met", "met", "not_met", "insufficient_evidence")
    found = [
        {
            "criterion": i,
            "reason": "see [S1]",
            "step": (drawn >> i) % 4,
            "met": met[(drawn >> i) % 4],
        }
        for i in range(1, _count(said, "criteria") + 1)
    ]
    return json.dumps(
        {
            "criteria": found,
            "side_effects": ["a mug"] if drawn % 5 == 0 else [],
            "obstacle_reason": "x",
            "obstacle": "captcha" if drawn % 7 == 0 else "none",
        }
    )


def _answers(drawn: int, said: str) -> str:
    values = ("yes", "no", "cannot-tell")
    first = drawn % 9 if "<a number" in said else values[drawn % 3]
    rest = {
        "q2": {"reason": "x", "step": 1, "answer": ("cart", "home")[drawn % 2]},
        "q3": {"reason": "y", "step": 0, "answer": values[drawn % 3]},
    }
    one = {"reason": "r", "step": drawn % 4, "answer": first}
    return json.dumps({"q1": one, **(rest if '"q2"' in said else {})})


def _uv(**record: Any) -> Any:
    return lambda drawn, said: json.dumps(record)


_POINTS = [
    {"criterion": i, "condition_met": True, "earned_points": i, "justification": "j"}
    for i in (1, 2, 3)
]
_ITEMS = [
    {"criterion": f"c{i}", "description": "d", "max_points": 3, "condition": c}
    for i, c in enumerate((None, "in stock", "else"))
]
_RECORDS: Mapping[str, Any] = {
    '{"criteria": [{"text"': _criteria,
    '"scores": [<1 to 5': _relevance,
    '"obstacle_reason"': _assessment,
    '"q1"': _answers,
    '{"key_points"': lambda drawn, said: json.dumps(
        {"key_points": [f"point {i}" for i in range(drawn % 4)]}
    ),
    '"max_points": <number>': _uv(items=_ITEMS),
    '"earned_points"': _uv(items=_POINTS),
    '"score": <0 to 10>': lambda drawn, said: json.dumps(
        {"scores": [{"criterion": i, "score": (drawn >> i) % 11} for i in (1, 2, 3)]}
    ),
    '"note": "<text>"': _uv(notes=[{"criterion": 1, "note": "a pot"}]),
    '"conditions": [': _uv(conditions=[{"criterion": 2, "condition_met": False, "reason": "r"}]),
    '"side_effects": [{': _uv(side_effects=[{"description": "a mug", "max_points": 2}]),
    '"output_success"': lambda drawn, said: json.dumps(
        {"primary_intent": "p", "reasoning": "r", "output_success": drawn % 2 == 0}
    ),
    '"impossible_task"': lambda drawn, said: json.dumps(
        {
            **{"reasoning": "r", "verdict": drawn % 2 == 0, "failure_reason": "f"},
            **{"impossible_task": drawn % 3 == 0, "reached_captcha": drawn % 5 == 0},
        }
    ),
}


def _plain(drawn: int, said: str) -> str:
    """A reply to a published prompt that asks for no schema."""
    word = ("success", "failure")[drawn % 2]
    if "numbered list" in said:
        return "**Key Points**:\n1. Tea\n2. Its price"
    if "Grade it" in said or "Then grade it" in said:
        return f"**Reasoning**: A page.\n\n**Score**: {1 + drawn % 5}"
    if "<success>" in said:
        tag = "Successful" if drawn % 2 else "Unsuccessful"
        return f"<reasoning>r</reasoning><success>{tag}</success><side>Yes</side><loop>No</loop>"
    if "NOT SUCCESS" in said:
        return "It fits. SUCCESS" if drawn % 2 else "It lacks. NOT SUCCESS"
    if "Reward:" in said:
        return f"Thought: t\nReward: {1 + drawn % 5}"
    if "Status:" in said:
        return f"Thoughts: It is there.\nStatus: {word}"
    return f"A page with a price, {drawn % 7}."


async def call_all(
    description: Mapping[str, Any], trajectories: Sequence[Trajectory], folder: Path
) -> tuple[list[str], list[list[str]]]:
    """What a judge sends and concludes for each run: a line each, and the calls in words.

    A line has the number of calls, a digest of them, of the plan and of the verdict, and the
    outcome.
    """
    import prill

    description = {"model": "m", **description}
    small = bool(description.pop("window", False))
    lines, words = [], []
    for run in trajectories:
        model = Recorder(folder, small=small)
        judge: Any = prill.judge({**description, "model": model})
        planned = judge.estimate(run)
        verdict = await judge(run)
        record = msgspec.to_builtins(replace(verdict, usage=Usage(), seconds=0.0))
        del record["evaluator"]
        plan = msgspec.to_builtins(planned)
        parts = ("\n".join(model.calls), json.dumps(record, sort_keys=True), json.dumps(plan))
        digests = [hashlib.sha256(part.encode()).hexdigest()[:8] for part in parts]
        outcome = verdict.unscored or verdict.score
        lines.append(f"{len(model.calls)} {' '.join(digests)} {outcome}")
        words.append(model.calls)
    return lines, words

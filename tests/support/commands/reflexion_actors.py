"""A scripted language model that acts and draws lessons. It fails, then follows its last lesson in
the next attempt.

A task's course defines the outcome of each attempt, S or F, through the lesson before it. If the
course ends in a dot, the last lesson repeats the previous one. `DIES_AT="play 3"` ends the process
by SIGKILL at the third call to play; `judge` and `reflect` work the same way.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Sequence
from functools import cache

from prill.actions.webarena import parse_action, write_action
from prill.emulators.shop import shop_configs, shop_solutions
from prill.emulators.shop.play import format_line
from prill.policies.miniwob_text import TextPage
from prill.policies.react import React
from prill.policies.scripted.scripts import SCRIPTS, Aim, Play, click
from prill.protocols import Message
from prill.types import Action, EvaluatorInfo, Trajectory, Verdict
from tests.support.refine.retrying import Metered

# In most courses the second lesson is wrong. Long tasks have short courses.
COURSES = {
    **dict.fromkeys(
        (
            "click-button",
            "click-link",
            "click-dialog-2",
            "click-test-2",
            "enter-text",
            "simple-arithmetic",
        ),
        "FSF",
    ),
    **dict.fromkeys(
        ("find-word", "read-table", "click-tab-2", "click-collapsible", "social-media"), "FSF"
    ),
    **dict.fromkeys(("click-option", "enter-password", "login-user"), "FSS"),
    **dict.fromkeys(("enter-date", "click-checkboxes"), "FFS"),
    **dict.fromkeys(("email-inbox", "click-button-sequence"), "SFS"),
    **dict.fromkeys(("use-autocomplete-nodelay",), "FFF"),
    **dict.fromkeys(("search-engine",), "FF."),
    **dict.fromkeys(
        ("1001", "1005", "1013", "1014", "1015", "1016", "1017", "1018", "1019", "1020", "1022"),
        "FSF",
    ),
    **dict.fromkeys(("1002", "1021", "1009"), "FSS"),
    **dict.fromkeys(("1006", "1012"), "FFS"),
    **dict.fromkeys(("1023", "1024"), "SFS"),
    **dict.fromkeys(("1011",), "FFF"),
    **dict.fromkeys(("1025",), "FF."),
}
MINIWOB = [name for name in COURSES if not name.isdigit()]
SHOP = [name for name in COURSES if name.isdigit()]
RIGHT, WRONG = "Next time I go the right way.", "Next time I go another way."


def in_sequence(goal: str, page: TextPage, aim: Aim) -> Play:
    """Plays a task with two buttons. A miss presses them in reverse order."""
    for name in ("TWO", "ONE") if aim.misses else ("ONE", "TWO"):
        page = yield click(page.named("button", name))


_SCRIPTS = {**SCRIPTS, "click-button-sequence": in_sequence}
_plays: dict[str, Play] = {}
_at: dict[str, int] = {}
_calls: Counter[str] = Counter()


@cache
def _intents() -> dict[str, int]:
    return {config["intent"]: config["task_id"] for config in json.loads(shop_configs())}


def say(messages: Sequence[Message]) -> str:
    """Reflects, or acts according to the last lesson."""
    system, user = str(messages[0].parts[0]), str(messages[-1].parts[0])
    goal = user.partition("OBJECTIVE: ")[2].partition("\n")[0]
    number = _intents().get(goal)
    name = str(number or re.findall(r"URL: miniwob/([\w-]+)", user)[0])
    course = COURSES[name]
    reflects = "do better at its next attempt" in system
    note("reflect" if reflects else "play")
    if reflects:
        attempt = user.count("TRIAL ") + 1
        if course[attempt] == ".":
            return f"Lesson {attempt - 1}. {WRONG}"
        return f"Lesson {attempt}. {RIGHT if course[attempt] == 'S' else WRONG}"
    memory = user.partition("MEMORY:")[2].partition("PREVIOUS ACTION")[0]
    right = memory.rfind(RIGHT) > memory.rfind(WRONG) if memory else course[0] == "S"
    fresh = user.endswith("PREVIOUS ACTION:\nNone")
    page = user.partition("OBSERVATION:\n")[2].partition("\nURL:")[0]
    action = (
        _by_script(name, goal, page, right, fresh)
        if number is None
        else _on_shop(number, user, right, fresh)
    )
    return f"So I do. ```{action}```"


def _by_script(name: str, goal: str, text: str, right: bool, fresh: bool) -> str:
    """Plays MiniWoB++: the next move of the task's script, on the element's number."""
    numbered = dict(re.findall(r"^ *\[(\d+)\] (.*)$", text, re.MULTILINE))
    page = TextPage.read(re.sub(r"^( *)\[\d+\] ", r"\1", text, flags=re.MULTILINE))
    try:
        if fresh:
            _plays[name] = _SCRIPTS[name](goal, page, Aim(misses=not right))
            move = next(_plays[name])
        else:
            move = _plays[name].send(page)
    except StopIteration:
        return "stop [done]"
    number = next(
        number for number, line in numbered.items() if line.startswith(str(move.action.target))
    )
    return str(write_action(move.action, number))


def _on_shop(number: int, user: str, right: bool, fresh: bool) -> str:
    """Plays the shop: the next line of the task's solution."""
    key = str(number)
    if fresh:
        _at[key] = 0
    solution = shop_solutions()[number]
    action: Action = parse_action((solution.right if right else solution.wrong)[_at[key]])
    if action.target is not None:
        line = format_line(action.target, user)
        if line is None:
            return "scroll [down]"
        _at[key] += 1
        return str(write_action(action, line[1 : line.index("]")]))
    _at[key] += 1
    return str(write_action(action))


class Actor(React):
    """The scripted actor, as `--policy file.py:Actor` makes it. A call costs 10 tokens and 2 of
    reply.
    """

    def __init__(self) -> None:
        super().__init__(Metered(say))


class Umpire:
    """A judge that knows the courses, by the task and the number of the attempt."""

    info = EvaluatorInfo("umpire", "1")

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns no screenshots."""
        return ()

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns the verdict of the course."""
        note("judge")
        right = COURSES[str(trajectory.task.site)][trajectory.metadata["attempt"]] == "S"
        return Verdict(
            id=trajectory.id,
            success=right,
            score=float(right),
            reason="so it looks",
            evaluator=self.info,
        )


def note(kind: str) -> None:
    """Counts a call, and kills the process if configured."""
    _calls[kind] += 1
    if os.environ.get("DIES_AT") == f"{kind} {_calls[kind]}":
        os.kill(os.getpid(), signal.SIGKILL)

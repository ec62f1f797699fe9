"""Makes exemplars such as come with prill for the policy `synapse`: plays solutions of the paper's
48 tasks.

    PYTHONPATH=. python benchmarks/exemplars.py DIR                                all of them; what
    DIR has already stays PYTHONPATH=. python benchmarks/exemplars.py DIR --tasks
    click-menu,terminal    some tasks

Needs the extra `web` and the MiniWoB++ pages, and no language model: below stands what is done for
each task, and what the page does not reward in full is left out. Pages are put into few words by
the code of papers/synapse/prompts. Seeds begin at 1000; those of the paper, and of
`prill papers bench`, are 0 to 49. Of the solutions it keeps few that say the most: those from which
the solutions of other seeds follow by changing words alone.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from prill.emulators.miniwob.environment import MiniWoB
from prill.episodes.loop import run_episode
from prill.papers.embedders import TfidfEmbedder
from prill.papers.synapse.agent import Synapse, SynapseSpec
from prill.papers.synapse.growth import make_exemplar
from prill.papers.synapse.memory import EXEMPLARS, Exemplar, ExemplarMemory, ExemplarTurn, key_text
from prill.papers.synapse.prompting import task_table
from prill.protocols import Form, Message, Reply
from prill.types import Usage
from tests.support.programmatic.synapse import ExemplarFollower, adapted, seen_of

SEEDS = range(1000, 1030)
ENOUGH = 6  # solutions to choose from
LEAST, MOST = 3, 6  # exemplars of a task
KEYS = range(1040, 1043)  # seeds whose first pages are one more way to be found

CLICK = 'agent.click_xpath("{}")'.format
SUBMIT = CLICK("//button[text()='Submit']")


def typed(place: str, text: str) -> str:
    """A text into a field that is empty."""
    return f'{CLICK(place)}\nagent.type("{text}")'


def lines(*code: str) -> str:
    """Several calls."""
    return "\n".join(code)


def tick(each: str) -> str:
    """Something for each of several names, then Submit."""
    return lines('for name in "$1".split("|"):', f"    agent.{each}", SUBMIT)


DATE = lines(
    "for month in range($1):", "    " + CLICK("//a[@title='Prev']"), CLICK("//a[text()='$2']")
)
# Keys go to the part of the field that was clicked on; the first part is at the left.
TO_THE_LEFT = lines(CLICK("//*[@id='tt']"), 'agent.press("arrowleft")', 'agent.press("arrowleft")')
PLACE = "(//li/div[contains(text(), '$')])[1]"
NAMED = lines(CLICK("//*[@id='username']"), 'agent.press("command+a")', 'agent.type("$1")')
LOG_IN = lines(typed("//*[@id='password']", "$2"), CLICK("//*[@id='subbtn']"))
# What is done for each task: a pattern of what is seen or of the goal, and the calls, with the
# pattern's groups as $1, $2 … The first pattern that is found counts, so what is seen in later
# turns comes first.
SOLUTIONS: dict[str, Sequence[tuple[str, str]]] = {
    "book-flight": [
        (r'Book offer number "(\d+)"', CLICK("(//button[@class='flight-price'])[$1]")),
        (
            r'Fly from "(.+?)" to "(.+?)"\..*: "(\d+)" months back, day "(\d+)"',
            lines(
                typed("//*[@id='flight-from']", "$1"),
                CLICK(PLACE.replace("$", "$1")),
                typed("//*[@id='flight-to']", "$2"),
                CLICK(PLACE.replace("$", "$2")),
                CLICK("//*[@id='datepicker']"),
                DATE.replace("$2", "$4").replace("$1", "$3"),
                CLICK("//*[@id='search']"),
            ),
        ),
    ],
    "choose-date": [
        (r'"(\d+)" months back, day "(\d+)"', lines(CLICK("//*[@id='datepicker']"), DATE, SUBMIT))
    ],
    "click-button": [(r'Click on the "(.+)" button', CLICK("//button[text()='$1']"))],
    "click-button-sequence": [
        ("ONE", lines(CLICK("//button[text()='ONE']"), CLICK("//button[text()='TWO']")))
    ],
    "click-checkboxes-large": [
        (r'Boxes to tick: "(.*)"', tick("click_xpath(f\"//label[text()='{name}']/input\")"))
    ],
    "click-checkboxes-soft": [
        (r'Boxes to tick: "(.*)"', tick("click_xpath(f\"//label[text()='{name}']/input\")"))
    ],
    "click-collapsible": [("Expand the section below", lines(CLICK("//*[@id='area']/h3"), SUBMIT))],
    "click-collapsible-2": [
        (
            r'There are "(\d+)" sections.* the link "(.+)"',
            lines(
                "for number in range($1):",
                '    agent.click_xpath(f"(//h3)[{number + 1}]")',
                "    " + CLICK("//span[@class='alink' and text()='$2']"),
            ),
        )
    ],
    "click-color": [(r'box of the colour "(\w+)"', CLICK("//*[@data-color='$1']"))],
    "click-dialog": [("Close the dialog box", CLICK("//button[@title='Close']"))],
    "click-dialog-2": [
        (r'clicking the "x"', CLICK("//button[@title='Close']")),
        (r'labeled "(OK|Cancel)"', CLICK("//button[text()='$1']")),
    ],
    "click-link": [(r'Click on the link "(.+)"', CLICK("//span[text()='$1']"))],
    "click-menu": [
        (
            r'through the menu is "(.+)"',
            lines(
                'names = "$1".split(">")',
                "for name in names[:-1]:",
                "    agent.movemouse(f\"//div[text()='{name}']\")",
                "agent.click_xpath(f\"//div[text()='{names[-1]}']\")",
            ),
        )
    ],
    "click-pie": [
        (
            r'click on "(.)"',
            lines(
                CLICK("//*[name()='tspan' and text()='+']"),
                CLICK("//*[name()='tspan' and text()='$1']"),
            ),
        )
    ],
    "click-scroll-list": [
        (r'Options to choose: "(.*)"', tick("click_option(f\"//option[text()='{name}']\")"))
    ],
    "click-shades": [(r"shades of (\w+)", lines(CLICK("//span[@data-color='$1']"), SUBMIT))],
    "click-shape": [(r'figure number "(\d+)"', CLICK("//*[@id='area_svg']/*[$1]"))],
    "click-tab": [(r"Click on (Tab #\d)", CLICK("//a[text()='$1']"))],
    "click-tab-2": [
        (
            r'There are "(\d+)" tabs.* the link "(.+)"',
            lines(
                "for number in range($1):",
                "    agent.click_xpath(f\"//a[text()='Tab #{number + 1}']\")",
                "    " + CLICK("//span[@class='alink' and text()='$2']"),
            ),
        )
    ],
    "click-widget": [(r'Click on a "(\w+)" widget', CLICK("(//*[@data-type='$1'])[1]"))],
    "copy-paste-2": [
        (
            r"from the (\d)\w\w text area",
            lines(
                CLICK("//*[@id='text-$1']"),
                'agent.press("command+a")',
                'agent.press("command+c")',
                CLICK("//*[@id='answer-input']"),
                'agent.press("command+v")',
                SUBMIT,
            ),
        )
    ],
    "count-shape": [(r'The answer is "(\d+)"', CLICK("//button[text()='$1']"))],
    "email-inbox-nl-turk": [
        (
            r'Delete the message by "(\w+)"',
            CLICK("//div[@class='email-thread'][.//*[text()='$1']]//span[@class='trash']"),
        ),
        (
            r'Mark the message by "(\w+)"',
            CLICK("//div[@class='email-thread'][.//*[text()='$1']]//span[@class='star']"),
        ),
        (
            r'Reply to the message by "(\w+)" with the text "(.+?)"',
            lines(
                CLICK("//div[@class='email-sender' and text()='$1']"),
                CLICK("//span[@class='email-reply']"),
                typed("//*[@id='reply-text']", "$2"),
                CLICK("//*[@id='send-reply']"),
            ),
        ),
        (
            r'Forward the message by "(\w+)" to "(\w+)"',
            lines(
                CLICK("//div[@class='email-sender' and text()='$1']"),
                CLICK("//span[@class='email-forward']"),
                typed("//input[@class='forward-sender']", "$2"),
                CLICK("//*[@id='send-forward']"),
            ),
        ),
    ],
    "enter-date": [
        (
            r"Enter (\d+/\d+/\d+)",
            lines(TO_THE_LEFT, 'for part in "$1".split("/"):', "    agent.type(part)", SUBMIT),
        )
    ],
    "enter-password": [
        (
            r'password "(.+)" into both',
            lines(typed("//*[@id='password']", "$1"), typed("//*[@id='verify']", "$1"), SUBMIT),
        )
    ],
    "enter-text-dynamic": [
        (r'Enter "(.+)" into the text field', lines(typed("//*[@id='tt']", "$1"), SUBMIT))
    ],
    "enter-time": [
        (
            r"Enter (\d+):(\d\d) (\wM)",
            lines(
                TO_THE_LEFT,
                'hour, minute, half = "$1", "$2", "$3"',
                'agent.type(f"{int(hour):02}{minute}{half[0]}")',
                SUBMIT,
            ),
        )
    ],
    "find-word": [
        (r'The word to type is "(.+)"', lines(typed("//*[@id='answer-input']", "$1"), SUBMIT))
    ],
    "focus-text": [("Focus into the textbox", CLICK("//*[@id='tt']"))],
    "focus-text-2": [(r"Focus into the (\d)\w\w input", CLICK("//*[@id='tt$1']"))],
    "grid-coordinate": [(r'the point "(.+)"', CLICK("//*[@id='$1']"))],
    "guess-number": [
        (
            r'The next guess is "(\d)"',
            lines(CLICK("//*[@id='tt']"), 'agent.press("command+a")', 'agent.type("$1")', SUBMIT),
        )
    ],
    "identify-shape": [(r'The figure is a "(\w+)"', CLICK("//button[@data-type='$1']"))],
    "login-user-popup": [
        (
            r'A question covers the form.* "(.+)", the password is "(.+)"',
            lines(CLICK("//*[@id='popup-cancel']"), NAMED, LOG_IN),
        ),
        (r'The form is free.* "(.+)", the password is "(.+)"', LOG_IN),
        (
            r'waits for the name "(.+)"; ',
            lines(typed("//*[@id='username']", "$1"), CLICK("//*[@id='password']")),
        ),
    ],
    "multi-layouts": [
        (
            r'in order, "(.+?)", "(.+?)" and "(.+?)"; then click on "(.+)"',
            lines(
                *(typed(f"(//input)[{i}]", f"${i}") for i in (1, 2, 3)), CLICK("//*[text()='$4']")
            ),
        )
    ],
    "navigate-tree": [
        (
            r'Open folders until "(.+)" is in sight',
            lines(
                CLICK("//span[text()='$1']"),
                "for folder in range(12):",
                "    " + CLICK("(//div[contains(@class, 'expandable-hitarea')])[1]"),
                "    " + CLICK("//span[text()='$1']"),
            ),
        )
    ],
    "read-table": [(r'The value is "(.+)"', lines(typed("//*[@id='tt']", "$1"), SUBMIT))],
    "search-engine": [
        (
            r'enter "(.+?)" and .* click the (\d+)',
            lines(
                typed("//*[@id='search-text']", "$1"),
                CLICK("//*[@id='search']"),
                "number = $2",
                "per_page = 3",
                "page = (number - 1) // per_page + 1",
                "if page > 1:",
                "    agent.click_xpath(f\"//a[text()='{page}']\")",
                "agent.click_xpath(f\"(//a[@class='search-title'])[{number - (page - 1) * "
                'per_page}]")',
            ),
        )
    ],
    "simple-algebra": [(r'x is "(-?\d+)"', lines(typed("//*[@id='math-answer']", "$1"), SUBMIT))],
    "social-media": [
        (
            r'In post "(\d+)", click on "(\w+)"',
            CLICK("//div[@data-result='$1']//span[@class='$2']"),
        ),
        (
            r'In post "(\d+)", open the menu and choose "(.+)"',
            lines(
                CLICK("//div[@data-result='$1']//span[@class='more']"),
                CLICK("//li[contains(text(), '$2')]"),
            ),
        ),
    ],
    "social-media-all": [
        (
            r'Under number "([\d ]+)", click on "(\w+)"',
            lines(
                'for place in "$1".split():',
                "    agent.click_xpath(f\"//div[@data-result='{place}']//span[@class='$2']\")",
                SUBMIT,
            ),
        )
    ],
    "terminal": [
        (r'The file to delete is "(.+)"', lines('agent.type("rm $1")', 'agent.press("enter")')),
        ("The terminal waits", lines('agent.type("ls")', 'agent.press("enter")')),
    ],
    "text-transform": [(r'The text is "(.+)"', lines(typed("//*[@id='tt']", "$1"), SUBMIT))],
    "tic-tac-toe": [(r'The cell to click is "(ttt-\d)"', CLICK("//*[@id='$1']"))],
    "use-autocomplete": [
        (r'The item to choose is "(.+)"', lines(CLICK("//div[text()='$1']"), SUBMIT)),
        (r'starts with "([^"]+)"', typed("//*[@id='tags']", "$1")),
    ],
    "use-slider": [
        (
            r'Press "(\w+)" so many times: "(\d+)"',
            lines(
                CLICK("//span[contains(@class, 'ui-slider-handle')]"),
                "for time in range($2):",
                '    agent.press("$1")',
                SUBMIT,
            ),
        )
    ],
    "use-spinner": [
        (
            r'the arrow "(\w+)" so many times: "(\d+)"',
            lines(
                "for time in range($2):",
                "    " + CLICK("//a[contains(@class, 'ui-spinner-$1')]"),
                SUBMIT,
            ),
        )
    ],
}
SOLUTIONS["social-media-some"] = SOLUTIONS["social-media-all"]


class Solver:
    """Writes what is done for a task; where code for a page is asked for, that of the prompt's
    example.
    """

    name = "by hand"

    def __init__(self, task: str, goal: str) -> None:
        self.task, self.goal = task, goal
        self._follower = ExemplarFollower()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        form: Form | None = None,
        max_tokens: int = 1024,
        prompt: str = "",
    ) -> Reply:
        """Returns the calls of the current turn."""
        if messages[0].role != "system":
            return await self._follower.complete(messages)
        page = str(messages[-1].parts[0])
        for pattern, code in SOLUTIONS[self.task]:
            if match := re.search(pattern, f"{page}\n{self.goal}"):
                found = re.sub(r"\$(\d)", lambda number, match=match: match[int(number[1])], code)  # type: ignore[misc]
                return Reply(f"```\n{found}\n```", Usage(calls=1), {})
        return Reply("There is nothing to do.", Usage(calls=1), {})


def empty_memory(task: str) -> ExemplarMemory:
    """A memory that says of the task only how its pages are put into few words."""
    shipped = ExemplarMemory.load(None, TfidfEmbedder())
    way = shipped.abstractions.get(task)
    turns = 1 if task_table().turns.get(task, 1) == 1 else 2
    blank = Exemplar(task, "Task", "", (ExemplarTurn("pass", "", "" if way else None),) * turns)
    return ExemplarMemory([blank], shipped.abstractions, embedder=TfidfEmbedder())


async def solved(environment: MiniWoB, task: str, seed: int) -> Exemplar | None:
    """Returns the solution of a seed as an exemplar; prints a reason and returns None if the
    page does not reward it.
    """
    of = await environment.task(task, seed)
    policy = Synapse(Solver(task, of.goal), SynapseSpec(retrieval=False), opened=empty_memory(task))
    run = await run_episode(policy, environment, of, id=of.id, agent="synapse", max_steps=250)
    label = await environment.grade(run)
    if label.note == "raw reward 1":
        one = make_exemplar(run, "oracle")
        # The blocks as they were written, with their loops: what is recorded is what came of them.
        steps = [
            replace(step, action=turn.action)
            for step, turn in zip(one.steps, policy.turns, strict=False)
        ]
        return replace(one, steps=tuple(steps))
    notes = "; ".join(step.thought for step in run.steps if step.thought)
    print(f"{run.id}: {of.goal!r}: {label.note}, {run.error}: {notes[:300]}", file=sys.stderr)
    return None


async def key(environment: MiniWoB, task: str, seed: int) -> Exemplar:
    """Returns the first page of a seed as a key without an exemplar."""
    of = await environment.task(task, seed)
    page = await environment.reset(of)
    return Exemplar(task, key_text(of.goal, page.text or ""), provenance="oracle", source=of.id)


def to_words(turn: ExemplarTurn) -> str:
    """What the model goes by in this turn."""
    return seen_of(turn.observation if turn.observation is not None else turn.state or "")


def follows(one: Exemplar, other: Exemplar) -> bool:
    """Whether the other solution is this one with other words, in every turn."""
    if len(one.steps) < len(other.steps):
        return False
    pairs = zip(one.steps, other.steps, strict=False)
    return all(
        adapted(mine.action, to_words(mine), to_words(its)) == its.action for mine, its in pairs
    )


def chosen(found: Sequence[Exemplar]) -> list[Exemplar]:
    """Few of the solutions: each the one from which most others follow that follow from none before
    it.
    """
    kept, open_ = list[Exemplar](), list(found)
    while len(kept) < min(MOST, len(found)) and (open_ or len(kept) < LEAST):
        left = [one for one in found if one not in kept]
        best = max(
            left,
            key=lambda one: (sum(follows(one, other) for other in open_ or found), -len(one.key)),
        )
        kept.append(best)
        open_ = [one for one in open_ if one is not best and not follows(best, one)]
    return sorted(kept, key=found.index)


async def main() -> None:
    """Reads the options and writes the exemplars."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--tasks", default=",".join(task_table().exemplars), help="which, with commas between"
    )
    args = parser.parse_args()
    there = (args.folder / EXEMPLARS).is_file()
    kept = list(ExemplarMemory.load(args.folder, TfidfEmbedder()).exemplars) if there else []
    with tempfile.TemporaryDirectory() as images:
        environment = MiniWoB(Path(images), text="html", timeout=600)
        try:
            for task in args.tasks.split(","):
                if any(one.name == task for one in kept):
                    continue
                found = list[Exemplar]()
                for seed in SEEDS:
                    if (
                        len(found) < ENOUGH
                        and (one := await solved(environment, task, seed)) is not None
                    ):
                        found.append(one)
                few = chosen(found)
                kept += [*few, *[await key(environment, task, seed) for seed in KEYS]]
                print(f"{task}: {len(few)} of {len(found)}", file=sys.stderr)
                await ExemplarMemory(kept, embedder=TfidfEmbedder()).save(args.folder)
        finally:
            await environment.close()


if __name__ == "__main__":
    asyncio.run(main())

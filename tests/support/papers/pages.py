"""A small site of static pages, and a model that answers by the type of question, for tests without
a browser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from prill.episodes.loop import run_episode
from prill.papers.structured_reflection.actions import format_line
from prill.papers.structured_reflection.agent import StructuredReflection, StructuredSpec
from prill.protocols import Message
from prill.testing import ScriptedModel
from prill.types import Action, EvaluatorInfo, Observation, Task, Trajectory, Verdict

TASK = Task(
    id="miniwob/three?seed=1", goal="Press one, two and three", platform="web", site="three"
)
Said = str | Exception
FAILED = Verdict(id="a", success=False, reason="FAILED", evaluator=EvaluatorInfo("oracle", "1"))


def page(*lines: str) -> str:
    """Returns HTML whose elements are these tags with numbers, from 1."""
    tags = "".join(
        line.replace(">", f' data-wob_ref="{n}" data-wob_box="0 0 10 10">', 1)
        for n, line in enumerate(lines, 1)
    )
    return (
        '<div id="wrap" data-wob_ref="100"><div id="query" '
        f'data-wob_ref="101">goal</div>{tags}</div>'
    )


def buttons(*words: str) -> str:
    """Returns a page of buttons with these texts."""
    return page(*(f"<button>{word}</button>" for word in words))


class Site:
    """Pages by name, and the target of each action: `moves[page][line]`. Other actions change
    nothing.

    The pages `won` and `lost` end the episode.
    """

    def __init__(
        self, pages: Mapping[str, str], moves: Mapping[str, Mapping[str, str]], start: str = "start"
    ) -> None:
        self.pages, self.moves, self.start = pages, moves, start
        self.at = start
        self.done: list[str] = []

    async def reset(self, task: Task) -> Observation:
        self.at, self.done = self.start, []
        return Observation(text=self.pages[self.at])

    async def step(self, action: Action) -> tuple[Observation, bool]:
        line = format_line(action)
        self.done.append(line)
        if action.kind != "other":
            self.at = self.moves.get(self.at, {}).get(line, self.at)
        return Observation(text=self.pages.get(self.at, "")), self.at in ("won", "lost")

    async def close(self) -> None:
        pass


class Renumbered(Site):
    """A site with different ids in each attempt: higher by 100 than in the previous one. `done`
    uses the original ids.
    """

    higher = 0

    async def reset(self, task: Task) -> Observation:
        self.higher += 100
        return self._shown(await super().reset(task))

    async def step(self, action: Action) -> tuple[Observation, bool]:
        target = re.sub(
            r'(?<=ref=")\d+', lambda ref: str(int(ref[0]) - self.higher), action.target or ""
        )
        observation, done = await super().step(replace(action, target=target))
        return self._shown(observation), done

    def _shown(self, observation: Observation) -> Observation:
        text = re.sub(
            r'(?<=ref=")\d+', lambda ref: str(int(ref[0]) + self.higher), observation.text or ""
        )
        return replace(observation, text=text)


class Answers(ScriptedModel):
    """Returns scripted plans and reflections in order, and generates descriptions of actions and
    ids. `asked` records the request types.
    """

    def __init__(
        self, plans: Iterable[Said] | Callable[[str], Said] = (), reflections: Iterable[Said] = ()
    ) -> None:
        super().__init__(self.say)
        self.plans = plans if callable(plans) else self._in_order(plans)
        self.reflections = iter(reflections)
        self.asked: list[tuple[str, str]] = []

    @staticmethod
    def _in_order(plans: Iterable[Said]) -> Callable[[str], Said]:
        left = iter(plans)
        return lambda prompt: next(left)

    def say(self, messages: Sequence[Message]) -> Said:
        system, user = str(messages[0].parts[0]), str(messages[-1].parts[0])
        if system.startswith("You plan"):
            self.asked.append(("plan", user))
            return self.plans(user)
        if system.startswith("You look at a failed"):
            self.asked.append(("reflection", user))
            return next(self.reflections)
        if system.startswith("You find"):
            self.asked.append(("grounding", user))
            return "2, or 1; I say 2"
        self.asked.append(("paraphrase", user))
        return f"do what {user.partition('ACTION: ')[2].partition(chr(10))[0]} does"

    def prompts(self, kind: str) -> list[str]:
        """Returns the requests of a type."""
        return [prompt for one, prompt in self.asked if one == kind]


async def attempt(
    site: Site,
    model: Answers,
    lessons: Sequence[str] = (),
    *,
    task: Task = TASK,
    max_steps: int = 30,
    **options: object,
) -> Trajectory:
    """Runs one attempt with these lessons."""
    policy = StructuredReflection(model, StructuredSpec(**options), lessons=lessons)  # type: ignore[arg-type]
    return await run_episode(policy, site, task, id="a", max_steps=max_steps)


async def lesson(
    model: Answers, played: Trajectory, lessons: Sequence[str] = (), **options: object
) -> str:
    """Returns the lesson from an attempt."""
    policy = StructuredReflection(model, StructuredSpec(**options), lessons=lessons)  # type: ignore[arg-type]
    return await policy.reflect(played, FAILED)


def state(played: Trajectory) -> str | None:
    """Returns the agent's final state. None if the site ended the episode."""
    return played.answer


def chain(*words: str) -> Site:
    """Returns a site with one page of buttons per step. The first button goes on, the others change
    nothing; the last page is followed by `won`.
    """
    names = [*words, "won"]
    pages = {name: buttons(name, f"not {name}") for name in words}
    moves = {name: {"click id=1": after} for name, after in zip(words, names[1:], strict=True)}
    return Site(pages, moves, words[0])

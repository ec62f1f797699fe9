"""The chain-of-thought actor of WebArena (arXiv 2307.13854; the actor of arXiv 2404.06474's retries), for web and phones.

It sees the page's text and its own last action, and no history. Differences: the prompts are our own, page text stands in
quotations that no page can forge, and phones have verbs of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from prill.actions.webarena import UnreadableAction, describe, read_action
from prill.agents.numbering import NumberedText, numbered
from prill.agents.phone_grammar import read_phone_action
from prill.agents.react_messages import Turn, Variant
from prill.errors import NoEvidence
from prill.protocols import LanguageModel, Message
from prill.types import Action, Observation, Step, Task

# The original takes the first span, also when it stands in the reasoning.
_SPAN = re.compile(r"```(.*?)```", re.DOTALL)
_PHRASE = re.compile(r"\s*in summary,? the next action i will perform is:?\s*\Z", re.IGNORECASE)


class React:
    """Asks a model for one action at a time, from the page's text.

    lessons    what was learned from earlier attempts: shown as MEMORY. The list may be changed between episodes
    variant    how the actor is asked
    attempts   how often a turn is asked when no action can be read (the original's max_retry: 1); a further attempt is told
               why the last one failed
    hint       after an unreadable reply, the next turn's PREVIOUS ACTION says what was wrong; False: it says "none", as in
               the paper's retries
    max_tokens of one reply (the paper: 384); a model that is cut at twice as many ends the episode with an error

    What cannot be read becomes an action of kind `other` with the raw text; `prill.early_stop` ends the episode after three.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        lessons: Iterable[str] = (),
        variant: Variant | None = None,
        attempts: int = 1,
        hint: bool = True,
        max_tokens: int = 384,
    ) -> None:
        self.model = model
        self.lessons = list(lessons)
        self.variant = variant or Variant()
        self.attempts = attempts
        self.hint = hint
        self.max_tokens = max_tokens
        self._task = Task(goal="")
        self._done = self._advice = ""

    def reset(self, task: Task) -> None:
        """Begin a new episode; the lessons stay."""
        self._task = task
        self._done = self._advice = ""

    async def act(self, observation: Observation) -> Step:
        """The next step. Raises NoEvidence without a text, and whatever `Unscored` error the model raises."""
        if observation.text is None:
            raise NoEvidence("react reads the text of the page, and this state has none")
        platform = self._task.platform
        page = numbered(observation.text)
        turn = Turn(
            observation=page.text,
            goal=self._task.goal,
            done=self._done,
            advice=self._advice,
            url=observation.url or "(unknown)",
        )
        messages = self.variant.messages(platform, turn, self.lessons)
        prompt = self.variant.hash(platform)
        step = Step(observation, Action("other"))
        for _ in range(max(1, self.attempts)):
            reply = await self.model.complete(messages, max_tokens=self.max_tokens, prompt=prompt)
            thought, said = split_reply(reply.text)
            try:
                action = self._read(said, page)
            except UnreadableAction as problem:
                action = Action("other", reply.text.strip() if said is None else said)
                advice = f"Nothing was done: {problem}. {self._wanted}"
                self._done, self._advice = "", advice if self.hint else "none"
                messages = (*messages, Message("assistant", (reply.text,)), Message("user", (advice,)))
                step = Step(observation, action, thought)
                continue
            self._done, self._advice = action.text, ""
            return Step(observation, action, thought)
        return step

    @property
    def _wanted(self) -> str:
        words = "your reasoning, the summarising phrase, and " if self.variant.reasoning else ""
        return f"Reply with {words}one action between triple back-ticks."

    def _read(self, said: str | None, page: NumberedText) -> Action:
        """The action with its element's line as target, described as logs do. Raises UnreadableAction."""
        if said is None:
            raise UnreadableAction("the reply has no action between triple back-ticks")
        on_web = self._task.platform == "web"
        action = read_action(said) if on_web else read_phone_action(said)
        if on_web or action.target is not None:
            action = replace(action, text=describe(action, page.text))
        return replace(action, target=page.target(action.target))


def split_reply(reply: str) -> tuple[str | None, str | None]:
    """The reasoning without its closing phrase, and what the first pair of triple back-ticks holds; None: there is none.

    What a reasoning model thinks to itself, up to `</think>`, is left out: it tries actions out there.
    """
    reply = reply.rpartition("</think>")[2]
    span = _SPAN.search(reply)
    if span is None:
        return None, None
    return _PHRASE.sub("", reply[: span.start()]).strip() or None, span[1].strip()

"""Scores a predicted action against the recorded one, in the three schemes of Mind2Web's papers,
and reads the target of a recorded step.

`generation` and `multi-choice` are MindAct's two evaluators as Self-MAP (ACL 2024) uses them. Any
positive counts. They differ in whether a standalone punctuation mark counts as a word. `synapse`
(arXiv 2306.07863) reads the action's text; only the first positive counts.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import Literal

from prill.papers.mind2web.pages.state import read_state
from prill.types import Action, Step

Scheme = Literal["generation", "multi-choice", "synapse"]
Match = Literal["parsed", "exact_text"]
TOP = 50  # candidates that an agent may choose among: Mind2Web, arXiv 2306.06070, section 4.1
_SAID = re.compile(r"(?:(?<!\S)(CLICK|SELECT|TYPE) )?\[([^\]]*)\](?: \[([^\]]+)\])?")


@dataclass(frozen=True, slots=True)
class Asked:
    """The target of a recorded step: its positives, the operation (`CLICK`, `TYPE`, `SELECT`) and
    its value.

    `ranks` has the rank of each positive among the candidates, from 0. None: the positive is not a
    candidate.
    """

    positives: tuple[str, ...]
    ranks: tuple[int | None, ...]
    operation: str
    value: str = ""

    def within(self, top: int) -> tuple[str, ...]:
        """Returns the positives among the best `top` candidates."""
        return tuple(
            id
            for id, rank in zip(self.positives, self.ranks, strict=True)
            if rank is not None and rank < top
        )

    @property
    def text(self) -> str:
        """Formats the action in Synapse's form: `TYPE [12] [new york]`."""
        return said(self.operation, self.positives[0] if self.positives else "", self.value)


@dataclass(frozen=True, slots=True)
class StepScore:
    """The score of one step.

    Args:
        element: Whether the element is right, 0 or 1.
        f1: The F1 of the operation's words, in [0, 1].
        success: Whether both are 1.
    """

    element: float = 0.0
    f1: float = 0.0
    success: bool = False


@dataclass(frozen=True, slots=True)
class Marking:
    """The scoring scheme of steps.

    A step without a right element among the best `top` candidates has element 0, F1 0 and no
    success, whatever was done.

    Args:
        scheme: The rules: MindAct's for one of its two forms, or Synapse's.
        top: How many of the best candidates count.
        step_match: Synapse's step success: `parsed`, operation, element and value are right; else
            the text is the same.
    """

    scheme: Scheme = "generation"
    top: int = TOP
    step_match: Match = "parsed"

    def score(self, asked: Asked, done: Action | None) -> StepScore:
        """Scores a predicted action.

        Args:
            asked: The target of the recorded step.
            done: The predicted action. None: there is none.

        Returns:
            The score.
        """
        positives = asked.within(self.top)
        if not positives or done is None:
            return StepScore()
        if self.scheme == "synapse":
            return self._by_text(asked, done.text)
        operation = "" if done.kind == "none" else done.kind.upper()
        element = float(done.target in positives)
        # even for a click: MindAct's evaluators count a superfluous value
        words = f"{operation} {done.value or ''}"
        f1 = word_f1(
            words, _words(asked.operation, asked.value), punctuation=self.scheme == "multi-choice"
        )
        return StepScore(element, f1, element == 1 and f1 == 1)

    def _by_text(self, asked: Asked, text: str) -> StepScore:
        operation, id, value = read_said(text)
        wanted = (
            asked.operation,
            asked.positives[0],
            asked.value if asked.operation != "CLICK" and asked.value else None,
        )
        f1 = word_f1(
            _words(operation, value), _words(asked.operation, asked.value), punctuation=False
        )
        right = (
            text == asked.text
            if self.step_match == "exact_text"
            else (operation, id, value) == wanted
        )
        return StepScore(float(id == asked.positives[0]), f1, right)


USUAL = Marking()


def describe_step(step: Step) -> Asked:
    """Reads the target of a recorded step.

    Args:
        step: A step whose observation is a recorded page.

    Returns:
        The right elements with their ranks among the candidates (from 0; None: not a candidate),
        the operation in upper case and its value.

    Raises:
        ValueError: The observation is not a recorded page.
    """
    ranks = {id: rank for rank, id in enumerate(read_state(step.observation.text or "").candidates)}
    positives = tuple((step.action.target or "").split())
    return Asked(
        positives,
        tuple(map(ranks.get, positives)),
        step.action.kind.upper(),
        step.action.value or "",
    )


def said(operation: str, id: str, value: str | None) -> str:
    """Formats an action in Synapse's form: `CLICK [8635]`, `TYPE [12] [new york]`."""
    return f"{operation} [{id}]" + (f" [{value}]" if value and operation != "CLICK" else "")


def read_said(text: str) -> tuple[str | None, str | None, str | None]:
    """Parses operation, id and value from Synapse's form. A missing part is None."""
    found = _SAID.search(text)
    return (found[1], found[2], found[3]) if found else (None, None, None)


def word_f1(predicted: str, gold: str, *, punctuation: bool) -> float:
    """Returns the F1 of two sets of words, case-sensitive. Without `punctuation`, single
    punctuation marks do not count as words.
    """
    ours, theirs = (
        {
            word
            for word in text.split()
            if punctuation or len(word) > 1 or word not in string.punctuation
        }
        for text in (predicted, gold)
    )
    if not ours and not theirs:
        return 1.0
    both = len(ours & theirs)
    return 2 * both / (len(ours) + len(theirs)) if both else 0.0


def _words(operation: str | None, value: str | None) -> str:
    """Returns the operation with its value. A click has no value."""
    if operation == "CLICK" or not value:
        return operation or ""
    return f"{operation} {value}" if operation else value

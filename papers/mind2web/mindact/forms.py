"""The question about one group of candidates, the answer in either form, and what an answer means.

By letter: `C.`, then `Action: SELECT`, then `Value: Queen`; A stands for none of the choices.
Written: `Element: …` with the element's text, then the same two lines; or `None`. A model that was
prompted begins with `Answer: C.`. Answers in one line are read, too: T5 writes no line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from typing import Literal

import msgspec

from prill.models.prompts import clean, load_prompt, quoted
from prill.models.replies import excerpt
from prill.papers.files import read_text, read_toml
from prill.papers.mind2web.mindact.chat import letter_in, read_chat, says_none
from prill.papers.mind2web.pages.tree import CandidateChoice
from prill.papers.replies import UnreadableReplyError, one_answer, visible_text
from prill.types import Action

PACKAGE = "prill.papers.mind2web.mindact"
Form = Literal["choice", "generation"]
_KINDS = {"CLICK": "click", "TYPE": "type", "SELECT": "select"}
_OPERATIONS = {kind: operation for operation, kind in _KINDS.items()}
_NONE = "None"
_LETTER = re.compile(r"\s*([A-Z])(?![A-Za-z])")
_ANSWER = re.compile(r"\bAnswer:\s*([A-Z])(?![A-Za-z])")
_ELEMENT = re.compile(r"Element: *(.*?) *(?=Action: |\n|$)")
_ACTION = re.compile(r"Action: *(CLICK|SELECT|TYPE)")
_VALUE = re.compile(r"Value: *([^\n]*)")
_ID = re.compile(r"\s?\bid=(\d+)")
_LEAST_ALIKE = 0.5  # of a chat model's element and the best choice; below, it named none of them
_NOBODY = CandidateChoice("", "none of them")
_MARK, _FENCE = "###", "'''"  # what divides the parts of the trained form


@dataclass(frozen=True, slots=True)
class Passage:
    """One step as a model reads it: the page, the question, and the answer; None where it is to be
    given.
    """

    page: str
    question: str
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Picked:
    """What an answer chose: the candidate, and the operation and value as they were written; empty
    where they were not.

    Without an operation the action is of kind `none`: it has its element, which may still be the
    right one.
    """

    id: str
    operation: str
    value: str

    def action(self) -> Action:
        """What is done to the candidate: `TYPE [12] [new york]`."""
        text = " ".join(
            filter(None, (self.operation, f"[{self.id}]", f"[{self.value}]" if self.value else ""))
        )
        return Action(
            _KINDS.get(self.operation, "none"), text, target=self.id, value=self.value or None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormExample:
    """A step with its right answer, for models that were not trained on the form; `chosen` is the
    place of the choice.
    """

    task: str
    page: str
    choices: tuple[str, ...]
    past: tuple[str, ...]
    chosen: int | None = None
    operation: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Wording:
    """How steps are put: by letter or written, for a model that was prompted or one that was
    trained; elements with numbers or without.
    """

    form: Form
    prompted: bool
    numbers: bool = True

    def passage(
        self,
        page: str,
        task: str,
        past: Sequence[str] | None,
        choices: Sequence[CandidateChoice],
        answer: str | None = None,
    ) -> Passage:
        """The step. `past` are the actions to be told; None: nothing is said of them."""
        # In the trained form, which is fixed, no page can end its own part.
        page = quoted("page", page) if self.prompted else f"{_FENCE}\n{_plain(page)}\n{_FENCE}"
        return Passage(
            page, self.question(task, past, choices), answer if answer is None else _plain(answer)
        )

    def question(
        self, task: str, past: Sequence[str] | None, choices: Sequence[CandidateChoice] | None
    ) -> str:
        """The question about a page. Without choices it does not say how to answer."""
        told = ""
        if past is not None:
            told = f"Previous actions:\n{self._lines('actions', past) if past else _NONE}\n"
        return load_prompt(PACKAGE, "question").fill(
            {
                "task": _line(task),
                "previous": told,
                "choices": "" if choices is None else self._choices(choices),
            }
        )["user"]

    def _choices(self, choices: Sequence[CandidateChoice]) -> str:
        how = wording()["write" if self.form == "generation" else "choose"] if self.prompted else ""
        if self.form == "generation":
            return how
        listed = [f"{chr(ord('B') + i)}. {choice.text}" for i, choice in enumerate(choices)]
        body = f"\n{self._lines('elements', listed)}" if listed else ""
        return f"{how}\n\nA. {wording()['none_of_them']}{body}"

    def _lines(self, name: str, lines: Sequence[str]) -> str:
        text = "\n".join(map(_line, lines))
        return quoted(name, text) if self.prompted else _plain(text)

    def answer(
        self,
        choices: Sequence[CandidateChoice],
        chosen: str | None,
        operation: str,
        value: str,
        *,
        rationale: str | None = None,
    ) -> str:
        """The right answer where the candidate `chosen` is the target; None, or one that is not
        offered: none of them is.
        """
        place = next((i for i, choice in enumerate(choices) if choice.id == chosen), None)
        if place is None:
            lines = [_NONE if self.form == "generation" else self._letter("A")]
        else:
            first = (
                self._letter(chr(ord("B") + place))
                if self.form == "choice"
                else f"Element: {choices[place].text}"
            )
            lines = [first, *operation_lines(operation, value)]
        if rationale is not None:
            lines.append(f"Rationale: {_line(rationale)}")
        return "\n".join(lines)

    def _letter(self, letter: str) -> str:
        return f"Answer: {letter}." if self.prompted else f"{letter}."

    def read(self, answer: str, choices: Sequence[CandidateChoice]) -> Picked | None:
        """What an answer chose; None where it says that none of the choices suits.

        A model that was trained is read as the paper's code does; of a chat model, Markdown, JSON,
        a reason before the answer and an example of its own behind it are allowed for.

        Raises:
            UnreadableReplyError: The answer names no choice that was offered, or two.
        """
        text = visible_text(answer)
        if not self.prompted:
            choice = (
                _written(text, choices, self.numbers)
                if self.form == "generation"
                else _lettered(text, choices)
            )
            operation, value = _ACTION.search(text), _VALUE.search(text)
            said = operation[1] if operation else "", value[1].strip() if value else ""
            return None if choice is None else Picked(choice.id, *said)
        reply = read_chat(text)
        found = [self._chosen(one, choices) for one in reply.answers]
        if (chosen := one_answer(found, lambda one: one.text)) is None:
            raise UnreadableReplyError(
                f"the reply has no line {'Element:' if self.form == 'generation' else 'Answer:'}"
            )
        return None if chosen is _NOBODY else Picked(chosen.id, reply.operation, reply.value)

    def _chosen(self, said: str, choices: Sequence[CandidateChoice]) -> CandidateChoice:
        """The choice that a chat model names. Raises UnreadableReplyError where there is none of
        that name.
        """
        if says_none(said):
            return _NOBODY
        if self.form == "choice":
            place = ord(letter_in(said)) - ord("B")
            if place >= len(choices):
                raise UnreadableReplyError(
                    f"{excerpt(said)} is none of the choices A to {chr(ord('A') + len(choices))}"
                )
            return _NOBODY if place < 0 else choices[place]
        bare = re.fullmatch(r"\W*(?:id\W*)?(\d+)\W*", said)
        number = (_ID.search(said) or bare) if self.numbers else None
        if number and int(number[1]) < len(choices):
            return choices[int(number[1])]
        near = [(_alike(said, choice.text), -i) for i, choice in enumerate(choices)]
        if not near or max(near)[0] < _LEAST_ALIKE:
            raise UnreadableReplyError(f"{excerpt(said)} is none of the elements that are offered")
        return choices[-max(near)[1]]

    def example(self, example: FormExample) -> Passage:
        """The worked step in this form."""
        page, *texts = (
            text if self.numbers else _ID.sub("", text) for text in (example.page, *example.choices)
        )
        choices = [CandidateChoice(str(i), text) for i, text in enumerate(texts)]
        chosen = None if example.chosen is None else str(example.chosen)
        answer = self.answer(choices, chosen, example.operation, example.value)
        return self.passage(page, example.task, example.past, choices, answer)


def _alike(said: str, text: str) -> float:
    """How much an element as it was written is like one that was offered, by words and letters,
    without marks.
    """
    one, other = (" ".join(re.findall(r"\w+", _ID.sub("", each).lower())) for each in (said, text))
    if one and f" {one} " in f" {other} ":
        return 1.0
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def to_operation(action: Action) -> tuple[str, str]:
    """A recorded action's operation, and its value where it has one: a click has none."""
    operation = _OPERATIONS.get(action.kind, action.kind.upper())
    return operation, "" if operation == "CLICK" else action.value or ""


def operation_lines(operation: str, value: str) -> list[str]:
    """The lines of an answer that do not name the element."""
    return [f"Action: {operation}", *([] if operation == "CLICK" else [f"Value: {_line(value)}"])]


def _lettered(text: str, choices: Sequence[CandidateChoice]) -> CandidateChoice | None:
    """The choice of a letter; None for A. Raises UnreadableReplyError without a letter, or for one
    that was not offered.
    """
    found = _ANSWER.search(text) or _LETTER.match(text)
    if found is None:
        raise UnreadableReplyError("the answer has no letter")
    place = ord(found[1]) - ord("B")
    if place >= len(choices):
        raise UnreadableReplyError(
            f"{found[1]} is none of the choices A to {chr(ord('A') + len(choices))}"
        )
    return None if place < 0 else choices[place]


def _written(
    text: str, choices: Sequence[CandidateChoice], numbers: bool
) -> CandidateChoice | None:
    """By its number where elements have some, else the choice whose text is most alike, of several
    the first; None for None.

    Raises UnreadableReplyError where no element stands there.
    """
    if text.startswith(_NONE):
        return None
    found = _ELEMENT.search(text)
    if found is None or not found[1] or not choices:
        raise UnreadableReplyError("the answer has no line Element:")
    number = _ID.search(found[1]) if numbers else None
    if number and int(number[1]) < len(choices):
        return choices[int(number[1])]
    return max(
        choices,
        key=lambda choice: SequenceMatcher(None, found[1], choice.text, autojunk=False).ratio(),
    )


def _line(text: str) -> str:
    return " ".join(clean(text).splitlines()).strip()


def _plain(text: str) -> str:
    return clean(text).replace(_MARK, "# # #").replace(_FENCE, "' ' '")


def wording() -> dict[str, str]:
    """What is said in some cases only; see wording.toml."""
    return read_toml(PACKAGE, "wording.toml")


@cache
def examples() -> tuple[FormExample, ...]:
    """The worked steps; see examples.toml."""
    table = read_toml(PACKAGE, "examples.toml")
    return msgspec.convert(table["example"], tuple[FormExample, ...])


def prompt_texts() -> tuple[str, ...]:
    """Everything that this policy says to models."""
    prompts = ("system", "prompted", "question", "rationale", "rewrite")
    return (
        *(load_prompt(PACKAGE, name).text for name in prompts),
        *(read_text(PACKAGE, name) for name in ("wording.toml", "examples.toml")),
    )

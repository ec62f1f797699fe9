"""Formats the question about a group of candidates and the right answer in either form, and parses
answers.

Choice form: `C.`, then `Action: SELECT`, then `Value: Queen`; A means none of the choices.
Generation form: `Element: …` with the element's text, then the same two lines; or `None`. A
prompted model begins with `Answer: C.`. Single-line answers are read too, because T5 writes no line
breaks. Chat models also write answers in bold, as JSON, in a sentence, in another language or after
a reason, and continue with an example of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from typing import Any, Literal

import msgspec

from prill.models.prompts import clean, load_prompt, quoted
from prill.models.replies import excerpt
from prill.papers.mind2web.pages.tree import CandidateChoice
from prill.papers.replies import (
    UnreadableReplyError,
    asserted_text,
    json_values,
    lower_keys,
    one_answer,
    plain_line,
    read_text,
    read_toml,
    visible_text,
    without_fences,
)
from prill.types import Action

_LABELS = "Answer|Choice|Element|Antwort|Respuesta|Réponse|Risposta|Resposta|Ответ|答案|回答|选择|答え|정답"  # noqa: E501
_NAMED = re.compile(
    rf"(?:^|(?<=[\s.,;!?]))(?:(?:Final|My|The|Correct) )?(?:{_LABELS})[ \t]*(?:is[ \t]*)?[:：=]"
    rf"[ \t]*\n?(?!(?:{_LABELS})[ \t]*[:：])(.+?)[ \t]*(?=$|[ \t]Action: )",
    re.MULTILINE | re.IGNORECASE,
)
_IN_WORDS = re.compile(
    r"\b(?:[Aa]nswer|[Cc]hoice|[Ll]etter|[Oo]ption|[Cc]hoose|[Ss]elect|[Pp]ick)\b"
    r"(?: (?:is|would be|should be|letter|option|choice|element|answer))*[ :]*[\"'(\[]?([A-Z])[\"')\]]?"  # noqa: E501
    r"(?=[.,;:!]|\s*$|\s+(?:since|because|as|for|with|which|and)\b)",
    re.MULTILINE,
)
_ALONE = re.compile(r"[\"'(\[]?[A-Z][\"')\].:]+(?:\s.*)?|[A-Z]|None\W*")
_CHAT_LETTER = re.compile(
    r"(?:(?:option|choice|letter) )?\W{0,2}([A-Za-z])(?![A-Za-z0-9])", re.IGNORECASE
)
_CHAT_NONE = re.compile(
    r"\W*(?:none(?: of (?:the above|them|these))?|null|n/?a|nothing|keine?s?(?: davon)?|ninguno|aucun|无|以上都不是)?\W*",  # noqa: E501
    re.IGNORECASE,
)
_OPERATION = re.compile(r"\b(CLICK|SELECT|TYPE)\b", re.IGNORECASE)
_CHAT_ACTION = re.compile(
    r"(?:^|[ \t])(?:Action|Operation|Aktion|Acción|Действие|动作|操作)[ \t]*[:：]\W*(CLICK|SELECT|TYPE)\b",  # noqa: E501
    re.MULTILINE | re.IGNORECASE,
)
_CHAT_VALUE = re.compile(
    r"(?:^|[ \t])(?:Value|Wert|Valor|Valeur|Значение|值)[ \t]*[:：][ \t]*([^\n]*)",
    re.MULTILINE | re.IGNORECASE,
)
_TURN = re.compile(
    r"^[^\w\n]*(?:Task|Human|User|Observation|Next(?: example)?|Example \d+)[^\w\n]*:|^'{3}|^###\s*(?:Human|Assistant)",  # noqa: E501
    re.MULTILINE | re.IGNORECASE,
)
_KEYS = ("answer", "choice", "letter", "element", "option", "selection", "element_id")
_INNER = ("arguments", "input", "parameters")


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A parsed answer: the choices in the model's words, the operation in capitals, the value."""

    answers: tuple[str, ...]
    operation: str = ""
    value: str = ""


def read_chat(text: str) -> ChatAnswer:
    """Parses an answer written as JSON or as labelled lines."""
    for value in json_values(text):
        table = _flat(value)
        key = next((key for key in _KEYS if key in table), None)
        if key is not None:
            operation = _OPERATION.search(str(table.get("action") or table.get("operation") or ""))
            typed = "" if table.get("value") is None else str(table["value"])
            return ChatAnswer((str(table[key]),), *_parse_operation(operation, typed))
    lines = without_fences(_TURN.split(text)[0]).splitlines()
    lines = [line for line in map(plain_line, lines) if line]
    flat = "\n".join(lines)
    answers = [found[1].strip() for found in _NAMED.finditer(flat)]
    answers = answers or [found[1] for found in _IN_WORDS.finditer(asserted_text(flat))]
    answers = answers or [line for line in lines if _ALONE.fullmatch(line)]
    operation, value = _CHAT_ACTION.search(flat), _CHAT_VALUE.search(flat)
    # else a quoted or bracketed value follows the operation
    rest = "" if operation is None else flat[operation.end() :].partition("\n")[0]
    value = value or re.match(r"\W*?(?:\"([^\"]+)\"|\[([^\]]+)\])", rest)
    typed = "" if value is None else value[1] if value[1] is not None else value[2]
    return ChatAnswer(tuple(answers), *_parse_operation(operation, typed))


def says_none(answer: str) -> bool:
    """Returns whether the text means "none of the choices"."""
    return _CHAT_NONE.fullmatch(answer) is not None


def _flat(value: Any) -> dict[str, Any]:
    """Returns the keys of an object in lower case, merged with those of a tool call's arguments."""
    table = lower_keys(value)
    inner = (table[key] for key in _INNER if isinstance(table.get(key), dict))
    return table | lower_keys(next(inner, {}))


def _parse_operation(operation: re.Match[str] | None, value: str) -> tuple[str, str]:
    """Returns the operation in capitals and the value without quotes."""
    name, value = operation[1].upper() if operation else "", value.strip().strip("`").strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return name, "" if name == "CLICK" and says_none(value) else value


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
_MIN_SIMILARITY = 0.5  # minimum similarity of a chat model's element and the best choice
_NOBODY = CandidateChoice("", "none of them")
_MARK, _FENCE = "###", "'''"  # separators of the trained form


@dataclass(frozen=True, slots=True)
class Passage:
    """One step as the model reads it. The answer is None for the current step."""

    page: str
    question: str
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Picked:
    """The candidate, operation and value. Without an operation the action's kind is `none`."""

    id: str
    operation: str
    value: str

    def action(self) -> Action:
        """Returns the action on the candidate: `TYPE [12] [new york]`."""
        text = " ".join(
            filter(None, (self.operation, f"[{self.id}]", f"[{self.value}]" if self.value else ""))
        )
        return Action(
            _KINDS.get(self.operation, "none"), text, target=self.id, value=self.value or None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormExample:
    """A worked step with its right answer, for prompted models. `chosen` is a choice's index."""

    task: str
    page: str
    choices: tuple[str, ...]
    past: tuple[str, ...]
    chosen: int | None = None
    operation: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Wording:
    """The prompt form of steps."""

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
        """Formats the step. `past` are the actions to list; None omits the list."""
        # The trained form is fixed, so page text must not contain its separators.
        page = quoted("page", page) if self.prompted else f"{_FENCE}\n{_plain(page)}\n{_FENCE}"
        return Passage(
            page, self.question(task, past, choices), answer if answer is None else _plain(answer)
        )

    def question(
        self, task: str, past: Sequence[str] | None, choices: Sequence[CandidateChoice] | None
    ) -> str:
        """Formats the question about a page. Without choices it omits the reply instructions."""
        previous = ""
        if past is not None:
            previous = f"Previous actions:\n{self._lines('actions', past) if past else _NONE}\n"
        return load_prompt(PACKAGE, "question").fill(
            {
                "task": _line(task),
                "previous": previous,
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
        """Formats the answer for the target `chosen`; none of the choices if it is not offered."""
        index = next((i for i, choice in enumerate(choices) if choice.id == chosen), None)
        generates = self.form == "generation"
        if index is None:
            lines = [_NONE if generates else self._letter("A")]
        else:
            element = f"Element: {choices[index].text}"
            first = element if generates else self._letter(chr(ord("B") + index))
            lines = [first, *operation_lines(operation, value)]
        if rationale is not None:
            lines.append(f"Rationale: {_line(rationale)}")
        return "\n".join(lines)

    def _letter(self, letter: str) -> str:
        return f"Answer: {letter}." if self.prompted else f"{letter}."

    def read(self, answer: str, choices: Sequence[CandidateChoice]) -> Picked | None:
        """Parses an answer. Returns None if it rejects all choices.

        A trained model's reply is parsed as the paper's code does. A chat model's reply may contain
        Markdown, JSON, a reason before the answer, or an example after it.

        Raises:
            UnreadableReplyError: The answer names no choice that was offered, or two.
        """
        text = visible_text(answer)
        if not self.prompted:
            choice = (
                _written(text, choices, self.numbers)
                if self.form == "generation"
                else _by_letter(_ANSWER.search(text) or _LETTER.match(text), text, choices)
            )
            operation, value = _ACTION.search(text), _VALUE.search(text)
            done = operation[1] if operation else "", value[1].strip() if value else ""
            return None if choice is None else Picked(choice.id, *done)
        reply = read_chat(text)
        found = [self._chosen(one, choices) for one in reply.answers]
        if (chosen := one_answer(found, lambda one: one.text)) is None:
            raise UnreadableReplyError(
                f"the reply has no line {'Element:' if self.form == 'generation' else 'Answer:'}"
            )
        return None if chosen is _NOBODY else Picked(chosen.id, reply.operation, reply.value)

    def _chosen(self, element: str, choices: Sequence[CandidateChoice]) -> CandidateChoice:
        """Returns the choice that a chat model names. Raises UnreadableReplyError."""
        if says_none(element):
            return _NOBODY
        if self.form == "choice":
            return _by_letter(_CHAT_LETTER.match(element), element, choices) or _NOBODY
        bare = re.fullmatch(r"\W*(?:id\W*)?(\d+)\W*", element)
        number = (_ID.search(element) or bare) if self.numbers else None
        if number and int(number[1]) < len(choices):
            return choices[int(number[1])]
        similarities = [(_similarity(element, choice.text), -i) for i, choice in enumerate(choices)]
        if not similarities or max(similarities)[0] < _MIN_SIMILARITY:
            raise UnreadableReplyError(
                f"{excerpt(element)} is none of the elements that are offered"
            )
        return choices[-max(similarities)[1]]

    def example(self, example: FormExample) -> Passage:
        """Formats a worked step in this form."""
        page, *texts = (
            text if self.numbers else _ID.sub("", text) for text in (example.page, *example.choices)
        )
        choices = [CandidateChoice(str(i), text) for i, text in enumerate(texts)]
        chosen = None if example.chosen is None else str(example.chosen)
        answer = self.answer(choices, chosen, example.operation, example.value)
        return self.passage(page, example.task, example.past, choices, answer)


def _similarity(element: str, text: str) -> float:
    """Returns the similarity of two elements' words, without punctuation."""
    one, other = (
        " ".join(re.findall(r"\w+", _ID.sub("", each).lower())) for each in (element, text)
    )
    if one and f" {one} " in f" {other} ":
        return 1.0
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def to_operation(action: Action) -> tuple[str, str]:
    """Returns a recorded action's operation and value. A click has no value."""
    operation = _OPERATIONS.get(action.kind, action.kind.upper())
    return operation, "" if operation == "CLICK" else action.value or ""


def operation_lines(operation: str, value: str) -> list[str]:
    """Returns the lines of an answer that do not name the element."""
    return [f"Action: {operation}", *([] if operation == "CLICK" else [f"Value: {_line(value)}"])]


def _by_letter(
    found: re.Match[str] | None, answer: str, choices: Sequence[CandidateChoice]
) -> CandidateChoice | None:
    """Returns the choice of a letter; None for A. Raises UnreadableReplyError."""
    if found is None:
        raise UnreadableReplyError(f"{excerpt(answer)} has no letter of a choice")
    index = ord(found[1].upper()) - ord("B")
    if index >= len(choices):
        raise UnreadableReplyError(
            f"{excerpt(answer)} is none of the choices A to {chr(ord('A') + len(choices))}"
        )
    return None if index < 0 else choices[index]


def _written(
    text: str, choices: Sequence[CandidateChoice], numbers: bool
) -> CandidateChoice | None:
    """Returns the choice by number, else by similar text. Raises UnreadableReplyError."""
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
    """Returns the conditional texts of the prompts, from wording.toml."""
    return read_toml(PACKAGE, "wording.toml")


@cache
def examples() -> tuple[FormExample, ...]:
    """Returns the worked steps, from examples.toml."""
    table = read_toml(PACKAGE, "examples.toml")
    return msgspec.convert(table["example"], tuple[FormExample, ...])


def prompt_texts() -> tuple[str, ...]:
    """Returns all texts that this policy sends to models."""
    prompts = ("system", "prompted", "question", "rationale", "rewrite")
    return (
        *(load_prompt(PACKAGE, name).text for name in prompts),
        *(read_text(PACKAGE, name) for name in ("wording.toml", "examples.toml")),
    )

"""Questions with typed answers: how a model is asked for them, and how its answers are read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import msgspec

from prill.config.registry import load_object
from prill.errors import UnparsableError, UsageError
from prill.models.replies import excerpt, read_objects, strict_schema
from prill.types import Answer

YES_NO, NUMBER = "yes/no", "number"
CANNOT_TELL = "cannot-tell"
# "No idea" is not an answer: the word must end the text or be followed by punctuation.
_DECIDED = re.compile(r"(yes|no|true|false)(?:$|[,.:;!]|\s[-–—(])", re.IGNORECASE)
_UNKNOWN = frozenset(
    ("", "cannot-tell", "can't-tell", "cannot-be-determined", "unknown", "n/a", "null", "none")
)
_MAX_QUESTIONS = 20
_DECORATION = " \t\r\n\"'`*_.,;:!?<>()[]{}“”‘’"


@dataclass(frozen=True)
class Question:
    """A question with its answer's type: `yes/no`, `number`, the labels to choose from, or a
    dataclass.
    """

    text: str
    answer: str | tuple[str, ...] | type

    def params(self) -> dict[str, Any]:
        """Returns the question as JSON, for the judge's fingerprint."""
        kind = self.schema() if isinstance(self.answer, type) else self.answer
        return {"question": self.text, "answer": list(kind) if isinstance(kind, tuple) else kind}

    def schema(self) -> dict[str, Any]:
        """Returns the answer's JSON Schema; every type has a value for "cannot be determined"."""
        if self.answer == NUMBER:
            return {"anyOf": [{"type": "number"}, {"type": "null"}]}
        if isinstance(self.answer, type):
            return {"anyOf": [strict_schema(self.answer), {"type": "null"}]}
        return {"type": "string", "enum": [*self._choices(), CANNOT_TELL]}

    def shape(self) -> str:
        """Returns the description of the answer format in the prompt."""
        if self.answer == NUMBER:
            return "<a number, or null if it cannot be told>"
        if isinstance(self.answer, type):
            schema = json.dumps(strict_schema(self.answer), ensure_ascii=False)
            return f"<an object of this JSON Schema, or null if it cannot be told: {schema}>"
        return " or ".join(
            json.dumps(c, ensure_ascii=False) for c in (*self._choices(), CANNOT_TELL)
        )

    def read(self, value: object) -> object:
        """Converts a value to the question's type; None if the answer cannot be determined. Raises
        UnparsableError for a value that does not have that type.
        """
        word = _bare(value) if isinstance(value, str) else value
        plain = _plain(word) if isinstance(word, str) else word
        if isinstance(self.answer, tuple):  # a label may be called "none"
            same = [label for label in self.answer if label == value]
            near = [label for label in self.answer if plain and _plain(_bare(label)) == plain]
            if len(found := same or near) == 1:
                return found[0]
        if plain is None or (isinstance(plain, str) and plain in _UNKNOWN):
            return None
        if self.answer == YES_NO and isinstance(plain, bool):
            return plain
        if self.answer == YES_NO and (match := _DECIDED.match(str(word))):
            return match[1].lower() in ("yes", "true")
        if self.answer == NUMBER:
            if (number := _number(word)) is None:
                raise UnparsableError(
                    f"the answer to {self.text!r} is {excerpt(str(value))}, which is not a number"
                )
            return number
        if isinstance(self.answer, type):
            try:
                made: Any = msgspec.convert(value, self.answer, strict=False)
            except msgspec.ValidationError as error:
                raise UnparsableError(f"the answer to {self.text!r}: {error}") from None
            return msgspec.to_builtins(asdict(made))  # without asdict, defaults would be missing
        raise UnparsableError(
            f"the answer to {self.text!r} is {excerpt(str(value))}, which is not one of the choices"
        )

    def _choices(self) -> tuple[str, ...]:
        return ("yes", "no") if self.answer == YES_NO else tuple(self.answer)  # type: ignore[arg-type]


def _bare(text: str) -> str:
    return " ".join(text.split()).strip(_DECORATION)


def _plain(word: str) -> str:
    return re.sub(r"[ _]", "-", word.casefold().replace("’", "'"))


def _number(word: object) -> float | int | None:
    if isinstance(word, int | float) and not isinstance(word, bool) and math.isfinite(word):
        return word
    if isinstance(word, str) and re.fullmatch(r"[-+]?(\d{1,3}(,\d{3})+|\d{1,15})(\.\d+)?", word):
        read = float(word.replace(",", ""))
        return int(read) if read.is_integer() else read
    return None


@dataclass(frozen=True)
class AnswersFormat:
    """The format of a reply: an object with an answer for each question, as `q1`, `q2`, ….

    A single question may be answered in lines of text.
    """

    questions: tuple[Question, ...]
    tagged = False

    def json_schema(self) -> dict[str, Any]:
        """Returns the schema for structured output, in which the reason precedes the answer."""
        parts = {
            f"q{i}": {
                "type": "object",
                "properties": {
                    "reason": {"type": "string"},
                    "step": {"type": "integer"},
                    "answer": question.schema(),
                },
                "required": ["reason", "step", "answer"],
                "additionalProperties": False,
            }
            for i, question in enumerate(self.questions, 1)
        }
        return {
            "type": "object",
            "properties": parts,
            "required": list(parts),
            "additionalProperties": False,
        }

    def instructions(self, *, as_json: bool) -> str:
        """Returns the instruction that tells the model how to answer, which is always JSON."""
        parts = ", ".join(
            f'"q{i}": {{"reason": "<why>", "step": <the number of the state that shows it, or -1>, '
            f'"answer": {question.shape()}}}'
            for i, question in enumerate(self.questions, 1)
        )
        return f"Reply with one JSON object and nothing else: {{{parts}}}"

    def parse(self, text: str) -> dict[str, str]:
        """Returns the last answer to every question, as JSON under `answers`. Raises
        UnparsableError for a question without an answer, or with one outside its choices.
        """
        as_json = text.lstrip().startswith(("{", "["))
        found: list[dict[str, Any]] | None = None
        problem: UnparsableError | None = None
        for _, record in read_objects(text, from_the_start=as_json):
            try:
                found = self._answers(record)
            except UnparsableError as error:
                found, problem = None, error
        if found is None and problem is None and not as_json and len(self.questions) == 1:
            found = self._lines(text)
        if found is None:
            raise problem or UnparsableError(f"no answer in the reply: {excerpt(text)}")
        stored = json.dumps(found, ensure_ascii=False).encode("utf-8", "replace").decode()
        return {"answers": stored}

    def _answers(self, record: Mapping[str, Any]) -> list[dict[str, Any]]:
        if len(self.questions) == 1 and "answer" in record and "q1" not in record:
            record = {"q1": record}
        made = []
        for i, question in enumerate(self.questions, 1):
            part = record.get(f"q{i}")
            if not isinstance(part, dict) or "answer" not in part:
                raise UnparsableError(f"the reply has no answer to question {i}: {question.text!r}")
            made.append(
                {
                    "value": question.read(part["answer"]),
                    "step": _step(part.get("step")),
                    "reason": reason if isinstance(reason := part.get("reason"), str) else "",
                }
            )
        return made

    def _lines(self, text: str) -> list[dict[str, Any]] | None:
        fields = {
            name: re.findall(
                rf"^[ \t>#*_-]*{name}[ \t*_]*[:：][ \t*_]*(.*?)[ \t*_]*$", text, re.I | re.M
            )
            for name in ("answer", "step", "reason")
        }
        if not fields["answer"]:
            return None
        return [
            {
                "value": self.questions[0].read(fields["answer"][-1]),
                "step": _step((fields["step"] or [None])[-1]),
                "reason": (fields["reason"] or [""])[-1],
            }
        ]


def _step(value: object) -> int | None:
    match = re.fullmatch(r"(?:state |step )?(\d{1,6})(?:\.0)?", str(value).strip().lower())
    return int(match[1]) if match else None


def read_questions(
    question: str | None, answer: Any, questions: Sequence[Mapping[str, Any]]
) -> tuple[Question, ...]:
    """Returns the questions of a description: one with its type of answer, or tables of several.

    Raises UsageError if there are none or too many, or one is invalid.
    """
    if (question is None) == (not questions):
        raise UsageError("give `question`, or several as `questions`", parameters=("question",))
    tables = questions or ({"question": question, "answer": answer},)
    if len(tables) > _MAX_QUESTIONS:
        raise UsageError(
            f"{len(tables)} questions are too many; ask at most {_MAX_QUESTIONS} in one call"
        )
    return tuple(_question(table) for table in tables)


def _question(table: Mapping[str, Any]) -> Question:
    if unknown := [key for key in table if key not in ("question", "answer")]:
        raise UsageError(f"questions: unknown key {unknown[0]!r}; expected question or answer")
    text, answer = table.get("question"), table.get("answer", YES_NO)
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"question is {text!r}; expected a question as text")
    if isinstance(answer, str) and answer not in (YES_NO, NUMBER):
        answer = answer.split("|") if "|" in answer else load_object(answer)
    if isinstance(answer, list | tuple):
        labels = [label.strip() for label in answer if isinstance(label, str) and label.strip()]
        if len(labels) != len(answer) or len(set(map(str.casefold, labels))) < max(2, len(answer)):
            raise UsageError(f"answer: {answer!r}: expected two or more different labels")
        return Question(text, tuple(labels))
    if isinstance(answer, str):
        return Question(text, answer)
    if not (isinstance(answer, type) and is_dataclass(answer)):
        raise UsageError(
            f"answer is {answer!r}; expected yes/no, number, a list of labels or a dataclass"
        )
    return Question(text, answer)


def read_answers(questions: Sequence[Question], stored: str, shown: Set[int]) -> tuple[Answer, ...]:
    """Returns one answer for each question from the field `answers` of `AnswersFormat.parse`. Only
    states that were shown (`shown`: their indices, from 0) count as citations.
    """
    return tuple(
        Answer(
            question=question.text,
            value=part["value"],
            step=part["step"] if part["step"] in shown else None,
            reason=part["reason"],
        )
        for question, part in zip(questions, json.loads(stored), strict=True)
    )


def format_value(value: object) -> str:
    """Returns an answer in words."""
    texts = {True: "yes", False: "no", None: CANNOT_TELL}
    if value is None or isinstance(value, bool):
        return texts[value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""Questions of the judge `ask` that people answer: their controls and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import UNSET, inspect

from prill.errors import InputError, UnparsableError
from prill.evaluators.questions import NUMBER, YES_NO, Question
from prill.types import AnswerValue, LabelRecord

Control = Literal["choice", "number", "text", "json"]
_COLLECTIONS = (
    inspect.CollectionType,
    inspect.TupleType,
    inspect.DictType,
    inspect.DataclassType,
    inspect.StructType,
    inspect.TypedDictType,
    inspect.NamedTupleType,
    inspect.AnyType,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerField:
    """A control of the page: for a plain answer, or for one field of a dataclass.

    Args:
        name: The field; empty for a plain answer.
        control: `json` is for lists and objects.
        choices: The values to choose from, each with its text.
        required: Whether an answer needs a value here.
        nullable: Whether None is a value.
    """

    name: str = ""
    control: Control = "choice"
    choices: tuple[tuple[bool | int | str, str], ...] = ()
    required: bool = True
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """A question as the page shows it."""

    text: str
    fields: tuple[AnswerField, ...]


_BOTH = ((True, "Yes"), (False, "No"))


def shown_question(question: Question) -> ShownQuestion:
    """Returns a question with the controls for its type of answer."""
    kind = question.answer
    if isinstance(kind, type):
        described = inspect.type_info(kind)
        assert isinstance(described, inspect.DataclassType)
        return ShownQuestion(question.text, tuple(map(_field, described.fields)))
    if kind == NUMBER:
        return ShownQuestion(question.text, (AnswerField(control="number"),))
    choices = _BOTH if kind == YES_NO else tuple((label, label) for label in kind)
    return ShownQuestion(question.text, (AnswerField(choices=choices),))


def _field(field: inspect.Field) -> AnswerField:
    kinds = [_unwrapped(field.type)]
    if isinstance(kinds[0], inspect.UnionType):
        kinds = [_unwrapped(one) for one in kinds[0].types]
    known = [kind for kind in kinds if not isinstance(kind, inspect.NoneType)]
    nullable = len(known) < len(kinds)
    choices: tuple[tuple[bool | int | str, str], ...] = ()
    control: Control = "text"
    if all(isinstance(kind, inspect.IntType | inspect.FloatType) for kind in known):
        control = "number"
    elif any(isinstance(kind, _COLLECTIONS) for kind in known):
        control = "json"
    elif len(known) == 1 and (choices := _choices(known[0])):
        control = "choice"
    return AnswerField(
        name=field.encode_name,
        control=control,
        choices=choices,
        required=field.required and not nullable,
        nullable=nullable,
    )


def _unwrapped(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _choices(kind: inspect.Type) -> tuple[tuple[bool | int | str, str], ...]:
    if isinstance(kind, inspect.BoolType):
        return _BOTH
    if isinstance(kind, inspect.LiteralType):
        return tuple((value, str(value)) for value in kind.values if value is not None)
    if isinstance(kind, inspect.EnumType):
        return tuple((value, str(value)) for value in msgspec.to_builtins(list(kind.cls)))
    return ()


def read_answers(
    questions: Sequence[Question], given: Mapping[str, Any], earlier: LabelRecord | None
) -> dict[str, AnswerValue]:
    """Returns the answers that a label stores.

    Args:
        questions: The questions of the page.
        given: A person's answers by question, read as a judge's are.
        earlier: The label to replace; its answers to other questions are kept.

    Raises:
        InputError: An answer does not have the question's type, or nobody asked.
    """
    asked = {question.text: question for question in questions}
    made = {
        text: value
        for text, value in ((earlier and earlier.answers) or {}).items()
        if text not in asked
    }
    if unknown := given.keys() - asked.keys():
        raise InputError(f"{min(unknown)!r} is not among the questions")
    for text, question in asked.items():
        if text in given:
            try:
                made[text] = question.read(given[text])  # type: ignore[assignment]
            except UnparsableError as error:
                raise InputError(str(error)) from None
    return made


def unanswered(questions: Sequence[Question], record: LabelRecord) -> int:
    """Returns the number of questions without a valid answer in a label."""
    return sum(_read(question, record) is UNSET for question in questions)


def _read(question: Question, record: LabelRecord) -> object:
    """Returns a label's answer; UNSET if there is none, or none of the question's type."""
    answers = record.answers or {}
    if question.text not in answers:
        return UNSET
    try:
        return question.read(answers[question.text])
    except UnparsableError:
        return UNSET

"""Questions of the judge `ask` that people answer: their controls, answers and agreement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import UNSET, inspect

from prill.errors import InputError, UnparsableError
from prill.evaluators.ask import NUMBER, YES_NO, Question
from prill.evaluators.meta.annotators import cohen_kappa
from prill.evaluators.meta.answers import Value, split_answer
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAgreement:
    """The agreement of two annotators: `agreed` of the `common` trajectories that both decided.

    `undecided` counts those that both labelled and one left undecided; no figure includes them.
    `kappa` is Cohen's; None if it is undefined: nothing in common, both always gave the same
    answer, or the answers are numbers. `question` is the question that both answered, with the
    field of a dataclass; empty for the outcome.
    """

    annotator: str
    common: int
    agreed: int
    undecided: int
    kappa: float | None
    question: str = ""


def pair_agreement(
    annotator: str, mine: Mapping[str, LabelRecord], theirs: Mapping[str, LabelRecord]
) -> PairAgreement:
    """Returns the agreement of `mine` with the labels of `annotator`, both by id."""
    labelled = [(mine[id].success, theirs[id].success) for id in mine.keys() & theirs.keys()]
    return _agreement(annotator, labelled)


def answer_agreements(
    annotator: str,
    mine: Mapping[str, LabelRecord],
    theirs: Mapping[str, LabelRecord],
    questions: Sequence[Question],
) -> Iterator[PairAgreement]:
    """Yields the agreement on each question that both answered, fields of a dataclass one by one.

    An answer that does not have the question's type is not counted.
    """
    for question in questions:
        both = []
        for id in mine.keys() & theirs.keys():
            answers = [_read(question, label[id]) for label in (mine, theirs)]
            if UNSET not in answers:
                both.append([split_answer(answer) for answer in answers])
        for field in shown_question(question).fields if both else ():
            title = f"{question.text} / {field.name}" if field.name else question.text
            pairs = [(one.get(field.name), other.get(field.name)) for one, other in both]
            yield _agreement(annotator, pairs, title, is_number=field.control == "number")


def _agreement(
    annotator: str,
    labelled: Sequence[tuple[Value | None, Value | None]],
    question: str = "",
    *,
    is_number: bool = False,
) -> PairAgreement:
    decided = [answers for answers in labelled if None not in answers]
    return PairAgreement(
        annotator=annotator,
        common=len(decided),
        agreed=sum(a == b for a, b in decided),
        undecided=len(labelled) - len(decided),
        kappa=None if is_number else cohen_kappa(decided),
        question=question,
    )

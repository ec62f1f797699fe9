"""The `ask` judge: user-defined questions about a run, with typed answers and cited states.

    judge = prill.judge("ask", question="Was a login wall met?", model="gpt-4o", captioner="text")
    (await judge(trajectory)).findings.answers  # (Answer(question=…, value=True, step=3, …),)

All questions go into one call. The first yes/no question determines the verdict's outcome, so that
labels for that question can be compared as outcomes. Without such a question, a run is a success if
all questions have an answer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from prill.config.registry import load_object
from prill.config.values import Config
from prill.errors import NoEvidenceError, UnparsableError, UsageError
from prill.evaluators.evidence import (
    MaxCharsOption,
    action_history,
    claims,
    request,
    state_text,
    without_claims,
)
from prill.evaluators.frames import captions, images_read, planned_captions
from prill.evaluators.judgement import MAX_TOKENS, Judgement, ModelJudge
from prill.models.calls import ROOM, ask, planned
from prill.models.options import MaxTokensOption
from prill.models.prompts import NONCE, clean, quoted, shorten
from prill.models.replies import choice_probability, excerpt, read_objects, strict_schema
from prill.protocols import Captioner, Form, Message
from prill.types import Answer, Findings, Trajectory, Usage

YES_NO, NUMBER = "yes/no", "number"
CANNOT_TELL = "cannot-tell"
# "No idea" is not an answer: the word must end the text or be followed by punctuation.
_DECIDED = re.compile(r"(yes|no|true|false)(?:$|[,.:;!]|\s[-–—(])", re.IGNORECASE)
_UNKNOWN = frozenset(
    ("", "cannot-tell", "can't-tell", "cannot-be-determined", "unknown", "n/a", "null", "none")
)
_MAX_QUESTIONS, _MIN_CHARS = 20, 300
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


@dataclass(frozen=True, kw_only=True)
class AskSpec(Config):
    """Settings of `ask`."""

    question: Annotated[str | None, Meta(description="Question to ask about every trajectory.")] = (
        None
    )
    answer: Annotated[
        Any,
        Meta(
            description="Type of the answer: yes/no, number, labels (a list, or a|b|c), a "
            "dataclass or module:Dataclass."
        ),
    ] = YES_NO
    questions: Annotated[
        Sequence[Mapping[str, Any]],
        Meta(description="Several questions at once: tables with `question` and `answer`."),
    ] = ()
    show_answer: Annotated[
        bool, Meta(description="Show the agent's answer to the judge, as a claim.")
    ] = True
    max_tokens: MaxTokensOption = MAX_TOKENS
    max_chars: MaxCharsOption = ROOM

    def check(self) -> None:
        """Raises UsageError if there is no question, or an answer has no valid type."""
        self.checked_questions()

    def checked_questions(self) -> tuple[Question, ...]:
        """The questions. Raises UsageError if there are none or too many, or one is invalid."""
        if (self.question is None) == (not self.questions):
            raise UsageError("give `question`, or several as `questions`", parameters=("question",))
        tables = self.questions or ({"question": self.question, "answer": self.answer},)
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


@dataclass(frozen=True, eq=False)
class AskJudge(ModelJudge):
    """A judge that answers user-defined questions from the actions and the text of the states."""

    captioner: Annotated[Captioner, Meta(description="Captioner that describes states.")]
    spec: AskSpec = field(kw_only=True)

    name: ClassVar[str] = "ask"
    prompt_names: ClassVar[tuple[str, ...]] = ("ask",)
    main_prompts: ClassVar[tuple[str, ...]] = prompt_names
    forms: ClassVar[tuple[Form, ...]] = ()

    @cached_property
    def _form(self) -> AnswersFormat:
        return AnswersFormat(self.spec.checked_questions())

    def _form_texts(self) -> list[str]:
        return [self._form.instructions(as_json=as_json) for as_json in (True, False)]

    def _params(self) -> dict[str, Any]:
        questions = [question.params() for question in self._form.questions]
        params = super()._params() | {"questions": questions}
        del params["question"], params["answer"]
        return params

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the images of the states to caption, if captions come from images."""
        return images_read(trajectory.observations, self.captioner)

    def estimate(self, trajectory: Trajectory) -> Usage:
        """Returns the usage of the one call, without making captions."""
        texts = planned_captions(trajectory.observations, self.captioner)
        shown = [i for i, text in enumerate(texts) if text]
        if not shown:
            return Usage()
        messages = self._messages(trajectory, texts, self.spec.max_chars)
        return planned(messages, self.spec.max_tokens)

    async def _judge(self, trajectory: Trajectory) -> Judgement:
        texts = await captions(trajectory.observations, self.captioner)
        reply = await ask(
            self.model,
            lambda room: self._messages(trajectory, texts, room.chars),
            self._form,
            self.prompts["ask"],
            self.spec.max_tokens,
            self.spec.max_chars,
        )
        shown = {i for i, text in enumerate(texts) if text}
        answers = read_answers(self._form.questions, reply.fields["answers"], shown)
        decisive = next((i for i, q in enumerate(self._form.questions) if q.answer == YES_NO), None)
        counted = answers if decisive is None else (answers[decisive],)
        if undecided := [answer for answer in counted if answer.value is None]:
            raise NoEvidenceError(
                f"the evidence does not answer {undecided[0].question!r}: {undecided[0].reason}"
            )
        success = decisive is None or answers[decisive].value is True
        score = float(success)
        if decisive is not None and len(answers) == 1 and reply.tokens:
            word = "yes" if success else "no"
            score = choice_probability(reply.tokens, "answer", ("yes", "no"), "yes", word) or score
        reason = "; ".join(f"{a.question} {_format_value(a.value)}: {a.reason}" for a in answers)
        return Judgement(success, round(score, 6), reason, findings=Findings(answers=answers))

    def _messages(
        self, trajectory: Trajectory, texts: Sequence[str | None], room: int
    ) -> tuple[Message, ...]:
        history = trajectory if self.spec.show_answer else without_claims(trajectory)
        shown = [(i, text) for i, text in enumerate(texts) if text]
        # the last states are the most informative; the first shows where the run started
        most = max(2, room // _MIN_CHARS)
        if len(shown) > most:
            shown = [shown[0], *shown[len(shown) - most + 1 :]]
        share = max(1, room // max(1, len(shown)))
        states = "\n\n".join(
            f"State {i}:\n"
            f"{quoted(f'state-{i}', shorten(state_text(text, trajectory.observations[i]), share))}"
            for i, text in shown
        )
        lines = "\n".join(f"q{i}. {clean(q.text)}" for i, q in enumerate(self._form.questions, 1))
        turns = self.prompts["ask"].fill(
            {
                "goal": request(trajectory),
                "actions": quoted("actions", action_history(history, room)),
                "states": states,
                "claims": claims(
                    trajectory, room // 4, answer=self.spec.show_answer, thoughts=False
                ),
                "questions": quoted("questions", lines),
                "code": NONCE,
            }
        )
        return Message("system", (turns["system"],)), Message("user", (turns["user"],))


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


def _format_value(value: object) -> str:
    texts = {True: "yes", False: "no", None: CANNOT_TELL}
    if value is None or isinstance(value, bool):
        return texts[value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

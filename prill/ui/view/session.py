"""A labelling session: the decisions of one annotator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from msgspec import UNSET

from prill.errors import InputError
from prill.evaluators.questions import Question
from prill.io.joining import record_digest
from prill.types import AnswerValue, LabelRecord, StepLabel, Trajectory
from prill.ui.history import Decisions
from prill.ui.view.label_log import LabelLog
from prill.ui.view.library import Library
from prill.ui.view.questions import read_answers, unanswered

Choice = Literal["success", "failure", "not_executable", "unsure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelDecision:
    """An annotator's decision on one trajectory; `answers` are by question."""

    choice: Choice
    steps: tuple[StepLabel, ...] = ()
    side_effects: bool = False
    note: str = ""
    answers: Mapping[str, AnswerValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VersionedDecision:
    """This annotator's decision and its number in this session: 0 for an earlier decision, or
    none.
    """

    mine: LabelDecision | None
    version: int


@dataclass(frozen=True, slots=True)
class UndoneDecision:
    """The run whose decision was undone, by its index (None: it is gone), and that decision."""

    number: int | None
    undone: LabelDecision | None


class LabelSession:
    """A session in which one annotator labels runs.

    `questions` are answered with each label. `inclusion` has the inclusion probabilities that
    labels record.
    """

    def __init__(
        self,
        runs: Library,
        log: LabelLog,
        *,
        questions: Sequence[Question] = (),
        inclusion: Mapping[str, float] | None = None,
    ) -> None:
        self.runs = runs
        self.log = log
        self.questions = tuple(questions)
        self._inclusion = inclusion or {}
        self._decisions = Decisions[LabelRecord](
            log.mine,
            lambda id, record: log.remove(id) if record is None else log.put(record),
            lambda record: str(_choice(record)).replace("_", " "),
        )

    @property
    def written(self) -> int:
        """Returns the number of decisions of this session."""
        return self._decisions.written

    @property
    def done(self) -> int:
        """Returns the number of runs that this annotator has decided."""
        return sum(self.is_decided(id) for id in self.runs.places.keys() & self.log.mine.keys())

    def choice(self, id: str) -> Choice | None:
        """Returns this annotator's choice for a run; None if there is none yet."""
        return _choice(self.log.mine.get(id))

    def unanswered(self, id: str) -> int:
        """Returns the number of questions that the label of a run does not answer; 0 without a
        label.
        """
        record = self.log.mine.get(id)
        return 0 if record is None else unanswered(self.questions, record)

    def is_decided(self, id: str) -> bool:
        """Returns whether a run has a label with an answer to every question."""
        return id in self.log.mine and not self.unanswered(id)

    def decision(self, index: int) -> VersionedDecision:
        """Returns the decision about a run, by its index."""
        id = self.runs.ids[index]
        return VersionedDecision(self._decision(self.log.mine.get(id)), self._decisions.version(id))

    async def put(
        self, index: int, decision: LabelDecision, version: int | None = None
    ) -> VersionedDecision:
        """Saves a decision; `version` is that of the state it was made on, None for any.

        Raises InputError for labels of steps that do not exist and for answers of another type
        than the question's, ConflictError if there is another version by now, and UsageError if
        the decision cannot be written.
        """
        record = _record(self.runs[index], decision, self.log.annotator)
        if (chance := self._inclusion.get(record.id)) is not None:
            record = replace(record, inclusion=chance)

        def answered(before: LabelRecord | None) -> LabelRecord:
            answers = read_answers(self.questions, decision.answers, before)
            return replace(record, answers=answers or UNSET)

        await self._decisions.save(record.id, version, answered)
        return self.decision(index)

    async def undo(self, version: int | None = None) -> UndoneDecision | None:
        """Undoes the decision of this number, or the last one of this session.

        The result is None if there is nothing to undo.

        Raises ConflictError if another decision has replaced it, and UsageError like `put`.
        """
        undone = await self._decisions.undo(version)
        if undone is None:
            return None
        return UndoneDecision(self.runs.places.get(undone[0]), self._decision(undone[1]))

    def _decision(self, record: LabelRecord | None) -> LabelDecision | None:
        choice = _choice(record)
        if record is None or choice is None:
            return None
        answers = record.answers or {}
        return LabelDecision(
            choice=choice,
            steps=record.steps or (),
            side_effects=record.side_effects is True,
            note=record.note or "",
            answers={one.text: answers[one.text] for one in self.questions if one.text in answers},
        )


def _record(trajectory: Trajectory, decision: LabelDecision, annotator: str) -> LabelRecord:
    places = [label.index for label in decision.steps]
    if len(set(places)) < len(places) or not all(
        0 <= place < len(trajectory.steps) for place in places
    ):
        raise InputError(
            f"step labels must name each of the {len(trajectory.steps)} steps at most once, from 0"
        )
    return LabelRecord(
        id=trajectory.id,
        success={"success": True, "failure": False}.get(decision.choice),
        annotator=annotator,
        note=decision.note.strip() or None,
        undecided=decision.choice if decision.choice in ("not_executable", "unsure") else None,
        steps=tuple(sorted(decision.steps, key=lambda label: label.index)) or None,
        side_effects=decision.side_effects or UNSET,
        record=record_digest(trajectory),
    )


def _choice(record: LabelRecord | None) -> Choice | None:
    if record is None:
        return None
    if record.success is None:
        return record.undecided or "unsure"
    return "success" if record.success else "failure"

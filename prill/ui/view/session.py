"""A labelling session: the decisions of one annotator, and the agreement with others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from msgspec import UNSET

from prill.errors import InputError
from prill.evaluators.ask import Question
from prill.types import AnswerValue, LabelRecord, StepLabel, Trajectory
from prill.ui.history import ConflictError, History
from prill.ui.view.label_log import LabelLog
from prill.ui.view.questions import (
    PairAgreement,
    answer_agreements,
    pair_agreement,
    read_answers,
    unanswered,
)

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


class Runs(Protocol):
    """Runs to label, by index; more may be added later."""

    @property
    def ids(self) -> Sequence[str]:
        """Returns the runs' ids."""
        ...

    @property
    def places(self) -> Mapping[str, int]:
        """Returns the index of each id."""
        ...

    @property
    def others(self) -> Mapping[str, Mapping[str, LabelRecord]]:
        """Returns the newest labels of other people: by annotator, and then by id."""
        ...

    def __getitem__(self, index: int, /) -> Trajectory: ...


class LabelSession:
    """A session in which one annotator labels runs.

    `questions` are answered with each label. `inclusion` has the inclusion probabilities that
    labels record. `written` counts the decisions of this session.
    """

    def __init__(
        self,
        runs: Runs,
        log: LabelLog,
        *,
        questions: Sequence[Question] = (),
        inclusion: Mapping[str, float] | None = None,
    ) -> None:
        self.runs = runs
        self.log = log
        self.questions = tuple(questions)
        self.written = 0
        self._inclusion = inclusion or {}
        self._history = History[str, LabelRecord]()
        self._revealed: dict[str, LabelRecord | None] = {}
        self._revised: set[str] = set()
        self._changes = 0
        self._pairs: tuple[object, int, int, tuple[PairAgreement, ...]] | None = None
        self._writing = asyncio.Lock()

    @property
    def done(self) -> int:
        """Returns the number of runs that this annotator has decided."""
        return sum(self.is_decided(id) for id in self.runs.places.keys() & self.log.mine.keys())

    @property
    def revised(self) -> int:
        """Returns the number of runs whose decision changed after others' were shown."""
        return len(self._revised)

    @property
    def pairs(self) -> tuple[PairAgreement, ...]:
        """Returns the agreement with each other annotator of the runs: on outcomes, then on the
        questions.
        """
        labels, places, known = self.runs.others, self.runs.places, self._pairs
        if known is None or known[0] is not labels or known[1:3] != (len(places), self._changes):
            self._pairs = known = (labels, len(places), self._changes, self._compared())
        return known[3]

    def _compared(self) -> tuple[PairAgreement, ...]:
        places = self.runs.places
        mine = {id: record for id, record in self.log.mine.items() if id in places}
        others = [
            (name, theirs)
            for name, theirs in sorted(self.runs.others.items())
            if theirs.keys() & places.keys()
        ]
        return (
            *(pair_agreement(name, mine, theirs) for name, theirs in others),
            *(
                pair
                for question in self.questions
                for name, theirs in others
                for pair in answer_agreements(name, mine, theirs, (question,))
            ),
        )

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
        return VersionedDecision(self._decision(self.log.mine.get(id)), self._history.version(id))

    def reveal(self, id: str) -> None:
        """Notes that what others say of a labelled run is shown: a later change is a revision."""
        self._revealed.setdefault(id, self.log.mine.get(id))

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
        async with self._writing:
            before = self.log.mine.get(record.id)
            answers = read_answers(self.questions, decision.answers, before)
            record = replace(record, answers=answers or UNSET)
            if not self._history.is_current(record.id, version):
                if before == record:  # the response to an earlier request was lost
                    return self.decision(index)
                saved = (
                    "undone" if before is None else f"saved as {_choice(before)}".replace("_", " ")
                )
                raise ConflictError(f"It was {saved} on another page meanwhile.")
            await asyncio.to_thread(self.log.put, record)
            self._history.add(record.id, before)
            self.written += 1
            self._changes += 1
        revealed = self._revealed.get(record.id, record)
        if _decided(revealed) != _decided(record):
            self._revised.add(record.id)
        return self.decision(index)

    async def undo(self, version: int | None = None) -> UndoneDecision | None:
        """Undoes the decision of this number, or the last one of this session.

        The result is None if there is nothing to undo.

        Raises ConflictError if another decision has replaced it, and UsageError like `put`.
        """
        async with self._writing:
            step = self._history.find(version)
            if step is None:
                return None
            undone = self._decision(self.log.mine.get(step.key))
            if step.before is None:
                await asyncio.to_thread(self.log.remove, step.key)
            else:
                await asyncio.to_thread(self.log.put, step.before)
            self._history.drop(step)
            self.written -= 1
            self._changes += 1
        return UndoneDecision(self.runs.places.get(step.key), undone)

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
    )


def _choice(record: LabelRecord | None) -> Choice | None:
    if record is None:
        return None
    if record.success is None:
        return record.undecided or "unsure"
    return "success" if record.success else "failure"


def _decided(record: LabelRecord | None) -> tuple[object, ...]:
    """Returns what counts as a revision when it changes."""
    return (_choice(record), None if record is None else record.answers)

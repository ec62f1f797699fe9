"""An annotation session: the queue, the decisions, and the visibility of others' labels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, cast

from prill.errors import InputError
from prill.evaluators.meta.annotators import cohen_kappa
from prill.types import Action, LabelRecord, StepLabel, Trajectory, Verdict
from prill.ui.annotate.label_log import SOURCE, LabelLog
from prill.ui.history import ConflictError, History

Choice = Literal["success", "failure", "not_executable", "unsure"]
Reveal = Literal["before", "after", "never"]
_UNNAMED = "(unnamed)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAgreement:
    """The agreement of two annotators: `agreed` of the `common` trajectories that both decided.

    `undecided` counts those that both labelled and one left undecided; no figure includes them.
    `kappa` is Cohen's; None if it is undefined: nothing in common, or both always gave the same
    answer.
    """

    annotator: str
    common: int
    agreed: int
    undecided: int
    kappa: float | None


def pair_agreement(
    annotator: str, mine: Mapping[str, LabelRecord], theirs: Mapping[str, LabelRecord]
) -> PairAgreement:
    """Returns the agreement of `mine` with the labels of `annotator`, both by id."""
    labelled = [(mine[id].success, theirs[id].success) for id in mine.keys() & theirs.keys()]
    decided = [answers for answers in labelled if None not in answers]
    return PairAgreement(
        annotator=annotator,
        common=len(decided),
        agreed=sum(a == b for a, b in decided),
        undecided=len(labelled) - len(decided),
        kappa=cohen_kappa(decided),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelDecision:
    """An annotator's decision on one trajectory."""

    choice: Choice
    steps: tuple[StepLabel, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class LabelState:
    """The recorded data of one state: whether it has a screenshot, the length of its page text, and
    the rest.
    """

    picture: bool
    text: int
    caption: str | None
    url: str | None


@dataclass(frozen=True, slots=True)
class StepTurn:
    """A finished turn of the same conversation."""

    goal: str
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCard:
    """One trajectory as the page shows it.

    `others` and `verdicts` are None while they are hidden. `version` is the number of the decision
    `mine` in this session, 0 for an earlier one.
    """

    index: int
    version: int
    id: str
    goal: str
    platform: str
    site: str | None
    start_url: str | None
    agent: str | None
    earlier: tuple[StepTurn, ...]
    states: tuple[LabelState, ...]
    actions: tuple[Action, ...]
    thoughts: tuple[str | None, ...]
    answer: str | None
    error: str | None
    mine: LabelDecision | None
    others: tuple[LabelRecord, ...] | None
    verdicts: tuple[Verdict, ...] | None


@dataclass(frozen=True, slots=True)
class LabelEntry:
    """One line of the navigation list."""

    goal: str
    choice: Choice | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOverview:
    """The state of the session.

    `at` is the first trajectory without a label, or the first of all. `pairs` is None when blind.
    """

    annotator: str
    at: int
    entries: tuple[LabelEntry, ...]
    broken: tuple[str, ...]
    pairs: tuple[PairAgreement, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChange:
    """The result of a saved or undone label: the new card, and the next trajectory without a label.

    The next one is None if all are labelled.

    `undone` is the decision that was undone.
    """

    card: LabelCard
    next: int | None
    pairs: tuple[PairAgreement, ...] | None
    undone: LabelDecision | None = None


@dataclass(frozen=True, slots=True)
class VersionedDecision:
    """This annotator's decision and its number in this session: 0 for an earlier decision, or
    none.
    """

    mine: LabelDecision | None
    version: int


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
    def goals(self) -> Sequence[str]:
        """Returns the runs' goals, for a list."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """Returns messages about what could not be read."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Trajectory: ...


class LabelSession:
    """An annotation session on a worklist.

    `earlier` are labels of other files; labels by other sources than people, and this annotator's
    own, are ignored.

    `reveal` controls when `verdicts` are shown: before the label, after it, or never. Other
    people's labels are shown after it or, with "never", not at all. `inclusion` has the inclusion
    probabilities that labels record. `written` counts the decisions of this session, and `revised`
    the trajectories whose decision changed after others' labels or verdicts were shown.
    """

    def __init__(
        self,
        worklist: Runs,
        log: LabelLog,
        *,
        earlier: Iterable[LabelRecord] = (),
        verdicts: Iterable[Verdict] = (),
        reveal: Reveal = "after",
        inclusion: Mapping[str, float] | None = None,
    ) -> None:
        self.worklist = worklist
        self.log = log
        self.reveal = reveal
        self._inclusion = inclusion or {}
        self.written = 0
        self._places = worklist.places
        self._labels_of_others: dict[str, dict[str, LabelRecord]] = {}
        for record in (*earlier, *log.others):
            if record.source == SOURCE and record.annotator != log.annotator:
                self._labels_of_others.setdefault(record.annotator or _UNNAMED, {})[record.id] = (
                    record
                )
        self._verdicts: dict[str, list[Verdict]] = {}
        for verdict in verdicts:
            if verdict.id in self._places:
                self._verdicts.setdefault(verdict.id, []).append(verdict)
        self._history = History[LabelRecord]()
        self._revealed_choices: dict[str, Choice] = {}
        self._revised: set[str] = set()
        self._writing = asyncio.Lock()

    @property
    def done(self) -> int:
        """Returns the number of trajectories in the worklist with a label of this annotator."""
        return len(self._places.keys() & self.log.mine.keys())

    @property
    def revised(self) -> int:
        """Returns the number of trajectories whose decision changed after others' were shown."""
        return len(self._revised)

    @property
    def pairs(self) -> tuple[PairAgreement, ...]:
        """Returns the agreement with each other annotator on trajectories of the worklist."""
        mine = {id: record for id, record in self.log.mine.items() if id in self._places}
        present = {
            name: theirs
            for name, theirs in self._labels_of_others.items()
            if theirs.keys() & self._places.keys()
        }
        return tuple(pair_agreement(name, mine, theirs) for name, theirs in sorted(present.items()))

    def overview(self) -> LabelOverview:
        """Returns all data that the page needs before the first card."""
        ids, goals = self.worklist.ids, self.worklist.goals
        entries = (
            LabelEntry(goal, _choice(self.log.mine.get(id)))
            for id, goal in zip(ids, goals, strict=True)
        )
        return LabelOverview(
            annotator=self.log.annotator,
            at=self._next(-1) or 0,
            entries=tuple(entries),
            broken=tuple(self.worklist.problems),
            pairs=self._visible_pairs(),
        )

    def card(self, index: int) -> LabelCard:
        """Returns a trajectory by its index, with others' labels only once it has a label."""
        trajectory = self.worklist[index]
        id, task = trajectory.id, trajectory.task
        mine = self.log.mine.get(id)
        after = mine is not None and self.reveal != "never"
        if after and (
            id in self._verdicts or any(id in labels for labels in self._labels_of_others.values())
        ):
            self._revealed_choices.setdefault(id, cast(Choice, _choice(mine)))
        return LabelCard(
            index=index,
            version=self._history.version(index),
            id=id,
            goal=task.goal,
            platform=task.platform,
            site=task.site,
            start_url=task.start_url,
            agent=trajectory.agent,
            earlier=tuple(StepTurn(turn.task.goal, turn.answer) for turn in task.earlier),
            states=tuple(
                LabelState(bool(o.screenshot), len(o.text or ""), o.caption, o.url)
                for o in trajectory.observations
            ),
            actions=tuple(step.action for step in trajectory.steps),
            thoughts=tuple(step.thought for step in trajectory.steps),
            answer=trajectory.answer,
            error=trajectory.error,
            mine=_decision(mine),
            others=tuple(
                labels[id] for _, labels in sorted(self._labels_of_others.items()) if id in labels
            )
            if after
            else None,
            verdicts=tuple(self._verdicts.get(id, ()))
            if after or self.reveal == "before"
            else None,
        )

    def choice(self, id: str) -> Choice | None:
        """Returns this annotator's choice for a trajectory; None if there is none yet."""
        return _choice(self.log.mine.get(id))

    def decision(self, index: int) -> VersionedDecision:
        """Returns the decision about a trajectory, by its index."""
        mine = self.log.mine.get(self.worklist.ids[index])
        return VersionedDecision(_decision(mine), self._history.version(index))

    async def put(
        self, index: int, decision: LabelDecision, version: int | None = None
    ) -> VersionedDecision:
        """Saves a decision; `version` is that of the state it was made on, None for any.

        Raises InputError for labels of steps that do not exist, ConflictError if there is another
        version by now, and UsageError if the decision cannot be written.
        """
        record = _record(self.worklist[index], decision, self.log.annotator)
        if (chance := self._inclusion.get(record.id)) is not None:
            record = replace(record, inclusion=chance)
        async with self._writing:
            before = self.log.mine.get(record.id)
            if not self._history.is_current(index, version):
                if before == record:  # the response to an earlier request was lost
                    return self.decision(index)
                saved = (
                    "taken back"
                    if before is None
                    else f"saved as {_choice(before)}".replace("_", " ")
                )
                raise ConflictError(f"It was {saved} on another page meanwhile.")
            await asyncio.to_thread(self.log.put, record)
            self._history.add(index, before)
            self.written += 1
        if self._revealed_choices.get(record.id, decision.choice) != decision.choice:
            self._revised.add(record.id)
        return self.decision(index)

    async def save(
        self, index: int, decision: LabelDecision, version: int | None = None
    ) -> LabelChange:
        """Saves a decision like `put`, and returns the next card."""
        await self.put(index, decision, version)
        return self._change(index)

    async def take_back(
        self, version: int | None = None
    ) -> tuple[int, LabelDecision | None] | None:
        """Undoes the decision of this number, or the last one of this session.

        Returns:
            The index and the undone decision; None if there is nothing to undo.

        Raises ConflictError if another decision has replaced it, and UsageError like `put`.
        """
        async with self._writing:
            step = self._history.find(version)
            if step is None:
                return None
            id = self.worklist.ids[step.index]
            taken_back = _decision(self.log.mine.get(id))
            if step.before is None:
                await asyncio.to_thread(self.log.remove, id)
            else:
                await asyncio.to_thread(self.log.put, step.before)
            self._history.drop(step)
            self.written -= 1
        return step.index, taken_back

    async def undo(self, version: int | None = None) -> LabelChange | None:
        """Undoes a decision like `take_back`, and returns the next card."""
        taken_back = await self.take_back(version)
        return self._change(*taken_back) if taken_back is not None else None

    def _change(self, index: int, undone: LabelDecision | None = None) -> LabelChange:
        return LabelChange(
            card=self.card(index),
            next=self._next(index),
            pairs=self._visible_pairs(),
            undone=undone,
        )

    def _next(self, index: int) -> int | None:
        later = range(index + 1, len(self.worklist))
        earlier = range(index + 1)
        return next(
            (
                i
                for part in (later, earlier)
                for i in part
                if self.worklist.ids[i] not in self.log.mine
            ),
            None,
        )

    def _visible_pairs(self) -> tuple[PairAgreement, ...] | None:
        return None if self.reveal == "never" else self.pairs


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
    )


def _choice(record: LabelRecord | None) -> Choice | None:
    if record is None:
        return None
    if record.success is None:
        return record.undecided or "unsure"
    return "success" if record.success else "failure"


def _decision(record: LabelRecord | None) -> LabelDecision | None:
    choice = _choice(record)
    if record is None or choice is None:
        return None
    return LabelDecision(choice=choice, steps=record.steps or (), note=record.note or "")

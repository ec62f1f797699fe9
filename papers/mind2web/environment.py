"""Mind2Web and MT-Mind2Web as an environment. It plays recorded turns step by step, regardless of
the agent's actions (teacher forcing).

Recordings may be larger than memory: one pass over a file finds where its turns begin. A turn is
read when it is played, with the earlier turns of its conversation.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from prill.emulators.settings import EnvironmentConfig, Playing, Setting, broken_label
from prill.emulators.task_source import Names, join_names, task_names
from prill.errors import EnvironmentFailedError, InputError, UsageError
from prill.io.kinds import TRAJECTORIES
from prill.io.lines import read_lines
from prill.papers.mind2web.pages.state import (
    USUAL,
    Marking,
    Match,
    Scheme,
    StepTarget,
    TurnPlace,
    describe_step,
    read_state,
    rejoined,
    without_pages,
)
from prill.papers.mind2web.pages.tree import read_page
from prill.types import Action, LabelRecord, Observation, StepLabel, StrPath, Task, Trajectory

_SHOWN = 50  # the number of candidates around which a recorded page is cut


STEP_MATCH = Meta(
    description="Compare steps, with Synapse's scoring, by parsed action (default: for a trained "
    "model), or by text."
)
RECORDED = Meta(description="Files or folders of recorded turns: [SPLIT=]PATH,….")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mind2WebSpec:
    """Options for playing recorded turns and for scoring steps in the labels."""

    within: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Number of best candidates among which the target must be; else "
            "the step is lost (default: from the policy's paper)."
        ),
    ] = None
    lost: Annotated[
        Literal["hidden", "shown"],
        Meta(
            description="What is shown of a lost step: no candidates, so that no model is "
            "called, or all the same."
        ),
    ] = "hidden"
    scheme: Annotated[
        Scheme | None,
        Meta(description="Scoring of steps: as in MindAct in one of two forms, or as in Synapse."),
    ] = None
    step_match: Annotated[Match | None, STEP_MATCH] = None

    def marking(self, usual: Marking = USUAL) -> Marking:
        """Returns the scoring scheme of steps; `usual` has what the options leave open."""
        top = usual.top if self.within is None else self.within
        return Marking(self.scheme or usual.scheme, top, self.step_match or usual.step_match)


class _Head(msgspec.Struct):
    """The fields that are read from every line in advance. Observations and actions are skipped."""

    class _Task(msgspec.Struct):
        site: str | None = None

    id: str
    task: _Task = msgspec.field(default_factory=_Task)
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class Recordings:
    """Recorded turns by id; only positions are in memory. Raises UsageError and InputError."""

    def __init__(self, files: Sequence[StrPath]) -> None:
        self.places: dict[str, TurnPlace] = {}
        self._conversations: dict[tuple[Path, str], list[str]] = {}
        for file in files:
            self._add(Path(file))

    def _add(self, file: Path) -> None:
        decoder = msgspec.json.Decoder(_Head)
        for line in read_lines(file):
            if line.start is None:
                raise UsageError(
                    f"{file}: recordings need random access; use an uncompressed file, not a pipe"
                )
            try:
                head = decoder.decode(line.data)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"{file}:{line.number}: {error}") from None
            if head.id in self.places:
                raise UsageError(f"{file}:{line.number}: the turn {head.id!r} is recorded twice")
            conversation = str(head.metadata.get("conversation", head.id))
            digest = hashlib.blake2b(line.data, digest_size=8).hexdigest()
            self.places[head.id] = TurnPlace(
                *(file, line.number, line.start, line.size, conversation),
                site=head.task.site,
                digest=digest,
            )
            self._conversations.setdefault((file, conversation), []).append(head.id)

    @property
    def conversations(self) -> dict[str, int]:
        """The number of each turn's conversation."""
        numbered = enumerate(self._conversations.values())
        return {name: number for number, names in numbered for name in names}

    def turn(self, name: str) -> Trajectory:
        """Returns the turn with its conversation's earlier turns. Raises UsageError, InputError."""
        if name not in self.places:
            raise UsageError(
                f"unknown turn {name!r}; expected one of {len(self.places)}, for example "
                f"{next(iter(self.places), '-')}"
            )
        place = self.places[name]
        names = self._conversations[place.file, place.conversation]
        *_, turn = rejoined(self.places[one].read() for one in names[: names.index(name) + 1])
        return turn


class Mind2Web:
    """Plays recorded turns. An episode ends after the last recorded step.

    The record keeps the part of each page around the best 50 candidates. It keeps only the actions
    of earlier turns.
    """

    def __init__(
        self,
        recordings: Annotated[tuple[str, ...], RECORDED] = (),
        spec: Mind2WebSpec = Mind2WebSpec(),
        *,
        opened: Recordings | None = None,
    ) -> None:
        self.recordings = opened or Recordings(recordings)
        self.spec = spec
        self._turn: Trajectory | None = None
        self._targets: tuple[StepTarget, ...] = ()
        self._at = 0

    async def task(self, name: str, seed: int = 0) -> Task:
        """Makes the task of a recorded turn. Raises UsageError and EnvironmentFailedError."""
        await self._take(name)
        assert self._turn is not None
        return self._turn.task

    async def reset(self, task: Task) -> Observation:
        """Returns the state before the first recorded step of the turn with the task's id."""
        if self._turn is None or self._turn.id != task.id:
            await self._take(task.id)
        self._at = 0
        return self._state()

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """Returns the next recorded state, whatever the action was; at the end, the final one."""
        assert self._turn is not None
        self._at += 1
        if self._at < len(self._turn.steps):
            return self._state(), False
        return self._turn.final or Observation(), True

    def abridged(self, trajectory: Trajectory) -> Trajectory:
        """Returns the episode with each page cut around its best 50 candidates, and earlier turns
        without pages. It omits the recorded actions, because a judge could simply compare the
        agent's actions with them.
        """
        turn = self._turn
        steps = tuple(
            replace(step, observation=replace(step.observation, text=self._view(i)))
            for i, step in enumerate(trajectory.steps)
        )
        final = trajectory.final
        if turn is not None and final is not None:
            going_on = len(steps) < len(turn.steps)
            final = replace(final, text=self._view(len(steps))) if going_on else turn.final
        metadata = {**({} if turn is None else turn.metadata), **trajectory.metadata}
        metadata.pop("uids", None)
        task = replace(trajectory.task, earlier=tuple(map(without_pages, trajectory.task.earlier)))
        return replace(trajectory, task=task, steps=steps, final=final, metadata=metadata)

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """Labels the last episode and its steps. In a success every step matches the recording."""
        assert self._turn is not None
        if trajectory.error is not None:
            return broken_label(trajectory)
        scores = self.spec.marking().scores(self._targets, trajectory)
        right = sum(score.success for score in scores)
        elements = sum(score.element == 1 for score in scores)
        return LabelRecord(
            id=trajectory.id,
            success=right == len(scores),
            source="oracle",
            note=f"{right} of {len(scores)} steps right, {elements} elements",
            steps=tuple(
                StepLabel(i, "towards" if score.success else "away")
                for i, score in enumerate(scores[: len(trajectory.steps)])
            ),
        )

    async def close(self) -> None:
        """Discards the current turn."""
        self._turn, self._targets = None, ()

    async def _take(self, name: str) -> None:
        try:
            turn = await asyncio.to_thread(self.recordings.turn, name)
        except InputError as problem:
            raise EnvironmentFailedError(str(problem)) from None
        if not turn.steps:
            raise EnvironmentFailedError(f"the recorded turn {name!r} has no steps")
        try:
            self._targets = tuple(map(describe_step, turn.steps))
        except ValueError as problem:
            raise EnvironmentFailedError(f"the recorded turn {name!r}: {problem}") from None
        self._turn, self._at = turn, 0

    def _state(self) -> Observation:
        """Returns the observation for the current step."""
        assert self._turn is not None
        seen, at = self._turn.steps[self._at].observation, self._at
        state, about = read_state(seen.text or ""), self._turn.metadata
        lost = self.spec.lost == "hidden" and not self._targets[at].within(self.spec.marking().top)
        offered, withheld = ((), state.candidates) if lost else (state.candidates, ())
        shown = replace(
            state,
            candidates=offered,
            targets=tuple(asked.target for asked in self._targets[:at]),
            withheld=withheld,
            domain=str(about.get("domain") or ""),
            subdomain=str(about.get("subdomain") or ""),
        )
        return replace(seen, text=shown.text())

    def _view(self, at: int) -> str | None:
        """Returns the page of a recorded step as people and judges see it."""
        if self._turn is None or at >= len(self._turn.steps):
            return None
        state = read_state(self._turn.steps[at].observation.text or "")
        try:
            page = read_page(state.page)  # cached, because this is called after every step
        except InputError as problem:
            raise EnvironmentFailedError(
                f"the recorded turn {self._turn.id!r}, step {at}: {problem}"
            ) from None
        return page.view(state.candidates[:_SHOWN], brackets="angle", ids="original").text


@dataclass(frozen=True, kw_only=True)
class Mind2WebConfig(EnvironmentConfig, Mind2WebSpec):
    """Recorded turns as an environment: `Mind2WebConfig(recordings=["test.jsonl"])`."""

    name: ClassVar[str] = "mind2web"
    usual_steps: ClassVar[int] = 1000  # maximum of an episode, which ends with the recording
    stops_early: ClassVar[bool] = False

    tasks: Annotated[Names, Meta(description="Recorded turns by id, or all.")] = "all"
    recordings: Annotated[str | Path | Sequence[str | Path], RECORDED] = ()

    def check(self) -> None:
        """Converts names and files to text."""
        object.__setattr__(self, "tasks", join_names(self.tasks))
        if isinstance(self.recordings, list | tuple):
            object.__setattr__(self, "recordings", ",".join(map(str, self.recordings)))

    def files(self) -> dict[Path, str]:
        """Returns each file with the name of its split, or else its own name."""
        found: dict[Path, str] = {}
        for word in (part.strip() for part in str(self.recordings).split(",") if part.strip()):
            split, equals, name = word.partition("=")
            place = Path(name if equals else word)
            path = place / TRAJECTORIES if place.is_dir() else place
            if not path.is_file():
                raise UsageError(
                    f"recordings {word}: {path} does not exist (prill convert mind2web "
                    "writes such a file)"
                )
            if path in found:
                raise UsageError(
                    f"recordings {word}: {path} is listed twice; list each file for one split only"
                )
            found[path] = split if equals else place.stem
        if not found:
            raise UsageError(
                "recordings is missing; give files of recorded turns, which prill convert "
                "mind2web writes",
                parameters=("recordings",),
            )
        return found

    def setting(self, run: Playing) -> Setting[Any]:
        """Opens the recordings."""
        found = self.marking(run.marking if isinstance(run.marking, Marking) else USUAL)
        spec = Mind2WebSpec(
            within=found.top, lost=self.lost, scheme=found.scheme, step_match=found.step_match
        )
        recordings = Recordings(list(self.files()))
        places = recordings.places
        names = task_names(self.tasks or "all", tuple(places))
        environments = [Mind2Web(spec=spec, opened=recordings) for _ in range(run.copies)]
        return Setting(
            environments,
            names,
            Mind2Web.task,
            Mind2Web.grade,
            asdict(spec),
            # recordings with the same id differ in it
            contents={name: place.digest for name, place in places.items()},
            templates=recordings.conversations,
            sites={name: place.site for name, place in places.items() if place.site},
        )

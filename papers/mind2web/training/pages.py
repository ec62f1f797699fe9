"""Training data of recorded turns: the turns, read from their file one at a time, and the order of
the steps.

A file of recorded pages is larger than memory, and each epoch draws other candidates, so no rows
are written. Row `i` of a training run depends only on the seed and `i`, in every process and after
every resume.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import islice
from math import ceil
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from prill.errors import InputError, UsageError
from prill.io.checksums import expect_unchanged
from prill.io.lines import is_stream, read_lines, resolve_folder
from prill.io.store import decode_trajectory
from prill.papers.mind2web.pages.conversations import format_conversation, rejoined
from prill.papers.mind2web.pages.state import read_state
from prill.refine.demonstration import Teacher
from prill.refine.training.preflight import Preflight, Say
from prill.refine.training.spec import TrainSpec
from prill.refine.training.trainer import TrainingWatch, saving_whole, training_arguments, watched
from prill.refine.training.weights import Base, load_model
from prill.types import Trajectory

_KEPT_BYTES = 256 << 20  # of turns in memory
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class GoldStep:
    """A step of a file: its turn, its index in the turn, and its conversation."""

    turn: int
    index: int
    group: str


@dataclass(frozen=True, slots=True)
class _Turn:
    """The position of a turn in its file. `data` holds a turn without a position of its own (in a
    compressed file).
    """

    line: int
    start: int | None
    size: int
    data: bytes | None
    group: str


class GoldTurns:
    """The turns of a file of gold trajectories that `prill convert mind2web` wrote. Only their
    positions are in memory.

    `steps` are those with a right candidate; `without` counts the others. Raises UsageError for a
    file without turns or with invalid lines, because training data must be complete.
    """

    def __init__(
        self, path: str | os.PathLike[str], say: Callable[[int], object] = lambda done: None
    ) -> None:
        if is_stream(path):
            raise UsageError(
                f"{path}: expected a file, because trajectories are read several times",
                parameters=("rows",),
            )
        expect_unchanged(path)
        self.path = Path(path)
        self.without = 0
        self._root = resolve_folder(path)
        self._turns: list[_Turn] = []
        self._groups: dict[str, list[int]] = {}
        self._kept: OrderedDict[int, tuple[Trajectory, int]] = OrderedDict()
        digest, problems, steps = hashlib.sha256(), list[str](), list[GoldStep]()
        for line in read_lines(path):
            digest.update(line.data + b"\n")
            try:
                turn = decode_trajectory(line.data, self._root)
                steps += self._indexed(turn, len(self._turns))
            except InputError as error:
                problems.append(f"{path}:{line.number}: {error}")
                continue
            group = format_conversation(turn)
            placed = line.start is not None
            self._groups.setdefault(group, []).append(len(self._turns))
            self._turns.append(
                _Turn(line.number, line.start, line.size, None if placed else line.data, group)
            )
            say(len(self._turns))
        if problems:
            more = (
                ""
                if len(problems) <= _MAX_NAMED
                else f"\n  … and {len(problems) - _MAX_NAMED} more"
            )
            raise UsageError("\n  ".join(problems[:_MAX_NAMED]) + more)
        if not steps:
            raise UsageError(
                f"{path}: no step has a correct candidate; make the file with `prill "
                "convert mind2web`"
            )
        self.steps, self.digest = tuple(steps), digest.hexdigest()

    def __len__(self) -> int:
        return len(self._turns)

    def turn(self, number: int) -> Trajectory:
        """Returns a turn, without the pages of earlier turns."""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number][0]
        place = self._turns[number]
        if place.data is not None:
            data = place.data
        else:
            with self.path.open("rb") as file:
                file.seek(place.start or 0)
                data = file.read(place.size)
        turn = decode_trajectory(data, self._root)
        self._kept[number] = (turn, len(data))
        while sum(size for _, size in self._kept.values()) > _KEPT_BYTES and len(self._kept) > 1:
            self._kept.popitem(last=False)
        return turn

    def whole_turn(self, number: int) -> Trajectory:
        """Returns a turn, with the earlier turns and their pages in its task."""
        group = self._groups[self._turns[number].group]
        before = group[: group.index(number) + 1]
        *_, turn = rejoined(self.turn(one) for one in before)
        return turn

    def place(self, step: GoldStep) -> str:
        """Returns the file, line and step, for messages."""
        return f"{self.path}:{self._turns[step.turn].line}, step {step.index}"

    def line(self, step: GoldStep) -> int:
        """Returns the line number of a step's turn."""
        return self._turns[step.turn].line

    def _indexed(self, turn: Trajectory, number: int) -> Iterator[GoldStep]:
        for index, step in enumerate(turn.steps):
            try:
                candidates = read_state(step.observation.text or "").candidates
            except ValueError as error:
                raise InputError(f"steps[{index}].observation.text: {error}") from None
            if {*(step.action.target or "").split()} & {*candidates}:
                yield GoldStep(number, index, format_conversation(turn))
            else:
                self.without += 1


@dataclass(frozen=True, slots=True)
class PagePlan:
    """The data and settings of a training run on recorded pages. `taught` is the policy that
    formats the steps as training examples.
    """

    base: Base
    gold: GoldTurns
    learnt: tuple[GoldStep, ...]
    held_out: tuple[GoldStep, ...]
    facts: Preflight
    taught: dict[str, object]

    @property
    def digests(self) -> dict[str, object]:
        """Returns digests of the training data, to recognize it later."""
        return {"trajectories": self.gold.digest, **self.taught}


@dataclass(frozen=True, slots=True)
class Draw:
    """One row of a training run: a step, the number of the row among the step's rows in an epoch,
    and the epoch.
    """

    step: GoldStep
    row: int
    seen: int


class Draws:
    """The rows of a training run in order. Each epoch has every step `each` times, shuffled by the
    seed.
    """

    def __init__(self, steps: Sequence[GoldStep], each: int, passes: int, seed: int) -> None:
        self.steps, self.each, self.passes, self.seed = steps, each, passes, seed
        self._order = lru_cache(2)(self._shuffled)

    def __len__(self) -> int:
        return len(self.steps) * self.each * self.passes

    def __getitem__(self, number: int) -> Draw:
        seen, place = divmod(number, len(self.steps) * self.each)
        step, row = divmod(self._order(seen)[place], self.each)
        return Draw(self.steps[step], row, seen)

    def numbers(self, draw: Draw) -> Random:
        """Returns the random generator of a row, the same in every process."""
        return Random(f"{self.seed}/{draw.seen}/{draw.step.turn}/{draw.step.index}/{draw.row}")

    def _shuffled(self, seen: int) -> list[int]:
        order = list(range(len(self.steps) * self.each))
        Random(f"{self.seed}/{seen}").shuffle(order)
        return order

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_order"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._order = lru_cache(2)(self._shuffled)


def evenly(steps: Sequence[GoldStep], most: int) -> list[GoldStep]:
    """Selects at most `most` steps, spread over the whole file."""
    return list(islice(steps[:: max(1, len(steps) // most)], most))


class PageRecipe(ABC):
    """Shared code of ranker and planner training: a trainer of transformers over the steps of a
    plan, whose rows are made on demand, and the text of the model card.
    """

    caution: ClassVar[str] = "Its pages are recordings, which no action changed."
    heading: ClassVar[str]
    kind: ClassVar[str] = ""  # prefix of transformers' trainer: `Seq2Seq`
    arguments: ClassVar[Mapping[str, Any]] = {}  # further arguments of the trainer

    @abstractmethod
    def each(self, spec: TrainSpec) -> tuple[int, int]:
        """Returns the number of rows of a training step in an epoch, and of an evaluation step."""

    @abstractmethod
    def rows(self, plan: PagePlan, draws: Draws, teacher: Teacher | None) -> Any:
        """Returns the rows as a data set for Trainer."""

    @abstractmethod
    def collator(self, plan: PagePlan, model: Any) -> Any:
        """Returns the collator that makes batches of rows."""

    @abstractmethod
    def loss(self, outputs: Any, labels: Any, num_items_in_batch: Any) -> Any:
        """Returns the mean loss over a batch, independent of gradient accumulation. The model's own
        loss would be summed over the accumulated parts.
        """

    def samples(
        self, spec: TrainSpec, plan: PagePlan, teacher: Teacher | None
    ) -> Callable[[Any, int], list[bytes]] | None:
        """Returns a function that makes readable samples at each evaluation. None: no samples."""
        return None

    def trainer(
        self,
        spec: TrainSpec,
        plan: PagePlan,
        folder: Path,
        watch: TrainingWatch,
        *,
        on_gpu: bool,
        teacher: Teacher | None,
    ) -> Any:
        """Returns the trainer over the plan's steps, with the model loaded."""
        transformers = import_module("transformers")
        transformers.set_seed(spec.seed)  # initializes a new head reproducibly
        settings = training_arguments(
            spec, plan.facts, folder, evaluates=bool(plan.held_out), on_gpu=on_gpu
        )
        model = load_model(plan.base, spec, on_gpu=on_gpu)
        each, each_apart = self.each(spec)
        passes = ceil(plan.facts.steps * spec.batch / (len(plan.learnt) * each))
        draws = Draws(plan.learnt, each, passes, spec.seed)
        apart = Draws(plan.held_out, each_apart, 1, spec.seed)
        made = getattr(transformers, f"{self.kind}Trainer")
        trainer = saving_whole(made, spec.keep_checkpoints)(
            model=model,
            args=getattr(transformers, f"{self.kind}TrainingArguments")(
                **settings,
                train_sampling_strategy="sequential",
                dataloader_num_workers=spec.workers,
                **self.arguments,
            ),
            data_collator=self.collator(plan, model),
            compute_loss_func=self.loss,
            train_dataset=self.rows(plan, draws, teacher),
            eval_dataset=self.rows(plan, apart, teacher) if plan.held_out else None,
            processing_class=plan.base.reader,
        )
        watched(trainer, folder, watch, self.samples(spec, plan, teacher))
        return trainer

    def figures(self, trainer: Any, plan: PagePlan, say: Say) -> dict[str, Any]:
        """Returns no further metrics."""
        return {}

    def title(self, spec: TrainSpec) -> str:
        """Returns the title of the model card."""
        return self.heading

    def tags(self, spec: TrainSpec) -> str:
        """Returns the tags of the model card."""
        return f"prill, {spec.trains}"

    def learnt_from(self, plan: PagePlan) -> str:
        """Describes the training data: the numbers of steps and turns."""
        facts = plan.facts
        left_out = (
            f"{plan.gold.without:,} steps have no right candidate, and {facts.overlong:,} "
            "are too long or cannot be said"
        )
        drawn = f"{facts.learnt // max(1, len(plan.learnt))} rows a pass, redrawn each time"
        return (
            f"on {len(plan.learnt):,} steps of {len(plan.gold):,} turns, {drawn}. {left_out}: "
            "those\nwere left out; "
            f"{len(plan.held_out):,} steps of other conversations were kept apart."
        )

    def table(self, figures: Mapping[str, Any]) -> str:
        """Returns no table."""
        return ""

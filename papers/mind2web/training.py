"""Trains a candidate ranker or a planner on recorded turns (MindAct, arXiv 2306.06070, and
Self-MAP, ACL 2024).

A file of recorded pages is larger than memory, and each epoch draws other candidates, so no rows
are written. Row `i` of a training run depends only on the seed and `i`, in every process and after
every resume.

The ranker is a cross-encoder: each step contributes one right candidate and a few wrong ones, and
the loss is the binary cross-entropy of each. The planner is a model such as Flan-T5 that learns to
answer a policy's questions; the policy draws the candidates.
"""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from importlib import import_module
from math import ceil
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from prill.config.registry import OptionError
from prill.errors import InputError, UnscoredError, UsageError
from prill.io.cache import BoundedCache
from prill.io.lines import is_stream, read_lines, resolve_folder
from prill.io.store import decode_trajectory
from prill.models.local.weights import one_text
from prill.models.request import worded
from prill.papers.mind2web.pages.ranking import (
    MAX_TOKENS,
    RankingTally,
    candidate_texts,
    distinct,
    pairs,
    ranked,
    scores,
)
from prill.papers.mind2web.pages.state import TurnPlace, format_conversation, read_state, rejoined
from prill.papers.mind2web.pages.tree import ranker_query, read_page
from prill.policies.registry import Fingerprinted
from prill.protocols import Image
from prill.refine.demonstration import Teacher, TeacherLike, described, make_teacher
from prill.refine.training.preflight import Devices, Preflight, Say, estimate_run
from prill.refine.training.samples import split
from prill.refine.training.spec import DEFAULT_PRESETS, Trained, TrainSpec
from prill.refine.training.train import (
    PresetConfig,
    PresetOption,
    Recipe,
    TrainConfig,
    refuse_teacher,
)
from prill.refine.training.trainer import TrainingWatch, saving_whole, training_arguments, watched
from prill.refine.training.weights import Base, load_model, model_failures, read_base
from prill.types import StrPath, Trajectory

_KEPT_BYTES = 256 << 20  # of turns in memory
# of transformers: the configurations of such models, and the class that loads one
_KINDS = {
    "ranker": (
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
        "AutoModelForSequenceClassification",
        "an encoder",
    ),
    "planner": (
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
        "AutoModelForSeq2SeqLM",
        "an encoder with a decoder",
    ),
}


def open_page_base(spec: TrainSpec) -> Base:
    """Reads the config and tokenizer of a ranker (an encoder) or planner (an encoder-decoder such
    as T5).

    Raises the same errors as `open_base`.
    """
    base = read_base(spec)
    known, loads, what = _KINDS[spec.trains]
    if type(base.config) not in getattr(import_module("transformers"), known):
        raise OptionError(
            f"model: {base.name} is a {base.config.model_type}; a {spec.trains} is {what} "
            "(papers/mind2web/README.md)",
            "model",
        )
    if base.reader.pad_token_id is None:
        raise OptionError(f"model: {base.name}: its tokenizer has no padding token", "model")
    if spec.trains == "ranker":
        # one label, trained with binary cross-entropy
        base.config.num_labels = 1
        base.config.problem_type = "multi_label_classification"
    return replace(base, sees=False, loads=loads)


@dataclass(frozen=True, slots=True)
class GoldStep:
    """A step of a file: its turn, its index in the turn, and its conversation."""

    turn: int
    index: int
    group: str


class GoldTurns:
    """The turns of a file and their `steps` with a right candidate. Raises UsageError."""

    def __init__(self, path: StrPath, say: Callable[[int], object] = lambda done: None) -> None:
        if is_stream(path):
            raise UsageError(
                f"{path}: expected a file, because trajectories are read several times",
                parameters=("rows",),
            )
        self.path = Path(path)
        self.without = 0
        root = resolve_folder(path)
        self._turns: list[TurnPlace] = []
        self._groups: dict[str, list[int]] = {}
        self._kept = BoundedCache[int, Trajectory](1 << 30, _KEPT_BYTES)
        digest, steps = hashlib.sha256(), list[GoldStep]()
        for line in read_lines(path):
            digest.update(line.data + b"\n")
            try:
                turn = decode_trajectory(line.data, root)
                steps += self._indexed(turn, len(self._turns))
            except InputError as error:
                raise UsageError(f"{path}:{line.number}: {error}") from None
            group = format_conversation(turn)
            data = line.data if line.start is None else None
            self._groups.setdefault(group, []).append(len(self._turns))
            self._turns.append(
                TurnPlace(self.path, line.number, line.start, line.size, group, data)
            )
            say(len(self._turns))
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
        if (turn := self._kept.get(number)) is None:
            turn = self._turns[number].read()
            self._kept.put(number, turn, self._turns[number].size)
        return turn

    def whole_turn(self, number: int) -> Trajectory:
        """Returns a turn, with the earlier turns and their pages in its task."""
        group = self._groups[self._turns[number].conversation]
        before = group[: group.index(number) + 1]
        *_, turn = rejoined(self.turn(one) for one in before)
        return turn

    def place(self, step: GoldStep) -> str:
        """Returns the file, line and step, for messages."""
        return f"{self.path}:{self._turns[step.turn].line}, step {step.index}"

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
    """The data and settings of a training run; `taught` is the policy that formats the steps."""

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
    """One row of a training run: a step, its row in the epoch, and the epoch."""

    step: GoldStep
    row: int
    seen: int


@dataclass(frozen=True, slots=True)
class Draws:
    """The rows of a training run: each epoch has every step `each` times, shuffled by the seed.

    `make` makes the row of a draw, on demand.
    """

    steps: Sequence[GoldStep]
    each: int
    passes: int
    seed: int
    make: Callable[[Draws, Draw], Any]

    def __len__(self) -> int:
        return len(self.steps) * self.each * self.passes

    def __getitem__(self, number: int) -> Any:
        return self.make(self, self.draw(number))

    def draw(self, number: int) -> Draw:
        """Returns one of the draws, in training order."""
        count = len(self.steps) * self.each
        seen, place = divmod(number, count)
        step, row = divmod(_shuffled(count, f"{self.seed}/{seen}")[place], self.each)
        return Draw(self.steps[step], row, seen)

    def numbers(self, draw: Draw) -> Random:
        """Returns the random generator of a row, the same in every process."""
        return Random(f"{self.seed}/{draw.seen}/{draw.step.turn}/{draw.step.index}/{draw.row}")


@lru_cache(4)  # training and evaluation, and the next epoch of each
def _shuffled(count: int, seed: str) -> list[int]:
    order = list(range(count))
    Random(seed).shuffle(order)
    return order


class PageRecipe(Recipe, ABC):
    """What ranker and planner share: a trainer over the steps of a plan, and the model card."""

    caution: ClassVar[str] = "Its pages are recordings, which no action changed."
    heading: ClassVar[str]
    kind: ClassVar[str] = ""  # prefix of transformers' trainer: `Seq2Seq`
    truncates: ClassVar[bool] = False  # whether longer rows are cut, not left out
    arguments: ClassVar[Mapping[str, Any]] = {}  # further arguments of the trainer

    @abstractmethod
    def each(self, spec: TrainSpec) -> tuple[int, int]:
        """Returns the number of rows of a training step in an epoch, and of an evaluation step."""

    @abstractmethod
    def row(self, plan: PagePlan, teacher: Teacher | None) -> Callable[[Draws, Draw], Any]:
        """Returns what makes the row of a draw."""

    @abstractmethod
    def collator(self, plan: PagePlan, model: Any) -> Any:
        """Returns the collator that makes batches of rows."""

    @abstractmethod
    def loss(self, outputs: Any, labels: Any, num_items_in_batch: Any) -> Any:
        """Returns the mean loss over a batch, independent of gradient accumulation."""

    @abstractmethod
    def measure(
        self, spec: TrainSpec, base: Base, turns: GoldTurns, say: Say, teacher: Teacher | None
    ) -> dict[GoldStep, tuple[int, int]]:
        """Returns the tokens of question and answer of each step to learn. Raises UsageError."""

    def limit(self, spec: TrainSpec, base: Base) -> int | None:
        """Returns the most tokens of a row."""
        return min(filter(None, (spec.max_length, base.window)), default=None)

    def plan(  # type: ignore[override] # its rows are drawn, not read
        self,
        spec: TrainSpec,
        rows: StrPath,
        folder: Path,
        say: Say,
        *,
        teacher: Teacher | None,
        taught: Mapping[str, Any] | None,
        devices: Devices | None,
    ) -> PagePlan:
        """Reads and measures the turns. Raises UsageError."""
        base = open_page_base(spec)
        turns = GoldTurns(rows, lambda done: say("turns", done, done))
        lengths = self.measure(spec, base, turns, say, teacher)
        learnt, held_out = split(list(lengths), spec.held_out)
        each, each_apart = self.each(spec)
        facts = estimate_run(
            *(spec, base, folder, [lengths[step] for step in learnt]),
            rows=len(turns.steps) + turns.without,
            learnt=len(learnt) * each,
            held_out=len(held_out) * each_apart,
            overlong=0 if self.truncates else len(turns.steps) - len(lengths),
            limit=self.limit(spec, base),
        )
        policy = () if teacher is None else (("policy", taught or type(teacher).__name__),)
        return PagePlan(base, turns, tuple(learnt), tuple(held_out), facts, dict(policy))

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
        row = self.row(plan, teacher)
        learnt = Draws(plan.learnt, each, passes, spec.seed, row)
        held_out_rows = Draws(plan.held_out, each_apart, 1, spec.seed, row)
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
            train_dataset=learnt,
            eval_dataset=held_out_rows if plan.held_out else None,
            processing_class=plan.base.reader,
        )
        watched(trainer, watch)
        return trainer

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
            "are too long or cannot be expressed"
        )
        drawn = f"{facts.learnt // max(1, len(plan.learnt))} rows a pass, redrawn each time"
        return (
            f"on {len(plan.learnt):,} steps of {len(plan.gold):,} turns, {drawn}. {left_out}: "
            "those\nwere left out; "
            f"{len(plan.held_out):,} steps of other conversations were held out."
        )


# marks quotations: a fine-tuned model has a fixed form, and equal rows stay equal
_CODE = "0" * 8


class PlannerRecipe(PageRecipe):
    """Trains a planner that answers a policy. The loss covers only the answer's tokens."""

    heading: ClassVar[str] = "A planner: what to do next on a recorded page"
    kind: ClassVar[str] = "Seq2Seq"

    def measure(
        self, spec: TrainSpec, base: Base, turns: GoldTurns, say: Say, teacher: Teacher | None
    ) -> dict[GoldStep, tuple[int, int]]:
        """Has the policy format each step once, and measures it."""
        if teacher is None:
            raise UsageError(
                "policy is missing; name the policy that the planner answers",
                parameters=("policy",),
            )
        lengths: dict[GoldStep, tuple[int, int]] = {}
        reason, limit = "", self.limit(spec, base)
        for done, step in enumerate(turns.steps, 1):
            try:
                with model_failures(base.name):
                    row = encoded(base.tokenizer, *lesson(turns, step, teacher, 0))
                lengths[step] = len(row["input_ids"]), len(row["labels"])
            except (UnscoredError, InputError) as error:
                reason = reason or f"{turns.place(step)}: {error}"
            say("steps", done, len(turns.steps))
        if not lengths:
            raise UsageError(f"the policy cannot format any step; {reason}", parameters=("policy",))
        fitting = {
            step: both for step, both in lengths.items() if limit is None or both[0] <= limit
        }
        if not fitting or (spec.overlong == "error" and len(fitting) < len(lengths)):
            longest = max(lengths, key=lambda step: lengths[step])
            raise UsageError(
                f"{turns.place(longest)}: {len(lengths) - len(fitting)} of {len(lengths)} "
                f"steps are longer than {limit} tokens, this one has {lengths[longest][0]}; "
                "raise max_length, or let the policy show less",
                parameters=("max_length", "overlong"),
            )
        return fitting

    def each(self, spec: TrainSpec) -> tuple[int, int]:
        """Returns the configured number of candidate draws."""
        return spec.draws, 1

    def row(self, plan: PagePlan, teacher: Teacher | None) -> Callable[[Draws, Draw], Any]:
        """Returns what makes the tokens of the policy's question and answer."""
        assert teacher is not None, "a plan of a planner has one"
        return partial(_question, plan.gold, teacher, plan.base.tokenizer, plan.facts.limit)

    def collator(self, plan: PagePlan, model: Any) -> Any:
        """Returns a collator that pads questions and answers."""
        return import_module("transformers").DataCollatorForSeq2Seq(
            plan.base.tokenizer, model=model, label_pad_token_id=-100
        )

    def loss(self, outputs: Any, labels: Any, num_items_in_batch: Any) -> Any:
        """Returns the mean loss over the tokens of a batch's answers."""
        entropy = import_module("torch").nn.functional.cross_entropy
        logits = outputs.logits.flatten(0, 1).float()
        total = entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum")
        return total / num_items_in_batch


def _question(
    gold: GoldTurns, teacher: Teacher, tokenizer: Any, limit: int | None, draws: Draws, draw: Draw
) -> dict[str, list[int]]:
    """Returns the tokens of question and answer. A longer row loses its earliest tokens."""
    try:
        question, answer = lesson(gold, draw.step, teacher, draw.seen * draws.each + draw.row)
    except (UnscoredError, InputError) as error:
        raise UsageError(f"{gold.place(draw.step)}: the policy cannot format it: {error}") from None
    row = encoded(tokenizer, question, answer)
    if limit is not None and len(row["input_ids"]) > limit:
        row = {name: ids if name == "labels" else ids[-limit:] for name, ids in row.items()}
    return row


def lesson(gold: GoldTurns, step: GoldStep, teacher: Teacher, draw: int) -> tuple[str, str]:
    """Returns question and answer at a step; `draw` selects candidates. Raises as `demonstrate`."""
    turn = gold.whole_turn(step.turn)
    if "draw" in inspect.signature(teacher.demonstrate).parameters:
        messages, answer = teacher.demonstrate(turn, step.index, draw=draw)  # type: ignore[call-arg]
    else:
        messages, answer = teacher.demonstrate(turn, step.index)
    texts = []
    for message in worded(messages, "", _CODE):
        if any(isinstance(part, Image) for part in message.parts):
            raise UsageError(
                "the policy sends images, but a planner reads only text", parameters=("policy",)
            )
        texts.append("".join(part for part in message.parts if isinstance(part, str)))
    return one_text(texts), answer


def encoded(tokenizer: Any, question: str, answer: str) -> dict[str, list[int]]:
    """Tokenizes a row. The answer includes the end-of-sequence token."""
    tokens = tokenizer(question)
    return {
        "input_ids": tokens["input_ids"],
        "attention_mask": tokens["attention_mask"],
        "labels": tokenizer(text_target=answer)["input_ids"],
    }


_AT_ONCE = 64  # candidates per batch in the evaluation


class RankerRecipe(PageRecipe):
    """Trains a candidate ranker on recorded pages."""

    heading: ClassVar[str] = "A ranker: which element of a page is meant"
    arguments: ClassVar[Mapping[str, Any]] = {"label_names": ["labels"]}
    truncates: ClassVar[bool] = True

    def limit(self, spec: TrainSpec, base: Base) -> int | None:
        """Returns the most tokens of a pair. Longer ones are truncated."""
        return min(filter(None, (spec.max_length or MAX_TOKENS, base.window)))

    def measure(
        self, spec: TrainSpec, base: Base, turns: GoldTurns, say: Say, teacher: Teacher | None
    ) -> dict[GoldStep, tuple[int, int]]:
        """Measures a right candidate of each step that also has a wrong one."""
        refuse_teacher(spec, teacher)
        draws = Draws(turns.steps, 1, 1, spec.seed, partial(_candidate, turns))
        lengths: dict[GoldStep, tuple[int, int]] = {}
        for done, step in enumerate(turns.steps, 1):
            try:
                right, wrong = _candidates(turns, step)
            except InputError as error:
                raise UsageError(f"{turns.place(step)}: {error}") from None
            if right and wrong:
                row = draws.make(draws, Draw(step, 0, 0))
                with model_failures(base.name):
                    tokens = base.tokenizer(row["text"], row["query"])["input_ids"]
                lengths[step] = min(self.limit(spec, base) or len(tokens), len(tokens)), 0
            say("pages", done, len(turns.steps))
        if not lengths:
            raise UsageError(f"{turns.path}: no page has both a correct and a wrong candidate")
        return lengths

    def each(self, spec: TrainSpec) -> tuple[int, int]:
        """Returns one row for the right candidate plus those for the wrong ones."""
        return spec.negatives + 1, spec.negatives + 1

    def row(self, plan: PagePlan, teacher: Teacher | None) -> Callable[[Draws, Draw], Any]:
        """Returns what makes the text of a right or a wrong candidate."""
        return partial(_candidate, plan.gold)

    def collator(self, plan: PagePlan, model: Any) -> Any:
        """Returns a collator for pairs of candidate and query."""
        torch, limit = import_module("torch"), plan.facts.limit or MAX_TOKENS

        def collate(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
            texts, queries = ([row[name] for row in rows] for name in ("text", "query"))
            both = pairs(plan.base.tokenizer, texts, queries, limit)
            return {**both, "labels": torch.tensor([[row["label"]] for row in rows])}

        return collate

    def loss(self, outputs: Any, labels: Any, num_items_in_batch: Any) -> Any:
        """Returns the mean loss over the rows of a batch."""
        entropy = import_module("torch").nn.functional.binary_cross_entropy_with_logits
        return entropy(outputs.logits.float(), labels, reduction="sum") / num_items_in_batch

    def figures(self, trainer: Any, plan: PagePlan, say: Say) -> dict[str, Any]:
        """Returns the ranking metrics over all candidates of the evaluation steps."""
        if not plan.held_out or not trainer.is_world_process_zero():
            return {}
        tokenizer, tally = plan.base.tokenizer, RankingTally()
        model = trainer.accelerator.unwrap_model(trainer.model).eval()
        for done, step in enumerate(plan.held_out, 1):
            texts, query = candidate_texts(turn := plan.gold.turn(step.turn), step.index)
            different = distinct(texts)
            found = scores(model, tokenizer, query, different, _AT_ONCE)
            by_text = dict(zip(different, found, strict=True))
            tally.add(ranked(turn, step.index, texts, by_text))
            say("ranking held-out steps", done, len(plan.held_out))
        return {"ranking": asdict(tally.figures())}

    def table(self, figures: Mapping[str, Any]) -> str:
        """Formats the ranking metrics of the evaluation steps."""
        found = figures.get("ranking")
        if not found:
            return ""
        rows = {
            "accuracy": found["accuracy"],
            "accuracy by chance": found["chance"],
            "MRR": found["mrr"],
        }
        rows |= {f"recall@{most}": share for most, share in found["recall"].items()}
        lines = "\n".join(f"| {name} | {share:.3f} |" for name, share in rows.items())
        return f"\n| on {found['steps']:,} held-out steps | |\n|---|---|\n{lines}\n"


def _candidates(gold: GoldTurns, step: GoldStep) -> tuple[list[str], list[str]]:
    """Returns the right and wrong candidates on the page, in the order of the state."""
    recorded = gold.turn(step.turn).steps[step.index]
    state, right = read_state(recorded.observation.text or ""), recorded.action.target or ""
    page = read_page(state.page)
    found: tuple[list[str], list[str]] = ([], [])
    for id in state.candidates:
        if id in page:
            found[id not in right.split()].append(id)
    return found


def _candidate(gold: GoldTurns, draws: Draws, draw: Draw) -> dict[str, Any]:
    """Returns a candidate's text, the query, and whether the candidate is right."""
    turn, step = gold.turn(draw.step.turn), draw.step
    state = read_state(turn.steps[step.index].observation.text or "")
    id = draws.numbers(draw).choice(_candidates(gold, step)[draw.row > 0])
    text, query = read_page(state.page).candidate_text(id), ranker_query(turn.task.goal, state.past)
    return {"text": text, "query": query, "label": float(draw.row == 0)}


_RANKER = PresetConfig(DEFAULT_PRESETS["ranker"])
_PLANNER = PresetConfig(DEFAULT_PRESETS["planner"])


@dataclass(frozen=True, kw_only=True)
class TrainRankerConfig(TrainConfig):
    """Configuration of `prill train ranker`, on gold trajectories of recorded pages."""

    trains: ClassVar[Trained] = "ranker"
    preset: PresetOption = _RANKER


@dataclass(frozen=True, kw_only=True)
class TrainPlannerConfig(TrainConfig):
    """Configuration of `prill train planner`: it answers a policy's prompts on recorded pages."""

    trains: ClassVar[Trained] = "planner"
    policy: Annotated[
        TeacherLike,
        Meta(description="Policy that will call the planner: mindact, self-map, or module:Object."),
    ]
    preset: PresetOption = _PLANNER

    def teacher(self) -> tuple[Teacher | None, dict[str, Any] | None]:
        """Returns the policy whose prompts the planner answers.

        Returns:
            The policy, and its name, options and prompts for the record.
        """
        teacher = make_teacher(self.policy)
        prompts = teacher.fingerprint("web") if isinstance(teacher, Fingerprinted) else None
        return teacher, {**described(self.policy), "prompts": prompts}

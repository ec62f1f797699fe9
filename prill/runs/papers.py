"""What the agents of the papers need besides episodes: ranked candidates, a memory of exemplars, conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, to_builtins

from prill.config.values import Config
from prill.datasets.conversations import MOST_TASKS, Tally, make_conversations
from prill.errors import UsageError
from prill.evaluators.fitted.calibration import comparable, read_calibration
from prill.io.outputs import expect_place
from prill.io.store import BadLine, read_labels, read_trajectories, read_verdicts
from prill.io.truth import gold_labels
from prill.models.local.ranker import CrossEncoder
from prill.models.registry import ModelConfig, ModelLike, make_model, model_options
from prill.pages.ranking import Bm25, ByEmbedding, Ranker, RankingFigures, RankTally, rank_file
from prill.policies.embedders import make_embedder
from prill.policies.synapse.growth import PER_TASK, Growth, grow
from prill.policies.synapse.memory import EXEMPLARS, Memory
from prill.protocols import LanguageModel
from prill.runs.base import run_budget, synchronous
from prill.types import Trajectory, Verdict

_EMBEDDING = "embedding:"


# The candidates of recorded pages in the order of a ranker


@dataclass(frozen=True, kw_only=True)
class RankConfig(Config):
    """What `prill rank` does: score every candidate of every recorded step into a score file."""

    trajectories: Annotated[str | Path, Meta(description="gold trajectories of recorded pages, .jsonl")]
    output: Annotated[str | Path, Meta(description="score file, JSON, as Mind2Web has them")]
    ranker: Annotated[
        str,
        Meta(
            min_length=1,
            description="bm25 (shared words, no model), embedding:NAME (tfidf, minilm, local:DIR, or a model at an endpoint), "
            "or the folder of a ranker",
        ),
    ]
    ranked: Annotated[
        str | Path | None, Meta(description="also the trajectories with their candidates in the new order, .jsonl")
    ] = None
    base_url: Annotated[str | None, Meta(description="the endpoint of an embedding (default $OPENAI_BASE_URL)")] = None
    device: Annotated[
        str | None, Meta(description="of a ranker's folder: cuda, cpu or another (default: cuda where there is one)")
    ] = None
    batch: Annotated[int, Meta(ge=1, description="candidates that a ranker's folder reads at once")] = 32
    resume: Annotated[bool, Meta(description="continue where an earlier run ended")] = True


@dataclass(frozen=True)
class RankResult:
    """How well steps were ranked.

    Attributes:
        figures: Accuracy, mean reciprocal rank and recall.
        output: The score file.
        problems: Turns that could not be read.
        stopped: Whether the run was stopped; the same one resumes there.
    """

    figures: RankingFigures
    output: str
    problems: tuple[str, ...] = ()
    stopped: bool = False

    def table(self) -> dict[str, Any]:
        """The figures as JSON has them."""
        return {**asdict(self.figures), "problems": len(self.problems)}

    def __str__(self) -> str:
        found = self.figures
        without = f" ({found.without:,} without a right candidate, counted as missed)" if found.without else ""
        lines = {
            "steps": f"{found.steps:,}{without}",
            "accuracy": f"{found.accuracy:.1%} (by lot {found.chance:.1%})",
            "MRR": f"{found.mrr:.3f}",
            "recall": "  ".join(f"@{most} {share:.1%}" for most, share in found.recall.items()),
        }
        return "\n".join(f"{name:<9} {words}" for name, words in lines.items())


async def rank_async(
    config: RankConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[RankTally], object] = lambda tally: None,
) -> RankResult:
    """Ranks the candidates of recorded steps.

    Args:
        config: Which steps, and by which ranker.
        stop: Once it is set the run ends after the step under way.
        progress: Called after every step.

    Returns:
        How often the right element comes first.

    Raises:
        UsageError: The ranker or the files cannot be used.
    """
    tally = await rank_file(
        config.trajectories,
        _ranker(config),
        config.output,
        reordered=config.ranked,
        resume=config.resume,
        stop=stop,
        progress=progress,
    )
    return RankResult(tally.ranked.figures(), str(config.output), tuple(tally.problems), tally.stopped)


rank = synchronous(rank_async)
"""`rank_async`, waited for: the same parameters, in scripts and notebooks."""


def _ranker(config: RankConfig) -> Ranker:
    if config.ranker == Bm25.name:
        return Bm25()
    if config.ranker.startswith(_EMBEDDING):
        return ByEmbedding(make_embedder(config.ranker.removeprefix(_EMBEDDING), base_url=config.base_url))
    if not Path(config.ranker).is_dir():
        raise UsageError(
            f"ranker {config.ranker}: there are bm25, embedding:NAME, and the folder of a ranker", parameters=("ranker",)
        )
    return CrossEncoder(config.ranker, device=config.device, batch=config.batch)


# A memory of what a judge accepts


@dataclass(frozen=True, kw_only=True)
class ExemplarsConfig(Config):
    """What `prill exemplars` does: make or extend a memory of exemplars for the policy `synapse`."""

    trajectories: Annotated[Sequence[str | Path], Meta(min_length=1, description="trajectory files")]
    verdicts: Annotated[str | Path, Meta(description="verdicts of one judge, as prill score writes them")]
    output: Annotated[str | Path, Meta(description="the memory's folder; what is in it stays")]
    calibration: Annotated[str | Path | None, Meta(description="accept by its threshold; prill calibrate writes it")] = None
    threshold: Annotated[float | None, Meta(ge=0, le=1, description="accept what has this score at least")] = None
    embedder: Annotated[str, Meta(description="tfidf, minilm, local:DIR, or a model's name")] = "tfidf"
    embedder_url: Annotated[str | None, Meta(description="the endpoint of the embedder (default $OPENAI_BASE_URL)")] = None
    per_task: Annotated[int, Meta(ge=1, description="most of one task")] = PER_TASK
    shipped: Annotated[bool, Meta(description="a new memory begins with the exemplars that come with prill")] = False
    labels: Annotated[str | Path | None, Meta(description="label file: tells how many of the new exemplars are wrong")] = None
    source: Annotated[
        str | None, Meta(description="labels to use where there are several sources, such as human or oracle")
    ] = None
    truth: Annotated[
        str,
        Meta(
            description="what counts where annotators differ: majority (a tie is undecided), unanimous, first (line of the "
            "file), or the NAME of the one annotator whose labels count"
        ),
    ] = "majority"

    def check(self) -> None:
        """Refuses options that do not go together."""
        if self.calibration is not None and self.threshold is not None:
            raise UsageError(
                "calibration and threshold: the file has a threshold; give one of them", parameters=("calibration", "threshold")
            )


@dataclass(frozen=True)
class ExemplarsResult:
    """What became of the trajectories.

    Attributes:
        growth: The memory after it has grown, and what was left out.
        output: The memory's folder.
        broken: Lines that could not be read.
    """

    growth: Growth
    output: str
    broken: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be used, a sentence each."""
        return (*self.broken, *self.growth.problems)

    @property
    def held(self) -> int:
        """The exemplars in the memory."""
        return sum(1 for exemplar in self.growth.memory.exemplars if exemplar.steps)

    def table(self) -> dict[str, Any]:
        """What was added and left out, as JSON has it."""
        growth = self.growth
        return {
            "added": len(growth.added),
            "exemplars": self.held,
            "left_out": dict(growth.left_out),
            "wrong": growth.wrong,
            "unlabelled": growth.unlabelled,
        }

    def __str__(self) -> str:
        growth = self.growth
        tasks = {exemplar.name for exemplar in growth.memory.exemplars if exemplar.steps}
        lines = [f"added: {len(growth.added)}; {self.output} holds {self.held} exemplars of {len(tasks)} tasks"]
        lines += [f"left out: {count} {why}" for why, count in growth.left_out.items()]
        if growth.wrong is not None:
            known = len(growth.added) - growth.unlabelled
            lines.append(f"by the labels, {growth.wrong} of {known} new exemplars are wrong; {growth.unlabelled} have no label")
        return "\n".join(lines)


async def exemplars_async(config: ExemplarsConfig, *, progress: Callable[[], object] = lambda: None) -> ExemplarsResult:
    """Puts what a judge accepts into a memory of exemplars.

    Args:
        config: Which trajectories, whose verdicts, and where the memory is.
        progress: Called after every trajectory.

    Returns:
        What was added and left out.

    Raises:
        UsageError: The files cannot be used, or verdicts are of several judges.
    """
    folder = Path(config.output)
    expect_place(folder, "a memory")
    memory = _memory(folder, config)
    verdicts, threshold = _verdicts(config)
    labels = gold_labels(read_labels(config.labels), config.source, config.truth)[1] if config.labels else None
    broken: list[str] = []

    def good() -> Iterator[Trajectory]:
        for path in config.trajectories:
            for item in read_trajectories(path, on_error="yield"):
                progress()
                if isinstance(item, BadLine):
                    broken.append(item.message)
                else:
                    yield item

    growth = await grow(memory, good(), verdicts, threshold=threshold, per_task=config.per_task, labels=labels)
    await growth.memory.save(folder)
    return ExemplarsResult(growth, str(config.output), tuple(broken))


exemplars = synchronous(exemplars_async)
"""`exemplars_async`, waited for: the same parameters, in scripts and notebooks."""


def _memory(folder: Path, config: ExemplarsConfig) -> Memory:
    embedder = make_embedder(config.embedder, base_url=config.embedder_url)
    if (folder / EXEMPLARS).is_file():
        if config.shipped:
            raise UsageError(f"{folder} is a memory already: only a new one can begin with what comes with prill")
        return Memory.load(folder, embedder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there and holds no {EXEMPLARS}: name a new folder, or one of this command")
    shipped = Memory.load(None, embedder)
    return shipped if config.shipped else Memory([], shipped.abstractions, embedder=embedder)


def _verdicts(config: ExemplarsConfig) -> tuple[dict[str, Verdict], float | None]:
    """The verdicts by id, with calibrated scores where a calibration is given, and the threshold for them."""
    found = {verdict.id: verdict for verdict in read_verdicts(config.verdicts)}
    if len({comparable(verdict.evaluator) for verdict in found.values()}) > 1:
        raise UsageError(f"{config.verdicts}: these are verdicts of several judges; name a file of one")
    if config.calibration is None or not found:
        return found, config.threshold
    calibration = read_calibration(config.calibration)
    judge = next(iter(found.values())).evaluator
    if judge.params.get("calibration") == calibration.hash:
        return found, calibration.threshold
    if comparable(judge) != comparable(calibration.evaluator):
        raise UsageError(f"{config.calibration}: this calibration is of another judge, or of other settings of {judge.name}")
    mapped = {
        id: replace(verdict, score=calibration(float(verdict.success) if verdict.score is None else verdict.score))
        if verdict.success is not None
        else verdict
        for id, verdict in found.items()
    }
    return mapped, calibration.threshold


# Conversations of several turns


@dataclass(frozen=True, kw_only=True)
class ConversationsConfig(Config):
    """What `prill conversations` does: make conversations of several turns from single tasks of Mind2Web."""

    source: Annotated[str | Path, Meta(description="file or folder of Mind2Web, JSON")]
    output: Annotated[str | Path, Meta(description="JSON file of conversations")]
    model: Annotated[ModelLike | None, Meta(description="model that divides and rewrites; rules do without it")] = None
    most_tasks: Annotated[int, Meta(ge=1, description="most tasks of one conversation")] = MOST_TASKS
    budget_usd: Annotated[float | None, Meta(ge=0, description="US dollars for all models together: no call beyond")] = None
    concurrency: Annotated[int, Meta(ge=1, description="most calls at once")] = 8


@dataclass(frozen=True)
class ConversationsResult:
    """What became of the tasks.

    Attributes:
        tally: Counts, problems, and what the model was asked for.
        output: The file of conversations; it is not written where calls failed.
        by_model: Whether a model was asked.
    """

    tally: Tally
    output: str
    by_model: bool

    def table(self) -> dict[str, Any]:
        """The counts as JSON has them."""
        return {**to_builtins(self.tally), "output": self.output}

    def __str__(self) -> str:
        tally = self.tally
        rule = (
            f"; the rule divided {tally.by_rule} tasks and worded {tally.not_rewritten} conversations" if self.by_model else ""
        )
        return f"{self.output}: {tally.conversations} conversations, {tally.turns} turns of {tally.tasks} tasks{rule}"


async def conversations_async(
    config: ConversationsConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[Tally], object] = lambda tally: None,
) -> ConversationsResult:
    """Makes conversations of single tasks.

    Args:
        config: Which tasks, and which model divides them.
        stop: Once it is set no new conversation is begun.
        progress: Called after every conversation.

    Returns:
        What became of the tasks.

    Raises:
        UsageError: Nothing could be read, or the file exists already.
    """
    expect_place(config.output, "a file")
    with run_budget(config.budget_usd, file=config.output):
        model = None if config.model is None else _model(config.model, config.concurrency)
        tally = await make_conversations(
            config.source,
            config.output,
            model,
            most_tasks=config.most_tasks,
            at_once=config.concurrency,
            stop=stop,
            progress=progress,
        )
    return ConversationsResult(tally, str(config.output), model is not None)


conversations = synchronous(conversations_async)
"""`conversations_async`, waited for: the same parameters, in scripts and notebooks."""


def _model(model: ModelLike, concurrency: int) -> LanguageModel:
    if not isinstance(model, ModelConfig):
        return make_model(model)
    usual = {"concurrency": concurrency} if "concurrency" in model_options(model) else {}
    return make_model(model.name, **{**usual, **model.options})

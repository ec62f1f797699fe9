"""Commands on recorded pages: rank candidates, and make conversations from single tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, to_builtins

from prill.config.values import Config
from prill.errors import UsageError
from prill.io.outputs import expect_file
from prill.models.registry import ModelConfig, ModelLike, make_model, model_options
from prill.papers.embedders import make_embedder
from prill.papers.mind2web import parquet
from prill.papers.mind2web.cross_encoder import CrossEncoder
from prill.papers.mind2web.format import load
from prill.papers.mind2web.multi_turn import MAX_TASKS, ConversationTally, make_conversations
from prill.papers.mind2web.pages.ranking import (
    Bm25,
    ByEmbedding,
    Ranker,
    RankingFigures,
    RankTally,
    rank_file,
)
from prill.protocols import LanguageModel
from prill.runs.base import run_budget, synchronous

_EMBEDDING = "embedding:"


# Ranking


@dataclass(frozen=True, kw_only=True)
class RankConfig(Config):
    """Configuration of `prill papers rank`: score every candidate of every recorded step and write
    a score file.
    """

    trajectories: Annotated[
        str | Path,
        Meta(
            description="Gold trajectories of recorded pages (.jsonl), or a Parquet file "
            "of Multimodal-Mind2Web."
        ),
    ]
    output: Annotated[
        str | Path, Meta(description="Score file to write (JSON), in Mind2Web's format.")
    ]
    ranker: Annotated[
        str,
        Meta(
            min_length=1,
            description="Ranker: bm25 (shared words, no model), embedding:NAME (tfidf, "
            "minilm, local:DIR, or a model at an endpoint), or the folder of a trained "
            "ranker.",
        ),
    ]
    ranked: Annotated[
        str | Path | None,
        Meta(description="File for the trajectories with reordered candidates (.jsonl)."),
    ] = None
    base_url: Annotated[
        str | None, Meta(description="URL of the embedder's endpoint (default $OPENAI_BASE_URL).")
    ] = None
    device: Annotated[
        str | None,
        Meta(
            description="Device of a trained ranker: cuda, cpu or another (default: cuda "
            "if available)."
        ),
    ] = None
    batch: Annotated[
        int, Meta(ge=1, description="Number of candidates per forward pass of a trained ranker.")
    ] = 32
    resume: Annotated[bool, Meta(description="Resume an interrupted run.")] = True


@dataclass(frozen=True)
class RankResult:
    """The ranking metrics of a run.

    Attributes:
        figures: Accuracy, mean reciprocal rank and recall.
        output: The score file.
        problems: The turns that could not be read.
        stopped: Whether the run was stopped. The same call resumes it.
    """

    figures: RankingFigures
    output: str
    problems: tuple[str, ...] = ()
    stopped: bool = False

    def table(self) -> dict[str, Any]:
        """Returns the metrics for JSON."""
        return {**asdict(self.figures), "problems": len(self.problems)}

    def __str__(self) -> str:
        found = self.figures
        without = (
            f" ({found.without:,} without a right candidate, counted as missed)"
            if found.without
            else ""
        )
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
        config: The steps and the ranker.
        stop: Once set, the run ends after the current step.
        progress: Called after every step.

    Returns:
        The ranking metrics.

    Raises:
        UsageError: The ranker or the files cannot be used.
    """
    table = Path(config.trajectories).suffix == parquet.SUFFIX
    tally = await rank_file(
        config.trajectories,
        _ranker(config),
        config.output,
        reordered=config.ranked,
        read=load if table else None,
        resume=config.resume,
        stop=stop,
        progress=progress,
    )
    return RankResult(
        tally.ranked.figures(), str(config.output), tuple(tally.problems), tally.stopped
    )


rank = synchronous(rank_async)
"""Synchronous version of `rank_async` for scripts and notebooks, with the same parameters."""


def _ranker(config: RankConfig) -> Ranker:
    if config.ranker == Bm25.name:
        return Bm25()
    if config.ranker.startswith(_EMBEDDING):
        return ByEmbedding(
            make_embedder(config.ranker.removeprefix(_EMBEDDING), base_url=config.base_url)
        )
    if not Path(config.ranker).is_dir():
        raise UsageError(
            f"unknown ranker {config.ranker}; expected bm25, embedding:NAME, or the folder "
            "of a ranker",
            parameters=("ranker",),
        )
    return CrossEncoder(config.ranker, device=config.device, batch=config.batch)


# Multi-turn conversations


@dataclass(frozen=True, kw_only=True)
class ConversationsConfig(Config):
    """Configuration of `prill papers conversations`: make multi-turn conversations from single
    tasks of Mind2Web.
    """

    source: Annotated[str | Path, Meta(description="File or folder of Mind2Web (JSON).")]
    output: Annotated[str | Path, Meta(description="File for the conversations (JSON).")]
    model: Annotated[
        ModelLike | None,
        Meta(description="Model that divides and rewrites tasks. Without it, rules are used."),
    ] = None
    most_tasks: Annotated[
        int, Meta(ge=1, description="Maximum number of tasks per conversation.")
    ] = MAX_TASKS
    budget_usd: Annotated[
        float | None,
        Meta(
            ge=0,
            description="Budget in US dollars for all models together. No call is started "
            "beyond it.",
        ),
    ] = None
    concurrency: Annotated[int, Meta(ge=1, description="Maximum number of concurrent calls.")] = 8


@dataclass(frozen=True)
class ConversationsResult:
    """The result of making conversations.

    Attributes:
        tally: Counts, problems, and the model's usage.
        output: The file of conversations. It is not written if calls failed.
        by_model: Whether a model divided and rewrote the tasks.
    """

    tally: ConversationTally
    output: str
    by_model: bool

    def table(self) -> dict[str, Any]:
        """Returns the counts for JSON."""
        return {**to_builtins(self.tally), "output": self.output}

    def __str__(self) -> str:
        tally = self.tally
        rule = (
            f"; the rule divided {tally.by_rule} tasks and worded {tally.not_rewritten} "
            "conversations"
            if self.by_model
            else ""
        )
        return (
            f"{self.output}: {tally.conversations} conversations, {tally.turns} turns of "
            f"{tally.tasks} tasks{rule}"
        )


async def conversations_async(
    config: ConversationsConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[ConversationTally], object] = lambda tally: None,
) -> ConversationsResult:
    """Makes conversations from single tasks.

    Args:
        config: The tasks, and the model that divides them.
        stop: Once set, no new conversation begins.
        progress: Called after every conversation.

    Returns:
        What became of the tasks.

    Raises:
        UsageError: Nothing could be read, or the file exists already.
    """
    expect_file(config.output, "a file")
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
"""Synchronous version of `conversations_async` for scripts and notebooks, with the same parameters.
"""


def _model(model: ModelLike, concurrency: int) -> LanguageModel:
    if not isinstance(model, ModelConfig):
        return make_model(model)
    usual = {"concurrency": concurrency} if "concurrency" in model_options(model) else {}
    return make_model(model.name, **{**usual, **model.options})

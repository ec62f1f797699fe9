"""Judges trajectory files and writes a verdict file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, overload

from msgspec import Meta

from prill.config.values import get_name
from prill.errors import UsageError
from prill.evaluators.combine import Savings, cascade_inside, savings
from prill.evaluators.registry import (
    DESCRIPTIONS,
    JudgeConfig,
    JudgeLike,
    JudgeOption,
    make_run_judge,
)
from prill.io.lines import is_stream
from prill.io.outputs import check_output, is_stdout
from prill.io.shards import Shard
from prill.io.store import Item, read_verdicts
from prill.io.tables import Verdicts
from prill.models.options import BudgetOption, ConcurrencyOption
from prill.models.registry import ModelConfig, ModelLike
from prill.protocols import Evaluator
from prill.runs.base import (
    JudgeLimitOption,
    JudgeModelOption,
    RecordingsConfig,
    RetryUnscoredOption,
    TranscriptsOption,
    VerdictFile,
    kept_transcripts,
    opened_trajectories,
    run_budget,
    synchronous,
)
from prill.runs.cautions import (
    fitted_on,
    hard_scores,
    left_out,
    strangers,
    unknown_keys,
    weaker_second,
)
from prill.runs.plan import RunPlan, plan_judging, seconds_each
from prill.scoring import scorer as scoring
from prill.scoring.engines import EngineOption, make_engine
from prill.scoring.scorer import Tally, lasting_keys, score_files
from prill.types import EvaluatorInfo


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(RecordingsConfig):
    """Configuration of `prill score`: judge trajectory files into a verdict file, which a later run
    continues.
    """

    output: Annotated[
        str | Path,
        Meta(description="Verdict file, or - for stdout. An interrupted run resumes there."),
    ]
    judge: JudgeOption
    model: JudgeModelOption = None
    budget_usd: BudgetOption = None
    concurrency: ConcurrencyOption = 16
    processes: Annotated[
        int, Meta(ge=1, description="Number of processes. Each one judges a shard.")
    ] = 1
    engine: EngineOption = None
    limit: JudgeLimitOption = None
    shard: Annotated[
        str | Shard | None,
        Meta(description="Shard of the trajectories to judge on this machine, for example 1/4."),
    ] = None
    resume: Annotated[
        bool,
        Meta(
            description="Continue the verdict file. Otherwise it is renamed to FILE.bak "
            "and a new one is started."
        ),
    ] = True
    retry_unscored: RetryUnscoredOption = False
    transcripts: TranscriptsOption = True

    @property
    def transcript_folder(self) -> str | None:
        """Returns the folder for transcripts.

        None: keep none, as for verdicts that are not written to a file of their own.
        """
        return kept_transcripts(self.transcripts, self.output)


@dataclass(frozen=True)
class ScoreResult(VerdictFile):
    """Result of a scoring run.

    Args:
        tally: Counts of verdicts, reasons for unscored ones, and what models were asked for.
        judge: The judge's name in verdicts.
        output: The verdict file.
        transcripts: The folder of model transcripts; None: none were kept.
        cautions: Warnings to read before using the figures.
        saved: The calls that a cascade saved; None for another judge.
    """

    tally: Tally
    judge: EvaluatorInfo
    output: str
    transcripts: str | None
    cautions: tuple[str, ...] = ()
    saved: Savings | None = None

    def __str__(self) -> str:
        unscored = sum(self.tally.unscored.values())
        counts = f"{self.tally.succeeded} success, {self.tally.failed} failure, {unscored} unscored"
        return f"{counts}, {self.tally.skipped} already in the file -> {self.output}"


async def _score_files(
    config: ScoreConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> ScoreResult:
    """Judges trajectory files into a verdict file, skipping trajectories already judged."""
    engine = make_engine(config.engine) if config.engine is not None else None
    with (
        _opened(config) as trajectories,
        run_budget(config.budget_usd, file=str(config.output), begin_again=not config.resume),
    ):
        judge = make_run_judge(
            config.judge,
            model=config.model,
            concurrency=config.concurrency,
            trajectories=trajectories,
        )
        tally = await score_files(
            trajectories,
            judge,
            config.output,
            concurrency=config.concurrency,
            processes=config.processes,
            engine=engine,
            limit=config.limit,
            shard=_shard(config),
            resume=config.resume,
            retry_unscored=config.retry_unscored,
            transcripts=config.transcript_folder,
            stop=stop,
            progress=progress,
        )
    on_disk = not is_stdout(config.output) and not is_stream(config.output)
    cascade = on_disk and tally.read and cascade_inside(judge) is not None
    return ScoreResult(
        tally,
        judge.info,
        str(config.output),
        config.transcript_folder,
        _cautions(judge, tally),
        savings(read_verdicts(config.output)) if cascade else None,
    )


@overload
async def score_async(
    what: ScoreConfig, *, stop: asyncio.Event | None = None, progress: Callable[[Tally], None] = ...
) -> ScoreResult: ...


@overload
async def score_async(
    what: Iterable[Item] | str | os.PathLike[str],
    judge: Evaluator,
    *,
    concurrency: int | None = None,
    transcripts: str | os.PathLike[str] | None = None,
) -> Verdicts: ...


async def score_async(
    what: Any, judge: Evaluator | None = None, **options: Any
) -> ScoreResult | Verdicts:
    """Judges trajectories: those of a configuration into a verdict file, or some in memory.

    Args:
        what: A `ScoreConfig`; or trajectories, or the path of a file of them.
        judge: The judge, if `what` is trajectories.
        **options: With a configuration `stop` (an `asyncio.Event`: once it is set no new trajectory
            is begun) and `progress` (called with the tally after every trajectory); with
            trajectories `concurrency` (how many are judged at the same time; default: the
            concurrency of the judge's model) and `transcripts` (the folder for transcripts of the
            model calls; default: none).

    Returns:
        A `ScoreResult` for a configuration; for trajectories, their verdicts in the same order.

    Raises:
        UsageError: The configuration is invalid, or nothing could be read.
        InputError: A trajectory in memory has a field value of the wrong type.
        EndpointError: The model's endpoint accepts no call.
    """
    if isinstance(what, ScoreConfig):
        return await _score_files(what, **options)
    if judge is None:
        raise UsageError("judge is missing; give one, as in score(trajectories, prill.judge(…))")
    return await scoring.score_async(what, judge, **options)


score = synchronous(score_async)
"""Runs `score_async` with the same parameters, for scripts and notebooks."""


def plan_score(config: ScoreConfig) -> RunPlan:
    """Plans the run: its work and model calls, without making any. Raises UsageError."""
    with (
        _opened(config) as trajectories,
        run_budget(
            config.budget_usd, file=str(config.output), begin_again=not config.resume, planned=True
        ),
    ):
        judge = make_run_judge(
            config.judge,
            model=config.model,
            concurrency=config.concurrency,
            trajectories=trajectories,
        )
        keys = (
            lasting_keys(config.output, retry_unscored=config.retry_unscored)
            if config.resume
            else {}
        )
        model, prices = priced_model(config.judge, config.model)
        plan = plan_judging(
            judge,
            trajectories,
            limit=config.limit,
            keys=keys,
            shard=_shard(config),
            model=model,
            prices=prices,
        )
        each = seconds_each(str(config.output)) if keys else None
        return plan.run_plan(
            seconds=None if each is None else each * plan.todo / config.concurrency
        )


def priced_model(judge: JudgeLike, model: ModelLike | None) -> tuple[str | None, str | None]:
    """Returns the model name for a plan's price lookup, and the price table.

    The name is None if the judge itself names its model.
    """
    options = judge.options if isinstance(judge, JudgeConfig) else {}
    shared = model.mapping() if isinstance(model, ModelConfig) else {}
    described = isinstance(judge, JudgeConfig) and judge.name.endswith(DESCRIPTIONS)
    name = None if described else get_name(options.get("model")) or shared.get("name") or ""
    prices = options.get("prices") or shared.get("prices")
    return (name if isinstance(name, str) or name is None else None), prices if isinstance(
        prices, str
    ) else None


@contextmanager
def _opened(config: ScoreConfig) -> Iterator[list[str]]:
    """Opens the trajectory files.

    Recordings in other formats are converted to temporary files, which exist inside the block only.
    """
    check_output(config.output, "verdicts", config.trajectories, continued=config.resume)
    with opened_trajectories(config) as trajectories:
        check_output(config.output, "verdicts", trajectories, continued=config.resume)
        yield trajectories


def _shard(config: ScoreConfig) -> Shard | None:
    return Shard.read(config.shard) if isinstance(config.shard, str) else config.shard


def _cautions(judge: Evaluator, tally: Tally) -> tuple[str, ...]:
    return tuple(
        chain(
            unknown_keys(tally.unknown_keys),
            fitted_on(judge, tally),
            strangers(judge),
            weaker_second(judge),
            hard_scores(judge, tally),
            left_out(judge, tally),
        )
    )

"""Judges trajectory files and writes a verdict file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Protocol, cast, overload

import msgspec
from msgspec import Meta

from prill.config.shared import LimitOption, ResumeOption, RetryUnscoredOption
from prill.config.values import get_name
from prill.datasets.inputs import RecordingsConfig, opened_trajectories
from prill.evaluators.cautions import (
    fitted_on,
    hard_scores,
    strangers,
    unknown_keys,
    weaker_second,
)
from prill.evaluators.combine import Savings, cascade_inside, savings
from prill.evaluators.registry import (
    DESCRIPTIONS,
    JudgeConfig,
    JudgeLike,
    JudgeName,
    JudgeOption,
    make_run_judge,
)
from prill.evaluators.scoring.plan import plan_judging, seconds_each
from prill.evaluators.scoring.scorer import Tally, judge_all, lasting_keys, score_files
from prill.io.lines import STREAM, is_stream
from prill.io.outputs import check_output, is_stdout
from prill.io.shards import Shard
from prill.io.store import iter_trajectories, read_verdicts
from prill.io.tables import VerdictFile, Verdicts
from prill.io.verdict_log import RETRIED
from prill.models.budget import (
    JudgeModelOption,
    TranscriptsOption,
    kept_transcripts,
    run_budget,
)
from prill.models.options import BudgetOption, ConcurrencyOption
from prill.models.registry import ModelConfig, ModelLike
from prill.plans import RunPlan
from prill.protocols import Evaluator
from prill.running import EXIT_ALL, EXIT_INTERRUPTED, EXIT_SOME, Printed, as_files, as_run, wait_for
from prill.types import EvaluatorInfo
from prill.work.engines import EngineOption, make_engine


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(RecordingsConfig):
    """Configuration of `prill score`: judge trajectory files into a verdict file, which a later run
    continues.
    """

    judge: JudgeOption
    output: Annotated[
        str | Path,
        Meta(description="Verdict file, or - for stdout. An interrupted run resumes there."),
    ]
    model: JudgeModelOption = None
    budget_usd: BudgetOption = None
    concurrency: ConcurrencyOption = 16
    engine: EngineOption = None
    limit: LimitOption = None
    shard: Annotated[
        str | Shard | None,
        Meta(description="Shard of the trajectories to judge on this machine, for example 1/4."),
    ] = None
    resume: ResumeOption = True
    retry_unscored: RetryUnscoredOption = False
    transcripts: TranscriptsOption = True

    @property
    def transcript_folder(self) -> str | None:
        """Returns the folder for transcripts.

        None: keep none, as for verdicts that are not written to a file of their own.
        """
        return kept_transcripts(self.transcripts, self.output)


# Hints beyond retrying; for other reasons the message itself suffices.
_HINTS = {
    "truncated": (
        "a higher `judge.max_tokens` gives replies more room (use another verdict file); a small "
        "model may exceed it anyway"
    ),
    "parse": "the model does not follow the reply format; a larger model may",
    "budget": (
        "`budget_usd` applies to the whole run; the same run with a higher budget resumes it"
    ),
    "timeout": "a longer `model.timeout` or a lower `concurrency` may help",
}


@dataclass(frozen=True)
class ScoreResult(VerdictFile, Printed):
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
    of_files = True

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts, the judge and the files as a JSON object."""
        return {
            **self.tally.figures(),
            "seconds": round(self.tally.seconds, 3),
            "stopped": self.tally.stopped,
            "evaluator": msgspec.to_builtins(self.judge),
            "output": self.output,
            "untranscribed": self.tally.untranscribed,
        }

    def notes(self) -> Iterator[str]:
        """Yields why verdicts are missing and what may help, and what to know before using them."""
        tally = self.tally
        yield from tally.notes(self.output)
        yield from (f"{why}: {hint}" for why, hint in _HINTS.items() if why in tally.unscored)
        if self.saved is not None:
            yield str(self.saved)
        if tally.untranscribed:
            yield (
                f"{tally.untranscribed} transcripts could not be written to {self.transcripts}; "
                "the verdicts are complete"
            )
        yield from self.cautions
        if not tally.stopped and tally.unscored.keys() - {*RETRIED, "no_evidence"}:
            yield "the same run with `retry_unscored` retries them"

    @property
    def exit_code(self) -> int:
        """Returns 3 if some is unscored, 130 if the run was stopped."""
        stopped, some = self.tally.stopped, self.tally.unscored
        return EXIT_INTERRUPTED if stopped else EXIT_SOME if some else EXIT_ALL

    def __str__(self) -> str:
        return f"{self.tally} -> {self.output}"


@as_run(ScoreConfig)
async def score_to_file(
    config: ScoreConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> ScoreResult:
    """Judges trajectory files into a verdict file, skipping trajectories already judged."""
    engine = make_engine(config.engine) if config.engine is not None else None
    with _opened(config) as (trajectories, judge):
        tally = await score_files(
            trajectories,
            judge,
            config.output,
            concurrency=config.concurrency,
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


async def _score_values(
    trajectories: Any,
    judge: JudgeLike,
    *,
    concurrency: int | None = None,
    transcripts: str | os.PathLike[str] | None = None,
    **fields: Any,
) -> Verdicts:
    """Judges trajectories and returns their verdicts in order, without writing a file."""
    given = [trajectories] if isinstance(trajectories, str | os.PathLike) else trajectories
    first = given[0] if isinstance(given, list | tuple) and given else None
    in_files = isinstance(first, str | os.PathLike)
    fields |= {"trajectories": given if in_files else (), "judge": judge, "output": STREAM}
    at_once = {} if concurrency is None else {"concurrency": concurrency}
    with ExitStack() as stack:
        # records may be in a judge's options, but are no judge
        held = {k: v if isinstance(v, list) else as_files(k, v, stack) for k, v in fields.items()}
        config = ScoreConfig.read(held)
        shard = _shard(config)
        paths, made = stack.enter_context(_opened(config.copy_with(**at_once)))
        items: Any = given
        if in_files:
            items = chain.from_iterable(iter_trajectories(path, "yield") for path in paths)
        if shard is not None:
            items = (item for item in items if shard.takes(item.id))
        if config.limit is not None:
            items = islice(items, config.limit)
        return await judge_all(items, made, transcripts=transcripts, **at_once)


def _to_file(values: Sequence[Any], fields: Mapping[str, Any]) -> bool:
    given = {*fields, *("trajectories", "judge")[: len(values)]}
    return not {"trajectories", "judge"} <= given or fields.get("output") is not None


def _score(*values: Any, **fields: Any) -> Any:  # noqa: D417 - the fields are listed
    """Judges trajectories.

    `prill.score("runs.jsonl", "self-report")` returns verdicts; with `output`, they are written to
    a verdict file, which a later run continues.

    Args:
        trajectories: Trajectories, or files, folders and logs of them. A `ScoreConfig` may be given
            in place of all fields.
        judge: A judge, by name, as a table, or an object.
        output: The verdict file.
        stop: With an output, an `asyncio.Event`: once it is set no new trajectory is begun.
        progress: With an output, called with the tally after every trajectory.
        transcripts: The folder for transcripts of the model calls (default: next to the output).
        **fields: The other fields of `ScoreConfig`.

    Returns:
        A `ScoreResult` with an output; else the verdicts, in the order of the trajectories.

    Raises:
        UsageError: A field is invalid, or nothing could be read.
        InputError: A trajectory in memory has a field value of the wrong type.
        EndpointError: The model's endpoint accepts no call.
    """
    if _to_file(values, fields):
        return score_to_file(*values, **fields)
    return wait_for(lambda: _score_values(*values, **fields))


async def _score_in_loop(*values: Any, **fields: Any) -> Any:
    if _to_file(values, fields):
        return await score_to_file.run_async(*values, **fields)
    return await _score_values(*values, **fields)


class _Score(Protocol):
    @overload
    def __call__(self, config: ScoreConfig, /, **hooks: Any) -> ScoreResult: ...
    @overload
    def __call__(
        self, trajectories: Any, judge: JudgeName | JudgeLike, *, output: str | Path, **fields: Any
    ) -> ScoreResult: ...
    @overload
    def __call__(
        self, trajectories: Any, judge: JudgeName | JudgeLike, *, output: None = None, **fields: Any
    ) -> Verdicts: ...

    @overload
    async def run_async(self, config: ScoreConfig, /, **hooks: Any) -> ScoreResult: ...
    @overload
    async def run_async(
        self, trajectories: Any, judge: JudgeName | JudgeLike, *, output: str | Path, **fields: Any
    ) -> ScoreResult: ...
    @overload
    async def run_async(
        self, trajectories: Any, judge: JudgeName | JudgeLike, *, output: None = None, **fields: Any
    ) -> Verdicts: ...


_both: Any = _score
_both.run_async, _both.__name__ = _score_in_loop, "score"
score = cast(_Score, _both)
"""Judges trajectories: `prill.score("runs.jsonl", "self-report")` returns verdicts, in the order of
the trajectories; with `output`, or a `ScoreConfig`, it writes them to a file and returns a
`ScoreResult`. `help(prill.score)` lists the fields.
"""


def plan_score(config: ScoreConfig) -> RunPlan:
    """Plans the run: its work and model calls, without making any. Raises UsageError."""
    with _opened(config, planned=True) as (trajectories, judge):
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
def _opened(config: ScoreConfig, *, planned: bool = False) -> Iterator[tuple[list[str], Evaluator]]:
    """Opens the trajectory files, and makes the judge within the run's budget.

    Recordings in other formats are converted to temporary files, which exist inside the block only.
    """
    check_output(config.output, "verdicts", config.trajectories, continued=config.resume)
    with opened_trajectories(config) as trajectories:
        check_output(config.output, "verdicts", trajectories, continued=config.resume)
        output, again = str(config.output), not config.resume
        with run_budget(config.budget_usd, file=output, begin_again=again, planned=planned):
            yield (
                trajectories,
                make_run_judge(
                    config.judge,
                    model=config.model,
                    concurrency=config.concurrency,
                    trajectories=trajectories,
                ),
            )


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
            tally.unsupported_params,
        )
    )

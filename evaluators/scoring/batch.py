"""Judges through batch APIs: writes requests, submits them, and makes verdicts of the answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill.config.shared import TRAJECTORIES, LimitOption, RetryUnscoredOption
from prill.config.values import Config
from prill.datasets.inputs import opened_folders
from prill.errors import EndpointError, UsageError
from prill.evaluators.registry import JudgeConfig, JudgeLike, make_run_judge
from prill.evaluators.scoring.batches.folder import (
    MANIFEST,
    Answers,
    Api,
    BatchFolder,
    next_stage,
    opened_batch,
    read_manifest,
)
from prill.evaluators.scoring.batches.jobs import exchange
from prill.evaluators.scoring.batches.replay import PRICE_SHARE, Replay, models_of
from prill.evaluators.scoring.plan import plan_judging
from prill.evaluators.scoring.score import priced_model
from prill.evaluators.scoring.scorer import Tally, score_files
from prill.io.lines import is_stream
from prill.io.tables import VerdictFile
from prill.models.budget import (
    JudgeModelOption,
    TranscriptsOption,
    kept_transcripts,
)
from prill.models.registry import ModelConfig, ModelLike
from prill.models.transport import Endpoint
from prill.plans import RunPlan, in_file
from prill.protocols import Evaluator
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, log

VERDICTS = "verdicts.jsonl"


@dataclass(frozen=True, kw_only=True)
class BatchConfig(Config):
    """Configuration of `prill batch`: judge through a batch API, or by requests that you run
    yourself. The same command, or the folder alone, resumes.
    """

    folder: Annotated[
        str | Path, Meta(description="Folder for requests and answers. Without more, it resumes.")
    ]
    answers: Annotated[
        Sequence[str | Path],
        Meta(description="Answer files of requests that you ran, such as by `vllm run-batch`."),
    ] = ()
    trajectories: Annotated[Sequence[str | Path], TRAJECTORIES] = ()
    judge: Annotated[
        JudgeLike | None,
        Meta(
            description="Judge to use: a name, FILE.toml, FILE.json or module:Object (default: "
            "that of the folder)."
        ),
    ] = None
    model: JudgeModelOption = None
    limit: LimitOption = None
    output: Annotated[
        str | Path | None,
        Meta(description=f"Verdict file, which is continued (default: {VERDICTS} in the folder)."),
    ] = None
    api: Annotated[
        Api | None,
        Meta(
            description="Batch API of the endpoint (default: the one used before, else "
            "anthropic for Anthropic and openai for all others). none: only write the requests."
        ),
    ] = None
    wait: Annotated[bool, Meta(description="Go on until every trajectory is judged.")] = True
    every: Annotated[float, Meta(gt=0, description="Seconds between two polls.")] = 60.0
    retry_unscored: RetryUnscoredOption = False
    transcripts: TranscriptsOption = True

    def check(self) -> None:
        """Validates the options.

        Raises:
            UsageError: The trajectories come through a pipe, or a model is given without its judge.
        """
        for path in self.trajectories:
            if is_stream(path):
                raise UsageError(
                    f"{path}: expected a file, because a batch reads its trajectories again later"
                )
        if self.model is not None and self.judge is None:
            raise UsageError("a model belongs to a judge", parameters=("model", "judge"))

    @property
    def verdict_file(self) -> str:
        """Returns the path of the verdict file."""
        return str(self.output or Path(self.folder) / VERDICTS)


@dataclass(frozen=True)
class BatchResult(VerdictFile, Printed):
    """Result of a batch so far.

    Args:
        tally: Counts; `pending` is the number of trajectories that wait for answers.
        output: The verdict file.
        waiting: The paths of the request files whose answers are missing.
        problem: The errors with batches at the endpoint; None: none.
    """

    tally: Tally
    output: str
    waiting: tuple[str, ...] = ()
    problem: EndpointError | None = None
    of_files = True

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts and the files as a JSON object."""
        waiting = {"pending": self.tally.pending, "waiting": self.waiting}
        return {**self.tally.figures(), **waiting, "output": self.output}

    def notes(self) -> Iterator[str]:
        """Yields why verdicts are missing, and what the endpoint refused."""
        yield from self.tally.notes(self.output)
        if self.tally.pending:
            yield f"{self.tally.pending} trajectories wait for answers"
        if self.waiting:
            yield f"requests without answers: {', '.join(self.waiting)}"
        if self.problem is not None:
            yield str(self.problem)

    @property
    def exit_code(self) -> int:
        """Returns 2 for a problem with a batch, 5 if answers are missing, 3 if some is unscored."""
        if self.problem is not None:
            return 2
        return 5 if self.tally.pending else EXIT_SOME if self.tally.unscored else EXIT_ALL

    def __str__(self) -> str:
        return f"{self.tally}, {self.tally.pending} waiting -> {self.output}"


@as_run(BatchConfig)
async def batch(config: BatchConfig) -> BatchResult:
    """Writes the requests of a judge, submits them, makes verdicts of the answers, and writes the
    next requests where the judge needs more, until every trajectory is judged.

    The same call resumes after any interruption; nothing is submitted or judged twice.

    Args:
        config: The folder, and for a new one the trajectories and the judge.

    Returns:
        The counts, and any error at the endpoint.

    Raises:
        UsageError: No trajectory could be read, the judge calls no endpoint, the folder belongs to
            another judge, or a file holds no answer to its requests.
    """
    judge, described, trajectories = _judge(config)
    problems: dict[str, str] = {}
    tally: Tally | None = None
    with opened_batch(
        config.folder, judge.info, trajectories=trajectories, limit=config.limit, judge=described
    ) as folder:
        _expect_addresses(folder, judge)
        for path in config.answers:
            for problem in folder.take(path):
                log.info(problem)
        while True:
            arrived, under_way = await exchange(folder, problems, api=config.api)
            if arrived or tally is None:
                before = len(folder.manifest.files)
                tally = await _judge_answers(
                    folder, judge, config, write_failed=config.retry_unscored and tally is None
                )
                if len(folder.manifest.files) > before:
                    continue  # submit the new requests at once
            if not (under_way and config.wait):
                break
            await asyncio.sleep(config.every)
        answers, waiting = Answers(folder), dict[str, None]()
        for id, entry in folder.written() if tally.pending else ():
            if not (entry.fetched or answers.knows(id)):
                waiting[str(folder.path / entry.name)] = None
    failed = EndpointError("\n".join(problems.values())) if problems else None
    return BatchResult(tally, config.verdict_file, tuple(waiting), failed)


def plan_batch(config: BatchConfig) -> RunPlan:
    """Plans the requests and their cost at the batch API, without making a call. Raises
    UsageError.
    """
    judge, described, trajectories = _judge(config)
    described = described or {"judge": config.judge, "model": config.model}
    model, prices = priced_model(described["judge"], described.get("model"))
    plan = plan_judging(judge, trajectories, limit=config.limit, model=model, prices=prices)
    run = plan.run_plan(f"half the price of calls; requests would be written to {config.folder}")
    usage = run.usage
    if usage is None or usage.usd is None:
        return run
    return replace(run, usage=replace(usage, usd=usage.usd * PRICE_SHARE))


def _judge(config: BatchConfig) -> tuple[Evaluator, dict[str, Any], list[str]]:
    """Returns the judge, its description, and the folder's and the named trajectory files.

    The description is empty for a judge made in Python.
    """
    manifest = read_manifest(config.folder)
    paths = dict.fromkeys(manifest.trajectories if manifest else ())
    paths |= dict.fromkeys(map(os.path.abspath, opened_folders(config.trajectories)))
    trajectories = list(paths)
    if not trajectories or (config.judge is None and manifest is None):
        raise UsageError(
            f"{config.folder}: no batch yet; give trajectories and a judge",
            parameters=("trajectories", "judge"),
        )
    if config.judge is not None:
        described = _described(config.judge, config.model)
        judge = make_run_judge(config.judge, model=config.model, trajectories=trajectories)
    else:
        described = manifest.judge if manifest else {}
        if not described:
            raise UsageError(
                f"{config.folder}: the judge of this batch was made in Python; give it again"
            )
        with in_file(Path(config.folder) / MANIFEST):
            judge = make_run_judge(
                described["judge"], model=described.get("model"), trajectories=trajectories
            )
    if any(model.ledger.budgets for model in models_of(judge)):
        raise UsageError("a batch cannot enforce a budget; a dry run estimates the cost")
    return judge, described, trajectories


def _described(judge: JudgeLike, model: ModelLike | None) -> dict[str, Any]:
    """Returns the judge's description for `batch.json`; empty for a judge made in Python."""
    if not isinstance(judge, JudgeConfig) or not isinstance(model, ModelConfig | None):
        return {}
    described = {"judge": judge.table()} | ({"model": model.table()} if model else {})
    try:
        return msgspec.json.decode(msgspec.json.encode(described), type=dict[str, Any])
    except TypeError:  # an object among the options
        return {}


def _expect_addresses(folder: BatchFolder, judge: Evaluator) -> None:
    """Raises UsageError if requests were written for another address, which would be paid twice."""
    places = {model.endpoint.base_url: model.endpoint.place for model in models_of(judge)}
    for file in folder.manifest.files:
        if file.base_url not in places:
            there = Endpoint(file.base_url, file.api_key_env, 1, 1, 0).place
            raise UsageError(
                f"{folder.path}: the requests were written for {there}, but the judge's model is "
                f"at {', '.join(places.values())}; give that base URL again, or start a new batch"
            )


async def _judge_answers(
    folder: BatchFolder, judge: Evaluator, config: BatchConfig, *, write_failed: bool
) -> Tally:
    """Makes verdicts from the answers in a batch folder, as if the judge had called an endpoint.

    Trajectories with missing answers stay `pending`, and the requests that they still need are
    written as the next request files.
    """
    manifest, answers = folder.manifest, Answers(folder, retry_failed=write_failed)
    with next_stage(folder) as add:
        return await score_files(
            manifest.trajectories,
            Replay(judge, manifest.secret, answers, add),
            config.verdict_file,
            concurrency=1,
            limit=manifest.limit,
            retry_unscored=config.retry_unscored,
            transcripts=kept_transcripts(config.transcripts, config.verdict_file),
        )

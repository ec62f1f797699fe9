"""Judges through batch APIs: writes request files, submits them, and turns responses into
verdicts.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill.batches import BatchFolder, collect, fetch, submit, write
from prill.batches.folder import MANIFEST, Api, RequestFile, expect_free
from prill.batches.jobs import BatchError
from prill.batches.replay import PRICE_SHARE, expect_endpoint
from prill.config.registry import Option, read_value
from prill.config.toml import parse_toml
from prill.config.values import Config, PartConfig
from prill.errors import EndpointError, UsageError
from prill.evaluators.registry import (
    DESCRIPTIONS,
    JudgeConfig,
    JudgeLike,
    JudgeOption,
    make_run_judge,
)
from prill.io.lines import is_stream
from prill.io.outputs import expect_file
from prill.io.tables import data_frame
from prill.models.registry import ModelConfig, ModelLike, model_options
from prill.protocols import Evaluator
from prill.runs.base import (
    JudgeLimitOption,
    JudgeModelOption,
    TranscriptsOption,
    VerdictFile,
    kept_transcripts,
    log,
    opened_folders,
    synchronous,
)
from prill.runs.plan import RunPlan, in_file, plan_judging
from prill.runs.score import priced_model
from prill.scoring.scorer import Tally
from prill.types import Usage


@dataclass(frozen=True, kw_only=True)
class BatchWriteConfig(Config):
    """Configuration of `prill batch write`: write the requests of a judge into a folder."""

    trajectories: Annotated[
        Sequence[str | Path],
        Meta(description="Trajectory files (.jsonl, .jsonl.gz), or folders of them."),
    ]
    output: Annotated[
        str | Path, Meta(description="Folder for the requests and, later, the answers.")
    ]
    judge: JudgeOption
    model: JudgeModelOption = None
    limit: JudgeLimitOption = None

    def check(self) -> None:
        """Validates the options.

        Raises:
            UsageError: The trajectories come through a pipe, or a budget is set.
        """
        for path in self.trajectories:
            if is_stream(path):
                raise UsageError(
                    f"{path}: expected a file, because a batch reads its trajectories again later"
                )
        if any("budget_usd" in _names(part) for part in (self.judge, self.model)):
            raise UsageError(
                "a batch cannot enforce a budget; a dry run of `prill score` with the same "
                "options estimates the cost"
            )


@dataclass(frozen=True, kw_only=True)
class BatchSubmitConfig(Config):
    """Configuration of `prill batch submit`: submit the requests to the endpoint's batch API."""

    folder: Annotated[str | Path, Meta(description="Folder that holds the requests.")]
    wait: Annotated[
        bool, Meta(description="Wait until the batches have ended, and download their answers.")
    ] = False
    api: Annotated[
        Api | None,
        Meta(
            description="Batch API of the endpoint (default: the one used before, else "
            "anthropic for Anthropic and openai for all others)."
        ),
    ] = None
    every: Annotated[int, Meta(ge=1, description="Seconds between two polls.")] = 60


@dataclass(frozen=True, kw_only=True)
class BatchCollectConfig(Config):
    """Configuration of `prill batch collect`: make verdicts of the answers, and the next requests
    where a judge needs more.
    """

    folder: Annotated[str | Path, Meta(description="Folder that holds the requests.")]
    answers: Annotated[
        Sequence[str | Path],
        Meta(
            description="Answer files, for example from `vllm run-batch`. Answers of a "
            "batch API are downloaded."
        ),
    ] = ()
    output: Annotated[
        str | Path, Meta(description="Verdict file. Verdicts already in it are kept.")
    ]
    retry_unscored: Annotated[bool, Meta(description="Write failed requests again.")] = False
    transcripts: TranscriptsOption = True


@dataclass(frozen=True)
class BatchWriteResult:
    """The request files in the folder, and the tally.

    `pending` counts the trajectories that wait for responses.
    """

    folder: str
    files: tuple[RequestFile, ...]
    tally: Tally

    def __str__(self) -> str:
        return (
            f"{sum(file.requests for file in self.files)} requests in {len(self.files)} files "
            f"-> {self.folder}"
        )


@dataclass(frozen=True)
class BatchSubmitResult:
    """The request files in the folder, each with its batch and status."""

    folder: str
    files: tuple[RequestFile, ...]

    def to_pandas(self) -> Any:
        """Returns the files as a pandas DataFrame."""
        return data_frame([asdict(file) for file in self.files])

    def __str__(self) -> str:
        handed_in = sum(file.batch is not None for file in self.files)
        return (
            f"{handed_in} of {len(self.files)} files submitted, "
            f"{sum(file.fetched for file in self.files)} downloaded"
        )


@dataclass(frozen=True)
class BatchCollectResult(VerdictFile):
    """Result of collecting answers.

    Attributes:
        tally: Counts; `pending` is the number of trajectories that wait for responses.
        output: The verdict file.
        requests: The request files written for the responses that are still needed.
        problem: The error with batches at the endpoint; None: none.
    """

    tally: Tally
    output: str
    requests: tuple[str, ...] = ()
    problem: EndpointError | None = None

    def __str__(self) -> str:
        unscored = sum(self.tally.unscored.values())
        counts = f"{self.tally.succeeded} success, {self.tally.failed} failure, {unscored} unscored"
        return (
            f"{counts}, {self.tally.skipped} already in the file, {self.tally.pending} "
            f"waiting -> {self.output}"
        )


async def batch_write_async(
    config: BatchWriteConfig, *, progress: Callable[[int], None] = lambda read: None
) -> BatchWriteResult:
    """Writes the requests of a judge into a folder, skipping those already written.

    Args:
        config: The trajectories, the judge, and the folder.
        progress: Called with the number of trajectories read.

    Returns:
        The request files.

    Raises:
        UsageError: No trajectory could be read, the judge calls no endpoint, or the folder belongs
            to another judge.
    """
    trajectories, judge, described = _to_write(config)
    tally = await write(
        trajectories,
        judge,
        config.output,
        limit=config.limit,
        described=described,
        progress=progress,
    )
    with BatchFolder(config.output) as folder:
        return BatchWriteResult(str(config.output), folder.manifest.files, tally)


batch_write = synchronous(batch_write_async)
"""Runs `batch_write_async` with the same parameters, for scripts and notebooks."""


def plan_batch_write(config: BatchWriteConfig) -> RunPlan:
    """Plans the requests and their cost at the batch API, without making a call. Raises
    UsageError.
    """
    trajectories, judge, _ = _to_write(config)
    if not expect_free(Path(config.output)):
        with BatchFolder(config.output) as folder:
            folder.expect(judge.info)
    model, prices = priced_model(config.judge, config.model)
    plan = plan_judging(judge, trajectories, limit=config.limit, model=model, prices=prices)
    run = plan.run_plan(f"half the price of calls; requests would be written to {config.output}")
    cost = None if run.usage is None or run.usage.usd is None else run.usage.usd * PRICE_SHARE
    return run if run.usage is None else replace(run, usage=replace(run.usage, usd=cost))


async def batch_submit_async(config: BatchSubmitConfig) -> BatchSubmitResult:
    """Submits the requests to the endpoint's batch API; the same call resumes after a failure.

    Args:
        config: The folder, and whether to wait for the answers.

    Returns:
        The files and their batches.

    Raises:
        BatchError: Some files failed; the others were submitted, and awaited if requested.
        UsageError: The folder is not a batch folder.
    """
    problems: dict[str, str] = {}
    with BatchFolder(config.folder) as folder:
        try:
            if not await submit(folder, log.info, api=config.api):
                log.info("nothing to submit")
        except BatchError as error:
            problems = error.problems
        while config.wait:
            try:
                under_way = await fetch(folder, log.info)
            except BatchError as error:  # still wait for the others
                problems, under_way = problems | error.problems, error.under_way
            if not under_way:
                break
            await asyncio.sleep(config.every)
        files = folder.manifest.files
    here = {file.name for file in files if file.fetched}
    if left := {name: problem for name, problem in problems.items() if name not in here}:
        raise BatchError(left)
    return BatchSubmitResult(str(config.folder), files)


batch_submit = synchronous(batch_submit_async)
"""Runs `batch_submit_async` with the same parameters, for scripts and notebooks."""


def plan_batch_submit(config: BatchSubmitConfig) -> RunPlan:
    """Plans the submission. Raises UsageError if the folder is not a batch folder."""
    with BatchFolder(config.folder) as folder:
        files = [file for file in folder.manifest.files if file.batch is None and not file.fetched]
    return RunPlan(
        work=tuple(
            f"submit {file.name}: {file.requests} requests for {file.model}, at {file.base_url}"
            for file in files
        )
        or ("nothing to submit",),
        counts={"files": len(files), "requests": sum(file.requests for file in files)},
        usage=None if files else Usage(),
        unknown="a dry run of `prill batch write` estimates it",
    )


async def batch_collect_async(
    config: BatchCollectConfig, *, progress: Callable[[Tally], None] = lambda tally: None
) -> BatchCollectResult:
    """Turns responses into verdicts, and writes the next requests where the judge needs more.

    Args:
        config: The batch folder, response files, and the verdict file.
        progress: Called after every trajectory.

    Returns:
        The counts, and any error at the endpoint.

    Raises:
        UsageError: The folder is not a batch folder, its judge was made in Python, or a file holds
            no response to one of its requests.
    """
    problem = None
    with BatchFolder(config.folder) as folder:
        before = len(folder.manifest.files)
        if any(file.batch and not file.fetched for file in folder.manifest.files):
            try:
                await fetch(folder, log.info)
            except EndpointError as error:
                problem = error  # raised at the end, after the verdicts
        manifest = folder.manifest
    if not manifest.judge:
        raise UsageError(
            f"{config.folder}: the judge of this batch was made in Python; collect it with "
            "prill.batches.collect"
        )
    with in_file(Path(config.folder) / MANIFEST):
        described = _upgrade_judge(manifest.judge)
        judge = make_run_judge(
            JudgeConfig.read(described["judge"], "judge"),
            model=described.get("model"),
            trajectories=manifest.trajectories,
        )
    tally = await collect(
        config.folder,
        judge,
        config.output,
        answers=config.answers,
        retry_failed=config.retry_unscored,
        transcripts=kept_transcripts(config.transcripts, config.output),
        say=log.info,
        progress=progress,
    )
    with BatchFolder(config.folder) as folder:
        new = folder.manifest.files[before:]
    files = tuple(str(Path(config.folder) / file.name) for file in new)
    return BatchCollectResult(tally, str(config.output), files, problem)


batch_collect = synchronous(batch_collect_async)
"""Runs `batch_collect_async` with the same parameters, for scripts and notebooks."""


def _to_write(config: BatchWriteConfig) -> tuple[list[str], Evaluator, dict[str, Any] | None]:
    """Returns the files, the judge, and its description for the folder.

    The description is None for a judge made in Python.
    """
    trajectories = opened_folders(config.trajectories)
    expect_file(config.output, "a batch")
    described = _described(config.judge, config.model)
    if described is None:
        judge = make_run_judge(config.judge, model=config.model, trajectories=trajectories)
    else:
        judge = make_run_judge(
            JudgeConfig.read(described["judge"], "judge"),
            model=described.get("model"),
            trajectories=trajectories,
        )
    expect_endpoint(judge)
    file = Path(config.output) / MANIFEST
    if described is not None and os.path.exists(file):
        with BatchFolder(config.output) as folder, in_file(file):
            there = folder.manifest.judge
            if there and "judge" not in there and _upgrade_judge(there) == described:
                described = there  # the form that an earlier version wrote
    return trajectories, judge, described


def _described(judge: JudgeLike, model: ModelLike | None) -> dict[str, Any] | None:
    """Returns the judge's description for `batch.json`; None for a judge made in Python.

    Responses are also looked up by the endpoint's address, so the current address is kept.
    """
    if not isinstance(judge, JudgeConfig) or not isinstance(model, ModelConfig | None):
        return None
    described = {"judge": judge.table()}
    of_model = {} if model is None else model.table()
    url = os.environ.get("OPENAI_BASE_URL")
    name = of_model.get("name") or judge.options.get("model") or "NAME"
    takes_address = not isinstance(name, str) or "base_url" in model_options(name)
    if url and takes_address and not of_model.get("base_url"):
        if model is not None or judge.name.endswith(DESCRIPTIONS):
            of_model = {"name": "", **of_model, "base_url": url}
        elif isinstance(name, str):
            described["judge"].setdefault("base_url", url)
    if of_model:
        described["model"] = of_model
    try:
        return msgspec.json.decode(msgspec.json.encode(described), type=dict[str, Any])
    except TypeError:  # an object among the options
        return None


def _upgrade_judge(described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the judge in `batch.json` as tables of judge and model.

    Folders of earlier versions have one flat table.

    Raises UsageError for options that this version does not have.
    """
    if "evaluator" not in described:
        if unknown := sorted(described.keys() - {"judge", "model"}):
            raise UsageError(f"judge.{unknown[0]}: unknown option; write a new batch")
        return {"judge": None, **described}
    for key in ("evaluator", "model", "captioner", "base_url"):
        if not isinstance(described.get(key, ""), str):
            raise UsageError(
                f"judge.{key}: expected a string, got {json.dumps(described[key])}; write a "
                "new batch"
            )
    name = described["evaluator"]
    judge: dict[str, Any] = {"name": name}
    model: dict[str, Any] = {"name": described["model"]} if "model" in described else {}
    of_judge, of_model = (
        JudgeConfig.options_for(judge),
        ModelConfig.options_for({"name": model.get("name") or "NAME"}),
    )
    others: list[str] = []
    for key, value in described.items():
        if key in (
            "evaluator",
            "model",
            "concurrency",
            "captions",
            "captioner_model",
            "set",
            "prompt",
        ):
            continue
        if key in of_judge:
            judge[key] = _read(value, of_judge[key])
        elif key in of_model:
            model[key] = _read(value, of_model[key])
        else:
            others.append(key)
    if others:
        raise UsageError(
            f"the batch was written with unknown options: {', '.join(sorted(others))}; "
            "write a new batch"
        )
    for setting in described.get("set", ()):
        key, _, value = setting.partition("=")
        judge[key.strip().replace("-", "_")] = _value(value)
    if prompts := described.get("prompt"):
        several = len(prompts) > 1 or "=" in prompts[0]
        judge["prompt"] = dict(word.split("=", 1) for word in prompts) if several else prompts[0]
    if "captions" in described:
        judge["captioner"] = {"name": "file", "path": described["captions"]}
    elif "captioner_model" in described:
        judge["captioner"] = {
            "name": described.get("captioner") or "vlm",
            "model": described["captioner_model"],
        }
    return {"judge": judge, **({"model": {"name": "", **model}} if model else {})}


def _read(value: Any, option: Option) -> Any:
    """Parses an option value that an earlier version stored as text."""
    return value if not isinstance(value, str) else read_value(value, option, lax=True)


def _value(text: str) -> Any:
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _names(part: Any) -> Iterator[str]:
    options = (
        part.options if isinstance(part, PartConfig) else part if isinstance(part, Mapping) else {}
    )
    for name, value in options.items():
        yield name
        yield from _names(value)

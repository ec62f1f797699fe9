"""Presents the results of commands that judge."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from prill.batches import BatchFolder
from prill.captioner.bulk import CaptionTally
from prill.cli.layout import EXIT_ALL, EXIT_SOME, Switches, say
from prill.cli.showing import figures, print_counts, progress_bar, run_async, show_plan, stoppable
from prill.evaluators.combine import Savings
from prill.io.outputs import message_stream
from prill.io.shards import Shard
from prill.io.verdict_log import RETRIED
from prill.runs.base import count_trajectories
from prill.runs.batch import (
    BatchCollectConfig,
    BatchCollectResult,
    BatchSubmitConfig,
    BatchWriteConfig,
    plan_batch_submit,
    plan_batch_write,
)
from prill.runs.batch import batch_collect as run_batch_collect
from prill.runs.batch import batch_submit as run_batch_submit
from prill.runs.batch import batch_write as run_batch_write
from prill.runs.caption import CaptionConfig, CaptionResult, caption_async, plan_caption
from prill.runs.score import ScoreConfig, ScoreResult, plan_score, score_async
from prill.runs.show import JudgesConfig, ShowConfig
from prill.runs.show import judges as list_judges
from prill.runs.show import show as find_verdicts
from prill.scoring.scorer import Tally
from prill.types import Usage

if TYPE_CHECKING:
    from tqdm import tqdm

    from prill.runs.serve import ServeConfig

EXIT_ANSWERS_MISSING = 5
_END_SECONDS = 5.0  # seconds that a judge's threads may take to stop after a service
# Hints beyond retrying; for other reasons the message itself suffices.
_HINTS = {
    "truncated": (
        "--max-tokens N gives replies more room (use another verdict file); a small model "
        "may exceed it anyway"
    ),
    "parse": "the model does not follow the reply format; a larger model may",
    "budget": (
        "--budget-usd applies to the whole run; run the same command with a higher budget to resume"
    ),
    "timeout": "a longer --timeout or a lower --concurrency may help",
}


def score(config: ScoreConfig, switches: Switches) -> int:
    """Runs `prill score`; returns 0 if all is scored, 3 if some is unscored, 130 if interrupted."""
    if switches.dry_run:
        return show_plan("score", plan_score(config), as_json=switches.json)
    result = run_async(_score(config))
    _report(result, as_json=switches.json)
    return EXIT_SOME if result.tally.unscored else EXIT_ALL


async def _score(config: ScoreConfig) -> ScoreResult:
    # The rate and the remaining time count what this run judges, not what it skips.
    with stoppable("score", total=_expected(config), unit="traj") as (stop, bar):

        def show(tally: Tally) -> None:
            bar.initial = tally.skipped
            bar.n = tally.skipped + tally.made
            unscored = f"{sum(tally.unscored.values())} unscored"
            bar.set_postfix_str(f"{_costs(tally.usage)}, {unscored}", refresh=False)
            bar.update(0)

        return await score_async(config, stop=stop, progress=show)


def _expected(config: ScoreConfig) -> int:
    total = count_trajectories(config.trajectories, config.limit)
    shard = Shard.read(config.shard) if isinstance(config.shard, str) else config.shard
    return total if shard is None else round(total / shard.count)  # approximate


def _costs(usage: Usage) -> str:
    cost = "cost unknown" if usage.usd is None else f"${usage.usd:.4f}"
    return f"{(usage.prompt_tokens + usage.completion_tokens) / 1000:.1f}k tokens, {cost}"


def _report(result: ScoreResult, *, as_json: bool) -> None:
    tally = result.tally
    if as_json:
        summary = {
            **figures(tally),
            "seconds": round(tally.seconds, 3),
            "stopped": tally.stopped,
            "evaluator": msgspec.to_builtins(result.judge),
            "output": result.output,
            "untranscribed": tally.untranscribed,
        }
        print(json.dumps(summary), file=message_stream(result.output))
    print_counts(tally, result.output)
    for reason, hint in _HINTS.items():
        if reason in tally.unscored:
            say(f"{reason}: {hint}")
    if result.saved is not None:
        say(_savings_line(result.saved))
    if tally.untranscribed:
        say(
            f"{tally.untranscribed} transcripts could not be written to "
            f"{result.transcripts}; the verdicts are complete"
        )
    for caution in result.cautions:
        say(f"prill score: {caution}")
    if tally.stopped:
        raise KeyboardInterrupt
    if tally.unscored.keys() - {*RETRIED, "no_evidence"}:
        say("run the same command with --retry-unscored to retry them")


def _savings_line(saved: Savings) -> str:
    """Formats the savings of a cascade as text."""
    text = f"cascade: the second judge was asked for {saved.escalated} of {saved.judged}"
    if saved.calls is None:
        return text
    usd = "" if not saved.usd else f" and ${saved.usd:.4f}"
    return f"{text}; that saved about {saved.calls:.0f} of its calls{usd}"


def serve(config: ServeConfig, switches: Switches) -> int:
    """Runs `prill serve`; returns 0 if it was stopped. Raises UsageError before it listens."""
    from prill.runs.serve import serve as run
    from prill.service.last_resort import LastResort

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("prill.service")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def announce(url: str) -> None:
        print(
            json.dumps({"url": url})
            if switches.json
            else (f"serving on {url}; press Ctrl-C to stop"),
            flush=True,
        )

    def ending() -> None:
        say(
            "prill serve: shutting down; requests in progress are answered, a second "
            "Ctrl-C drops them"
        )

    run(config, announce=announce, ending=ending)
    LastResort().exit_after(_END_SECONDS, EXIT_ALL)
    return EXIT_ALL


def show(config: ShowConfig, switches: Switches) -> int:
    """Runs `prill show`; returns 0."""
    result = find_verdicts(config)
    # Escape to ASCII: terminals interpret some characters that JSON leaves unescaped.
    print(json.dumps(result.table(), indent=1) if switches.json else result)
    return EXIT_ALL


def judges(config: JudgesConfig, switches: Switches) -> int:
    """Runs `prill judges`; returns 0."""
    result = list_judges(config)
    print(json.dumps(result.rows) if switches.json and result.rows else result)
    return EXIT_ALL


def caption(config: CaptionConfig, switches: Switches) -> int:
    """Runs `prill caption`.

    Returns 0 if all is captioned, 3 if something is not, 130 if interrupted.
    """
    if switches.dry_run:
        return show_plan("caption", plan_caption(config), as_json=switches.json)
    result = run_async(_caption(config))
    _report_captions(result, as_json=switches.json)
    return EXIT_SOME if result.tally.unscored or result.tally.broken else EXIT_ALL


async def _caption(config: CaptionConfig) -> CaptionResult:
    with stoppable("caption", unit="picture") as (stop, bar):

        def show(tally: CaptionTally) -> None:
            # The rate and the remaining time count what this run requests, not what was already
            # done.
            bar.total = tally.files
            bar.initial = tally.kept + tally.equal + tally.passed
            bar.n = tally.seen
            costs = f"{_costs(tally.usage)}, " if tally.usage.calls else ""
            bar.set_postfix_str(f"{costs}{sum(tally.unscored.values())} without", refresh=False)
            bar.update(0)

        return await caption_async(config, stop=stop, progress=show)


def _report_captions(result: CaptionResult, *, as_json: bool) -> None:
    tally = result.tally
    without = sum(tally.unscored.values())
    if result.rows is not None:
        say(result.rows_line())
    if as_json:
        usage = msgspec.to_builtins(tally.usage)
        print(
            json.dumps(
                {
                    **asdict(tally),
                    "usage": usage,
                    "unscored": dict(tally.unscored),
                    "output": result.output,
                }
            )
        )
    say(result)
    if tally.truncated:
        say(
            f"{tally.truncated} captions reached the token limit and end with a note; "
            "--max-tokens raises it"
        )
    if without:
        say(
            "without a caption: "
            + ", ".join(f"{reason} {count}" for reason, count in tally.unscored.most_common())
        )
    if tally.broken:
        say(f"{tally.broken} lines are not trajectories and were left out")
    for problem in tally.problems[:10]:
        say(f"  {problem}")
    if without + tally.broken > 10:
        say(f"  … and {without + tally.broken - 10} more")
    if tally.stopped:
        raise KeyboardInterrupt
    if tally.unscored.keys() - set(RETRIED):
        say("run the same command with --retry-unscored to retry them")


def batch_write(config: BatchWriteConfig, switches: Switches) -> int:
    """Runs `prill batch write`; returns 130 if interrupted, and the same command resumes."""
    if switches.dry_run:
        return show_plan("batch write", plan_batch_write(config), as_json=switches.json)
    with _trajectories(config.trajectories, config.limit) as bar:

        def show(read: int) -> None:
            bar.update(read - bar.n)

        result = run_batch_write(config, progress=show)
    if switches.json:
        files = [file.name for file in result.files]
        print(
            json.dumps({**figures(result.tally), "pending": result.tally.pending, "files": files})
        )
    say(result)
    say(f"{result.tally.pending} trajectories wait for answers, {result.tally.made} need none")
    for problem in result.tally.problems[:10]:
        say(f"  {problem}")
    folder = result.folder
    say(
        f"next: prill batch submit {folder}, or vllm run-batch -i FILE -o OUTPUT --model M; then "
        "prill batch collect"
    )
    return EXIT_ALL


def batch_submit(config: BatchSubmitConfig, switches: Switches) -> int:
    """Runs `prill batch submit`; returns 130 if interrupted, and submitted batches continue."""
    if switches.dry_run:
        return show_plan("batch submit", plan_batch_submit(config), as_json=switches.json)
    result = run_batch_submit(config)
    if switches.json:
        print(json.dumps([asdict(file) for file in result.files]))
    return EXIT_ALL


def batch_collect(config: BatchCollectConfig, switches: Switches) -> int:
    """Runs `prill batch collect`.

    Returns 5 if responses are missing, 3 if something is unscored, 130 if interrupted.
    """
    with BatchFolder(config.folder) as folder:
        manifest = folder.manifest
    with _trajectories(manifest.trajectories, manifest.limit) as bar:

        def show(tally: Tally) -> None:
            bar.initial = tally.skipped
            bar.update(tally.read - bar.n)

        result = run_batch_collect(config, progress=show)
    _report_collected(result, as_json=switches.json)
    if result.problem is not None:
        raise result.problem
    if result.tally.pending:
        return EXIT_ANSWERS_MISSING
    return EXIT_SOME if result.tally.unscored else EXIT_ALL


def _report_collected(result: BatchCollectResult, *, as_json: bool) -> None:
    tally = result.tally
    if as_json:
        summary = {
            **figures(tally),
            "pending": tally.pending,
            "requests": result.requests,
            "output": result.output,
        }
        print(json.dumps(summary), file=message_stream(result.output))
    print_counts(tally, result.output)
    if tally.pending:
        say(f"{tally.pending} trajectories wait for answers")
    if result.requests:
        files = ", ".join(result.requests)
        say(f"the next requests: {files}; submit or run them, and collect again")


@contextlib.contextmanager
def _trajectories(paths: Sequence[str | Path], limit: int | None) -> Iterator[tqdm[NoReturn]]:
    total = count_trajectories(paths, limit)
    with progress_bar(total=total, unit="traj") as bar:
        yield bar

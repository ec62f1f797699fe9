"""How the commands that judge show what they do."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from prill.cli.showing import figures, progress_bar, say_counts, show_plan
from prill.cli.stopping import stopping_on_ctrl_c
from prill.cli.words import Switches
from prill.evaluators.combine import Savings
from prill.files.outputs import words_beside
from prill.files.shards import Shard
from prill.runs.base import count_trajectories
from prill.runs.score import ScoreConfig, ScoreResult, plan_score, score_files_of
from prill.runs.show import JudgesConfig, ShowConfig
from prill.runs.show import judges as list_judges
from prill.runs.show import show as find_verdicts
from prill.scoring import Tally
from prill.verdict_log import RETRIED

if TYPE_CHECKING:
    from prill.runs.serve import ServeConfig

EXIT_ALL, EXIT_SOME_UNSCORED, EXIT_INTERRUPTED = 0, 3, 130
_END_SECONDS = 5.0  # that threads of a judge may take to end, after a service
# What helps beyond trying again; of other reasons the message says enough.
_HINTS = {
    "truncated": "--max-tokens N gives replies more room (into another verdict file); a small model may run on all the same",
    "parse": "the model does not keep to the form it is asked for; a larger one may",
    "budget": "--budget-usd is of the whole run: the same command with a higher one goes on",
    "timeout": "a longer --timeout or a lower --concurrency gives the endpoint time",
}


def score(config: ScoreConfig, switches: Switches) -> int:
    """`prill score`; 0 when all is scored, 3 when some is unscored, 130 when interrupted."""
    if switches.dry_run:
        return show_plan("score", plan_score(config), as_json=switches.json)
    try:
        result = asyncio.run(_score(config))
    except asyncio.CancelledError:
        print("prill score: dropped the calls under way; the same command resumes where this run ended", file=sys.stderr)
        return EXIT_INTERRUPTED
    _report(result, as_json=switches.json)
    if result.tally.stopped:
        return EXIT_INTERRUPTED
    return EXIT_SOME_UNSCORED if result.tally.unscored else EXIT_ALL


async def _score(config: ScoreConfig) -> ScoreResult:
    stop = asyncio.Event()
    total = _expected(config)
    # The rate and the remaining time count what this run does, not what it skips.
    with (
        stopping_on_ctrl_c("score", stop),
        progress_bar(total=total, unit="traj", dynamic_ncols=True, file=sys.stderr, smoothing=0.1, delay=0.2) as bar,
    ):

        def show(tally: Tally) -> None:
            bar.initial = tally.skipped
            bar.n = tally.skipped + tally.made
            bar.set_postfix_str(_costs(tally), refresh=False)
            bar.update(0)

        return await score_files_of(config, stop=stop, progress=show)


def _expected(config: ScoreConfig) -> int:
    total = count_trajectories(config.trajectories, config.limit)
    shard = Shard.read(config.shard) if isinstance(config.shard, str) else config.shard
    return total if shard is None else round(total / shard.count)  # about: ids decide


def _costs(tally: Tally) -> str:
    usage = tally.usage
    parts = [f"{(usage.prompt_tokens + usage.completion_tokens) / 1000:.1f}k tokens"]
    parts.append("cost unknown" if usage.usd is None else f"${usage.usd:.4f}")
    parts.append(f"{sum(tally.unscored.values())} unscored")
    return ", ".join(parts)


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
        print(json.dumps(summary), file=words_beside(result.output))
    say = partial(print, file=sys.stderr)
    say_counts(tally, result.output)
    for reason, hint in _HINTS.items():
        if reason in tally.unscored:
            say(f"{reason}: {hint}")
    if result.saved is not None:
        say(_savings_line(result.saved))
    if tally.untranscribed:
        say(f"{tally.untranscribed} transcripts could not be written to {result.transcripts}; the verdicts are whole")
    for caution in result.cautions:
        say(f"prill score: {caution}")
    if tally.stopped:
        say("stopped; the same command takes up where this run ended")
    elif tally.unscored.keys() - {*RETRIED, "no_evidence"}:
        say("the same command with --retry-unscored tries those again")


def _savings_line(saved: Savings) -> str:
    """What a cascade saved, in words."""
    words = f"cascade: the second judge was asked for {saved.escalated} of {saved.judged}"
    if saved.calls is None:
        return words
    usd = "" if not saved.usd else f" and ${saved.usd:.4f}"
    return f"{words}; that saved about {saved.calls:.0f} of its calls{usd}"


def serve(config: ServeConfig, switches: Switches) -> int:
    """`prill serve`; 0 when it was ended. Raises UsageError before it listens."""
    from prill.runs.serve import serve as run
    from prill.service.server import LastResort

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("prill.service")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def announce(url: str) -> None:
        print(json.dumps({"url": url}) if switches.json else f"serving on {url}; end with Ctrl-C", flush=True)

    def ending() -> None:
        print("prill serve: ending; requests inside are answered, a second Ctrl-C drops them", file=sys.stderr)

    run(config, announce=announce, ending=ending)
    LastResort().end_within(_END_SECONDS, EXIT_ALL)
    return EXIT_ALL


def show(config: ShowConfig, switches: Switches) -> int:
    """`prill show`; 0."""
    result = find_verdicts(config)
    # In ASCII: a terminal obeys characters that JSON leaves as they are.
    print(json.dumps(result.table(), indent=1) if switches.json else result)
    return EXIT_ALL


def judges(config: JudgesConfig, switches: Switches) -> int:
    """`prill judges`; 0."""
    result = list_judges(config)
    print(json.dumps(result.rows) if switches.json and result.rows else result)
    return EXIT_ALL

"""Presents the results of `prill papers`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from prill.cli.improving import stage_bar
from prill.cli.layout import EXIT_ALL, EXIT_INTERRUPTED, EXIT_SOME, Switches, say
from prill.cli.showing import print_problems, progress_bar, run_async, show_plan, stoppable
from prill.models.ledger import usage_text
from prill.papers.bench.run import (
    EPISODES,
    AblationResult,
    BenchConfig,
    BenchResult,
    ablation_async,
    bench_async,
    plan_bench,
    rows_of_ablation,
)
from prill.papers.mind2web.multi_turn import (
    ConversationsConfig,
    ConversationsResult,
    ConversationTally,
    conversations_async,
)
from prill.papers.mind2web.pages.ranking import RankConfig, RankResult, RankTally, rank_async
from prill.papers.synapse import runs as on_exemplars
from prill.papers.synapse.runs import ExemplarsConfig
from prill.runs.base import count_lines


def bench(config: BenchConfig, switches: Switches) -> int:
    """Runs `prill papers bench`.

    Returns 0 if every episode has an outcome, 3 if some have none, 130 if interrupted.
    """
    several = [] if config.ablation is None else [one for _, one in rows_of_ablation(config)[1]]
    if switches.dry_run:
        for one in several or [config]:
            show_plan("papers bench", plan_bench(one), as_json=switches.json)
        return EXIT_ALL
    result: BenchResult | AblationResult
    with stage_bar() as show:
        if several:
            result = asyncio.run(ablation_async(config, progress=show))
        else:
            result = asyncio.run(bench_async(config, progress=show))
    print(json.dumps(result.table()) if switches.json else result)
    say(
        f"-> {', '.join(result.files)}; the episodes are in "
        f"{Path(config.output) / '*' / EPISODES if several else config.episodes}"
    )
    if result.problem is not None:
        say(f"last error: {result.problem}")
    if result.broken:
        say(
            "--retry-broken repeats episodes that ended with an error; those that could not start "
            "are always retried"
        )
    return EXIT_ALL if result.complete else EXIT_SOME


def rank(config: RankConfig, switches: Switches) -> int:
    """Runs `prill papers rank`.

    Returns 0 if all is ranked, 3 if unreadable turns were skipped, 130 if interrupted.
    """
    result = run_async(_rank(config))
    if result.stopped:
        raise KeyboardInterrupt
    print(json.dumps(result.table()) if switches.json else result)
    say(f"{result.figures.steps:,} steps -> {result.output}")
    print_problems("papers rank", result.problems)
    return EXIT_SOME if result.problems else EXIT_ALL


async def _rank(config: RankConfig) -> RankResult:
    total = count_lines([str(config.trajectories)])
    with stoppable("papers rank", total=total, unit="turn") as (stop, bar):

        def show(tally: RankTally) -> None:
            bar.update(tally.turns - bar.n)

        return await rank_async(config, stop=stop, progress=show)


def exemplars(config: ExemplarsConfig, switches: Switches) -> int:
    """Runs `prill papers exemplars`; returns 0 if all is read, 3 if broken lines were skipped."""
    total = count_lines(map(str, config.trajectories))
    with progress_bar(total=total, unit="traj") as bar:
        result = on_exemplars.exemplars(config, progress=bar.update)
    print(json.dumps(result.table(), indent=2) if switches.json else result)
    print_problems("papers exemplars", result.problems)
    return EXIT_SOME if result.broken else EXIT_ALL


def conversations(config: ConversationsConfig, switches: Switches) -> int:
    """Runs `prill papers conversations`.

    Returns 0 if all are made, 3 with problems or failed calls, 130 if interrupted.
    """
    result = run_async(_conversations(config))
    tally = result.tally
    print_problems("papers conversations", tally.problems, most=20)
    if result.by_model:
        say(f"prill papers conversations: {usage_text(tally.usage)}")
    if switches.json:
        print(json.dumps(result.table()))
    if tally.stopped:
        say("prill papers conversations: interrupted; run the same command again to resume")
        return EXIT_INTERRUPTED
    if tally.unanswered:
        say(
            f"prill papers conversations: {tally.unanswered} of {tally.conversations} "
            f"conversations got no reply, so {result.output} is not written; run the same "
            "command again to retry them"
        )
        return EXIT_SOME
    say(result)
    return EXIT_SOME if tally.problems else EXIT_ALL


async def _conversations(config: ConversationsConfig) -> ConversationsResult:
    with stoppable("papers conversations", unit="conversation") as (stop, bar):

        def show(tally: ConversationTally) -> None:
            bar.total = tally.conversations
            if config.model is not None:
                bar.set_postfix_str(usage_text(tally.usage), refresh=False)
            bar.update()

        return await conversations_async(config, stop=stop, progress=show)

"""Presents the results of commands that play in environments."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

from prill.cli.layout import EXIT_ALL, EXIT_SOME, Switches, say
from prill.cli.showing import print_result, progress_bar, show_plan
from prill.emulators.webarena.config import SiteFinding, WebArenaConfig
from prill.episodes.record import RecordTally
from prill.runs.devices import DevicesConfig, check_sites_async, finding_line
from prill.runs.devices import devices as look
from prill.runs.rollout import RolloutConfig, RolloutResult, plan_rollout, rollout_async

if TYPE_CHECKING:
    from tqdm import tqdm


def rollout(config: RolloutConfig, switches: Switches) -> int:
    """Runs `prill rollout`.

    Returns 0 if every episode ended without error, 3 if some did not or have no label, 130 on
    Ctrl-C.
    """
    if switches.dry_run:
        return show_plan("rollout", plan_rollout(config), as_json=switches.json)
    result = asyncio.run(_rollout(config))
    if switches.json:
        print(json.dumps(result.table()))
    say(result)
    if result.counts.last_problem is not None:
        say(f"last error: {result.counts.last_problem}")
    if result.interrupted is not None:
        say(f"attempts that were interrupted are in {result.interrupted}")
    return EXIT_ALL if result.complete else EXIT_SOME


async def _rollout(config: RolloutConfig) -> RolloutResult:
    with ExitStack() as stack:
        bar: tqdm[NoReturn] | None = None

        def show(total: int, recorded: RecordTally) -> None:
            nonlocal bar
            if bar is None:  # the clock starts when everything is made
                bar = stack.enter_context(progress_bar(total=total, unit="episode"))
            bar.initial, bar.n = recorded.skipped, recorded.total
            bar.update(0)

        return await rollout_async(config, progress=show)


def devices(config: DevicesConfig, switches: Switches) -> int:
    """Runs `prill devices`; returns 0 even if something is missing."""
    result = look(config)
    print_result(result, lambda: result.tools, switches)
    return EXIT_ALL


def check_sites(config: WebArenaConfig, switches: Switches) -> int:
    """Runs `prill check-sites`; returns 0 if every requirement is met, else 3."""

    def show(finding: SiteFinding) -> None:
        if not switches.json:
            print(finding_line(finding))

    result = asyncio.run(check_sites_async(config, progress=show))
    if switches.json:
        print_result(result, lambda: result.findings, switches)
    return EXIT_ALL if result.ready else EXIT_SOME

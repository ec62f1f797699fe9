"""Presents the results of commands that play in environments."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from prill.cli.layout import Switches
from prill.cli.showing import progress_bar, show_plan
from prill.emulators.webarena.config import SiteFinding, WebArenaConfig
from prill.episodes.record import RecordTally
from prill.runs.devices import DevicesConfig, check_sites_async, finding_line
from prill.runs.devices import devices as look
from prill.runs.rollout import RolloutConfig, RolloutResult, plan_rollout, rollout_async

if TYPE_CHECKING:
    from tqdm import tqdm

EXIT_ALL, EXIT_SOME, EXIT_INTERRUPTED = 0, 3, 130


def rollout(config: RolloutConfig, switches: Switches) -> int:
    """Runs `prill rollout`.

    Returns 0 if every episode ended without error, 3 if some did not or have no label, 130 on
    Ctrl-C.
    """
    if switches.dry_run:
        return show_plan("rollout", plan_rollout(config), as_json=switches.json)
    try:
        result = asyncio.run(_rollout(config))
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again to resume", file=sys.stderr)
        return EXIT_INTERRUPTED
    if switches.json:
        print(json.dumps(result.table()))
    print(result, file=sys.stderr)
    if result.counts.last_problem is not None:
        print(
            f"last error: {result.counts.last_problem}",
            file=sys.stderr,
        )
    if result.interrupted is not None:
        print(f"attempts that were interrupted are in {result.interrupted}", file=sys.stderr)
    return EXIT_ALL if result.complete else EXIT_SOME


async def _rollout(config: RolloutConfig) -> RolloutResult:
    with ExitStack() as stack:
        bar: tqdm[NoReturn] | None = None

        def show(total: int, recorded: RecordTally) -> None:
            nonlocal bar
            if bar is None:  # the clock starts when everything is made
                made = progress_bar(total=total, unit="episode")
                bar = stack.enter_context(made)
            bar.initial, bar.n = recorded.skipped, recorded.total
            bar.update(0)

        return await rollout_async(config, progress=show)


def devices(config: DevicesConfig, switches: Switches) -> int:
    """Runs `prill devices`; returns 0 even if something is missing."""
    result = look(config)
    if switches.json:
        print(
            json.dumps(
                {
                    platform: [asdict(tool) for tool in tools]
                    for platform, tools in result.tools.items()
                }
            )
        )
    else:
        print(result)
    return 0


def check_sites(config: WebArenaConfig, switches: Switches) -> int:
    """Runs `prill check-sites`; returns 0 if every requirement is met, else 3."""

    def show(finding: SiteFinding) -> None:
        if not switches.json:
            print(finding_line(finding))

    result = asyncio.run(check_sites_async(config, progress=show))
    if switches.json:
        print(json.dumps([asdict(finding) for finding in result.findings]))
    return EXIT_ALL if result.ready else EXIT_SOME

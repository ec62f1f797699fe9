"""How the commands that make agents better, or look after their rewards, show what they do."""

from __future__ import annotations

import json
import sys

from prill.cli.showing import progress_bar, say_problems
from prill.cli.words import Switches
from prill.files.outputs import is_stdout, words_beside
from prill.runs.watch import WatchConfig
from prill.runs.watch import watch as run_watch

_EXIT_QUIET, _EXIT_ALARM, _EXIT_SOME = 0, 1, 3


def watch(config: WatchConfig, switches: Switches) -> int:
    """`prill watch`; 0 without an alarm, 1 with one at the end of a log, 3 where lines could not be read."""
    with progress_bar(unit=" lines", disable=None, leave=False) as bar:

        def show(log: str) -> None:
            bar.set_description(log, refresh=False)
            bar.update()

        result = run_watch(config, progress=show)
    say_problems("watch", result.problems)
    out = words_beside(config.output) if config.output and is_stdout(config.output) else sys.stdout
    print(json.dumps(result.table()) if switches.json else result, file=out)
    if result.alarms:
        return _EXIT_ALARM
    return _EXIT_SOME if result.problems else _EXIT_QUIET

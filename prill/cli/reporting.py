"""The command that writes the report."""

from __future__ import annotations

import sys

from prill.cli.layout import Switches
from prill.cli.showing import progress_bar
from prill.io.outputs import message_stream
from prill.io.store import encode
from prill.runs.base import count_trajectories
from prill.runs.report import ReportConfig
from prill.runs.report import report as write_report

EXIT_ALL, EXIT_SOME = 0, 3


def report(config: ReportConfig, switches: Switches) -> int:
    """Runs `prill report`; returns 0 if all is shown, 3 if some lines or images could not be
    read.
    """
    with progress_bar(
        total=count_trajectories(config.trajectories, config.limit), unit="traj"
    ) as bar:
        result = write_report(config, progress=bar.update)
    if switches.json:
        print(encode(result.table()).decode().rstrip(), file=message_stream(result.output))
    else:
        print(result, file=sys.stderr)
    for problem in result.problems():
        # Names come from others' files; remove control sequences before they reach the terminal.
        print(
            "prill report: " + "".join(c if c.isprintable() else "?" for c in problem),
            file=sys.stderr,
        )
    return EXIT_SOME if result.broken else EXIT_ALL

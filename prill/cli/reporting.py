"""The command that writes the report; it imports less than those that serve pages."""

from __future__ import annotations

from prill.cli.layout import EXIT_ALL, EXIT_SOME, Switches, say
from prill.cli.showing import print_problems, print_result, progress_bar
from prill.runs.base import count_trajectories
from prill.runs.report import ReportConfig
from prill.runs.report import report as write_report


def report(config: ReportConfig, switches: Switches) -> int:
    """Runs `prill report`; returns 0 if all is shown, 3 if some lines or images could not be
    read.
    """
    total = count_trajectories(config.trajectories, config.limit)
    with progress_bar(total=total, unit="traj") as bar:
        result = write_report(config, progress=bar.update)
    if switches.json:
        print_result(result, result.table, switches, result.output)
    else:
        say(result)
    problems = list(result.problems())
    print_problems("report", problems, len(problems))
    return EXIT_SOME if result.broken else EXIT_ALL

"""How the commands about trust in judges show what they do."""

from __future__ import annotations

import json
import sys

from prill.cli.showing import progress_bar
from prill.cli.words import Switches
from prill.files.outputs import words_beside
from prill.runs.annotate import AnnotateConfig, Opened
from prill.runs.annotate import annotate as serve_annotation
from prill.runs.base import count_trajectories
from prill.runs.report import ReportConfig
from prill.runs.report import report as write_report
from prill.store import encode

EXIT_ALL, EXIT_SOME = 0, 3


def report(config: ReportConfig, switches: Switches) -> int:
    """`prill report`; 0 when all is shown, 3 when some lines or images could not be read."""
    with progress_bar(
        total=count_trajectories(config.trajectories, config.limit), unit="traj", dynamic_ncols=True, file=sys.stderr, delay=0.5
    ) as bar:
        result = write_report(config, progress=bar.update)
    if switches.json:
        print(encode(result.table()).decode().rstrip(), file=words_beside(result.output))
    else:
        print(result, file=sys.stderr)
    for problem in result.problems():
        # Names come from files of others: no control sequence of theirs reaches the terminal.
        print("prill report: " + "".join(c if c.isprintable() else "?" for c in problem), file=sys.stderr)
    return EXIT_SOME if result.broken else EXIT_ALL


def annotate(config: AnnotateConfig, switches: Switches) -> int:
    """`prill annotate`; 0 when it ended, 3 when it ended and some lines were left out."""

    def announce(page: Opened) -> None:
        left = page.total - page.done
        if switches.json:
            print(json.dumps({"url": page.url, "done": page.done, "left": left}), flush=True)
            return
        decided, item = ("labelled", "trajectory") if page.items == "trajectories" else ("decided", "caption")
        print(f"{page.total} {page.items}, {page.done} {decided} by {config.annotator}, {left} left")
        print(f"Open {page.url}\nEnd with Ctrl-C; every decision is on disk when the next {item} comes up.", flush=True)

    result = serve_annotation(config, opened=announce)
    print(encode(result.table()).decode().rstrip() if switches.json else f"\n{result}")
    return EXIT_SOME if result.broken else EXIT_ALL

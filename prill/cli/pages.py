"""The commands that serve pages."""

from __future__ import annotations

import json
import sys

from prill.cli.layout import EXIT_ALL, EXIT_SOME, Switches, say
from prill.cli.showing import print_problems, print_result
from prill.runs.annotate import AnnotateConfig, Opened
from prill.runs.annotate import annotate as serve_annotation
from prill.runs.view import OpenedView, ViewConfig
from prill.runs.view import view as show_runs


def view(config: ViewConfig, switches: Switches) -> int:
    """Runs `prill view`; returns 0, or 3 if some lines could not be read."""

    def announce(page: OpenedView) -> None:
        if switches.json:
            print(json.dumps({"url": page.url}), flush=True)
            return
        say(f"prill view: open {page.url}")
        print("Press Ctrl-C to stop.", file=sys.stderr, flush=True)

    result = show_runs(config, opened=announce)
    if switches.json:
        print(json.dumps(result.table()))
    else:
        say(result)
    print_problems("view", result.problems)
    return EXIT_SOME if result.problems else EXIT_ALL


def annotate(config: AnnotateConfig, switches: Switches) -> int:
    """Runs `prill annotate`; returns 0, or 3 if some lines were skipped."""

    def announce(page: Opened) -> None:
        left = page.total - page.done
        if switches.json:
            print(json.dumps({"url": page.url, "done": page.done, "left": left}), flush=True)
            return
        print(
            f"{page.total} trajectories, {page.done} labelled by {config.annotator}, {left} left\n"
            f"Open {page.url}\n"
            "Press Ctrl-C to stop. Every decision is saved before the next trajectory is shown.",
            flush=True,
        )

    result = serve_annotation(config, opened=announce)
    print_result(f"\n{result}", result.table, switches)
    return EXIT_SOME if result.broken else EXIT_ALL

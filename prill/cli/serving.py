"""Runs `prill serve`, whose log of requests goes to stderr."""

from __future__ import annotations

import json
import logging
import sys

from prill.cli.layout import say
from prill.refine.rewards.service.serving import ServeConfig
from prill.refine.rewards.service.serving import serve as run


def serve(config: ServeConfig, *, as_json: bool = False) -> None:
    """Serves until it is stopped. Raises UsageError before it listens."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("prill.refine.rewards.service")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def announce(url: str) -> None:
        text = f"serving on {url}; press Ctrl-C to stop"
        print(json.dumps({"url": url}) if as_json else text, flush=True)

    def ending() -> None:
        say(
            "prill serve: shutting down; requests in progress are answered, a second Ctrl-C drops "
            "them"
        )

    run(config, announce=announce, ending=ending)

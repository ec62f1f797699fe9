"""BrowserGym's tasks in `prill rollout`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from prill.commands.stages import Stage, StageKind
from prill.errors import UsageError


def _options(group: argparse._ArgumentGroup) -> None:
    group.description = "--tasks names registered tasks without `browsergym/`: miniwob.click-test,webarena.7"
    group.add_argument("--slow-mo", type=int, metavar="MS", help="Playwright's wait before each act (default: the task's)")
    group.add_argument("--pause", type=float, default=0.5, metavar="S", help="wait before the state is looked at (default 0.5)")


def _make(args: argparse.Namespace, images: Path) -> Stage[Any]:
    from prill.emulators.browsergym import BrowserGym

    if not args.tasks:
        raise UsageError("give --tasks, such as miniwob.click-test")
    settings: dict[str, Any] = {"slow_mo": args.slow_mo, "pause": args.pause}
    environments = [BrowserGym(images, **settings) for _ in range(args.workers or 1)]
    names = [name.strip().removeprefix("browsergym/") for name in args.tasks.split(",")]
    return Stage(environments, names, BrowserGym.task, BrowserGym.grade, settings)


BROWSERGYM = StageKind(
    "tasks of BrowserGym, which has to be installed beside prill, with its own rewards",
    "Example: prill rollout browsergym --tasks miniwob.click-test --seeds 0-4 --policy react --model M -o runs/h",
    "web",
    30,
    _options,
    _make,
)

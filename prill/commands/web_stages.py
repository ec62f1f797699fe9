"""The web environments of `prill rollout`: MiniWoB++, WebArena, BrowserGym's tasks, and any page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.commands.browsergym_stage import BROWSERGYM
from prill.commands.stages import Stage, StageKind
from prill.commands.task_files import add_task_options, contents, given_tasks
from prill.commands.web_options import add_page_options, chosen, page_settings, traces
from prill.commands.webarena_stage import WEBARENA
from prill.errors import UsageError
from prill.types import Task

if TYPE_CHECKING:
    from prill.emulators.browser import BrowserEnvironment


def _miniwob_options(group: argparse._ArgumentGroup) -> None:
    group.description = "--tasks names tasks of MiniWoB++, or all (for the scripted policy, all that it knows)"
    group.add_argument("--text", choices=["lines", "html"], default="lines", help="what a language agent reads of the page")
    group.add_argument("--hidden", action="store_true", help="show hidden elements in the text too")
    group.add_argument("--settle", type=float, metavar="S", help="seconds of the page's time after each action (default 0.5)")
    group.add_argument("--announce-end", action="store_true", help="scripted: end the episode when the page gives its reward")


def _miniwob(args: argparse.Namespace, images: Path) -> Stage[Any]:
    from prill.emulators.chromium import Chromium
    from prill.emulators.miniwob import MiniWoB

    browser = Chromium()
    # If the page ended its episodes, the scripted agent would have the last word exactly in those that were not submitted.
    settings: dict[str, Any] = {
        "announce_end": args.announce_end or args.policy != "scripted",
        "settle": 0.5 if args.settle is None else args.settle,
        "text": args.text,
        "hidden": args.hidden,
    }
    environments = [MiniWoB(images, browser=browser, **settings) for _ in range(args.workers or 1)]
    return Stage(
        environments,
        chosen(args.tasks, MiniWoB.tasks()) if args.tasks or not args.plan else [],
        MiniWoB.task,
        MiniWoB.grade,
        settings,
        browser.close,
    )


def _web_options(group: argparse._ArgumentGroup) -> None:
    add_task_options(group, "a URL; several tabs are separated by ' |AND| '")
    add_page_options(group)


def _web(args: argparse.Namespace, images: Path) -> Stage[Any]:
    from prill.emulators.browser import BrowserEnvironment
    from prill.emulators.chromium import Chromium

    tasks = given_tasks(args, "web")
    for given in tasks.values():
        if not given.start_url:
            raise UsageError(f"task {given.id}: it has no start_url; add one, or give --start-url")
    browser = Chromium()
    settings = page_settings(args)
    environments = [
        BrowserEnvironment(images, browser=browser, traces=traces(args, images), **settings) for _ in range(args.workers or 1)
    ]

    async def task(environment: BrowserEnvironment, name: str, seed: int) -> Task:
        return tasks[name]

    return Stage(environments, list(tasks), task, None, settings, browser.close, contents(tasks))


WEB_STAGES = {
    "miniwob": StageKind(
        "MiniWoB++ in the system's Chromium",
        "Example: prill rollout miniwob --tasks click-link,enter-text --seeds 0-4 --behaviour solve -o runs/a",
        "web",
        30,
        _miniwob_options,
        _miniwob,
        "scripted",
    ),
    "webarena": WEBARENA,
    "web": StageKind(
        "any web page in the system's Chromium",
        "Example: prill rollout web --goal 'Find the price' --start-url http://127.0.0.1 --policy react --model M -o runs/b",
        "web",
        30,
        _web_options,
        _web,
    ),
    "browsergym": BROWSERGYM,
}

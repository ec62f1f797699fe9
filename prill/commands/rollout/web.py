"""The web environments of `prill rollout`: MiniWoB++, BrowserGym's tasks and any page; WebArena is in webarena.py."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prill.commands.rollout.cases import add_task_options, read_tasks
from prill.commands.rollout.environments import EnvironmentKind, Setting, task_setting
from prill.commands.rollout.pages import add_page_options, page_options, task_names, traces
from prill.emulators.registry import make_environment
from prill.errors import UsageError


def _miniwob_options(group: argparse._ArgumentGroup) -> None:
    group.description = "--tasks names tasks of MiniWoB++, or all (for the scripted policy, all that it knows)"
    words = "how the page is told as text (default: as the policy reads it, else lines)"
    group.add_argument("--text", choices=["lines", "html"], help=words)
    group.add_argument("--hidden", action="store_true", help="show hidden elements in the text too")
    group.add_argument("--settle", type=float, metavar="S", help="seconds of the page's time after each action (default 0.5)")
    group.add_argument("--announce-end", action="store_true", help="scripted: end the episode when the page gives its reward")


def _miniwob(args: argparse.Namespace, images: Path, assigned: Mapping[str, Any]) -> Setting[Any]:
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.miniwob.environment import MiniWoB

    browser = Chromium()
    # If the page ended its episodes, the scripted agent would have the last word exactly in those that were not submitted.
    options = {
        "announce_end": args.announce_end or args.policy != "scripted",
        "settle": 0.5 if args.settle is None else args.settle,
        "text": args.text or "lines",
        "hidden": args.hidden,
        **assigned,
    }
    environments: list[Any] = [
        make_environment("miniwob", images=images, browser=browser, lax=True, **options) for _ in range(args.workers or 1)
    ]
    tasks = task_names(args.tasks, MiniWoB.tasks()) if args.tasks or not args.plan else []
    return Setting(environments, tasks, MiniWoB.task, MiniWoB.grade, options, browser.close)


def _web_options(group: argparse._ArgumentGroup) -> None:
    add_task_options(group, "a URL; several tabs are separated by ' |AND| '")
    add_page_options(group)


def _web(args: argparse.Namespace, images: Path, assigned: Mapping[str, Any]) -> Setting[Any]:
    from prill.emulators.browser.chromium import Chromium

    tasks = read_tasks(args, "web")
    for task in tasks.values():
        if not task.start_url:
            raise UsageError(f"task {task.id}: it has no start_url; add one, or give --start-url")
    browser = Chromium()
    options = {**page_options(args), **assigned}
    environments = [
        make_environment("web", images=images, browser=browser, lax=True, **{"traces": traces(args, images), **options})
        for _ in range(args.workers or 1)
    ]
    leftovers = "the sites keep what an earlier attempt changed there"
    return task_setting(environments, tasks, options, close=browser.close, leftovers=leftovers)


def _browsergym_options(group: argparse._ArgumentGroup) -> None:
    group.description = "--tasks names registered tasks without `browsergym/`: miniwob.click-test,webarena.7"
    group.add_argument("--slow-mo", type=int, metavar="MS", help="Playwright's wait before each act (default: the task's)")
    group.add_argument("--pause", type=float, default=0.5, metavar="S", help="wait before the state is looked at (default 0.5)")


def _browsergym(args: argparse.Namespace, images: Path, assigned: Mapping[str, Any]) -> Setting[Any]:
    from prill.emulators.browsergym.environment import BrowserGym

    if not args.tasks:
        raise UsageError("give --tasks, such as miniwob.click-test")
    options = {"slow_mo": args.slow_mo, "pause": args.pause, **assigned}
    environments: list[Any] = [
        make_environment("browsergym", images=images, lax=True, **options) for _ in range(args.workers or 1)
    ]
    names = [name.strip().removeprefix("browsergym/") for name in args.tasks.split(",")]
    lasting = [name for name in names if not name.startswith("miniwob.")]
    leftovers = f"the sites of {lasting[0]} and others keep what an earlier attempt changed there" if lasting else None
    return Setting(environments, names, BrowserGym.task, BrowserGym.grade, options, leftovers=leftovers)


WEB = {
    "miniwob": EnvironmentKind(
        "Example: prill rollout miniwob --tasks click-link,enter-text --seeds 0-4 --behaviour solve -o runs/a",
        "web",
        30,
        _miniwob_options,
        _miniwob,
        "scripted",
    ),
    "web": EnvironmentKind(
        "Example: prill rollout web --goal 'Find the price' --start-url http://127.0.0.1 --policy react --model M -o runs/b",
        "web",
        30,
        _web_options,
        _web,
    ),
    "browsergym": EnvironmentKind(
        "Example: prill rollout browsergym --tasks miniwob.click-test --seeds 0-4 --policy react --model M -o runs/h",
        "web",
        30,
        _browsergym_options,
        _browsergym,
    ),
}

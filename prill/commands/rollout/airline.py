"""AirlineCRM in `prill rollout`: a desk in this process, or the one at an address."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.commands.rollout.cases import numbers
from prill.commands.rollout.environments import EnvironmentKind, Setting
from prill.commands.rollout.pages import add_page_options, page_options, task_names, traces
from prill.errors import UsageError
from prill.registry import read_options

if TYPE_CHECKING:
    from prill.emulators.airline.environment import Service


def _options(group: argparse._ArgumentGroup) -> None:
    group.description = (
        "--tasks names some of find-booking, cancel-flight, find-flight, update-passenger-details, book-flight, or all; "
        "each has seeds 0 to 19; the desk is one in this process"
    )
    group.add_argument("--elsewhere", action="store_true", help="play the desk at $AIRLINE instead ($AIRLINE_TOKEN)")
    add_page_options(group)


def _setting(args: argparse.Namespace, images: Path, assigned: Mapping[str, Any]) -> Setting[Any]:
    from prill.emulators.airline.environment import SCENARIOS, Airline, AirlineSpec
    from prill.emulators.browser.chromium import Chromium

    names = task_names(args.tasks, Airline.tasks())
    if max(numbers(args.seeds, "--seeds"), default=0) >= SCENARIOS:  # said now, and not when a long run comes to it
        raise UsageError(f"--seeds {args.seeds}: each task has scenarios 0 to {SCENARIOS - 1}")
    if args.elsewhere and args.plays > 1 and (args.workers or 1) > 1:
        raise UsageError("--elsewhere: two workers would play one scenario at the same time; leave out --workers or --attempts")
    options = {**page_options(args), "traces": traces(args, images), **assigned}
    spec = AirlineSpec(**read_options(AirlineSpec, options, "environment 'airline'", lax=True))
    browser = Chromium()
    with ExitStack() as stack:
        services = [_service(args, stack) for _ in range(args.workers or 1)]
        desks = stack.pop_all()  # they stay open until the setting is closed
    environments = [Airline(images, service, spec, browser=browser) for service in services]

    async def close() -> None:
        await browser.close()
        desks.close()

    return Setting(
        environments,
        names,
        Airline.task,
        Airline.grade,
        {**page_options(args), "elsewhere": args.elsewhere, **assigned},
        close,
    )


def _service(args: argparse.Namespace, desks: ExitStack) -> Service:
    from prill.emulators.airline.environment import Service, service_of

    if args.elsewhere:
        return service_of(os.environ)
    from prill.emulators.airline import desk as airline

    desk = desks.enter_context(airline.Airline())
    return Service(desk.url, desk.token)


AIRLINE = EnvironmentKind(
    "Example: prill rollout airline --tasks all --seeds 0-19 --policy scripted -o runs/j", "web", 25, _options, _setting
)

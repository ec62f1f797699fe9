"""WebArena in `prill rollout`: its 812 tasks, a task file of your own, or the local shop's; each graded by an oracle."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.commands.models import make_model
from prill.commands.stages import Stage, StageKind
from prill.commands.web_options import add_page_options, chosen, page_settings, traces
from prill.errors import UsageError
from prill.types import LabelRecord, Task, Trajectory

if TYPE_CHECKING:
    from prill.datasets.webarena_tasks import TaskConfig
    from prill.emulators.chromium import Chromium
    from prill.emulators.webarena import WebArena
    from prill.protocols import LanguageModel

_SEPARATOR = " |AND| "


def _options(group: argparse._ArgumentGroup) -> None:
    group.description = (
        "--tasks names task numbers (0-9,44) or all; the sites' addresses are read from SHOPPING, SHOPPING_ADMIN, REDDIT, "
        "GITLAB, MAP, WIKIPEDIA and HOMEPAGE"
    )
    group.add_argument("--configs", metavar="FILE", help="a task file in WebArena's format (default: that of libwebarena)")
    group.add_argument("--shop", action="store_true", help="a small shop in this process and its own tasks, to try things on")
    group.add_argument(
        "--oracle",
        choices=["paper", "fixed", "verified", "none"],
        default="paper",
        help="who grades: the benchmark's rules (default), those without its known bugs, or webarena-verified",
    )
    group.add_argument("--oracle-model", metavar="M", help="model that decides fuzzy matches (default: they stay undecided)")
    group.add_argument("--reset", metavar="COMMAND|URL", help="brings the sites back to their first state before each episode")
    group.add_argument("--cookies", metavar="DIR", help="keep logins there (default: every episode signs in)")
    add_page_options(group)


@dataclass(frozen=True)
class _Ground:
    """The sites of one worker, and the tasks with their checks as they read on them."""

    environment: WebArena
    configs: Mapping[str, TaskConfig]
    oracle_of: Mapping[str, str]


def _make(args: argparse.Namespace, images: Path) -> Stage[Any]:
    from prill.emulators.chromium import Chromium

    browser, shops = Chromium(), ExitStack()
    workers = args.workers or 1
    try:
        environs = [_environ(args, shops) for _ in range(workers)]
        grounds = [_ground(args, images, browser, environ) for environ in environs]
        known = [str(config.task_id) for config in grounds[0].configs.values()]
        names = chosen(args.tasks, known, ranges=True)
        for name in names:
            _configured(grounds[0], name)
        model = _oracle_model(args)
    except BaseException:
        shops.close()
        raise
    by_environment = {id(ground.environment): ground for ground in grounds}

    async def task(environment: WebArena, name: str, seed: int) -> Task:
        return _task(by_environment[id(environment)], name)

    async def grade(environment: WebArena, trajectory: Trajectory) -> LabelRecord:
        return await _grade(args, by_environment[id(environment)], trajectory, model)

    async def close() -> None:
        await browser.close()
        shops.close()

    settings = {**page_settings(args), "configs": args.configs, "shop": args.shop}
    oracle = None if args.oracle == "none" else grade
    return Stage([ground.environment for ground in grounds], names, task, oracle, settings, close)


def _environ(args: argparse.Namespace, shops: ExitStack) -> dict[str, str]:
    if not args.shop:
        return dict(os.environ)
    from prill.fakes.shop import Shop

    if args.configs or args.reset:
        raise UsageError("--shop has its own tasks and resets itself: leave out --configs and --reset")
    shop = shops.enter_context(Shop())
    return {**os.environ, **shop.environ, "PRILL_SHOP_RESET": shop.reset_url}


def _ground(args: argparse.Namespace, images: Path, browser: Chromium, environ: dict[str, str]) -> _Ground:
    from prill.datasets.webarena_tasks import load_configs, read_configs, task_of
    from prill.emulators.webarena import Setup, WebArena
    from prill.emulators.webarena_sites import Sites

    if args.shop:
        from prill.fakes.shop import shop_configs

        configs = read_configs(shop_configs(), environ)
    elif args.configs:
        try:
            configs = read_configs(Path(args.configs).read_bytes(), environ)
        except OSError as error:
            raise UsageError(f"{args.configs}: {error.strerror}") from None
    else:
        configs = load_configs(environ)
    setups = {
        task_of(config).id: Setup(
            sites=config.sites,
            storage_state=config.storage_state,
            geolocation=(config.geolocation["latitude"], config.geolocation["longitude"]) if config.geolocation else None,
        )
        for config in configs
    }
    environment = WebArena(
        images,
        setups,
        sites=Sites.from_environment(environ),
        browser=browser,
        cookies=Path(args.cookies) if args.cookies else None,
        reset=environ["PRILL_SHOP_RESET"] if args.shop else args.reset,
        hars=images.parent / "hars" if args.oracle == "verified" else None,
        traces=traces(args, images),
        **page_settings(args),
    )
    return _Ground(environment, {str(config.task_id): config for config in configs}, environ)


def _configured(ground: _Ground, name: str) -> TaskConfig:
    """The task's configuration. Raises UsageError when a site that it needs has no address."""
    config = ground.configs[name]
    for site in config.sites:
        ground.environment.sites.address(site.upper())
    return config


def _task(ground: _Ground, name: str) -> Task:
    """The task as agents know it: with public host names in place of the local addresses."""
    from prill.datasets.webarena_tasks import task_of

    task = task_of(_configured(ground, name))
    shown = _SEPARATOR.join(map(ground.environment.sites.shown, (task.start_url or "").split(_SEPARATOR)))
    return replace(task, start_url=shown)


async def _grade(args: argparse.Namespace, ground: _Ground, trajectory: Trajectory, model: LanguageModel | None) -> LabelRecord:
    if args.oracle == "verified":
        from prill.evaluators.webarena_verified import WebArenaVerifiedOracle

        await ground.environment.finish()
        har = ground.environment.har
        if har is None:
            return LabelRecord(id=trajectory.id, success=None, source="webarena-verified", note="no traffic was recorded")
        return await WebArenaVerifiedOracle(ground.oracle_of).grade(trajectory, har)
    from prill.evaluators.oracle import WebArenaOracle
    from prill.evaluators.oracle_sites import shop_access

    oracle = WebArenaOracle(ground.configs.values(), mode=args.oracle, model=model, shop=shop_access(ground.oracle_of))
    return await oracle.grade(trajectory, None if trajectory.error else ground.environment.page)


def _oracle_model(args: argparse.Namespace) -> LanguageModel | None:
    if not args.oracle_model:
        return None
    return make_model(argparse.Namespace(**{**vars(args), "model": args.oracle_model}))


WEBARENA = StageKind(
    "WebArena's tasks on its sites, or on a small local shop (--shop)",
    "Example: prill rollout webarena --shop --tasks all --policy scripted -o runs/e",
    "web",
    30,
    _options,
    _make,
)

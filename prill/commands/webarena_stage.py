"""WebArena in `prill rollout`: its 812 tasks, a task file of your own, or the local shop's; each graded by an oracle."""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    from prill.evaluators.oracle_checks import Mode
    from prill.evaluators.webarena_verified import WebArenaVerifiedOracle
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


_Grade = Callable[[Trajectory], Awaitable[LabelRecord]]


@dataclass(frozen=True)
class _Ground:
    """The sites of one worker, the tasks with their checks as they read on them, and who grades there.

    `goal` has the text of a task by its number where the oracle's differs from the configuration's.
    """

    environment: WebArena
    configs: Mapping[str, TaskConfig]
    grade: _Grade
    goal: Callable[[int], str] | None = None


def _make(args: argparse.Namespace, images: Path) -> Stage[Any]:
    from prill.emulators.chromium import Chromium

    if args.shop and (args.configs or args.reset or args.cookies):
        raise UsageError(
            "--shop has its own tasks and resets itself, which ends every login: leave out --configs, --reset and --cookies"
        )
    if args.shop and args.oracle == "verified":
        raise UsageError("webarena-verified knows the benchmark's own tasks only: leave out --shop, or choose another --oracle")
    workers = args.workers or 1
    if args.reset and workers > 1:
        raise UsageError("--reset would disturb the episodes of other workers on the same sites: leave out --workers")
    browser, shops = Chromium(), ExitStack()
    try:
        model = _oracle_model(args)
        environs = [_environ(args, shops) for _ in range(workers)]
        grounds = [_ground(args, images, browser, environ, model) for environ in environs]
        names = chosen(args.tasks, list(grounds[0].configs), ranges=True)
        _check(grounds[0], names)
    except BaseException:
        shops.close()
        raise
    by_environment = {id(ground.environment): ground for ground in grounds}

    async def task(environment: WebArena, name: str, seed: int) -> Task:
        return _task(by_environment[id(environment)], name)

    async def grade(environment: WebArena, trajectory: Trajectory) -> LabelRecord:
        return await by_environment[id(environment)].grade(trajectory)

    async def close() -> None:
        await browser.close()
        shops.close()

    # An episode can only be graded as it ends, so another oracle means other episodes.
    settings = {
        **page_settings(args),
        "configs": args.configs,
        "shop": args.shop,
        "oracle": args.oracle,
        "oracle_model": args.oracle_model,
    }
    oracle = None if args.oracle == "none" else grade
    contents = {name: config.intent for name, config in grounds[0].configs.items()}
    return Stage([ground.environment for ground in grounds], names, task, oracle, settings, close, contents)


def _environ(args: argparse.Namespace, shops: ExitStack) -> dict[str, str]:
    """The variables for one worker; addresses stand under WebArena's own names, by whichever names they were given."""
    if not args.shop:
        from prill.emulators.webarena_sites import Sites

        return {**os.environ, **Sites.from_environment().addresses}
    from prill.fakes.shop import Shop

    shop = shops.enter_context(Shop())
    return {**os.environ, **shop.environ, "PRILL_SHOP_RESET": shop.reset_url}


def _ground(
    args: argparse.Namespace, images: Path, browser: Chromium, environ: dict[str, str], model: LanguageModel | None
) -> _Ground:
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
        task_of(config).id: Setup(sites=config.sites, storage_state=config.storage_state, geolocation=_place(config))
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
    by_number = {str(config.task_id): config for config in configs}
    if args.oracle == "verified":
        from prill.evaluators.webarena_verified import WebArenaVerifiedOracle

        verified = WebArenaVerifiedOracle(environ)
        return _Ground(environment, by_number, _by_traffic(verified, environment), verified.goal)
    from prill.evaluators.oracle import WebArenaOracle
    from prill.evaluators.oracle_sites import shop_access

    mode: Mode = "fixed" if args.oracle == "fixed" else "paper"
    oracle = WebArenaOracle(configs, mode=mode, model=model, shop=shop_access(environ))

    async def by_pages(trajectory: Trajectory) -> LabelRecord:
        return await oracle.grade(trajectory, None if trajectory.error else environment.page)

    return _Ground(environment, by_number, by_pages)


def _place(config: TaskConfig) -> tuple[float, float] | None:
    if not config.geolocation:
        return None
    try:
        return config.geolocation["latitude"], config.geolocation["longitude"]
    except KeyError as missing:
        raise UsageError(f"task {config.task_id}: its geolocation has no {missing.args[0]}") from None


def _check(ground: _Ground, names: Sequence[str]) -> None:
    """Raises UsageError with everything that has to be set before these tasks can begin."""
    from prill.datasets.webarena_tasks import task_of

    problems: dict[str, None] = {}
    for name in names:
        try:
            ground.environment.check(task_of(ground.configs[name]).id)
        except UsageError as error:
            problems[str(error)] = None
    if problems:
        raise UsageError("; ".join(problems))


def _task(ground: _Ground, name: str) -> Task:
    """The task as agents know it: with public host names in place of the local addresses."""
    from prill.datasets.webarena_tasks import task_of

    config = ground.configs[name]
    task = task_of(config)
    shown = _SEPARATOR.join(map(ground.environment.sites.shown, config.start_url.split(_SEPARATOR)))
    return replace(task, start_url=shown, goal=task.goal if ground.goal is None else ground.goal(config.task_id))


def _by_traffic(oracle: WebArenaVerifiedOracle, environment: WebArena) -> _Grade:
    async def grade(trajectory: Trajectory) -> LabelRecord:
        await environment.finish()
        if environment.har is None:
            return LabelRecord(id=trajectory.id, success=None, source="webarena-verified", note="no traffic was recorded")
        return await oracle.grade(trajectory, environment.har)

    return grade


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

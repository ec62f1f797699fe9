"""The web environments of `prill rollout`: MiniWoB++, WebArena, BrowserGym's tasks, and any page."""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.commands.options import make_model
from prill.commands.rollout.cases import add_task_options, contents, given_tasks, numbers
from prill.commands.rollout.environments import Stage, StageKind
from prill.errors import UsageError
from prill.types import LabelRecord, Task, Trajectory

if TYPE_CHECKING:
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.browser.environment import BrowserEnvironment
    from prill.emulators.webarena.environment import WebArena
    from prill.emulators.webarena.tasks import Mode, TaskConfig
    from prill.emulators.webarena.verified import WebArenaVerifiedOracle
    from prill.protocols import LanguageModel


# BrowserGym's tasks in `prill rollout`.


def _browsergym_options(group: argparse._ArgumentGroup) -> None:
    group.description = "--tasks names registered tasks without `browsergym/`: miniwob.click-test,webarena.7"
    group.add_argument("--slow-mo", type=int, metavar="MS", help="Playwright's wait before each act (default: the task's)")
    group.add_argument("--pause", type=float, default=0.5, metavar="S", help="wait before the state is looked at (default 0.5)")


def _browsergym(args: argparse.Namespace, images: Path) -> Stage[Any]:
    from prill.emulators.browsergym.environment import BrowserGym

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
    _browsergym_options,
    _browsergym,
)


# Options that the web environments of `prill rollout` share.


def add_page_options(group: argparse._ArgumentGroup) -> None:
    """How pages are shown and waited for."""
    group.add_argument("--whole-page", action="store_true", help="text of the whole page, not of the part in view")
    group.add_argument("--viewport", default="1280x720", metavar="WxH", help="size of the window (default 1280x720)")
    group.add_argument("--pause", type=float, metavar="S", help="wait so long after each action (default: until it is still)")
    group.add_argument("--traces", action="store_true", help="keep a Playwright trace of every episode, in DIR/traces")


def page_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The options that a browser environment is made with. Raises UsageError."""
    width, _, height = args.viewport.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise UsageError(f"--viewport {args.viewport!r}: expected a size such as 1280x720")
    return {"viewport": (int(width), int(height)), "whole_page": args.whole_page, "pause": args.pause}


def traces(args: argparse.Namespace, images: Path) -> Path | None:
    """The folder for Playwright's traces; None when they are not asked for."""
    return images.parent / "traces" if args.traces else None


def chosen(words: str | None, known: Sequence[str], *, ranges: bool = False) -> list[str]:
    """The tasks of `--tasks a,b` or `--tasks all`; with `ranges`, also `0-9`. Raises UsageError for one that is not known."""
    if not words:
        raise UsageError("give --tasks: names, or all")
    if words == "all":
        return list(known)
    names = [str(n) for n in numbers(words, "--tasks")] if ranges else [word.strip() for word in words.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            f"--tasks: there is no task {', '.join(unknown)}; there are {len(known)}, such as {', '.join(known[:5])}"
        )
    return names


# WebArena in `prill rollout`: its 812 tasks, a task file of your own, or the local shop's; each graded by an oracle.


_SEPARATOR = " |AND| "


def _webarena_options(group: argparse._ArgumentGroup) -> None:
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


def _webarena(args: argparse.Namespace, images: Path) -> Stage[Any]:
    from prill.emulators.browser.chromium import Chromium

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
        from prill.emulators.webarena.sites import Sites

        return {**os.environ, **Sites.from_environment().addresses}
    from prill.testing.shop import Shop

    shop = shops.enter_context(Shop())
    return {**os.environ, **shop.environ, "PRILL_SHOP_RESET": shop.reset_url}


def _ground(
    args: argparse.Namespace, images: Path, browser: Chromium, environ: dict[str, str], model: LanguageModel | None
) -> _Ground:
    from prill.emulators.webarena.environment import Setup, WebArena
    from prill.emulators.webarena.sites import Sites
    from prill.emulators.webarena.tasks import load_configs, read_configs, task_of

    if args.shop:
        from prill.testing.shop import shop_configs

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
        from prill.emulators.webarena.verified import WebArenaVerifiedOracle

        verified = WebArenaVerifiedOracle(environ)
        return _Ground(environment, by_number, _by_traffic(verified, environment), verified.goal)
    from prill.emulators.webarena.oracle import WebArenaOracle
    from prill.emulators.webarena.oracle_pages import shop_access

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
    from prill.emulators.webarena.tasks import task_of

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
    from prill.emulators.webarena.tasks import task_of

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
    _webarena_options,
    _webarena,
)


def _miniwob_options(group: argparse._ArgumentGroup) -> None:
    group.description = "--tasks names tasks of MiniWoB++, or all (for the scripted policy, all that it knows)"
    group.add_argument("--text", choices=["lines", "html"], default="lines", help="what a language agent reads of the page")
    group.add_argument("--hidden", action="store_true", help="show hidden elements in the text too")
    group.add_argument("--settle", type=float, metavar="S", help="seconds of the page's time after each action (default 0.5)")
    group.add_argument("--announce-end", action="store_true", help="scripted: end the episode when the page gives its reward")


def _miniwob(args: argparse.Namespace, images: Path) -> Stage[Any]:
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.miniwob.environment import MiniWoB

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
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.browser.environment import BrowserEnvironment

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

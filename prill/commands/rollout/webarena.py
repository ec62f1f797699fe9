"""WebArena in `prill rollout`: its 812 tasks, a task file of your own, or the local shop's; each graded by an oracle."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prill.actions.webarena import site_of
from prill.commands.options import make_model
from prill.commands.rollout.environments import EnvironmentKind, Setting
from prill.commands.rollout.pages import add_page_options, page_options, task_names, traces
from prill.errors import EnvironmentFailure, UsageError
from prill.registry import read_options
from prill.types import Action, LabelRecord, Step, Task, Trajectory

if TYPE_CHECKING:
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.webarena.environment import WebArena
    from prill.emulators.webarena.tasks import Mode, TaskConfig
    from prill.emulators.webarena.verified import WebArenaVerifiedOracle
    from prill.protocols import LanguageModel

Grade = Callable[[Trajectory], Awaitable[LabelRecord]]
_SHOP_ALONE = "--shop has its own tasks and resets itself, which ends every login: leave out --configs, --reset and --cookies"
_NOT_VERIFIED = "webarena-verified knows the benchmark's own tasks only: leave out --shop, or choose another --oracle"
_LEFTOVERS = "the sites keep what an earlier attempt changed there, since no way to reset them was given"
_ONE_WORKER = (
    "--reset with an address brings back every site, also those that other workers play on: give a command, which is told the "
    "sites (PRILL_SITES), or leave out --workers"
)


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
    group.add_argument("--reset", metavar="COMMAND|URL", help="brings the sites back to their first state; see --reset-when")
    group.add_argument(
        "--reset-when",
        choices=["changes", "always"],
        help="changes: before a site's first episode and after a task that changes it; always: before each episode "
        "(default: changes; with --shop always)",
    )
    group.add_argument("--cookies", metavar="DIR", help="keep logins there (default: every episode signs in)")
    add_page_options(group)


@dataclass(frozen=True)
class WorkerSites:
    """The sites of one worker, the tasks with their checks as they read on them, and who grades there.

    `goal` has the text of a task by its number where the oracle's differs from the configuration's.
    """

    environment: WebArena
    configs: Mapping[str, TaskConfig]
    grade: Grade
    goal: Callable[[int], str] | None = None

    def task(self, name: str) -> Task:
        """The task as agents know it: with public host names in place of the local addresses."""
        from prill.emulators.browser.environment import START_SEPARATOR
        from prill.emulators.webarena.tasks import task_of

        config = self.configs[name]
        task = task_of(config)
        addresses = map(self.environment.sites.public, config.start_url.split(START_SEPARATOR))
        goal = task.goal if self.goal is None else self.goal(config.task_id)
        return replace(task, start_url=START_SEPARATOR.join(addresses), goal=goal)

    def check(self, names: Sequence[str]) -> None:
        """Raises UsageError with everything that has to be set before these tasks can begin."""
        from prill.emulators.webarena.tasks import task_of

        problems: dict[str, None] = {}
        for name in names:
            try:
                self.environment.check(task_of(self.configs[name]).id)
            except UsageError as error:
                problems[str(error)] = None
        if problems:
            raise UsageError("; ".join(problems))


def _setting(args: argparse.Namespace, images: Path, assigned: Mapping[str, Any]) -> Setting[Any]:
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.webarena.environment import all_sites
    from prill.emulators.webarena.tasks import task_of

    reset = args.reset or assigned.get("reset")
    _refuse_contradictions(args, reset)
    browser = Chromium()
    changed = all_sites() if reset and not args.shop else None  # the workers are on the same sites
    with ExitStack() as stack:
        model = _oracle_model(args)
        environs = [_environ(args, stack) for _ in range(args.workers or 1)]
        workers = [_worker_sites(args, images, assigned, browser, environ, model, changed) for environ in environs]
        names = task_names(args.tasks, list(workers[0].configs), ranges=True)
        workers[0].check(names)
        shops = stack.pop_all()  # they stay open until the setting is closed
    sites = {id(worker.environment): worker for worker in workers}

    async def task(environment: WebArena, name: str, seed: int) -> Task:
        return sites[id(environment)].task(name)

    async def grade(environment: WebArena, trajectory: Trajectory) -> LabelRecord:
        return await sites[id(environment)].grade(trajectory)

    async def close() -> None:
        await browser.close()
        shops.close()

    oracle = None if args.oracle == "none" else grade
    alone = names if changed is not None and len(workers) > 1 else ()
    return Setting(
        [worker.environment for worker in workers],
        names,
        task,
        oracle,
        # An episode can only be graded as it ends, so another oracle means other episodes.
        {
            **page_options(args),
            **{name: getattr(args, name) for name in ("configs", "shop", "oracle", "oracle_model")},
            **assigned,
        },
        close,
        {name: config.intent for name, config in workers[0].configs.items()},
        leftovers=None if args.shop or reset else _LEFTOVERS,
        templates={name: config.intent_template_id for name, config in workers[0].configs.items()},
        sites={name: site_of(config.sites) or "none" for name, config in workers[0].configs.items()},
        needs={name: workers[0].environment.needs(task_of(workers[0].configs[name]).id) for name in alone},
    )


@dataclass(frozen=True)
class Finding:
    """One thing that real sites need, and what is wrong with it; None: nothing."""

    what: str
    problem: str | None = None


async def check_sites(args: argparse.Namespace, folder: Path) -> AsyncIterator[Finding]:
    """Tries what a run needs, one thing after the other: each address, each login, a reset, a task and its oracle.

    `folder` is for cookies and screenshots.
    """
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.webarena.login import Logins
    from prill.emulators.webarena.sites import PUBLIC, Sites, reset_sites

    with ExitStack() as shops:
        environ = _environ(args, shops)
        sites, browser = Sites.from_environment(environ), Chromium()
        logins = Logins(sites, browser, folder, reuse=False)
        ready: set[str] = set()
        try:
            for name in PUBLIC:
                if name not in sites.addresses:
                    yield Finding(f"address of {name.lower()}", f"is not set: export {name}=http://…")
                elif name in sites.accounts:
                    problem = await _problem_of(logins.cookies((name,)))
                    yield Finding(f"login at {name.lower()}", problem)
                    ready |= set() if problem else {name}
                else:
                    ready.add(name)
        finally:
            await browser.close()
        command = environ["PRILL_SHOP_RESET"] if args.shop else args.reset
        if command:
            passwords = tuple(account.password for account in sites.accounts.values())
            yield Finding("reset", await _problem_of(reset_sites(command, 600.0, passwords)))
        else:
            yield Finding("reset", f"{_LEFTOVERS}: give one with --reset")
        names = _decidable(args, _configs(args, environ), ready)
    if not names:
        yield Finding("oracle", "no task is on sites that are ready")
        return
    yield Finding(f"oracle of task {names[0]}", await _problem_of(_try_oracle(args, names[0], folder)))


def _decidable(args: argparse.Namespace, configs: Sequence[TaskConfig], ready: set[str]) -> list[str]:
    """The tasks on these sites; first those whose oracle looks at a page and asks no model."""
    from prill.emulators.webarena.environment import setups_of
    from prill.emulators.webarena.tasks import task_of

    numbers = {str(config.task_id): config for config in configs}
    wanted = task_names(args.tasks or "all", list(numbers), ranges=True)
    setups = setups_of(configs)

    def needs(name: str) -> set[str]:
        setup = setups[task_of(numbers[name]).id]
        return {site.upper() for site in setup.sites} | set(setup.logins)

    able = [name for name in wanted if needs(name) <= ready]
    return sorted(able, key=lambda name: "string_match" in numbers[name].eval.eval_types)


async def _try_oracle(args: argparse.Namespace, name: str, folder: Path) -> str | None:
    """Begins a task, stops at once, and has that graded; what the oracle said when it did not decide."""
    alone = {"tasks": name, "workers": 1, "traces": False}
    setting = _setting(argparse.Namespace(**{**vars(args), **alone}), folder / "images", {})
    environment = setting.environments[0]
    try:
        task = await setting.task(environment, name, 0)
        state = await environment.reset(task)
        step = Step(state, Action("stop", "stop []", value=""))
        stopped = Trajectory(id="check", task=task, steps=(step,), final=state, answer="")
        if setting.oracle is None:
            return "nobody grades: choose another --oracle"
        label = await setting.oracle(environment, stopped)
        return None if label.success is not None else f"did not decide: {label.note}"
    finally:
        await environment.close()
        await setting.close()


async def _problem_of(work: Awaitable[object]) -> str | None:
    """What it said when it failed, or gave as a text."""
    try:
        given = await work
    except (EnvironmentFailure, UsageError) as failure:
        return str(failure)
    return given if isinstance(given, str) else None


def _refuse_contradictions(args: argparse.Namespace, reset: object) -> None:
    if args.shop and (args.configs or args.reset or args.cookies):
        raise UsageError(_SHOP_ALONE)
    if args.shop and args.oracle == "verified":
        raise UsageError(_NOT_VERIFIED)
    if str(reset or "").startswith(("http://", "https://")) and (args.workers or 1) > 1:
        raise UsageError(_ONE_WORKER)


def _environ(args: argparse.Namespace, shops: ExitStack) -> dict[str, str]:
    """The variables for one worker; addresses stand under WebArena's own names, by whichever names they were given."""
    if not args.shop:
        from prill.emulators.webarena.sites import Sites

        return {**os.environ, **Sites.from_environment().addresses}
    from prill.emulators.shop import Shop

    shop = shops.enter_context(Shop())
    return {**os.environ, **shop.environ, "PRILL_SHOP_RESET": shop.reset_url}


def _worker_sites(
    args: argparse.Namespace,
    images: Path,
    assigned: Mapping[str, Any],
    browser: Chromium,
    environ: dict[str, str],
    model: LanguageModel | None,
    changed: set[str] | None,
) -> WorkerSites:
    from prill.emulators.webarena.environment import WebArena, WebArenaSpec, setups_of
    from prill.emulators.webarena.sites import Sites

    configs = _configs(args, environ)
    options = {
        **page_options(args),
        "cookies": args.cookies,
        "reset": environ["PRILL_SHOP_RESET"] if args.shop else args.reset,
        "reset_when": args.reset_when or ("always" if args.shop else "changes"),
        "hars": images.parent / "hars" if args.oracle == "verified" else None,
        "traces": traces(args, images),
        **assigned,
    }
    spec = WebArenaSpec(**read_options(WebArenaSpec, options, "environment 'webarena'", lax=True))
    sites = Sites.from_environment(environ)
    environment = WebArena(images, setups_of(configs), spec, sites=sites, browser=browser, changed=changed)
    by_number = {str(config.task_id): config for config in configs}
    if args.oracle == "verified":
        from prill.emulators.webarena.verified import WebArenaVerifiedOracle

        verified = WebArenaVerifiedOracle(environ)
        return WorkerSites(environment, by_number, _by_traffic(verified, environment), verified.goal)
    return WorkerSites(environment, by_number, _by_pages(args, configs, environ, model, environment))


def _configs(args: argparse.Namespace, environ: dict[str, str]) -> tuple[TaskConfig, ...]:
    from prill.emulators.webarena.tasks import load_configs, read_configs

    if not args.shop:
        return load_configs(environ, Path(args.configs) if args.configs else None)
    from prill.emulators.shop import shop_configs

    return read_configs(shop_configs(), environ)


def _by_pages(
    args: argparse.Namespace,
    configs: Sequence[TaskConfig],
    environ: dict[str, str],
    model: LanguageModel | None,
    environment: WebArena,
) -> Grade:
    """The benchmark's oracle, which looks at the page that the agent left."""
    from prill.emulators.webarena.oracle import WebArenaOracle
    from prill.emulators.webarena.oracle_pages import shop_access

    mode: Mode = "fixed" if args.oracle == "fixed" else "paper"
    oracle = WebArenaOracle(configs, mode=mode, model=model, shop=shop_access(environ))

    async def grade(trajectory: Trajectory) -> LabelRecord:
        return await oracle.grade(trajectory, None if trajectory.error else environment.page)

    return grade


def _by_traffic(oracle: WebArenaVerifiedOracle, environment: WebArena) -> Grade:
    """The second oracle, which looks at the network record of the episode."""

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


WEBARENA = EnvironmentKind(
    "Example: prill rollout webarena --shop --tasks all --policy scripted -o runs/e", "web", 30, _options, _setting
)

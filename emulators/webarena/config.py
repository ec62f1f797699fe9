"""Configuration of WebArena: its 812 tasks, a task file of your own, or the local shop's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.actions.webarena import join_sites
from prill.config.registry import read_options
from prill.config.values import get_name
from prill.datasets.webarena_tasks import site_names, variable
from prill.emulators.browser.config import PagesConfig
from prill.emulators.settings import Playing, Scripts, Setting
from prill.emulators.task_source import Names, join_names, task_names
from prill.emulators.webarena.environment import ResetWhenOption, WebArenaSpec
from prill.emulators.webarena.login import read_forms
from prill.errors import EnvironmentFailedError, UsageError
from prill.models.registry import ModelLike
from prill.protocols import Policy
from prill.types import Action, LabelRecord, Step, Task, Trajectory

if TYPE_CHECKING:
    from prill.datasets.webarena_tasks import Mode, TaskConfig
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.webarena.environment import WebArena
    from prill.emulators.webarena.verified import WebArenaVerifiedOracle
    from prill.protocols import LanguageModel

Grade = Callable[[Trajectory], Awaitable[LabelRecord]]
_SHOP_ALONE = (
    "shop has its own tasks and resets itself, which ends every login: leave out "
    "configs, reset and cookies"
)
_NOT_VERIFIED = (
    "webarena-verified knows the benchmark's own tasks only: leave out shop, or "
    "choose another oracle"
)
_LEFTOVERS = (
    "the sites keep what an earlier attempt changed there, since no way to reset them was given"
)
_ONE_WORKER = (
    "reset with an address brings back every site, also those that other workers play on: give a "
    "command, which is told the sites (PRILL_SITES), or leave out workers"
)
_OF_SHOP = (
    "the scripted policy knows the tasks of the local shop only: set shop, or choose another policy"
)


@dataclass(frozen=True, kw_only=True)
class WebArenaConfig(PagesConfig, WebArenaSpec):
    """WebArena's tasks on its sites: `WebArenaConfig(tasks="0-9", reset="./reset.sh")`, or on a
    small local shop: `WebArenaConfig(tasks="all", shop=True)`.

    The sites' addresses are read from the environment variables SHOPPING, SHOPPING_ADMIN, REDDIT,
    GITLAB, MAP, WIKIPEDIA and HOMEPAGE.
    """

    name: ClassVar[str] = "webarena"
    # Addresses, resets and logins do not change an episode's identity.
    _identifying: ClassVar[frozenset[str]] = PagesConfig._identifying | {
        "configs", "shop", "oracle", "oracle_model", "reset", "reset_when", "cookies", "logins",
        "trust_cookies",
    }  # fmt: skip

    tasks: Annotated[Names, Meta(description="Task numbers, for example 0-9,44, or all.")] = None
    configs: Annotated[
        str | Path | None,
        Meta(description="Task file in WebArena's format (default: the file of libwebarena)."),
    ] = None
    logins: Annotated[
        str | Path | Mapping[str, Any] | None,
        Meta(
            description="Login forms of other sites, a TOML file or table: wiki = {url, user, "
            "password, button, success_url, success_text}."
        ),
    ] = None
    shop: Annotated[
        bool,
        Meta(description="Run a small built-in shop with tasks of its own, for trying things out."),
    ] = False
    oracle: Annotated[
        Literal["paper", "fixed", "verified", "none"],
        Meta(
            description="Evaluator: the benchmark's rules, the rules without known bugs, "
            "or webarena-verified."
        ),
    ] = "paper"
    oracle_model: Annotated[
        ModelLike | None,
        Meta(
            description="Model that decides fuzzy matches (default: none; they remain undecided)."
        ),
    ] = None
    reset_when: ResetWhenOption = None

    def check(self) -> None:
        """Checks options that depend on each other."""
        super().check()
        object.__setattr__(self, "tasks", join_names(self.tasks))
        read_forms(self.logins)
        if self.shop and (self.configs or self.reset or self.cookies):
            raise UsageError(_SHOP_ALONE, parameters=("shop",))
        if self.shop and self.oracle == "verified":
            raise UsageError(_NOT_VERIFIED, parameters=("shop", "oracle"))

    def setting(self, run: Playing) -> Setting[Any]:
        """Makes a browser, and sites with their oracle for each worker."""
        from prill.datasets.webarena_tasks import make_task
        from prill.emulators.browser.chromium import Chromium
        from prill.emulators.webarena.environment import all_sites

        if str(self.reset or "").startswith(("http://", "https://")) and run.copies > 1:
            raise UsageError(_ONE_WORKER, parameters=("reset", "workers"))
        browser = Chromium()
        # the workers are on the same sites
        changed: set[str] | None = set() if self.reset and not self.shop else None
        with ExitStack() as stack:
            model = None if self.oracle_model is None else run.model(self.oracle_model)
            environs = [_environ(self, stack) for _ in range(run.copies)]
            workers = [
                _worker_sites(self, run, browser, environ, model, changed) for environ in environs
            ]
            if changed is not None:
                changed |= all_sites(workers[0].environment.setups)
            names = task_names(self.tasks, list(workers[0].configs), ranges=True)
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

        oracle = None if self.oracle == "none" else grade
        alone = names if changed is not None and len(workers) > 1 else ()
        return Setting(
            [worker.environment for worker in workers],
            names,
            task,
            oracle,
            # An episode can only be graded as it ends, so another oracle means other episodes.
            {
                **self.shown(),
                **{name: getattr(self, name) for name in ("configs", "shop", "oracle")},
                "oracle_model": _name(self.oracle_model),
                **self.more(),
            },
            close,
            {name: config.intent for name, config in workers[0].configs.items()},
            leftovers=None if self.shop or self.reset else _LEFTOVERS,
            templates={
                name: config.intent_template_id for name, config in workers[0].configs.items()
            },
            sites={
                name: join_sites(config.sites) or "none"
                for name, config in workers[0].configs.items()
            },
            needs={
                name: workers[0].environment.needs(make_task(workers[0].configs[name]).id)
                for name in alone
            },
        )

    def scripts(self) -> Scripts:
        """Returns the solutions of the local shop's tasks."""
        from prill.emulators.shop import ShopPlay, shop_solutions

        if not self.shop:
            raise UsageError(_OF_SHOP, parameters=("shop", "policy"))
        solutions = {str(number): solution for number, solution in shop_solutions().items()}

        def play(task: str, seed: int, behaviour: str) -> Policy:
            solution = solutions[task]
            return ShopPlay(solution.right if behaviour == "solve" else solution.wrong)

        return Scripts(play, ("solve", "wrong-target"), frozenset(solutions), "on the shop")

    def known_sites(self) -> str:
        """Lists WebArena's sites by their public names. Its home page lists the sites and
        passwords.
        """
        if self.shop:
            return ""
        from prill.emulators.webarena.sites import PUBLIC, Sites

        addresses = Sites.from_environment().addresses
        names = {
            "HOMEPAGE": "a list of all sites, with passwords at http://homepage.com/password.html"
        }
        return ", ".join(
            f"http://{host} ({names.get(name, name.lower())})"
            for name, host in PUBLIC.items()
            if name in addresses
        )


def _name(model: ModelLike | None) -> str | None:
    name = get_name(model)
    return name if isinstance(name, str) else None


@dataclass(frozen=True)
class WorkerSites:
    """The sites of one worker, the tasks with their checks on these sites, and the oracle.

    `goal` returns the text of a task by its number if the oracle's text differs from the
    configuration's.
    """

    environment: WebArena
    configs: Mapping[str, TaskConfig]
    grade: Grade
    goal: Callable[[int], str] | None = None

    def task(self, name: str) -> Task:
        """Returns the task for agents, with public host names instead of local addresses."""
        from prill.datasets.webarena_tasks import make_task
        from prill.emulators.browser.environment import START_SEPARATOR

        config = self.configs[name]
        task = make_task(config)
        addresses = map(self.environment.sites.public, config.start_url.split(START_SEPARATOR))
        goal = task.goal if self.goal is None else self.goal(config.task_id)
        return replace(task, start_url=START_SEPARATOR.join(addresses), goal=goal)

    def check(self, names: Sequence[str]) -> None:
        """Raises UsageError that lists the missing settings of these tasks."""
        from prill.datasets.webarena_tasks import make_task

        problems: dict[str, None] = {}
        for name in names:
            try:
                self.environment.check(make_task(self.configs[name]).id)
            except UsageError as error:
                problems[str(error)] = None
        if problems:
            raise UsageError("; ".join(problems))


@dataclass(frozen=True)
class SiteFinding:
    """One requirement of real sites, and its problem; None: no problem."""

    what: str
    problem: str | None = None


async def check_sites(config: WebArenaConfig, run: Playing) -> AsyncIterator[SiteFinding]:
    """Tests a run's requirements in sequence: each address, each login, a reset, a task and its
    oracle.

    `run` has the folder for screenshots; cookies are stored next to it.
    """
    from prill.emulators.browser.chromium import Chromium
    from prill.emulators.webarena.login import Logins
    from prill.emulators.webarena.sites import PUBLIC, Sites, reset_sites

    with ExitStack() as shops:
        environ = _environ(config, shops)
        configs, forms = _configs(config, environ), read_forms(config.logins)
        names_of_sites = (*PUBLIC, *(name for name in site_names(configs) if name not in PUBLIC))
        sites, browser = Sites.from_environment(environ, names_of_sites), Chromium()
        logins = Logins(sites, browser, run.images.parent, reuse=False, forms=forms)
        ready: set[str] = set()
        try:
            for name in names_of_sites:
                if name not in sites.addresses:
                    yield SiteFinding(
                        f"address of {name.lower()}", f"is not set: export {name}=http://…"
                    )
                elif name in sites.accounts and name in forms:
                    problem = await _catch_problem(logins.cookies((name,)))
                    yield SiteFinding(f"login at {name.lower()}", problem)
                    ready |= set() if problem else {name}
                else:
                    ready.add(name)
        finally:
            await browser.close()
        command = environ["PRILL_SHOP_RESET"] if config.shop else config.reset
        if command:
            passwords = tuple(account.password for account in sites.accounts.values())
            # as before an episode, but of no task: a command resets the sites that it is told
            there = ",".join(sorted(map(str.lower, sites.addresses)))
            told = {"PRILL_TASK": "", "PRILL_SITES": there}
            work = reset_sites(command, config.reset_timeout, passwords, told)
            yield SiteFinding("reset", await _catch_problem(work))
        else:
            yield SiteFinding("reset", f"{_LEFTOVERS}: give one with reset")
        names = _decidable(config, configs, ready)
    if not names:
        yield SiteFinding("oracle", "no task is on sites that are ready")
        return
    yield SiteFinding(
        f"oracle of task {names[0]}", await _catch_problem(_try_oracle(config, names[0], run))
    )


def _decidable(config: WebArenaConfig, configs: Sequence[TaskConfig], ready: set[str]) -> list[str]:
    """Returns the tasks on these sites; first those with a page oracle and no model."""
    from prill.datasets.webarena_tasks import make_task
    from prill.emulators.webarena.environment import collect_setups

    numbers = {str(one.task_id): one for one in configs}
    wanted = task_names(config.tasks or "all", list(numbers), ranges=True)
    setups = collect_setups(configs)

    def needs(name: str) -> set[str]:
        setup = setups[make_task(numbers[name]).id]
        return set(map(variable, setup.sites)) | set(setup.logins)

    able = [name for name in wanted if needs(name) <= ready]
    return sorted(able, key=lambda name: "string_match" in numbers[name].eval.eval_types)


async def _try_oracle(config: WebArenaConfig, name: str, run: Playing) -> str | None:
    """Starts a task, stops at once, and grades the episode; returns the oracle's note if it did not
    decide.
    """
    setting = config.copy_with(tasks=name, traces=False).setting(replace(run, workers=1))
    environment = setting.environments[0]
    try:
        task = await setting.task(environment, name, 0)
        state = await environment.reset(task)
        step = Step(state, Action("stop", "stop []", value=""))
        stopped = Trajectory(id="check", task=task, steps=(step,), final=state, answer="")
        if setting.oracle is None:
            return "it gives no labels: choose another oracle"
        label = await setting.oracle(environment, stopped)
        return None if label.success is not None else f"did not decide: {label.note}"
    finally:
        await environment.close()
        await setting.close()


async def _catch_problem(work: Awaitable[object]) -> str | None:
    """Returns the error message of an awaitable, or its result if that is a text."""
    try:
        given = await work
    except (EnvironmentFailedError, UsageError) as failure:
        return str(failure)
    return given if isinstance(given, str) else None


def _environ(config: WebArenaConfig, shops: ExitStack) -> dict[str, str]:
    """Returns one worker's environment variables, with addresses under WebArena's own names."""
    if not config.shop:
        from prill.emulators.webarena.sites import read_addresses

        return {**os.environ, **read_addresses(os.environ)}
    from prill.emulators.shop import Shop

    shop = shops.enter_context(Shop())
    return {**os.environ, **shop.environ, "PRILL_SHOP_RESET": shop.reset_url}


def _worker_sites(
    config: WebArenaConfig,
    run: Playing,
    browser: Chromium,
    environ: dict[str, str],
    model: LanguageModel | None,
    changed: set[str] | None,
) -> WorkerSites:
    from prill.emulators.webarena.environment import WebArena, collect_setups
    from prill.emulators.webarena.sites import Sites

    configs = _configs(config, environ)
    sites = Sites.from_environment(environ, site_names(configs))
    environ = {**environ, **sites.addresses}
    options = {
        **config.page_options(run, WebArenaSpec),
        "reset": environ["PRILL_SHOP_RESET"] if config.shop else config.reset,
        "reset_when": config.reset_when or ("always" if config.shop else "changes"),
        "hars": run.images.parent / "hars" if config.oracle == "verified" else config.hars,
    }
    spec = WebArenaSpec(**read_options(WebArenaSpec, options, "environment 'webarena'"))
    environment = WebArena(
        run.images,
        collect_setups(configs),
        spec,
        sites=sites,
        browser=browser,
        changed=changed,
        forms=read_forms(config.logins),
    )
    by_number = {str(one.task_id): one for one in configs}
    if config.oracle == "verified":
        from prill.emulators.webarena.verified import WebArenaVerifiedOracle

        verified = WebArenaVerifiedOracle(environ)
        return WorkerSites(
            environment, by_number, _by_traffic(verified, environment), verified.goal
        )
    return WorkerSites(
        environment, by_number, _by_pages(config, configs, environ, model, environment)
    )


def _configs(config: WebArenaConfig, environ: dict[str, str]) -> tuple[TaskConfig, ...]:
    from prill.datasets.webarena_tasks import load_configs, read_configs

    if not config.shop:
        return load_configs(environ, Path(config.configs) if config.configs else None)
    from prill.emulators.shop import shop_configs

    return read_configs(shop_configs(), environ)


def _by_pages(
    config: WebArenaConfig,
    configs: Sequence[TaskConfig],
    environ: dict[str, str],
    model: LanguageModel | None,
    environment: WebArena,
) -> Grade:
    """Makes the benchmark's oracle, which reads the agent's last page."""
    from prill.emulators.webarena.oracle import WebArenaOracle
    from prill.emulators.webarena.oracle_pages import shop_access

    mode: Mode = "fixed" if config.oracle == "fixed" else "paper"
    oracle = WebArenaOracle(configs, mode=mode, model=model, shop=shop_access(environ))

    async def grade(trajectory: Trajectory) -> LabelRecord:
        return await oracle.grade(trajectory, None if trajectory.error else environment.page)

    return grade


def _by_traffic(oracle: WebArenaVerifiedOracle, environment: WebArena) -> Grade:
    """Makes the second oracle, which reads the network record of the episode."""

    async def grade(trajectory: Trajectory) -> LabelRecord:
        await environment.finish()
        if environment.har is None:
            return LabelRecord(
                id=trajectory.id,
                success=None,
                source="webarena-verified",
                note="no traffic was recorded",
            )
        return await oracle.grade(trajectory, environment.har)

    return grade

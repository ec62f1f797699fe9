"""WebArena's sites as an environment (arXiv 2307.13854): signed in, with public host names.

Where the sites are is read from the variables that WebArena's users set already (sites.py). Each
episode begins in a fresh profile with cookies of its own, as in the original; a folder for cookies
saves the logins (login.py). What an episode changed on a site stays, as in the original, unless
there is a way to reset it (sites.py).
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from prill.emulators.browser.chromium import Chromium, Profile
from prill.emulators.browser.environment import BrowserEnvironment, Hooks, PageSpec
from prill.emulators.browser.tabs import free_path
from prill.emulators.webarena.login import Logins
from prill.emulators.webarena.sites import PUBLIC, Sites, reset_sites
from prill.emulators.webarena.tasks import TaskConfig, load_configs, make_task
from prill.errors import UsageError
from prill.types import Action, Observation, Task

if TYPE_CHECKING:
    from playwright.async_api import Page


_STATE = re.compile(r"(?:.*/)?([a-z_.]+)_state\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Where a task takes place, in the terms of the task file.

    `storage_state` names the sites to sign in to: `./.auth/gitlab.reddit_state.json`; None: nobody
    signs in. `geolocation` is latitude and longitude in degrees. `changes`: whoever does the task
    changes what is on its sites.
    """

    sites: tuple[str, ...]
    changes: bool = True
    storage_state: str | None = None
    geolocation: tuple[float, float] | None = None

    @property
    def needs(self) -> frozenset[str]:
        """The sites that no other episode may be on meanwhile, where they are reset."""
        return frozenset((*self.sites, *(name.lower() for name in self.logins)))

    @property
    def logins(self) -> tuple[str, ...]:
        """The sites to sign in to, by the names of their variables. Raises UsageError for another
        kind of file name.
        """
        if self.storage_state is None:
            return ()
        file = _STATE.fullmatch(self.storage_state)
        if file is None:
            raise UsageError(
                f"storage_state {self.storage_state!r}: expected ./.auth/<site>.<site>_state.json"
            )
        return tuple(name.upper() for name in file[1].split("."))


@dataclass(frozen=True, slots=True, kw_only=True)
class WebArenaSpec(PageSpec):
    """How WebArena's sites are played. Another episode on the same sites would be disturbed by
    `reset`: play one a site.
    """

    cookies: Annotated[
        Path | None,
        (
            "folder that keeps the cookies of each combination of sites; none: every episode signs "
            "in again"
        ),
    ] = None
    reset: Annotated[
        str | None,
        Meta(
            description="shell command, or address of a reset server, that brings sites back; a "
            "command is told the task and its sites (PRILL_TASK, PRILL_SITES)"
        ),
    ] = None
    reset_when: Annotated[
        Literal["changes", "always"],
        Meta(
            description="changes: before a site's first episode and after a task that changes it; "
            "always: before each episode"
        ),
    ] = "changes"
    hars: Annotated[
        Path | None, "folder for the network record of each episode, which `finish` writes"
    ] = None
    login_timeout: Annotated[
        float, Meta(gt=0, description="bounds each page of a login, in seconds")
    ] = 30.0
    reset_timeout: Annotated[float, Meta(gt=0, description="bounds a reset, in seconds")] = 600.0


class WebArena:
    """Plays WebArena's tasks. A variable of a site that is not set is a UsageError of the tasks
    that need the site.

    Kept cookies are used again until a site refuses them.

    Args:
        images: The folder for screenshots.
        setups: Where each task is done, by task id.
        spec: The options.
        sites: Where the sites are. None: as the environment variables say.
        browser: A browser to share, which stays open at the end. None: one of its own.
        changed: The sites that may differ from the benchmark's state: environments on the same
            sites share one set. None: a new set.
    """

    def __init__(
        self,
        images: Path,
        setups: Mapping[str, Setup],
        spec: WebArenaSpec = WebArenaSpec(),
        *,
        sites: Sites | None = None,
        browser: Chromium | None = None,
        changed: set[str] | None = None,
    ) -> None:
        self._setups = setups
        self._spec = spec
        self._sites = Sites.from_environment() if sites is None else sites
        self._browser = browser or Chromium()
        self._owns_browser = browser is None
        self._folder = Path()
        self._changed = all_sites() if changed is None else changed
        hooks = Hooks(
            prepare=self._prepare, real_url=self._sites.real, public_url=self._sites.public
        )
        self._environment = BrowserEnvironment(images, spec, browser=self._browser, hooks=hooks)

    @property
    def sites(self) -> Sites:
        """The sites' URLs, for oracles."""
        return self._sites

    @property
    def page(self) -> Page:
        """The tab that the agent is in, for oracles. Raises UsageError when no episode is open."""
        return self._environment.page

    @property
    def pages(self) -> tuple[Page, ...]:
        """All tabs, oldest first."""
        return self._environment.pages

    @property
    def har(self) -> Path | None:
        """The network record of the last episode, when there is a folder for them; `finish` writes
        it.
        """
        return self._environment.har

    def needs(self, task_id: str) -> frozenset[str]:
        """Lists the sites that an episode needs for itself, where sites are reset.

        Args:
            task_id: The task.

        Returns:
            The sites.
        """
        return self._setups[task_id].needs

    def check(self, task_id: str) -> None:
        """Checks that a task can be played.

        Args:
            task_id: The task.

        Raises:
            UsageError: The task has no setup, or needs a site or a login that does not exist.
        """
        if task_id not in self._setups:
            raise UsageError(
                f"task {task_id!r} is not among the {len(self._setups)} tasks of this environment"
            )
        setup = self._setups[task_id]
        for name in setup.sites:
            self._sites.address(name.upper())
        for name in setup.logins:
            self._sites.address(name)
            self._sites.account(name)

    async def reset(self, task: Task) -> Observation:
        """The task's first page, signed in.

        Raises:
            UsageError: As in `check`.
            EnvironmentFailedError: A site is down, refuses the account or cannot be reset.
        """
        self.check(task.id)
        with contextlib.ExitStack() as stack:
            # Cookies that nobody keeps are on the disk no longer than the browser needs to read
            # them.
            folder = self._spec.cookies or stack.enter_context(
                tempfile.TemporaryDirectory(prefix="prill-cookies-")
            )
            self._folder = Path(folder)
            return await self._environment.reset(task)

    async def step(self, action: Action) -> tuple[Observation, bool]:
        """The tab after the action."""
        return await self._environment.step(action)

    async def locate(self, action: Action) -> Action:
        """The action with its element's line, and where in the window it is."""
        return await self._environment.locate(action)

    async def finish(self) -> None:
        """Ends the episode: writes trace and network record. Safe to call twice."""
        await self._environment.finish()

    async def close(self) -> None:
        """Ends the episode, and the browser unless it was given."""
        await self._environment.close()
        if self._owns_browser:
            await self._browser.close()

    async def _restore(self, command: str, task_id: str, setup: Setup) -> None:
        """Resets the sites of a task, unless they are as the benchmark has them."""
        sites = (
            set(setup.sites)
            if self._spec.reset_when == "always"
            else self._changed & set(setup.sites)
        )
        if sites:
            passwords = tuple(account.password for account in self._sites.accounts.values())
            told = {"PRILL_TASK": task_id, "PRILL_SITES": ",".join(sorted(sites))}
            await reset_sites(command, self._spec.reset_timeout, passwords, told)
            self._changed -= sites
        if setup.changes:
            self._changed |= set(setup.sites)

    async def _prepare(self, task: Task) -> Profile:
        setup = self._setups[task.id]
        if self._spec.reset is not None:
            await self._restore(self._spec.reset, task.id, setup)
        state = har = None
        if setup.logins:
            reuse = self._spec.cookies is not None
            logins = Logins(
                self._sites,
                self._browser,
                self._folder,
                reuse=reuse,
                timeout=self._spec.login_timeout,
            )
            state = await logins.cookies(setup.logins)
        if self._spec.hars is not None:
            self._spec.hars.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w.-]+", "-", task.id)[-100:]
            har = free_path(self._spec.hars / f"{name}.har")
            har.touch()  # it is written at the end of the episode, and another one may begin before
        return Profile(storage_state=state, geolocation=setup.geolocation, har=har)


def webarena(
    images: Path,
    spec: WebArenaSpec = WebArenaSpec(),
    *,
    configs: Annotated[
        Path | None, "a task file in WebArena's format; none: that of libwebarena"
    ] = None,
    browser: Chromium | None = None,
) -> WebArena:
    """The environment for the tasks of the benchmark, or of a task file. Raises UsageError when
    there is no such file.
    """
    return WebArena(images, collect_setups(load_configs(path=configs)), spec, browser=browser)


def all_sites() -> set[str]:
    """Every site, as tasks name them: before the first reset none is known to be as the benchmark
    has it.
    """
    return {name.lower() for name in PUBLIC}


def collect_setups(configs: Iterable[TaskConfig]) -> dict[str, Setup]:
    """By task id, where each task is done. Raises UsageError for a place without its degrees."""
    return {
        make_task(config).id: Setup(
            sites=config.sites,
            storage_state=config.storage_state,
            geolocation=_place(config),
            # The benchmark says so for no task; those whose page is looked at afterwards are the
            # ones that change something.
            changes=config.require_reset or "program_html" in config.eval.eval_types,
        )
        for config in configs
    }


def _place(config: TaskConfig) -> tuple[float, float] | None:
    if not config.geolocation:
        return None
    try:
        return config.geolocation["latitude"], config.geolocation["longitude"]
    except KeyError as missing:
        raise UsageError(
            f"task {config.task_id}: its geolocation has no {missing.args[0]}"
        ) from None

"""WebArena's sites as an environment (arXiv 2307.13854): signed in, with public host names.

The sites' addresses come from WebArena's own environment variables (sites.py). Each episode starts
in a fresh profile with its own cookies, as in the original; a folder for cookies saves repeated
logins (login.py). Changes to a site persist, as in the original, unless a reset is configured
(sites.py).
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from prill.datasets.webarena_tasks import TaskConfig, load_configs, make_task, variable
from prill.emulators.browser.actions import Typing
from prill.emulators.browser.chromium import Chromium, Profile
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
from prill.emulators.browser.tabs import free_path
from prill.emulators.webarena.login import LoginForm, Logins, read_forms
from prill.emulators.webarena.sites import PUBLIC, Sites, reset_sites
from prill.errors import UsageError
from prill.types import Observation, Task

_STATE = re.compile(r"(?:.*/)?([a-z0-9_.-]+)_state\.json")


ResetWhenOption = Annotated[
    Literal["changes", "always"] | None,
    Meta(
        description="changes: reset before a site's first episode and after a task that changes "
        "the site. always: before each episode (default: changes; with shop always)."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The sites, login and location of a task, in the terms of the task file.

    `storage_state` names the sites to sign in to: `./.auth/gitlab.reddit_state.json`; None: no
    login. `geolocation` is latitude and longitude in degrees. `changes`: solving the task changes
    the contents of its sites.
    """

    sites: tuple[str, ...]
    changes: bool = True
    storage_state: str | None = None
    geolocation: tuple[float, float] | None = None

    @property
    def needs(self) -> frozenset[str]:
        """The sites that the task needs exclusively if sites are reset."""
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
                f"storage_state {self.storage_state!r}: expected ./.auth/<site>.<site>_state.json, "
                "or with trust_cookies a file"
            )
        return tuple(map(variable, file[1].split(".")))


@dataclass(frozen=True, slots=True, kw_only=True)
class WebArenaSpec(PageSpec):
    """Options of WebArena's sites. `reset` disturbs other episodes on the same sites, so play one
    episode per site at a time.
    """

    typing: Typing = "append"
    webarena_text: bool = True
    cookies: Annotated[
        Path | None,
        (
            "folder that keeps the cookies of each combination of sites; none: every episode signs "
            "in again"
        ),
    ] = None
    trust_cookies: Annotated[
        bool,
        Meta(
            description="Use a task's storage_state, or the file in cookies, without signing in "
            "and without checking that the sites accept it."
        ),
    ] = False
    reset: Annotated[
        str | None,
        Meta(
            description="Shell command, or URL of a reset server, that resets the sites. "
            "The command gets the task and its sites as PRILL_TASK and PRILL_SITES."
        ),
    ] = None
    reset_when: ResetWhenOption = "changes"
    hars: Annotated[
        Path | None, "folder for the network record of each episode, which `finish` writes"
    ] = None
    reset_timeout: Annotated[float, Meta(gt=0, description="Timeout of a reset, in seconds.")] = (
        600.0
    )


class WebArena(BrowserEnvironment):
    """WebArena's sites as an environment. A task that needs a site whose variable is not set raises
    UsageError.

    Stored cookies are reused until a site rejects them.

    Args:
        images: The folder for screenshots.
        setups: The sites and logins of each task, by task id.
        spec: The options.
        sites: The sites' addresses. None: read the environment variables.
        browser: A shared browser, which stays open at the end. None: an own browser.
        changed: The sites that may differ from the benchmark's state: environments on the same
            sites share one set. None: a new set.
        forms: The login forms by site. None: those of WebArena's own.
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
        forms: Mapping[str, LoginForm] | None = None,
    ) -> None:
        super().__init__(images, spec, browser=browser)
        named = {variable(site) for setup in setups.values() for site in setup.sites}
        self.sites = Sites.from_environment(more=named) if sites is None else sites
        self._forms = read_forms() if forms is None else forms
        self.setups = setups
        self._options = spec
        self._folder = Path()
        self._changed = all_sites(setups) if changed is None else changed

    def needs(self, task_id: str) -> frozenset[str]:
        """Lists the sites that an episode needs for itself, where sites are reset.

        Args:
            task_id: The task.

        Returns:
            The sites.
        """
        return self.setups[task_id].needs

    def check(self, task_id: str) -> None:
        """Checks that a task can be played.

        Args:
            task_id: The task.

        Raises:
            UsageError: The task has no setup, or needs a site or a login that does not exist.
        """
        if task_id not in self.setups:
            raise UsageError(
                f"task {task_id!r} is not among the {len(self.setups)} tasks of this environment"
            )
        setup = self.setups[task_id]
        for name in setup.sites:
            self.sites.address(variable(name))
        if self._trusted(setup) is not None:
            return
        for name in setup.logins:
            self.sites.address(name)
            if name not in self._forms:
                raise UsageError(
                    f"the site {name.lower()} has no login form: describe it with logins, or give "
                    "a cookie file with trust_cookies"
                )
            self.sites.account(name)

    def _trusted(self, setup: Setup) -> Path | None:
        """Returns the cookie file of a task that is used as it is, or None."""
        if setup.storage_state is None or not self._options.trust_cookies:
            return None
        files = [Path(setup.storage_state)]
        if self._options.cookies is not None:
            files.append(self._options.cookies / files[0].name)
        return next((file for file in files if file.is_file()), None)

    async def reset(self, task: Task) -> Observation:
        """Opens the task's first page, signed in.

        Raises:
            UsageError: As in `check`.
            EnvironmentFailedError: A site is down, refuses the account or cannot be reset.
        """
        self.check(task.id)
        with contextlib.ExitStack() as stack:
            # Temporary cookie files are deleted as soon as the browser has read them.
            folder = self._options.cookies or stack.enter_context(
                tempfile.TemporaryDirectory(prefix="prill-cookies-")
            )
            self._folder = Path(folder)
            return await super().reset(task)

    def _real_url(self, url: str) -> str:
        return self.sites.real(url)

    def _public_url(self, url: str) -> str:
        return self.sites.public(url)

    async def _restore(self, command: str, task_id: str, setup: Setup) -> None:
        """Resets the sites of a task if they may differ from the benchmark's initial state."""
        sites = (
            set(setup.sites)
            if self._options.reset_when == "always"
            else self._changed & set(setup.sites)
        )
        if sites:
            passwords = tuple(account.password for account in self.sites.accounts.values())
            variables = {"PRILL_TASK": task_id, "PRILL_SITES": ",".join(sorted(sites))}
            await reset_sites(command, self._options.reset_timeout, passwords, variables)
            self._changed -= sites
        if setup.changes:
            self._changed |= set(setup.sites)

    async def _prepare(self, task: Task) -> Profile:
        setup = self.setups[task.id]
        if self._options.reset is not None:
            await self._restore(self._options.reset, task.id, setup)
        state, har = self._trusted(setup), None
        if state is None and setup.logins:
            reuse = self._options.cookies is not None
            logins = Logins(self.sites, self._browser, self._folder, reuse=reuse, forms=self._forms)
            state = await logins.cookies(setup.logins)
        if self._options.hars is not None:
            self._options.hars.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w.-]+", "-", task.id)[-100:]
            har = free_path(self._options.hars / f"{name}.har")
            har.touch()  # it is written at the end of the episode, and another one may begin before
        return Profile(
            storage_state=state,
            geolocation=setup.geolocation,
            har=har,
            http_login=self.sites.http_login,
        )


def webarena(
    images: Path,
    spec: WebArenaSpec = WebArenaSpec(),
    *,
    configs: Annotated[
        Path | None, "a task file in WebArena's format; none: that of libwebarena"
    ] = None,
    browser: Chromium | None = None,
) -> WebArena:
    """Makes the environment for the benchmark's tasks, or for a task file. Raises UsageError if the
    file does not exist.
    """
    return WebArena(images, collect_setups(load_configs(path=configs)), spec, browser=browser)


def all_sites(setups: Mapping[str, Setup]) -> set[str]:
    """Returns every site by its name in tasks. Before the first reset, any site may differ from the
    benchmark's initial state.
    """
    more = {site for setup in setups.values() for site in setup.sites}
    return {name.lower() for name in PUBLIC} | more


def collect_setups(configs: Iterable[TaskConfig]) -> dict[str, Setup]:
    """Returns the setup of each task by id. Raises UsageError for an incomplete geolocation."""
    return {
        make_task(config).id: Setup(
            sites=config.sites,
            storage_state=config.storage_state,
            geolocation=_place(config),
            # The benchmark does not mark tasks that change a site. They are those whose pages are
            # checked after the episode.
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

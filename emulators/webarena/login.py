"""Signs in to WebArena's sites and keeps the cookies for each combination of sites."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from prill.config.toml import read_table
from prill.emulators.browser.chromium import Chromium, Profile
from prill.emulators.webarena.sites import Sites
from prill.errors import EnvironmentFailedError, UsageError

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext


_WINDOW = (1280, 720)
_CLOSING = 10.0  # seconds
_OFFICIAL = Path(__file__).with_name("logins.toml")


class LoginForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A login form, and what shows that an account is signed in.

    `url` is the form's path below the site's address, or a whole address. `user`, `password` and
    `button` are selectors of Playwright, such as `input[name=user]`; without a button, Enter is
    pressed. After the login, a request for `success_url` stays there, or its page contains
    `success_text`. `{user}` in it stands for the account's name.
    """

    url: str
    user: str
    password: str = "input[type=password]"
    button: str | None = None
    success_url: str
    success_text: str | None = None


def read_forms(given: str | Path | Mapping[str, Any] | None = None) -> Mapping[str, LoginForm]:
    """Returns the login forms by site: a table `{wiki = {url = "/login", …}}` or a file with it,
    and those of WebArena. Raises UsageError.
    """
    place = "logins" if given is None or isinstance(given, Mapping) else str(given)
    table = read_table(given) if isinstance(given, str | Path) else given or {}
    forms: dict[str, LoginForm] = {}
    for name, form in (read_table(_OFFICIAL) | dict(table)).items():
        try:
            forms[name.upper()] = msgspec.convert(form, LoginForm)
        except msgspec.ValidationError as error:
            raise UsageError(f"{place}: {name}: {error}", parameters=("logins",)) from None
    return forms


_TIMEOUT_MS = 30_000.0  # of each request and each page


class Logins:
    """The cookie files, one for each combination of sites.

    With `reuse`, an existing file is used while every site accepts it, and renewed otherwise.
    The cookies grant access to the sites, so only the files' owner can read them.
    """

    def __init__(
        self,
        sites: Sites,
        browser: Chromium,
        folder: Path,
        *,
        reuse: bool,
        forms: Mapping[str, LoginForm],
    ) -> None:
        self._sites = sites
        self._browser = browser
        self._folder = folder
        self._reuse = reuse
        self._forms = forms

    async def cookies(self, names: tuple[str, ...]) -> Path:
        """Returns the cookie file for these sites (SHOPPING, …). Raises EnvironmentFailedError if a
        site is down or refuses the account.
        """
        path = cookie_file(self._folder, names)
        if self._reuse and path.is_file() and await self._accepted(path, names):
            return path
        from playwright.async_api import Error

        async with self._context() as context:
            for name in sorted(names):
                await self._sign_in(context, name)
            try:
                state = await context.storage_state()
            except Error as error:
                raise EnvironmentFailedError(
                    f"the browser failed after signing in: {error.message.splitlines()[0]}"
                ) from None
        _write(path, json.dumps(state))
        return path

    async def _accepted(self, path: Path, names: tuple[str, ...]) -> bool:
        async with self._context() as context:
            from playwright.async_api import Error

            try:
                await context.add_cookies(
                    json.loads(await asyncio.to_thread(path.read_text, "utf-8"))["cookies"]
                )
            except (Error, ValueError, LookupError, TypeError, AttributeError):
                # The file was not written by this class: treat it as missing.
                return False
            for name in sorted(names):
                if not await self._signed_in(context, name):
                    return False
        return True

    async def _sign_in(self, context: BrowserContext, name: str) -> None:
        from playwright.async_api import Error

        form, account = self._forms[name], self._sites.account(name)
        address = self._sites.address(name)
        with _site_failures(name, address):
            page = await context.new_page()
            await page.goto(_below(address, form.url), wait_until="domcontentloaded")
        try:
            await page.locator(form.user).fill(account.user)
            await page.locator(form.password).fill(account.password)
            async with page.expect_navigation(wait_until="domcontentloaded"):
                if form.button is None:
                    await page.locator(form.password).press("Enter")
                else:
                    await page.locator(form.button).click()
        except Error:
            # Playwright's message could contain the password.
            raise EnvironmentFailedError(
                f"{_named(name, address)} shows no login form that can be submitted; describe its "
                "form with logins, or give a cookie file"
            ) from None
        if not await self._signed_in(context, name):
            raise EnvironmentFailedError(
                f"{_named(name, address)} rejects the account {account.user!r}; set "
                f"{name}_USERNAME and {name}_PASSWORD to an existing account"
            )

    async def _signed_in(self, context: BrowserContext, name: str) -> bool:
        form, address = self._forms[name], self._sites.address(name)
        user = self._sites.account(name).user
        url = _below(address, form.success_url.replace("{user}", user))
        with _site_failures(name, address):
            answer = await context.request.get(url, timeout=_TIMEOUT_MS)
            if form.success_text is not None:
                wanted = form.success_text.replace("{user}", user)
                return answer.ok and wanted in await answer.text()
            return answer.ok and _path(answer.url) == _path(url)

    @contextlib.asynccontextmanager
    async def _context(self) -> AsyncIterator[BrowserContext]:
        from playwright.async_api import Error

        profile = Profile(http_login=self._sites.http_login)
        context = await self._browser.context(*_WINDOW, profile=profile)
        context.set_default_timeout(_TIMEOUT_MS)
        try:
            yield context
        finally:
            # A crashed browser has already closed its contexts.
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await context.close()


@contextlib.contextmanager
def _site_failures(name: str, address: str) -> Iterator[None]:
    from playwright.async_api import Error

    try:
        yield
    except Error as error:
        reason = error.message.splitlines()[0]
        raise EnvironmentFailedError(
            f"{_named(name, address)} does not respond: {reason}"
        ) from None


def cookie_file(folder: Path, names: Iterable[str]) -> Path:
    """Returns the file for the cookies of these sites."""
    return folder / f"{'.'.join(name.lower() for name in sorted(names))}_state.json"


def _below(address: str, path: str) -> str:
    return path if path.startswith(("http://", "https://")) else address + path


def _named(name: str, address: str) -> str:
    return f"the site {name.lower()} at {address}"


def _path(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


def _write(path: Path, text: str) -> None:
    """Writes a file atomically, for its owner only; several environments may renew it at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{secrets.token_hex(4)}.part")
    with os.fdopen(
        os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
    part.replace(path)

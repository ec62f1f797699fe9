"""Signs in to WebArena's sites and keeps the cookies for each combination of sites."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prill.emulators.browser.chromium import Chromium
from prill.emulators.webarena.sites import Sites
from prill.errors import EnvironmentFailedError

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Locator, Page


_WINDOW = (1280, 720)
_CLOSING = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class _Form:
    """A login form, and a page for signed-in users, known by its address or a word on it."""

    page: str
    user: Callable[[Page], Locator]
    password: Callable[[Page], Locator]
    button: Callable[[Page], Locator]
    private: str
    word: str | None = None


_FORMS = {
    "SHOPPING": _Form(
        "/customer/account/login/",
        lambda page: page.get_by_label("Email", exact=True),
        lambda page: page.get_by_label("Password", exact=True),
        lambda page: page.get_by_role("button", name="Sign In"),
        "/wishlist/",
    ),
    "SHOPPING_ADMIN": _Form(
        "",
        lambda page: page.get_by_placeholder("user name"),
        lambda page: page.get_by_placeholder("password"),
        lambda page: page.get_by_role("button", name="Sign in"),
        "/dashboard",
        "Dashboard",
    ),
    "REDDIT": _Form(
        "/login",
        lambda page: page.get_by_label("Username"),
        lambda page: page.get_by_label("Password"),
        lambda page: page.get_by_role("button", name="Log in"),
        "/user/{user}/account",
        "Delete",
    ),
    "GITLAB": _Form(
        "/users/sign_in",
        lambda page: page.get_by_test_id("username-field"),
        lambda page: page.get_by_test_id("password-field"),
        lambda page: page.get_by_test_id("sign-in-button"),
        "/-/profile",
    ),
}


class Logins:
    """The cookie files, one for each combination of sites.

    With `reuse`, an existing file is used while every site accepts it, and renewed otherwise.
    `timeout` limits each request and each page, in seconds. The cookies grant access to the sites,
    so only the files' owner can read them.
    """

    def __init__(
        self, sites: Sites, browser: Chromium, folder: Path, *, reuse: bool, timeout: float = 30.0
    ) -> None:
        self._sites = sites
        self._browser = browser
        self._folder = folder
        self._reuse = reuse
        self._timeout = timeout * 1000

    async def cookies(self, names: tuple[str, ...]) -> Path:
        """Returns the cookie file for these sites (SHOPPING, …). Raises EnvironmentFailedError if a
        site is down or refuses the account.
        """
        path = self._folder / f"{'.'.join(name.lower() for name in sorted(names))}_state.json"
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

        form, account, address = _FORMS[name], self._sites.account(name), self._sites.address(name)
        with _site_failures(name, address):
            page = await context.new_page()
            await page.goto(address + form.page, wait_until="domcontentloaded")
        try:
            await form.user(page).fill(account.user)
            await form.password(page).fill(account.password)
            async with page.expect_navigation(wait_until="domcontentloaded"):
                await form.button(page).click()
        except Error:
            # Playwright's message could contain the password.
            raise EnvironmentFailedError(
                f"{_named(name, address)} shows no login form that can be submitted"
            ) from None
        if not await self._signed_in(context, name):
            raise EnvironmentFailedError(
                f"{_named(name, address)} rejects the account {account.user!r}; set "
                f"{name}_USERNAME and {name}_PASSWORD to an existing account"
            )

    async def _signed_in(self, context: BrowserContext, name: str) -> bool:
        form, address = _FORMS[name], self._sites.address(name)
        url = address + form.private.format(user=self._sites.account(name).user)
        with _site_failures(name, address):
            answer = await context.request.get(url, timeout=self._timeout)
            if form.word is not None:
                return answer.ok and form.word in await answer.text()
            return answer.ok and _path(answer.url) == _path(url)

    @contextlib.asynccontextmanager
    async def _context(self) -> AsyncIterator[BrowserContext]:
        from playwright.async_api import Error

        context = await self._browser.context(*_WINDOW)
        context.set_default_timeout(self._timeout)
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

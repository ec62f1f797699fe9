"""WebArena's sites: URLs, accounts, host names shown to agents, and reset."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from prill.datasets.webarena_tasks import without_login
from prill.emulators.processes import kill
from prill.errors import EnvironmentFailedError, UsageError

# The hosts that agents see and write instead of local addresses: WebArena's table.
PUBLIC = {
    "SHOPPING": "onestopmarket.com",
    "SHOPPING_ADMIN": "luma.com/admin",
    "REDDIT": "reddit.com",
    "GITLAB": "gitlab.com",
    "MAP": "openstreetmap.org",
    "WIKIPEDIA": "wikipedia.org",
    "HOMEPAGE": "homepage.com",
}
# The accounts that the benchmark publishes with its images.
_ACCOUNTS = {
    "SHOPPING": ("emma.lopez@gmail.com", "Password.123"),
    "SHOPPING_ADMIN": ("admin", "admin1234"),
    "REDDIT": ("MarvelsGrantMan136", "test1234"),
    "GITLAB": ("byteblaze", "hello1234"),
}
_PLACEHOLDER = re.compile(r"__([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)__")
_SCHEME = re.compile(r"(?:https?://)?(?:www\.)?", re.IGNORECASE)
_POLL = 0.5
_READY = "Ready for duty!"


@dataclass(frozen=True, slots=True)
class Account:
    """A name and a password, which is never printed."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sites:
    """The sites' addresses by name (SHOPPING, …), without a trailing slash, and their accounts.

    `http_login` are origin, user and password of an address that contained them.
    """

    addresses: Mapping[str, str]
    accounts: Mapping[str, Account]
    http_login: tuple[str, str, str] | None = field(default=None, repr=False)

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, more: Iterable[str] = ()
    ) -> Sites:
        """Reads the variables SHOPPING, SHOPPING_ADMIN, REDDIT, GITLAB, MAP, WIKIPEDIA and HOMEPAGE
        from `environ` (os.environ), and those of `more` sites.

        BrowserGym's names (WA_SHOPPING, …) are used if these are not set. SHOPPING_USERNAME,
        SHOPPING_PASSWORD and so on replace the accounts that the benchmark publishes. A missing
        variable is an error only once a task needs it.
        """
        values = os.environ if environ is None else environ
        names = dict.fromkeys((*PUBLIC, *more))
        addresses, logins = {}, set()
        for name, given in read_addresses(values, names).items():
            address = without_login(given)
            if not address.startswith(("http://", "https://")):
                raise UsageError(
                    f"{name}={address}: expected a URL that starts with http:// or https://"
                )
            addresses[name] = address
            parts = urlsplit(given)
            if parts.username:
                origin = f"{parts.scheme}://{urlsplit(address).netloc}"
                logins.add((origin, unquote(parts.username), unquote(parts.password or "")))
        if len(logins) > 1:
            raise UsageError("HTTP authentication is possible at one site's address only")
        accounts = {}
        for name in names:
            user, password = _ACCOUNTS.get(name, ("", ""))
            user = values.get(f"{name}_USERNAME") or user
            if user:
                accounts[name] = Account(user, values.get(f"{name}_PASSWORD") or password)
        return cls(addresses, accounts, logins.pop() if logins else None)

    def address(self, name: str) -> str:
        """Returns the site's address. Raises UsageError that names a missing variable."""
        if name not in self.addresses:
            raise UsageError(
                f"the site {name.lower()} is needed, but {name} is not set: export {name}=http://…"
            )
        return self.addresses[name]

    def account(self, name: str) -> Account:
        """Returns the account of a site. Raises UsageError for a site without a login."""
        if name not in self.accounts:
            raise UsageError(
                f"the site {name.lower()!r} has no account: set {name}_USERNAME and {name}_PASSWORD"
            )
        return self.accounts[name]

    def real(self, url: str) -> str:
        """Returns the local address for the agent's `url`; placeholders such as __SHOPPING__ are
        replaced.

        Other addresses are unchanged. A public host whose site is not configured becomes an invalid
        host, so that the real site is never visited. Raises UsageError for a placeholder whose site
        is not configured.
        """
        known = {*PUBLIC, *self.addresses}
        url = _PLACEHOLDER.sub(lambda p: self.address(p[1]) if p[1] in known else p[0], url)
        scheme = _SCHEME.match(url)
        bare = url[scheme.end() :] if scheme else url
        for name, host in _longest_first(PUBLIC):
            if (rest := _below(bare, host)) is not None:
                return (
                    self.addresses.get(name, f"http://{name.lower().replace('_', '-')}.invalid")
                    + rest
                )
        return url

    def public(self, url: str) -> str:
        """Converts an address to the public one that agents see; a site that is not WebArena's
        keeps its own.
        """
        url = without_login(url)
        for name, address in _longest_first(self.addresses):
            if name in PUBLIC and (rest := _below(url, address)) is not None:
                return f"http://{PUBLIC[name]}{rest}"
        return url


def read_addresses(values: Mapping[str, str], names: Iterable[str] = PUBLIC) -> dict[str, str]:
    """Returns the addresses that are set, as they are set, by the sites' own names."""
    found = {name: values.get(name) or values.get(f"WA_{name}") or "" for name in names}
    return {name: bare for name, given in found.items() if (bare := given.strip().rstrip("/"))}


def _longest_first(table: Mapping[str, str]) -> list[tuple[str, str]]:
    # The admin site's address may begin with the shop's address.
    return sorted(table.items(), key=lambda pair: -len(pair[1]))


def _below(url: str, start: str) -> str | None:
    """Returns the part after `start`; None for another host, such as onestopmarket.community."""
    rest = url[len(start) :]
    return (
        rest if url.lower().startswith(start.lower()) and (not rest or rest[0] in "/?#") else None
    )


async def reset_sites(
    command: str,
    limit: float,
    secret: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> None:
    """Resets the sites by a command or a reset server's URL, and waits at most `limit` seconds.

    `variables` are environment variables for a command.

    A reset server, such as BrowserGym's, has the URL `http://host:7565/reset`; its /status returns
    `Ready for duty!` once the reset is finished. A server without /status has finished when it
    responds. Raises EnvironmentFailedError; its message contains no text in `secret`, and only the
    host of a URL.
    """
    if command.startswith(("http://", "https://")):
        parts = urlsplit(command)
        server = parts._replace(
            netloc=parts.netloc.rpartition("@")[2], path="", query="", fragment=""
        ).geturl()
        try:
            async with asyncio.timeout(limit):
                await _ask(parts, server)
        except TimeoutError:
            raise EnvironmentFailedError(
                f"the reset at {server} is not finished after {limit:g} s"
            ) from None
    else:
        await _run(command, limit, secret, variables or {})


async def _ask(parts: SplitResult, server: str) -> None:
    import aiohttp

    path = parts.path.rstrip("/") or "/reset"
    status = parts._replace(path=f"{path.rpartition('/')[0]}/status").geturl()
    try:
        # The caller limits the total time; aiohttp's own limit would be five minutes.
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            async with session.get(parts._replace(path=path).geturl()) as answer:
                # 418: BrowserGym's server is already resetting.
                if not (answer.ok or answer.status == 418):
                    raise EnvironmentFailedError(
                        f"the reset at {server} was rejected with status {answer.status}"
                    )
            while True:
                async with session.get(status) as answer:
                    if answer.status == 404 or (answer.ok and _READY in await answer.text()):
                        return
                await asyncio.sleep(_POLL)
    except aiohttp.ClientError as error:
        raise EnvironmentFailedError(
            f"the reset at {server} failed: {type(error).__name__}"
        ) from None


async def _run(
    command: str, limit: float, secret: tuple[str, ...], variables: Mapping[str, str]
) -> None:
    # A file instead of a pipe, because servers started by the command keep its outputs open.
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limit):
                await process.wait()
        except TimeoutError:
            raise EnvironmentFailedError(
                f"the reset command was not finished after {limit:g} s and was killed"
            ) from None
        finally:
            await kill(process)  # with its group, which a shell's processes would survive
        if process.returncode:
            errors.seek(0)
            last = (
                errors.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            )[-1][:200]
            for word in secret:
                last = last.replace(word, "…")
            raise EnvironmentFailedError(
                f"the reset command exited with status {process.returncode}: {last}"
            )

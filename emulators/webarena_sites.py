"""Where WebArena's sites are, who signs in to them, and under which names agents know them (arXiv 2307.13854)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from prill.errors import UsageError

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
_PLACEHOLDER = re.compile(rf"__({'|'.join(PUBLIC)})__")
_SCHEME = re.compile(r"(?:https?://)?(?:www\.)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Account:
    """A name and a password, which is never printed."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sites:
    """Addresses by name (SHOPPING, …), without a slash at the end, and accounts by the same names."""

    addresses: Mapping[str, str]
    accounts: Mapping[str, Account]

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Sites:
        """From the variables SHOPPING, SHOPPING_ADMIN, REDDIT, GITLAB, MAP, WIKIPEDIA and HOMEPAGE of `environ` (os.environ).

        BrowserGym's WA_SHOPPING and so on fill in. SHOPPING_USERNAME, SHOPPING_PASSWORD and so on replace the accounts that
        the benchmark publishes. A variable that is not set is no error before a task needs it.
        """
        values = os.environ if environ is None else environ
        addresses = {}
        for name in PUBLIC:
            if address := (values.get(name) or values.get(f"WA_{name}") or "").strip().rstrip("/"):
                if not address.startswith(("http://", "https://")):
                    raise UsageError(f"{name}={address}: give an address that begins with http:// or https://")
                addresses[name] = address
        accounts = {
            name: Account(values.get(f"{name}_USERNAME") or user, values.get(f"{name}_PASSWORD") or password)
            for name, (user, password) in _ACCOUNTS.items()
        }
        return cls(addresses, accounts)

    def address(self, name: str) -> str:
        """The site's address. Raises UsageError with the name of the variable that is not set."""
        if name not in PUBLIC:
            raise UsageError(f"WebArena has no site {name.lower()!r}; its sites: {', '.join(PUBLIC).lower()}")
        if name not in self.addresses:
            raise UsageError(f"the site {name.lower()} is needed, and {name} is not set: export {name}=http://…")
        return self.addresses[name]

    def account(self, name: str) -> Account:
        """Who signs in there. Raises UsageError for a site without a login."""
        if name not in self.accounts:
            raise UsageError(f"nobody signs in to the site {name.lower()!r}")
        return self.accounts[name]

    def real(self, url: str) -> str:
        """The address that serves what the agent calls `url`; also fills in placeholders such as __SHOPPING__.

        Other addresses stay. A public host whose site is not set leads nowhere, and never to the real thing.
        Raises UsageError for a placeholder whose site is not set.
        """
        url = _PLACEHOLDER.sub(lambda found: self.address(found[1]), url)
        scheme = _SCHEME.match(url)
        bare = url[scheme.end() :] if scheme else url
        for name, host in _longest_first(PUBLIC):
            if (rest := _below(bare, host)) is not None:
                return self.addresses.get(name, f"http://{name.lower().replace('_', '-')}.invalid") + rest
        return url

    def shown(self, url: str) -> str:
        """The address as agents know it."""
        for name, address in _longest_first(self.addresses):
            if (rest := _below(url, address)) is not None:
                return f"http://{PUBLIC[name]}{rest}"
        return url


def _longest_first(table: Mapping[str, str]) -> list[tuple[str, str]]:
    # The admin side may lie below the shop's own address.
    return sorted(table.items(), key=lambda pair: -len(pair[1]))


def _below(url: str, start: str) -> str | None:
    """What follows `start`; None when the url only looks alike, such as onestopmarket.community."""
    rest = url[len(start) :]
    return rest if url.lower().startswith(start.lower()) and (not rest or rest[0] in "/?#") else None

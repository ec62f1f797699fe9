r"""WebArena's url_match: the address that the agent ended on, compared with references (arXiv 2307.13854).

There is one rule, "GOLD in PRED". `paper` compares as the original code does. `fixed` mends these known defects:

| reference              | address                  | paper | fixed | why |
|------------------------|--------------------------|-------|-------|-----|
| http://x/              | http://x/p/1             | yes   | no    | host and path were looked for as a piece of text |
| http://x/p/1           | http://x/p/10            | yes   | no    | the same |
| http://x/f/DIY         | http://x/f/diy           | no    | yes   | the references spell the same forum in both ways |
| http://x/s/?q=a        | http://x/s?q=a           | no    | yes   | a slash was taken off only at the very end |
| /s?q=a%20 (a blank)    | /s?q=A                   | no    | yes   | blanks around a value, and small and capital letters |
| /a?q=1 \|OR\| /b?q=2   | /a?q=2                   | yes   | no    | the values of all alternatives were put together |
| /a?t=1&t=2             | /a?t=1                   | yes   | no    | one of several values was enough |

In both, an address below a path passes (http://x/f/books accepts http://x/f/books/12/title): tasks that create
something rely on it. Parts behind # are not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from urllib.parse import parse_qs, unquote, urlparse, urlsplit

from prill.datasets.webarena_tasks import TaskConfig
from prill.evaluators.oracle_checks import Check, Mode, Undecidable, require_sites

RULE = "GOLD in PRED"
_OR, _TAB = " |OR| ", " |AND| "


def check_url(config: TaskConfig, url: str | None, mode: Mode, hosts: Collection[str] | None = None) -> Check:
    """The check of the last address; undecided when there is none, or when it fails on a host that is none of `hosts`."""
    wanted = config.eval.reference_url or ""
    if config.eval.url_note not in (None, RULE):
        return Check(None, f"url_match: the rule {config.eval.url_note!r} is not known")
    if url is None:
        return Check(None, "url_match: the last address was not recorded")
    try:
        require_sites(wanted)
        passed = url_matches(wanted, url, mode)
        if not passed and hosts is not None and (host := _host(url)) and host not in hosts:
            return Check(None, f"url_match: {url} cannot be compared: no task names the host {host}")
        return Check(passed, f"url_match: {url} does not match {wanted}")
    except (ValueError, Undecidable) as error:
        return Check(None, f"url_match: {url} cannot be compared with {wanted} ({error})")


def url_matches(reference: str, url: str, mode: Mode) -> bool:
    """Whether the address matches one of the references, which " |OR| " separates. Raises ValueError when one is broken."""
    references = [one.rstrip("/") for one in reference.split(_OR)]
    if mode == "fixed":
        return any(_matches_fixed(one, url) for one in references)
    place, query = _parts(url.rstrip("/"))
    wanted: dict[str, set[str]] = defaultdict(set)
    places = []
    for one in references:
        base, values = _parts(one)
        places.append(base)
        for key, found in values.items():
            wanted[key].update(found)
    return any(base in place for base in places) and all(
        any(value in query.get(key, ()) for value in values) for key, values in wanted.items()
    )


def hosts(configs: Iterable[TaskConfig]) -> frozenset[str]:
    """Those of the sites that the tasks name, with their ports."""
    urls = [url for config in configs for url in (*config.start_url.split(_TAB), *(config.eval.reference_url or "").split(_OR))]
    return frozenset(map(_host, urls)) - {""}


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _parts(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlparse(url)
    return parts.netloc + parts.path, parse_qs(parts.query)


def _matches_fixed(reference: str, url: str) -> bool:
    wanted, found = urlsplit(reference), urlsplit(url)
    if not wanted.netloc:
        raise ValueError("the reference has no host")
    if wanted.netloc.lower() != found.netloc.lower():
        return False
    path, there = _segments(wanted.path), _segments(found.path)
    if there[: len(path)] != path or (not path and there):
        return False
    values = _values(found.query)
    return all(expected <= values.get(key, set()) for key, expected in _values(wanted.query).items())


def _segments(path: str) -> list[str]:
    return [unquote(part).lower() for part in path.split("/") if part]


def _values(query: str) -> dict[str, set[str]]:
    return {key: {" ".join(value.split()).lower() for value in values} for key, values in parse_qs(query).items()}

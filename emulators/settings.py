"""The interface between an environment's configuration and the run that uses it.

Each environment has a configuration in its own package, with its tasks and all its options.
`EnvironmentConfig.read` finds it by name; `module:Object` and `file.py:Object` are user-defined
environments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

from msgspec import Meta

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
    "webarena-infinity": "prill.emulators.webarena_infinity.config:WebArenaInfinityConfig",
    "airline": "prill.papers.step.airline.environment:AirlineConfig",
    "web": "prill.emulators.browser.config:WebConfig",
    "browsergym": "prill.emulators.browsergym.environment:BrowserGymConfig",
    "mind2web": "prill.papers.mind2web.environment:Mind2WebConfig",
    "android": "prill.emulators.android.environment:AndroidConfig",
    "ios": "prill.emulators.ios.environment:IosConfig",
}
_OWN = "prill.emulators.own:OwnEnvironmentConfig"
TimeoutOption = Annotated[
    float, Meta(gt=0, description="Timeout of a reset or a step, in seconds.")
]
AppiumOption = Annotated[str, Meta(description="URL of the Appium server.")]
IdleOption = Annotated[float, Meta(ge=0, description="Seconds that the action `wait` takes.")]


def broken_label(trajectory: Trajectory) -> LabelRecord:
    """Returns the oracle's label of an episode that ended with an error: undecided."""
    return LabelRecord(id=trajectory.id, success=None, source="oracle", note="ended with an error")


async def nothing() -> None:
    """Does nothing: the default cleanup of settings without shared resources."""


@dataclass(frozen=True)
class Setting(Generic[E]):
    """The environments of a run, one per worker, with its task names and a function that makes a
    task from a name and a seed.

    `oracle` labels an episode from the current state of its environment. `fingerprint`
    distinguishes this setting from others, and `contents` a task from others of the same name. An
    environment that fails to start `patience` times in a row counts as broken; the default is high,
    because a site may be down for a while. `leftovers` says why an episode may see changes of an
    earlier one; None: each starts in a fresh state. `templates` has the number of a task's
    template, if any, and `sites` the site of a task, if tasks are on several. `needs` has the
    resources that a task needs exclusively while other workers play.
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
    """Settings that a run passes to its environment.

    Attributes:
        images: The folder for screenshots.
        workers: Episodes at a time; None: as many as there are devices, else one.
        seeds: The seeds to play.
        attempts: The number of attempts per task and seed.
        scripted: Whether the scripted policy plays, which knows the tasks.
        listed: Whether a plan lists the episodes, so that no tasks need to be named.
        published: Whether the policy is the agent of a paper.
        page_text: The policy's format of page text, if there are several.
        marking: How the policy's paper marks recorded steps.
        model: Makes the model of an oracle.
    """

    images: Path
    workers: int | None = None
    seeds: Sequence[int] = (0,)
    attempts: int = 1
    scripted: bool = False
    listed: bool = False
    published: bool = False
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
        play: Makes the policy for a task, a seed and a behaviour.
        behaviours: The available behaviours.
        plays: The tasks with a solution; None: all.
        where: The environment's name in messages.
    """

    play: Callable[[str, int, str], Policy]
    behaviours: tuple[str, ...]
    plays: frozenset[str] | None = None
    where: str = "there"


@dataclass(frozen=True, kw_only=True)
class EnvironmentConfig(Config, ABC):
    """The base class of environment configurations, with the tasks of a run.

    A name, or a table such as `{name = "miniwob", tasks = "click-link"}`, describes one.
    """

    name: ClassVar[str] = ""
    platform: ClassVar[Platform] = "web"
    usual_policy: ClassVar[str | None] = None
    usual_steps: ClassVar[int] = 30
    stops_early: ClassVar[bool] = True
    # Options that identify episodes under their own names; other options are included as text if
    # they differ from their defaults.
    _identifying: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def chosen(cls, name: str) -> type[EnvironmentConfig]:
        """Returns the configuration class of an environment.

        Args:
            name: The name; a name that is not prill's is a user-defined environment.
        """
        found: type[EnvironmentConfig] = load_object(_CONFIGS.get(name, _OWN))
        return found

    @classmethod
    def options_named(cls, name: str) -> Mapping[str, Option]:
        """Returns the options of an environment.

        Returns:
            All options, including those that select its tasks.

        Raises:
            UsageError: There is no such environment.
        """
        if cls is EnvironmentConfig:
            return cls.chosen(name).options_named(name)
        return config_options(cls)

    @classmethod
    def read(cls, value: Any, path: str = "") -> Self:
        """Makes a configuration from a name or a table; an existing configuration is returned
        unchanged.

        Args:
            value: A name, a table with `name`, or a configuration.
            path: The key of the value, for messages.

        Returns:
            The configuration, of the environment's own class.

        Raises:
            OptionError: A key is unknown, missing, or has an invalid value.
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
        """Converts a table to the fields of the configuration."""
        return {key: inner for key, inner in table.items() if key != "name"}

    def table(self) -> dict[str, Any]:
        """Returns the configuration as a TOML table."""
        return {"name": self.name, **super().table()}

    @abstractmethod
    def setting(self, run: Playing) -> Setting[Any]:
        """Creates the environments of a run.

        Args:
            run: The settings of the run.

        Returns:
            The environments with their tasks, which the caller has to close.

        Raises:
            UsageError: Options contradict each other, or a requirement is missing on this machine.
        """

    def scripts(self) -> Scripts | None:
        """Returns the solutions for the policy `scripted`.

        Returns:
            The solutions; None: the policy has its own solutions for this environment.

        Raises:
            UsageError: There are no solutions.
        """
        raise UsageError(
            "the scripted policy only solves MiniWoB++, the airline and the local shop; "
            "choose another policy",
            parameters=("policy",),
        )

    def types(self) -> Literal["replace", "append"]:
        """Returns whether typing replaces what a field holds or appends to it, for prompts."""
        return "replace"

    def known_sites(self) -> str:
        """Returns the list of sites for an agent's prompt, as text."""
        return ""

    def more(self) -> dict[str, Any]:
        """Returns the fingerprint's remaining options as text, where they are not the default."""
        options = config_options(type(self))
        values = {name: getattr(self, name) for name in options if name not in self._identifying}
        return {
            name: as_text(value) for name, value in values.items() if value != options[name].default
        }


EnvironmentLike = EnvironmentConfig | str | Mapping[str, Any]


def as_text(value: Any) -> Any:
    """Converts an option to its form in episode ids: as on the command line; lists unchanged."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.15g}"
    return str(value) if isinstance(value, Path) else plain(value)

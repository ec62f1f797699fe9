"""User-defined environments (`module:Object`, `file.py:Object`) and environments of other
packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, get_args

from msgspec import Meta

from prill.config.registry import Option, OptionError, list_options
from prill.config.values import config_options, plain
from prill.emulators.registry import ENVIRONMENTS, make_environment
from prill.emulators.settings import Playing, Setting, as_text
from prill.emulators.task_source import GoalsConfig
from prill.errors import UsageError
from prill.types import LabelRecord, Platform, Trajectory

# Parameters that the run supplies.
_FILLED = ("images",)


@dataclass(frozen=True, kw_only=True)
class OwnEnvironmentConfig(GoalsConfig):
    """Your own environment: `OwnEnvironmentConfig(name="mine.py:Shop", goal=["one", "two"])`.

    In tables and on the command line, its options are next to `tasks` and `goal`.
    """

    name: Annotated[str, Meta(description="module:Object or file.py:Object.")]  # type: ignore[misc]
    options: Annotated[Mapping[str, Any], Meta(description="Options of the environment.")] = field(
        default_factory=dict
    )
    platform: ClassVar[Platform] = "other"

    def __hash__(self) -> int:
        return hash((self.name, self.tasks, self.goal, self.start_url))

    @classmethod
    def options_named(cls, name: str) -> Mapping[str, Option]:
        """Returns the options of an environment.

        Args:
            name: `module:Object`, `file.py:Object`, or the name of another package's environment.

        Returns:
            The environment's own options, and those that select its tasks.

        Raises:
            UsageError: There is no such environment.
        """
        common = {
            key: option
            for key, option in config_options(cls).items()
            if key not in ("name", "options")
        }
        return {**{key: one for key, one in _options(name).items() if key not in common}, **common}

    @classmethod
    def _fields(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        fields = config_options(cls)
        values = {str(key).replace("-", "_"): inner for key, inner in table.items()}
        own = {key: inner for key, inner in values.items() if key not in fields}
        known = {key: inner for key, inner in values.items() if key in fields}
        options = known.get("options", {})
        return {**known, "options": {**options, **own} if isinstance(options, Mapping) else options}

    def table(self) -> dict[str, Any]:
        """Returns the configuration as a TOML table."""
        table = super().table()
        options = table.pop("options", {})
        return {**table, **plain(options)}

    def setting(self, run: Playing) -> Setting[Any]:
        """Creates an environment for each worker."""
        try:
            environments: list[Any] = [
                make_environment(self.name, images=run.images, **self.options)
                for _ in range(run.copies)
            ]
        except OptionError as error:
            raise OptionError(f"environment.{error}", error.option) from None
        if len({id(environment) for environment in environments}) < len(environments):
            raise UsageError(
                f"{self.name} is an environment object, but every worker needs an "
                "environment of its own; give a class"
            )
        platform: Platform = getattr(environments[0], "platform", "other")
        if platform not in get_args(Platform):
            raise UsageError(
                f"{self.name} has the platform {platform!r}; expected one of "
                f"{', '.join(get_args(Platform))}"
            )
        return self.goal_setting(
            environments,
            platform,
            {key: as_text(value) for key, value in self.options.items()},
            oracle=_grade if hasattr(environments[0], "grade") else None,
            patience=3,
            leftovers=getattr(environments[0], "leftovers", None),
        )


def _options(name: str) -> Mapping[str, Option]:
    return {
        key: option
        for key, option in list_options(ENVIRONMENTS.maker(name)).items()
        if key not in _FILLED
    }


async def _grade(environment: Any, trajectory: Trajectory) -> LabelRecord:
    label: LabelRecord = await environment.grade(trajectory)
    return label

"""The registry of engines that execute shards elsewhere, such as Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prill.config.registry import (
    Option,
    OptionError,
    Registry,
    RegistryEntry,
    list_options,
    read_options,
)
from prill.config.toml import read_table
from prill.config.values import PartConfig
from prill.errors import UsageError
from prill.protocols import Engine

ENGINES = Registry(
    "engine",
    {
        "ray": RegistryEntry(
            "Ray, on this machine or on a cluster", "prill.scoring.ray_tasks:RayEngine"
        )
    },
    "prill.engines",
)


class EngineConfig(PartConfig):
    """An engine by name, with its options: `EngineConfig("ray", workers=8)`."""

    __slots__ = ()
    kind = "engine"

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the engine that a table names; for a file, it contains them
        all.
        """
        name = str(table.get("name"))
        return {} if name.endswith((".toml", ".json")) else list_options(ENGINES.maker(name))


EngineLike = EngineConfig | str | Mapping[str, Any] | Engine


def make_engine(engine: EngineLike, *, lax: bool = False, **options: Any) -> Engine:
    """Makes an engine.

    `engine` is a name (or `module:Object`, `file.py:Object`), a table `{name = "ray", …}`, a .toml
    or .json file with such a table, or an engine, which is returned unchanged. `lax` is as in
    `prill.config.registry.read_options`. Raises UsageError.
    """
    place = ""
    if isinstance(engine, EngineConfig):
        options = {**engine.options, **options}
        engine = engine.name
    if isinstance(engine, str) and engine.endswith((".toml", ".json")):
        engine, place = read_table(engine), f"{engine}: "
    if isinstance(engine, str):
        engine = {"name": engine}
    if not isinstance(engine, Mapping):
        if options:
            raise UsageError(
                f"an engine object takes no options ({', '.join(options)})",
                parameters=("engine",),
            )
        return engine
    table = dict(engine)
    name = table.pop("name", None)
    if not isinstance(name, str) or not name:
        raise OptionError(
            f"{place}name is missing; name the engine: {', '.join(ENGINES.entries)} or "
            "module:Object",
            "engine",
        )
    maker = ENGINES.maker(name)
    made: Engine = maker(
        **read_options(maker, {**table, **options}, f"engine {name!r}", place=place, lax=lax)
    )
    if not (hasattr(made, "start") and hasattr(made, "run") and hasattr(made, "close")):
        raise UsageError(
            f"{place}{name} returned a {type(made).__name__}; an engine has the methods "
            "start, run and close"
        )
    return made

"""The registry of engines that execute shards elsewhere, such as Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from prill.config.registry import Option, Registry, RegistryEntry
from prill.config.toml import read_table
from prill.config.values import PartConfig
from prill.protocols import Engine

ENGINES = Registry(
    "engine",
    {
        "ray": RegistryEntry(
            "Ray, on this machine or on a cluster", "prill.scoring.ray_tasks:RayEngine"
        )
    },
    "prill.engines",
    ("start", "run", "close"),
)


class EngineConfig(PartConfig):
    """An engine by name, with its options: `EngineConfig("ray", workers=8)`."""

    __slots__ = ()
    kind = "engine"
    registry = ENGINES

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the engine that a table names; for a file, it contains them
        all.
        """
        name = str(table.get("name"))
        return {} if name.endswith((".toml", ".json")) else super().options_for(table)


EngineLike = EngineConfig | str | Mapping[str, Any] | Engine
EngineOption = Annotated[
    EngineLike | None,
    Meta(description="ray: run on the workers of a Ray cluster or, without one, of this machine."),
]


def make_engine(engine: EngineLike, **options: Any) -> Engine:
    """Makes an engine.

    `engine` is a name (or `module:Object`, `file.py:Object`), a table `{name = "ray", …}`, a .toml
    or .json file with such a table, or an engine, which is returned unchanged. Raises
    UsageError.
    """
    place = ""
    if isinstance(engine, str) and engine.endswith((".toml", ".json")):
        place, engine = f"{engine}: ", read_table(engine)
    named, options = EngineConfig.described(engine, options, f"{place}engine")
    if not isinstance(named, str):
        return named  # type: ignore[no-any-return]
    return ENGINES.make(named, options, place=place, prefix=place)  # type: ignore[no-any-return]

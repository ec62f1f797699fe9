"""The registry of engines, whose workers judge elsewhere, such as Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from prill.config.registry import Registry, RegistryEntry
from prill.config.values import PartConfig
from prill.protocols import Engine

ENGINES = Registry(
    "engine",
    {
        "ray": RegistryEntry(
            "Ray, on this machine or on a cluster", "prill.work.ray_tasks:RayEngine"
        )
    },
    "prill.engines",
    ("start", "call", "close"),
)


class EngineConfig(PartConfig):
    """An engine by name, with its options: `EngineConfig("ray", workers=8)`."""

    __slots__ = ()
    kind = "engine"
    registry = ENGINES


EngineLike = EngineConfig | str | Mapping[str, Any] | Engine
EngineOption = Annotated[
    EngineLike | None,
    Meta(description="ray: run on the workers of a Ray cluster or, without one, of this machine."),
]


def make_engine(engine: EngineLike, **options: Any) -> Engine:
    """Makes an engine.

    `engine` is a name (or `module:Object`, `file.py:Object`), a table `{name = "ray", …}`, or an
    engine, which is returned unchanged. Raises UsageError.
    """
    named, options = EngineConfig.described(engine, options, "engine")
    if not isinstance(named, str):
        return named  # type: ignore[no-any-return]
    return ENGINES.make(named, options)  # type: ignore[no-any-return]
